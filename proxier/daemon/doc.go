// Package daemon runs a proxier as a separate process against an API server, as kube-proxy runs.
//
//  1. node.go watches the Node of this machine until it exists and has addresses. The addresses become the node IPs.
//     detect-local may need the podCIDRs, and topology hints need the zone.
//  2. watch.go: shared informers list and watch Services and EndpointSlices with kube-proxy's selectors, so that both
//     proxies request the same objects. The informers store digests, not objects (tracker.Digester).
//  3. serve.go serves metrics, health and the proxy mode on the configured addresses.
//  4. The proxier runs until the context ends. Its rules stay, as kube-proxy's do.
//
// Each sync may be written to a log that another process reads (proxier.SyncLog).
//
// Not modelled: Events about the node, ServiceCIDRs (kube-proxy compares them with cluster IPs only to warn), the OOM
// score, profiling, configz and flagz, exit when the configuration file changes.
package daemon
