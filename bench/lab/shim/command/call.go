//go:build linux && (amd64 || arm64)

package main

import (
	"syscall"
	"unsafe"
)

// How this program fails by itself: as a shell does for a command that it cannot run.
const exitCannot = 127

const sigChild, sigPipe, sigKill = uint(syscall.SIGCHLD), uint(syscall.SIGPIPE), uint(syscall.SIGKILL)

// forwarded are the signals that are handed on to the tool. Stop signals from the terminal reach both by themselves.
const forwarded = 1<<(syscall.SIGHUP-1) | 1<<(syscall.SIGINT-1) | 1<<(syscall.SIGQUIT-1) | 1<<(syscall.SIGTERM-1) |
	1<<(syscall.SIGUSR1-1) | 1<<(syscall.SIGUSR2-1) | 1<<(syscall.SIGALRM-1) | 1<<(syscall.SIGWINCH-1)

// call is the one call that this process is about.
var call struct {
	args          []*byte   // with the name that the caller gave
	env           **byte    // up to nil
	name          []byte    // of the tool, as in ROOT/bin
	program       *byte     // what is run: the tool, or its loader
	argv          **byte    // what the program gets
	fault         string    // that was taken
	self          uintptr   // pid
	mask          uint64    // signal mask at the start: the tool's
	chld          sigaction // what SIGCHLD did at the start: the tool's
	stdin, stdout flow

	pid        uintptr // of the tool
	start, end int64   // ns since 1970
	status     uint32  // as wait4 has it
	used       syscall.Rusage
}

// Paths, each with a 0 at its end.
var (
	self   [4096]byte     // the program's own place
	target [4096]byte     // the tool's
	loader [4096]byte     // the loader's, of a tool of another system
	libs   [4096]byte     // its folders of libraries
	loaded [1024]*byte    // its arguments
	path   [4096]byte     // any other
	root   int            // length of ROOT/ in self
	stack  [64 << 10]byte // of the child until it becomes the tool
	signal [128]byte      // struct signalfd_siginfo
)

// run is the program.
func run() {
	argc := *(*int)(initial)
	argv := (**byte)(unsafe.Add(initial, 8))
	call.args = unsafe.Slice(argv, argc)
	call.argv = argv
	call.env = (**byte)(unsafe.Add(initial, 8*(argc+2)))
	call.self = sys(syscall.SYS_GETPID, 0, 0, 0)
	findTool()

	// One descriptor reports every signal. Broken pipes show as errors of splice.
	watched := uint64(forwarded | 1<<(sigChild-1))
	blocked := watched | 1<<(sigPipe-1)
	sys6(syscall.SYS_RT_SIGPROCMASK, 0 /* SIG_BLOCK */, ptr(&blocked), ptr(&call.mask), 8, 0, 0)
	sys6(syscall.SYS_RT_SIGACTION, uintptr(sigChild), 0, ptr(&call.chld), 8, 0, 0)
	if call.chld[0] != 0 { // who ignores SIGCHLD cannot wait
		var none sigaction
		sys6(syscall.SYS_RT_SIGACTION, uintptr(sigChild), ptr(&none), 0, 8, 0, 0)
	}
	if restores() {
		takeFault()
		openKept()
	}
	call.start = now()
	if textCount > 0 || kept >= 0 {
		examineInput()
	}
	if call.fault == faultFail || call.fault == faultRefuse && !tablesBefore {
		call.end, call.status = now(), 1<<8
		if call.fault == faultFail {
			say("synclab: this call fails because a fault was planted\n")
		}
		report()
		exit()
	}
	prepareFlows()
	call.start = now()
	spawn()
	if call.fault == faultKill {
		sys(syscall.SYS_KILL, call.pid, uintptr(sigKill), 0)
	}
	signals := sys6(syscall.SYS_SIGNALFD4, ^uintptr(0), ptr(&watched), 8, syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0, 0)
	accompany(int(signals))
	if call.fault == faultRefuse && call.status == 0 {
		call.status = 1 << 8
	}
	report()
	exit()
}

// findTool reads where this program is and which tool stands behind it.
func findTool() {
	n := int(sys6(syscall.SYS_READLINKAT, atCwd, ptr(unsafe.StringData("/proc/self/exe\x00")), ptr(&self[0]), uintptr(len(self)-1), 0, 0))
	slash := 0
	if n > 0 {
		slash = lastSlash(self[:n])
	}
	if slash == 0 {
		fail("cannot tell where it is: /proc/self/exe")
	}
	call.name = self[slash+1 : n]
	root = lastSlash(self[:slash]) + 1
	place("real/", call.name)
	if n = readLink(&target); n <= 0 {
		fail("it was not told which tool stands behind it: ../real")
	}
	// The tools of iptables are one program that looks at the name it is called by.
	if len(call.args) > 0 {
		call.args[0] = &target[lastSlash(target[:n])+1]
	}
	call.program = &target[0]
	place("loader/", call.name)
	if readLink(&loader) > 0 {
		load()
	}
}

