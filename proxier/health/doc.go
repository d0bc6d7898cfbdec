// Package health reports the proxier's health. /healthz reports to load balancers and the kubelet whether the node should
// get traffic. /livez reports whether the process should be restarted. The health check NodePorts of Services with
// external traffic policy Local report to load balancers whether this node has an endpoint.
//
// The way of an answer:
//
//  1. The sync loop of each family reports to a Server: QueuedUpdate, SyncStarted, then Updated or Failed. The drift
//     check reports Drifted.
//  2. A family is unhealthy once a desired rule has been missing from the kernel for two sync periods.
//  3. Handler answers over HTTP. The lab and ServiceServers call Healthy.
//
// Bodies, headers and status codes are kube-proxy's; times are RFC 3339. If rules are missing, a family's status has
// additional members: since when, the last cause, and the refused Service ports. See docs/design/health.md for the
// differences from kube-proxy 1.36.
//
// Not modelled: the listener of Handler (the lab serves it, also without a socket), and Kubernetes events, in whose place
// OnFailure is called.
package health
