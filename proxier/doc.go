// Package proxier is a Service proxier: it makes the kernel's rules match the Services and EndpointSlices of a cluster.
//
// The way of the data, separately for each IP family:
//
//	tracker → plan → encode → apply        (runner decides when)
//
// In steps:
//
//  1. tracker: informer events become previous→current pairs per Service. Changes without effect are dropped.
//  2. plan: the changed Service ports are decided again: which endpoints take the traffic, and what happens without any.
//  3. encode: the backend (Backend in engine.go, made in backends.go) writes the difference between installed and
//     desired rules. Package iptables has two layouts. It runs iptables-restore in either variant, and splits a sync
//     into the cheapest number of restores. Package nftables writes maps in a separate table over netlink.
//  4. apply: the kernel takes the rules, and each phase is timed. Refused rules are isolated and reported (refused.go).
//  5. post-sync work (post_sync.go): update health checks, count metrics, delete stale UDP flows. As in kube-proxy, it
//     is part of a sync's duration. A failed cleanup is retried and fails no sync (conntrack_care.go).
//
// A failed sync returns its changes to the tracker, with their trigger times and their pending conntrack cleanup. Every
// failed sync is retried, whatever requested it.
//
// Once every sync period, the proxier compares the tables with the desired rules, if another process may have changed
// them (drift.go). It does so in clusters of any size. See docs/design/drift-check.md.
//
// Kernel and iptables features are detected at start (machine.go). A feature that turns out not to work is not used.
//
// Clock, randomness, metrics registry and cluster are injected, so many simulated nodes can run in one process.
package proxier
