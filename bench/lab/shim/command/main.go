//go:build linux && (amd64 || arm64)

// Command shim runs the tool that it stands in front of, passes everything through unchanged, and appends one line of
// JSON to ROOT/calls that says what the tool did. Package shim installs it and reads the lines.
//
// Its own cost matters most, because some subjects call no tool and pay none. The same program in plain Go was measured
// in turn with this one: an empty call took 3.3 ms longer than without a shim, and takes 0.25 ms longer now. Most of
// that is the start of the Go runtime: threads, signal handlers, page faults. So the process starts in our function
// start, not in the runtime (linker flag -E main.start). Rules for every function here:
//
//   - one thread, no goroutines, no garbage collection, no panics, no defer, no maps, nothing that allocates: memory is
//     in global variables, which only static data initializes;
//   - of the standard library only system calls and constants;
//   - Go's functions read a g to check their stack: noG, whose limit is 0. The stack is the kernel's, 8 MB.
//
// The steps:
//
//  1. Find the tool by the program's own place: ROOT/bin/NAME runs what the symbolic link ROOT/real/NAME points to.
//     If there is a link ROOT/loader/NAME, it points to the loader that runs the tool, with the libraries in ROOT/libraries.
//  2. Take a fault if one is planted in ROOT/faults.
//  3. Start the tool (vfork), copy its pipes with splice and forward signals until the tool ends.
//  4. Append the line, and end as the tool ended.
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
	println("this program needs -ldflags='-E main.start'; package synclab/bench/lab/shim builds it so")
}
