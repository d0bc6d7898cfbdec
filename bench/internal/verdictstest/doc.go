// Package verdictstest compares the outcomes of packets in different rulesets, with the ruleset evaluator (bench/verify/walk).
// It compares the layouts and backends of Synclab's proxier with one another, after full and partial syncs. It also
// compares them with an unmodified kube-proxy in modes iptables and nftables, and with real packets in the kernel. It
// measures nothing; its tests are its purpose. The way of the data:
//
//  1. A seed determines a setting (conform.DrawSetting), a cluster (random.New) and the cluster's changes.
//  2. Each subject makes rules of each state, in models of the kernel's tables. They are rendered at once, or written
//     by a proxier that follows the changes with partial syncs. kube-proxy runs in a separate namespace, and its rules
//     are read from there.
//  3. A set of packets (walk.PacketSet) goes to every address, port and protocol of every Service, and to others, from
//     every kind of source. All subjects must give every packet the same verdict: the same outcomes with the same
//     probabilities.
//  4. If kube-proxy's verdict differs, an entry of docs/differences.md must predict it: from rules rendered for the
//     objects as kube-proxy sees them, or in kube-proxy's random order.
//
// go test ./bench/internal/verdictstest compares a few clusters. -seeds 1000 compares 1000 clusters, and -seed sets the first seed.
package verdictstest
