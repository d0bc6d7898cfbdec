// Package machine describes the machine of a run.
//
//  1. DetectVersions and DetectMachine read the versions of kernel and tools, the CPUs and the memory.
//  2. Examine tries what a run needs, in empty network namespaces: matches and targets of iptables, nft, veth pairs, Go.
//  3. ReadPeakRSS, ReadKernelMemory and RawClock read memory and time during a run, KernelLog the kernel's stalls, and Gaps how
//     long other processes could not run.
package machine
