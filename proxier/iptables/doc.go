// Package iptables is the iptables backend: it turns a plan into chains and rules and hands them to the kernel through
// iptables-restore, in its legacy and its nft variant, for IPv4 and IPv6.
//
// The way of the data:
//
//  1. Render makes the rules of one planned Service port (layout classic): its chains, and its lines in the dispatch
//     chains that all Services share.
//  2. Ruleset keeps what is rendered of every Service port, and which chains are installed.
//  3. Encode writes the difference as one iptables-restore payload: the shared chains anew, the chains of changed
//     Service ports, and the deletion of chains that are no longer wanted. It remembers whose every line is.
//  4. Tool runs iptables-restore with a lock wait, a deadline and an account of its time and memory.
//  5. Jumps makes the base chains and the rules by which the built-in chains reach them.
//
// Layout classic is, rule for rule, what kube-proxy 1.36 installs; only the order of Services is ours (see plan).
//
// What the kernel guarantees: one iptables-restore is atomic for each table, not for the payload. A payload whose nat
// part is refused leaves its filter part applied. Hence a failed sync is followed by a full one.
package iptables
