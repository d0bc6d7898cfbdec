// Package fault breaks something on purpose and records the repair.
//
//  1. Each kind of fault has a file, which registers it in the table (kinds.go): how it is injected, which subjects it
//     spares, when it ends, and what shows its repair. Kinds that differ in little share a file.
//  2. What several kinds need is in tables.go (iptables), nftables.go and api.go (watches).
//  3. repair.go follows each fault from state to state until what it broke is repaired. answers.go recognizes the sync or
//     the command with which the subject detects it.
//  4. order.go injects faults, clears all, and restarts a subject that did not repair them in time.
//
// Not modelled: broken hardware, a slow disk, and clocks that jump.
package fault
