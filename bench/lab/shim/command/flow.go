//go:build linux && (amd64 || arm64)

package main

import "syscall"

// unknown is the size of what was not counted.
const unknown = -1

// flow is standard input or output of the tool, and how many bytes went through it. A pipe is copied with splice, which
// moves pages from pipe to pipe and copies nothing; of a regular file the offset says it; anything else is unknown.
// All but a pipe the tool has itself.
type flow struct {
	bytes int64
	// Of a pipe that is copied, else -1: from, to, and the tool's end.
	from, to, tool int
	blocked        bool // to is full
	file           bool // a regular file
	offset         int64
}

const (
	ifmt, ififo, ifreg, ifchr = syscall.S_IFMT, syscall.S_IFIFO, syscall.S_IFREG, syscall.S_IFCHR

	spliceMove, spliceNonblock = 1, 2
	spliceBytes                = 1 << 20

	pollIn, pollOut, pollErr = 1, 4, 8
)

// Standard input, output and error as they were at the start: what is opened later may get the number of one that was
// closed.
var streams [3]syscall.Stat_t // zero: closed

func prepareFlows() {
	for fd := range streams {
		sys(syscall.SYS_FSTAT, uintptr(fd), ptr(&streams[fd]), 0)
	}
	call.stdin = flow{bytes: unknown, from: -1, to: -1, tool: -1}
	call.stdout = call.stdin
	prepare(&call.stdin, 0)
	prepare(&call.stdout, 1)
}

func prepare(f *flow, fd int) {
	stat := &streams[fd]
	const null = 1<<8 | 3
	switch stat.Mode & ifmt {
	case ifreg:
		appends := sys(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFL, 0)&syscall.O_APPEND != 0
		f.file = !(fd == 1 && appends) // whose offset says where others wrote, too
		f.offset = offset(fd)
	case ifchr:
		if stat.Rdev == null {
			f.bytes = 0
		}
	case ififo:
		// A tool that does not read its input must leave it to those who share it.
		if fd == 0 && !readsInput() {
			return
		}
		// Two kinds of output in one pipe keep their order only when the tool writes both itself.
		if other := &streams[2]; fd == 1 && other.Ino == stat.Ino && other.Dev == stat.Dev {
			return
		}
		var ends [2]int32
		if failed(sys(syscall.SYS_PIPE2, ptr(&ends), syscall.O_CLOEXEC, 0)) {
			return
		}
		f.bytes = 0
		if fd == 0 {
			f.from, f.tool, f.to = 0, int(ends[0]), int(ends[1])
		} else {
			f.from, f.tool, f.to = int(ends[0]), int(ends[1]), 1
		}
	}
}

func offset(fd int) int64 {
	const current = 1
	return int64(sys(syscall.SYS_LSEEK, uintptr(fd), 0, current))
}

// connectFlows gives the child its ends. All other descriptors of ours close when it becomes the tool.
func connectFlows() {
	if call.stdin.tool >= 0 {
		sys(syscall.SYS_DUP3, uintptr(call.stdin.tool), 0, 0)
	}
	if call.stdout.tool >= 0 {
		sys(syscall.SYS_DUP3, uintptr(call.stdout.tool), 1, 0)
	}
}

// closeChildEnds leaves the tool's ends to the tool: what it closes must be closed.
func closeChildEnds() {
	closeFd(&call.stdin.tool)
	closeFd(&call.stdout.tool)
}

type pollFd struct {
	fd              int32
	events, revents int16
}

var polled [5]pollFd

// wait returns when there is a signal, or something to move.
func wait(signals int) {
	polled[0] = pollFd{fd: int32(signals), events: pollIn}
	call.stdin.ask(1)
	call.stdout.ask(3)
	sys6(syscall.SYS_PPOLL, ptr(&polled[0]), uintptr(len(polled)), 0, 0, 8, 0)
}

// ask fills two places of polled; -1 is skipped by the kernel. The end that is not waited for reports errors: a reader
// that has gone.
func (f *flow) ask(i int) {
	from, to := int16(pollIn), int16(0)
	if f.blocked {
		from, to = 0, pollOut
	}
	polled[i] = pollFd{fd: int32(f.from), events: from}
	polled[i+1] = pollFd{fd: int32(f.to), events: to}
	if f.blocked {
		polled[i].fd = -1 // a writer that has gone would wake us again and again
	}
}

