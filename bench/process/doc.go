// Package process runs a subject as a process of its own and tells what it costs, from outside and the same way for
// every subject.
//
//  1. Start runs the command in a process group of its own, with its output in a log file.
//  2. CPU, Memory and PeakRSS read /proc: of the process and of all that it started, as far as they say.
//  3. Metrics reads its metrics in the Prometheus text format; Syncs turns two readings into the syncs between them.
//  4. Stop ends it (SIGTERM, then SIGKILL to the group); an exit that nobody asked for is an error with the log's last lines.
//
// A process ends with the one that started it, whatever ends that (parent-death signal). The package works in a PID
// namespace that has its own /proc, and without rights: it only looks at its own children.
//
// Not modelled: processes that leave the group with setsid (their CPU time counts once their parent has reaped them,
// and Stop does not reach them), cgroups.
package process
