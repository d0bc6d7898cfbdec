// Package iptables is the iptables backend. It turns a plan into chains and rules for IPv4 and IPv6. It writes them to
// the kernel with iptables-restore, in its legacy or its nft variant.
//
// The way of the data:
//
//  1. Render (render.go) makes the rules of one planned Service port: its chains and its dispatch rules.
//  2. A layout (layout.go) decides which dispatch chains there are and which dispatch rules each contains. Layout
//     classic equals kube-proxy 1.37 rule for rule; only the order of Services differs (see package plan). Layout tree
//     finds a Service through chains on prefixes of addresses. Its chains are flat where the kernel has match bpf. See
//     docs/design/iptables-flat-chains.md.
//  3. A Ruleset stores the desired and the installed rules. Their difference is the chains whose text has another hash
//     than the kernel's, and the chains to delete.
//  4. A stager writes the difference to the kernel in payloads. Each line of a payload has an owner, such as a Service
//     port. See docs/design/iptables-sync-order.md.
//  5. Tables apply a payload. Host runs iptables-restore with a lock wait and a deadline, and records its time and
//     memory. Model keeps tables in memory. Rules that are read back are typed (package rule), and compared as rules.
//     When a payload is refused, isolate.go finds the cause: first matches that the machine may lack, then Service
//     ports. See docs/design/iptables-refused-rules.md.
//
// A chain that is not written again keeps the counters of its rules.
//
// # Cost
//
// iptables-nft-restore keeps the names in a restore in a sorted list and searches the list from its start. The kernel
// walks all chains of a table at each commit. Hence batches (pace.go) and flat chains. The legacy tools read, parse and
// write the whole table at every change.
//
// # What is not modelled
//
// Which Service ports there are and when to write them (package plan, package proxier); foreign rules, which stay
// untouched; anything that iptables-save cannot print.
package iptables