// The beginning of what nft reads: its first command names the family, which its arguments do not.
var (
	head     [256]byte
	headSize int
)

// peek copies the beginning of the input and leaves it where it is.
func (f *flow) peek() {
	var ends [2]int32
	if failed(sys(syscall.SYS_PIPE2, ptr(&ends), syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)) {
		return
	}
	n := sys6(syscall.SYS_TEE, uintptr(f.from), uintptr(ends[1]), uintptr(len(head)), spliceNonblock, 0, 0)
	if !failed(n) && n > 0 {
		n = sys(syscall.SYS_READ, uintptr(ends[0]), ptr(&head[0]), uintptr(len(head)))
		if !failed(n) {
			headSize = int(n)
		}
	}
	sys(syscall.SYS_CLOSE, uintptr(ends[0]), 0, 0)
	sys(syscall.SYS_CLOSE, uintptr(ends[1]), 0, 0)
}

// move copies what there is, as far as it fits.
func (f *flow) move() {
	if f == &call.stdin && f.from >= 0 && f.bytes == 0 && headSize == 0 && string(call.name) == "nft" {
		f.peek()
	}
	for f.from >= 0 {
		n := sys6(syscall.SYS_SPLICE, uintptr(f.from), 0, uintptr(f.to), 0, spliceBytes, spliceMove|spliceNonblock)
		switch {
		case !failed(n) && n > 0:
			f.bytes += int64(n)
			f.blocked = false
		case errno(n) == syscall.EINTR:
		case errno(n) == syscall.EAGAIN:
			f.blocked = f.readable()
			if !f.blocked && f.brokenEnd() {
				f.close()
			}
			return
		default: // the end of the input, or a reader that has gone
			f.close()
		}
	}
}

// readable says that there is something to copy: then it is the other end that is full.
func (f *flow) readable() bool {
	p := pollFd{fd: int32(f.from), events: pollIn}
	return f.poll(&p) && p.revents&pollIn != 0
}

func (f *flow) brokenEnd() bool {
	p := pollFd{fd: int32(f.to)}
	return f.poll(&p) && p.revents&pollErr != 0
}

func (f *flow) poll(p *pollFd) bool {
	var at syscall.Timespec // at once
	n := sys6(syscall.SYS_PPOLL, ptr(p), 1, ptr(&at), 0, 8, 0)
	return !failed(n) && n > 0
}

// close hands on that one end was closed.
func (f *flow) close() {
	closeFd(&f.from)
	closeFd(&f.to)
}

// drain copies the rest of what a tool that has ended wrote.
func (f *flow) drain() {
	for f.from >= 0 {
		f.move()
		if !f.blocked {
			return
		}
		f.ask(1)
		sys6(syscall.SYS_PPOLL, ptr(&polled[1]), 2, 0, 0, 8, 0)
	}
}

// size is how many bytes went through.
func (f *flow) size(fd int) int64 {
	if f.file {
		return offset(fd) - f.offset
	}
	return f.bytes
}

// readsInput says of the tool's arguments whether it reads its standard input.
func readsInput() bool {
	switch {
	case restoreName():
		return !asked("-V", "--version") && !asked("-h", "--help")
	case string(call.name) == "nft":
		return asked("-f", "--file") && asked("-", "/dev/stdin")
	case string(call.name) == "ipset":
		return asked("restore", "-R") || asked("-", "-!")
	}
	return false
}

// restores says whether the call writes rules from a file: those are the calls that faults hit.
func restores() bool {
	switch {
	case restoreName():
		return readsInput() && !asked("-t", "--test")
	case string(call.name) == "nft":
		return asked("-f", "--file") && !asked("-c", "--check")
	}
	return false
}

func restoreName() bool { return hasSuffix(call.name, "-restore") }

// asked says whether one of the words is among the arguments.
func asked(a, b string) bool {
	for i := 1; i < len(call.args); i++ {
		if word := text(call.args[i]); word == a || word == b {
			return true
		}
	}
	return false
}
