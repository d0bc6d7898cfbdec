#include "textflag.h"

// The process starts here, not in the Go runtime (see main.go). The kernel left argc, argv and envp on the stack.
TEXT ·start(SB),NOSPLIT|NOFRAME|TOPFRAME,$0
	MOVD	RSP, R0
	MOVD	R0, ·initial(SB)
	MOVD	$·noG(SB), g
	CALL	·run(SB)
	BRK	$0

// func clone(flags, stack uintptr) (pid uintptr)
TEXT ·clone(SB),NOSPLIT,$0-24
	MOVD	flags+0(FP), R0
	MOVD	stack+8(FP), R1
	MOVD	$0, R2
	MOVD	$0, R3
	MOVD	$0, R4
	MOVD	$220, R8		// clone
	SVC
	CBZ	R0, child
	MOVD	R0, pid+16(FP)
	RET
child:
	CALL	·become(SB)
	BRK	$0
