#include "textflag.h"

// The process starts here, not in the Go runtime (see main.go). The kernel left argc, argv and envp on the stack.
TEXT ·start(SB),NOSPLIT|NOFRAME|TOPFRAME,$0
	MOVQ	SP, ·initial(SB)
	ANDQ	$~15, SP
	// Go code looks for its g in the thread-local word below the FS base.
	MOVQ	$158, AX		// arch_prctl
	MOVQ	$0x1002, DI		// ARCH_SET_FS
	LEAQ	·local+8(SB), SI
	SYSCALL
	LEAQ	·noG(SB), R14
	MOVQ	R14, ·local(SB)
	CALL	·run(SB)
	INT	$3

// func clone(flags, stack uintptr) (pid uintptr)
TEXT ·clone(SB),NOSPLIT,$0-24
	MOVQ	flags+0(FP), DI
	MOVQ	stack+8(FP), SI
	MOVQ	$0, DX
	MOVQ	$0, R10
	MOVQ	$0, R8
	MOVQ	$56, AX			// clone
	SYSCALL
	TESTQ	AX, AX
	JZ	child
	MOVQ	AX, pid+16(FP)
	RET
child:
	CALL	·become(SB)
	INT	$3
