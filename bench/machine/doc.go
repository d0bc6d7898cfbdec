// Package machine describes the machine of a run.
//
//  1. DetectVersions and DetectMachine read the versions of kernel and tools, the CPUs and the memory.
//  2. Examine tries what a run needs, in empty network namespaces: matches and targets of iptables, nft, veth pairs, Go.
//  3. MeasurePace times small pieces of work, to compare the machine's speed at two times.
//  4. ReadPeakRSS, ReadKernelMemory and RawClock read memory and time during a run, and KernelLog the kernel's stalls.
package machine