// load makes the loader run the tool, with libraries of its system.
func load() {
	place("libraries", nil)
	if readLink(&libs) <= 0 || len(call.args) == 0 || len(call.args)+4 > len(loaded) {
		fail("it cannot run the loader: ../libraries, or too many arguments")
	}
	loaded[0] = call.args[0]
	loaded[1] = unsafe.StringData("--library-path\x00")
	loaded[2] = &libs[0]
	loaded[3] = &target[0]
	copy(loaded[4:], call.args[1:])
	call.program, call.argv = &loader[0], &loaded[0]
}

// readLink reads the link at path.
func readLink(into *[4096]byte) int {
	return int(sys6(syscall.SYS_READLINKAT, atCwd, ptr(&path[0]), ptr(&into[0]), uintptr(len(into)-1), 0, 0))
}

// place writes ROOT/, folder and name to path.
func place(folder string, name []byte) {
	n := copy(path[:], self[:root])
	n += copy(path[n:], folder)
	n += copy(path[n:len(path)-1], name)
	path[n] = 0
}

// spawn starts the tool. The child shares our memory until it is the tool: nothing of ours is copied for it, and
// its peak memory is not ours.
func spawn() {
	const flags = syscall.CLONE_VM | syscall.CLONE_VFORK | uintptr(syscall.SIGCHLD)
	top := (ptr(&stack[0]) + uintptr(len(stack))) &^ 15
	call.pid = clone(flags, top)
	if failed(call.pid) {
		fail("cannot start a process")
	}
	closeChildEnds()
}

// become is the child, on a stack of its own, until it is the tool.
func become() {
	sys(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(sigKill), 0)
	if sys(syscall.SYS_GETPPID, 0, 0, 0) != call.self { // too late
		sys(syscall.SYS_EXIT_GROUP, exitCannot, 0, 0)
	}
	connectFlows()
	if call.chld[0] != 0 {
		sys6(syscall.SYS_RT_SIGACTION, uintptr(sigChild), ptr(&call.chld), 0, 8, 0, 0)
	}
	sys6(syscall.SYS_RT_SIGPROCMASK, 2 /* SIG_SETMASK */, ptr(&call.mask), 0, 8, 0, 0)
	sys(syscall.SYS_EXECVE, ptr(call.program), ptr(call.argv), ptr(call.env))
	fail("cannot run the tool behind it")
}

// accompany copies and forwards until the tool has ended.
func accompany(signals int) {
	for ended := false; !ended; {
		wait(signals)
		call.stdin.move()
		call.stdout.move()
		for sys(syscall.SYS_READ, uintptr(signals), ptr(&signal[0]), uintptr(len(signal))) == uintptr(len(signal)) {
			number := uint(*(*uint32)(unsafe.Pointer(&signal[0])))
			if number != sigChild {
				sys(syscall.SYS_KILL, call.pid, uintptr(number), 0)
				continue
			}
			const noHang = 1
			pid := sys6(syscall.SYS_WAIT4, call.pid, ptr(&call.status), noHang, ptr(&call.used), 0, 0)
			ended = ended || pid == call.pid
		}
	}
	call.end = now()
	call.stdout.drain()
}

// exit ends as the tool ended.
func exit() {
	number := uintptr(call.status & 0x7f)
	if number == 0 {
		sys(syscall.SYS_EXIT_GROUP, uintptr(call.status>>8&0xff), 0, 0)
	}
	var none sigaction
	var noCore [2]uint64 // the tool left one if it wanted to
	var open uint64
	sys6(syscall.SYS_PRLIMIT64, 0, syscall.RLIMIT_CORE, ptr(&noCore), 0, 0, 0)
	sys6(syscall.SYS_RT_SIGACTION, number, ptr(&none), 0, 8, 0, 0)
	sys6(syscall.SYS_RT_SIGPROCMASK, 2 /* SIG_SETMASK */, ptr(&open), 0, 8, 0, 0)
	sys(syscall.SYS_KILL, call.self, number, 0)
	sys(syscall.SYS_EXIT_GROUP, 128+number, 0, 0)
}
