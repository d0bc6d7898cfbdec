//go:build linux && (amd64 || arm64)

package main

import (
	"syscall"
	"unsafe"
)

// line is what is written: one line of JSON, by one write, so that the lines of calls at the same time do not mix.
var (
	line   [64 << 10]byte
	filled int
)

// argsBytes is how much of the arguments is kept: a line has to fit.
const argsBytes = 8 << 10

// report appends the line to ROOT/calls; shim.Call says what each field means.
func report() {
	number("{\"start\":", call.start)
	number(",\"end\":", call.end)
	put(",\"tool\":\"")
	escape(call.name)
	put("\",\"real\":\"")
	escape(unsafe.Slice(&target[0], length(&target[0])))
	put("\",\"args\":[")
	for i := 1; i < len(call.args); i++ {
		arg := unsafe.Slice(call.args[i], length(call.args[i]))
		if i > 1 {
			put(",")
		}
		if filled+6*len(arg) > argsBytes {
			put("\"…\"")
			break
		}
		put("\"")
		escape(arg)
		put("\"")
	}
	put("]")
	number(",\"stdin\":", call.stdin.size(0))
	number(",\"stdout\":", call.stdout.size(1))
	number(",\"exit\":", int64(exitStatus()))
	number(",\"signal\":", int64(call.status&0x7f))
	number(",\"user_us\":", micros(call.used.Utime))
	number(",\"system_us\":", micros(call.used.Stime))
	number(",\"peak_rss\":", call.used.Maxrss<<10)
	var own syscall.Rusage
	sys(syscall.SYS_GETRUSAGE, 0 /* RUSAGE_SELF */, ptr(&own), 0)
	number(",\"shim_us\":", micros(own.Utime)+micros(own.Stime))
	number(",\"pid\":", int64(call.self))
	number(",\"parent\":", int64(sys(syscall.SYS_GETPPID, 0, 0, 0)))
	if headSize > 0 {
		put(",\"head\":\"")
		escape(head[:headSize])
		put("\"")
	}
	if call.fault != "" {
		put(",\"fault\":\"")
		put(call.fault)
		put("\"")
	}
	put("}\n")
	place("calls", nil)
	const flags = syscall.O_WRONLY | syscall.O_APPEND | syscall.O_CREAT | syscall.O_CLOEXEC
	file := sys6(syscall.SYS_OPENAT, atCwd, ptr(&path[0]), flags, 0o666, 0, 0)
	if failed(file) || sys(syscall.SYS_WRITE, file, ptr(&line[0]), uintptr(filled)) != uintptr(filled) {
		say("synclab's shim: cannot write down this call\n") // the call counts more than its account
	}
}

func exitStatus() int {
	if call.status&0x7f != 0 {
		return -1
	}
	return int(call.status >> 8 & 0xff)
}

func micros(t syscall.Timeval) int64 { return t.Sec*1e6 + t.Usec }

func put(s string) { filled += copy(line[filled:], s) }

// number puts a name and a decimal number.
func number(name string, n int64) {
	put(name)
	if n < 0 {
		put("-")
		n = -n
	}
	var digits [20]byte
	at := len(digits)
	for {
		at--
		digits[at] = byte('0' + n%10)
		if n /= 10; n == 0 {
			break
		}
	}
	filled += copy(line[filled:], digits[at:])
}

// escape puts the inside of a JSON string.
func escape(s []byte) {
	const hex = "0123456789abcdef"
	for _, c := range s {
		if filled+6 > len(line) {
			return
		}
		if c < ' ' || c == '"' || c == '\\' {
			put("\\u00")
			line[filled], line[filled+1] = hex[c>>4], hex[c&15]
			filled += 2
			continue
		}
		line[filled] = c
		filled++
	}
}
