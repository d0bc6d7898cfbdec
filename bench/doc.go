// Package bench drives subjects in namespaces of its own and writes down what it measures.
//
//  1. The program runs itself again in a network namespace (bench/netns), so that no rule reaches the machine.
//  2. A repetition drives a simulated cluster and a subject through a scenario's steps. With the feed "informers" the
//     subject is the lab's own proxier in this process (inprocess.go). With the feed "api" it is a process (outside*.go,
//     bench/process) that watches the API front (sim/front), runs its tools through a shim (bench/shim) and is measured
//     by what the kernel (bench/visible), the shim and its metrics show. kube-proxy comes from bench/upstream.
//  3. Probes ask what a packet pays (MeasureTraversal) and what the kernel holds (proxier/kernel, ReadKernelMemory);
//     faults break something on purpose (inject*.go), and it is told when each was noticed and repaired (repair.go).
//     Pods as namespaces send flows through the node and answer them (bench/traffic), for steps traffic and for probes
//     of method flow.
//  4. RunWriter appends each measured value to the run's folder as it comes; nothing is averaged here.
//
// Execute runs a scenario. Calibrate runs cells of a design of its own, the subjects in turn, for as long as it may
// (calibrate.go, calibrate_cells.go), and keeps how fast the machine was (pace.go).
//
// Examine, DetectVersions and DetectMachine say what the machine is and can do.
//
// A run's folder holds run.json (Run), records.jsonl (one Record a line) and bench.txt (the same samples in the Go
// benchmark format); what else is in it is derived, by reports.
package bench
