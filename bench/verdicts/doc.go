// Package verdicts compares what rulesets do with packets, by the rule interpreter (proxier/walk): of the layouts and
// backends of our proxier with one another, after full and partial syncs, with those of an unmodified kube-proxy in its
// modes iptables and nftables, and with what the kernel does with real packets. It measures nothing, and its tests are
// what it is for. The way of the data:
//
//  1. A seed stands for a setting (conform.DrawSetting) and a cluster (sim.NewRandomCluster), to which things happen.
//  2. Each subject makes rules of each state: rendered at once, or by a proxier that follows the changes with partial
//     syncs, into models of the kernel's tables; kube-proxy in a namespace of its own, from where they are read back.
//  3. A population of packets (walk.Population) aims at every address, port and protocol of every Service, from every
//     kind of source, and beside them. Every subject must give the same verdict on each: the same outcomes, with the
//     same probabilities.
//  4. Where kube-proxy's verdict is another one, an entry of docs/differences.md must predict it: rules rendered from
//     what kube-proxy believes, or in the order that it drew.
//
// go test ./bench/verdicts compares a few clusters; -clusters 1000 as many as one likes, from -seed on.
package verdicts
