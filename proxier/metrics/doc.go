// Package metrics holds the metrics of one proxier, under kube-proxy's names,
// so that dashboards and alerts made for kube-proxy read a proxier of the lab.
//
// The way of a value:
//
//  1. New registers one set of collectors in the registry that is passed in.
//  2. Each family's sync loop writes through its Family, which carries the
//     ip_family label.
//  3. The registry is scraped over HTTP (package health) or gathered directly
//     by the lab.
//
// What it does differently from kube-proxy 1.36, and why:
//
//   - Nothing is global. kube-proxy's metrics are variables of the package, so
//     that two proxiers in one process add into the same counters. Here each
//     proxier has a registry of its own (or prometheus.WrapRegistererWith adds
//     a label for the node), and a thousand nodes fit one process. New refuses
//     a registry that has the names already.
//   - The two gauges of pending changes carry no ip_family label, and
//     kube-proxy's two families overwrite each other in them: after IPv6 synced
//     the gauge says 0 although IPv4 has work waiting. The name and the missing
//     label are kept, the value is the sum over the families.
//   - sync_proxy_rules_refused_ports counts what kube-proxy cannot know: it has
//     no way to leave out a rule that the kernel refuses.
//   - A restore that the kernel refused counts once a sync in the iptables
//     failure counters, as in kube-proxy, also where the same sync wrote
//     everything after it, or isolated a Service port, and succeeded.
//   - The failure counters of backend nftables are there with every backend.
//     sync_proxy_rules_nftables_sync_failures_total counts syncs that failed at
//     a transaction: a partial one that a full sync made good at once is none.
//     sync_proxy_rules_nftables_cleanup_failures_total counts full syncs after
//     which the table of before could not be deleted; what kube-proxy cleans up
//     late are chains.
//   - Counters and gauges of both families exist from the start, at 0, so that
//     a rate is right for the first failure too.
//
// Not modelled: the service level indicators of /metrics/slis, and Go's own
// runtime metrics (register collectors.NewGoCollector where they are wanted).
package metrics
