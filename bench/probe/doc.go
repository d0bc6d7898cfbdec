// Package probe measures what a first packet costs.
//
//  1. probe.go chooses targets: cluster IPs at positions from first to last, a miss, and kinds of destinations
//     (targets.go).
//  2. traversal.go sends single packets from a pinned thread and takes the time of each.
//  3. flow_probe.go measures handshakes and echoes from a client pod through the node (probe method flow).
//  4. crossed.go counts the rules that each packet crosses, with the ruleset evaluator (bench/verify/walk).
//
// docs/design/first-packets.md explains the method. Besides, connections.go measures closed loops of connections, and verdicts.go
// where packets to each address end.
package probe
