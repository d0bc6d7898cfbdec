// Package metrics holds the metrics of one proxier, under kube-proxy's names. Dashboards and alerts for kube-proxy
// therefore work with a proxier of the lab.
//
// The way of a value:
//
//  1. New registers one set of collectors in a given registry.
//  2. Each family's sync loop writes through its Family, which carries the ip_family label.
//  3. The registry is scraped over HTTP (package health), or the lab gathers it directly.
//
// Nothing is global: each proxier has a separate registry. See docs/design/metrics.md for the differences from kube-proxy
// 1.36.
//
// Not modelled: the service level indicators of /metrics/slis, and Go's runtime metrics (register
// collectors.NewGoCollector for those).
package metrics
