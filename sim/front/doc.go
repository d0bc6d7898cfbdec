// Package front is a fake API server: it speaks the Kubernetes API over HTTP for a simulated cluster. It can feed any
// process that takes a kubeconfig: an unmodified kube-proxy, kubectl, a controller. The way of the data:
//
//  1. The Front observes the Cluster (api.Cluster.Observe): its objects once, then each write, in order. Each resource
//     is a store: the present objects sorted by key, and a ring of its past events.
//  2. A request is routed (serve.go). apimachinery negotiates its Accept header, and decodes and checks its list
//     options.
//  3. A list is a snapshot: of now, or of an older version by undoing the events since. A watch reads the ring at its
//     own position and has no queue. A watch that the ring has overtaken gets 410 Gone; one whose connection accepts
//     no data is closed. Neither the writers nor the other watches wait for it.
//  4. apimachinery's codecs encode each state of an object once for each media type, on first use. Lists and watches
//     of all clients share the bytes.
//  5. On request, it is a faulty server: watches stall, break in the middle of an event, miss changes for good, or get
//     events twice or in another order (Front's WatchFaults and the methods of disturb.go). A Listener refuses
//     connections for a while. The only events lost are those that a client recovers by listing again.
//
// It serves Services, EndpointSlices, Nodes, and what else clients need: Namespaces (those of the objects and those
// that every cluster has), the ServiceCIDR "kubernetes", discovery, /version and health checks. Clients may write
// Events, in both API groups, and read them; the last ones are kept. Everything else is read-only.
//
// Differences to a real API server: a token is the only authentication; a future version is refused at once (the API
// server waits up to 3 s for it); watches end only on request (there, after half an hour or more); a list's items
// carry kind and apiVersion in JSON. Not modelled: other resources (above all Pods and Leases, which kubectl describe
// node requests) and versions, subresources, OpenAPI, field validation, CBOR, WebSocket watches, shard selectors,
// HTTP/2, priority and fairness.
package front
