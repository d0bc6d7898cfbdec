// Package daemon runs a proxier as a process of its own beside an API server, as kube-proxy is run.
//
//  1. The Node of this machine is watched by name until it exists and has addresses: these are the node IPs, its podCIDRs
//     are what detect-local may need, its zone what hints are compared with (node.go).
//  2. Shared informers list and watch Services and EndpointSlices with kube-proxy's selectors (watch.go), so that both ask
//     the API server for the same objects. They store digests of them, not the objects (tracker.Digester).
//  3. Metrics, health and the proxy mode are served on the configured addresses (serve.go).
//  4. The proxier runs until the context ends. The rules stay, as those of kube-proxy do.
//
// Each sync may be written to a log that another process reads (proxier.SyncLog).
//
// Not modelled: Events about the node, ServiceCIDRs (which kube-proxy compares with cluster IPs only to warn), the OOM
// score, profiling, configz and flagz, exit when the configuration file changes.
package daemon
