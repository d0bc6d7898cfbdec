//go:build linux && (amd64 || arm64)

package main

import (
	"syscall"
	"unsafe"
)

// Kinds of fault: the first letter of the file in ROOT/faults, one file a call. Failing comes before killing, and both
// before refusing (refuse.go).
const (
	faultFail = "fail" // exit status 1 before anything is read
	faultKill = "kill" // SIGKILL as soon as the tool runs
)

var entries [8192]byte

// takeFault takes a file of ROOT/faults. Of calls at the same time one takes it: a file can be unlinked once.
func takeFault() {
	place("faults", nil)
	folder := sys6(syscall.SYS_OPENAT, atCwd, ptr(&path[0]), syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0, 0, 0)
	if failed(folder) {
		return // none was ever planted
	}
	if spared() {
		sys(syscall.SYS_CLOSE, folder, 0, 0)
		return
	}
	n := sys(syscall.SYS_GETDENTS64, folder, ptr(&entries[0]), uintptr(len(entries)))
	if !failed(n) {
		takeOne(folder, int(n), faultFail)
		if call.fault == "" {
			takeOne(folder, int(n), faultKill)
		}
		if call.fault == "" {
			readTexts(folder, int(n))
		}
	}
	sys(syscall.SYS_CLOSE, folder, 0, 0)
}

// spared says whether faults leave the tool's family alone: ROOT/spare-ip6tables is there for ip6tables-restore.
func spared() bool {
	family := 0
	for family < len(call.name) && call.name[family] != '-' {
		family++
	}
	place("spare-", call.name[:family])
	return !failed(sys(syscall.SYS_FACCESSAT, atCwd, ptr(&path[0]), 0))
}

// takeOne goes through struct linux_dirent64.
func takeOne(folder uintptr, n int, kind string) {
	const lengthAt, nameAt = 16, 19
	for at := 0; at+nameAt < n; {
		size := int(*(*uint16)(unsafe.Pointer(&entries[at+lengthAt])))
		if size == 0 {
			return
		}
		name := &entries[at+nameAt]
		if *name == kind[0] && !failed(sys(syscall.SYS_UNLINKAT, folder, ptr(name), 0)) {
			call.fault = kind
			return
		}
		at += size
	}
}
