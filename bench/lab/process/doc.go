// Package process runs a subject as a separate process and measures its resource use from outside, in the same way for
// every subject.
//
//  1. Start runs the command in a separate process group, with its output in a log file.
//  2. CPU, Memory and PeakRSS read /proc, for the process and for its descendants, as each method documents.
//  3. Metrics reads its metrics in the Prometheus text format. Syncs turns two readings into the syncs between them.
//  4. Stop ends it: SIGTERM, then SIGKILL to the group. An unexpected exit is an error with the last lines of the log.
//
// A process ends with its parent, however the parent ends (parent-death signal). The package needs a PID namespace with
// its own /proc. It needs no privileges, because it reads only its own children.
//
// Not modelled: cgroups, and processes that leave the group with setsid. The CPU time of such processes counts once
// their parent has reaped them, and Stop does not reach them.
package process
