// Package host runs the subject of a repetition: the proxy under test.
//
//  1. Host starts, restarts and stops it. With the feed "informers" the subject is the lab's own proxier in this process
//     (inprocess.go). With the feed "api" it is a process (process.go) that watches the fake API server (sim/front) and
//     runs its tools through the shim (bench/lab/shim).
//  2. The kernel shows when a change is visible (bench/subject/visible). Host records that as network programming latency,
//     reaction and cold start.
//  3. Syncs come from the proxier itself (syncs.go), or from metrics and the shim's calls (process_syncs.go).
//  4. Host counts the subject's rules in the kernel, its CPU time and its memory.
package host
