//go:build linux && (amd64 || arm64)

package main

import (
	"syscall"
	"unsafe"
)

// atCwd is AT_FDCWD.
const atCwd = ^uintptr(99)

// sigaction is the kernel's struct sigaction: handler, flags, restorer, mask. Handler 0 is SIG_DFL.
type sigaction [4]uintptr

// ptr is for arguments of system calls: nothing here is ever moved.
func ptr[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

// sys is a system call; failures are failed(result).
func sys(number, a, b, c uintptr) uintptr { return sys6(number, a, b, c, 0, 0, 0) }

func sys6(number, a, b, c, d, e, f uintptr) uintptr {
	result, _, errno := syscall.RawSyscall6(number, a, b, c, d, e, f)
	if errno != 0 {
		return -uintptr(errno)
	}
	return result
}

func failed(result uintptr) bool { return result > ^uintptr(4095) }

func errno(result uintptr) syscall.Errno {
	if failed(result) {
		return syscall.Errno(-result)
	}
	return 0
}

// now is the wall clock in nanoseconds.
func now() int64 {
	var t syscall.Timespec
	sys(syscall.SYS_CLOCK_GETTIME, 0 /* CLOCK_REALTIME */, ptr(&t), 0)
	return t.Sec*1e9 + t.Nsec
}

func closeFd(fd *int) {
	if *fd >= 0 {
		sys(syscall.SYS_CLOSE, uintptr(*fd), 0, 0)
	}
	*fd = -1
}

// say writes to standard error.
func say(text string) { sys(syscall.SYS_WRITE, 2, ptr(unsafe.StringData(text)), uintptr(len(text))) }

func fail(why string) {
	say("synclab's shim: ")
	say(why)
	say("\n")
	sys(syscall.SYS_EXIT_GROUP, exitCannot, 0, 0)
}

// length of a C string.
func length(s *byte) int {
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(s), n)) != 0 {
		n++
	}
	return n
}

func text(s *byte) string { return unsafe.String(s, length(s)) }

func lastSlash(s []byte) int {
	for i := len(s) - 1; i > 0; i-- {
		if s[i] == '/' {
			return i
		}
	}
	return 0
}

func hasSuffix(s []byte, suffix string) bool {
	return len(s) >= len(suffix) && string(s[len(s)-len(suffix):]) == suffix
}
