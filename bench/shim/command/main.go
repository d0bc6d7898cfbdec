//go:build linux && (amd64 || arm64)

// Command shim stands in front of a tool: it runs the tool, passes everything through unchanged, and appends one line
// of JSON to ../calls that says what the tool did. Package shim installs it and reads the lines.
//
// It is written for its own cost. The Go runtime takes about 1 ms to start (threads, signal handlers, some 180 page
// faults), more than a tool's start; so the process does not start in the runtime, but in start (the linker's flag
// -E main.start). What follows from that, for every function here:
//
//   - one thread, no goroutines, no garbage collector, no panics, no defer, no maps, nothing that allocates: memory is
//     in global variables, which only static data initializes;
//   - of the standard library only what is a system call or a constant;
//   - Go's functions need a g for the check of their stack: noG, whose bound is 0. The stack is the kernel's, 8 MB.
//
// The steps: find the tool by the program's own place (ROOT/bin/NAME → ROOT/real/NAME, a symbolic link), take a fault
// if one is planted in ROOT/faults, start the tool (vfork), copy its pipes with splice and hand on signals until it
// ends, append the line, end as the tool ended.
package main

import "unsafe"

// Set or used by start.
var (
	initial unsafe.Pointer // the stack as the kernel left it: argc, argv, nil, envp, nil
	noG     [64]uintptr
	local   [2]uintptr
)

func start()
func clone(flags, stack uintptr) (pid uintptr)

// What only assembly and the linker refer to.
var _ = []any{start, run, become, &noG, &local}

// main is not reached: the process starts in start, and the runtime that would call main never runs.
func main() {
	println("this program needs -ldflags='-E main.start'; package synclab/bench/shim builds it so")
}
