// Package profile samples where a subject, its tools and the kernel on their behalf spend CPU time.
//
//  1. Start runs `perf record` on a process that waits to become the subject. Samples are taken from its first
//     instruction on; threads and children inherit them. The event is cpu-clock, which needs no hardware counter.
//  2. Recording.Samples reads the data with `perf script`. symbols.go names functions that perf cannot: those of stripped Go
//     programs, and the start of a function in a stripped C program.
//  3. Profile cuts the samples by the time windows of syncs, and adds them up as a pprof profile. Its labels are subject,
//     kind, stage, origin and process.
//
// C tools are built without frame pointers, so only the innermost function of a tool is known, and its kernel stack.
//
// Not modelled: time without CPU (waits), kernel threads that work for the subject (the kernel frees objects of nf_tables
// there), and User-mode Linux kernels: there, perf would see the threads of the kernel's process, and no process in it.
package profile
