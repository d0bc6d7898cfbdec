//go:build linux && (amd64 || arm64)

package main

import (
	"syscall"
	"unsafe"
)

// A file of ROOT/faults that begins with r holds a text: a call that writes rules and is given this text fails as the tool
// does when the kernel refuses what a line says. It stays until it is deleted.
const faultRefuse = "refuse"

// texts are what is refused, one after the other.
var (
	texts     [4096]byte
	textEnds  [16]int
	textCount int
)

var copied [64 << 10]byte

// readTexts goes through struct linux_dirent64, as takeOne does.
func readTexts(folder uintptr, n int) {
	const lengthAt, nameAt = 16, 19
	for at := 0; at+nameAt < n && textCount < len(textEnds); {
		size := int(*(*uint16)(unsafe.Pointer(&entries[at+lengthAt])))
		if size == 0 {
			return
		}
		if name := &entries[at+nameAt]; *name == faultRefuse[0] {
			readText(folder, name)
		}
		at += size
	}
}

func readText(folder uintptr, name *byte) {
	begin := 0
	if textCount > 0 {
		begin = textEnds[textCount-1]
	}
	room := len(texts) - begin
	if room == 0 {
		return
	}
	file := sys6(syscall.SYS_OPENAT, folder, ptr(name), syscall.O_RDONLY|syscall.O_CLOEXEC, 0, 0, 0)
	if failed(file) {
		return // taken away just now
	}
	n := sys(syscall.SYS_READ, file, ptr(&texts[begin]), uintptr(room))
	sys(syscall.SYS_CLOSE, file, 0, 0)
	if !failed(n) && n > 0 {
		textEnds[textCount] = begin + int(n)
		textCount++
	}
}

// examineInput looks for the texts in what the tool is going to read. A pipe is read to its end, into a file without a
// name that becomes the tool's standard input.
func examineInput() {
	var stat syscall.Stat_t
	if failed(sys(syscall.SYS_FSTAT, 0, ptr(&stat), 0)) {
		return
	}
	if stat.Mode&ifmt == ififo && readsInput() && !keepInput() {
		return
	}
	if failed(sys(syscall.SYS_FSTAT, 0, ptr(&stat), 0)) || stat.Mode&ifmt != ifreg || stat.Size == 0 {
		return
	}
	const readOnly, private = 1, 2
	at := sys6(syscall.SYS_MMAP, 0, uintptr(stat.Size), readOnly, private, 0, 0)
	if failed(at) {
		return
	}
	input := unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), int(stat.Size))
	if string(call.name) == "nft" { // peek has no pipe to look into
		headSize = copy(head[:], input)
	}
	begin := 0
	for i := 0; i < textCount && call.fault == ""; i++ {
		if found := find(input, texts[begin:textEnds[i]]); found >= 0 {
			call.fault = faultRefuse
			refusedLine(input, found)
			keepTables(input, found)
		}
		begin = textEnds[i]
	}
	sys(syscall.SYS_MUNMAP, at, uintptr(stat.Size), 0)
}

// tablesBefore: the tool still gets the tables before the one with the refused rule. It commits table by table, and
// committed tables stay.
var tablesBefore bool

// keepTables leaves the tool the tables that end before a place of its input.
func keepTables(input []byte, at int) {
	const commit = "\nCOMMIT\n"
	end := 0
	for i := 0; i+len(commit) <= at; i++ {
		if input[i] == '\n' && string(input[i:i+len(commit)]) == commit {
			end = i + len(commit)
		}
	}
	if end == 0 || string(call.name) == "nft" { // one transaction
		return
	}
	file := sys(sysMemfdCreate, ptr(unsafe.StringData("input\x00")), 0, 0)
	if failed(file) {
		return
	}
	for done := 0; done < end; {
		n := sys(syscall.SYS_WRITE, file, ptr(&input[done]), uintptr(end-done))
		if failed(n) {
			fail("cannot keep the tool's input")
		}
		done += int(n)
	}
	sys(syscall.SYS_LSEEK, file, 0, 0)
	sys(syscall.SYS_DUP3, file, 0, 0)
	sys(syscall.SYS_CLOSE, file, 0, 0)
	tablesBefore = true
}

// keepInput makes standard input a file that holds what was to come.
func keepInput() bool {
	file := uintptr(kept)
	if kept < 0 {
		file = sys(sysMemfdCreate, ptr(unsafe.StringData("input\x00")), 0, 0)
	}
	if failed(file) {
		return false
	}
	for {
		n := sys(syscall.SYS_READ, 0, ptr(&copied[0]), uintptr(len(copied)))
		if errno(n) == syscall.EINTR {
			continue
		}
		if failed(n) || n == 0 {
			break
		}
		if sys(syscall.SYS_WRITE, file, ptr(&copied[0]), n) != n {
			fail("cannot keep the tool's input")
		}
	}
	sys(syscall.SYS_LSEEK, file, 0, 0)
	sys(syscall.SYS_DUP3, file, 0, 0)
	sys(syscall.SYS_CLOSE, file, 0, 0)
	return true
}

func find(in, text []byte) int {
	if len(text) == 0 {
		return -1
	}
	for i := 0; i+len(text) <= len(in); i++ {
		if in[i] == text[0] && string(in[i:i+len(text)]) == string(text) {
			return i
		}
	}
	return -1
}

// refusedLine says what the tool would: nft and iptables-nft-restore name the line itself, iptables-legacy-restore the one
// at which it handed the table over.
func refusedLine(input []byte, at int) {
	line := 1
	for i := 0; i < at; i++ {
		if input[i] == '\n' {
			line++
		}
	}
	nft := find(unsafe.Slice(&target[0], length(&target[0])), unsafe.Slice(unsafe.StringData("nft"), 3)) >= 0
	switch {
	case string(call.name) == "nft":
		sayLine("/dev/stdin:", line, ":1-1: Error: Could not process rule: Invalid argument\n")
	case nft:
		sayLine("iptables-restore (nf_tables): \nline ", line, ": RULE_APPEND failed (Invalid argument): a fault that was planted\n")
	default:
		for ; at < len(input); at++ {
			if input[at] != '\n' {
				continue
			}
			line++
			if at+1 < len(input) && input[at+1] == 'C' { // COMMIT; rules begin with -, chains with :
				break
			}
		}
		sayLine("iptables-restore: line ", line, " failed: a fault that was planted\n")
	}
}

func sayLine(before string, line int, after string) {
	say(before)
	var digits [20]byte
	at := len(digits)
	for ; line > 0; line /= 10 {
		at--
		digits[at] = byte('0' + line%10)
	}
	sys(syscall.SYS_WRITE, 2, ptr(&digits[at]), uintptr(len(digits)-at))
	say(after)
}
