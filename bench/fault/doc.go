// Package fault breaks something on purpose and records the repair.
//
//  1. kinds.go lists the kinds of faults. CONTRIBUTING ("Add a fault") lists what a new kind needs.
//  2. An injection breaks something: restores.go, tables.go and nftables.go (rules), foreign.go (other programs that
//     write rules), subject.go (the process, its memory, the node's addresses), conntrack.go, api.go (watches).
//  3. repair.go follows each fault until what it broke is repaired. answers.go recognizes the sync or the command with
//     which the subject detects it.
//  4. order.go clears all faults, and restarts a subject that did not repair them in time.
//
// Not modelled: broken hardware, a slow disk, and clocks that jump.
package fault
