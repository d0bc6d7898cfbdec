// Package front speaks the Kubernetes API over HTTP for a simulated cluster, so
// that any process that takes a kubeconfig can be fed by it: an unmodified
// kube-proxy, kubectl, a controller. The way of the data:
//
//  1. The Front observes the Cluster (sim.Cluster.Observe): its objects once,
//     then each write, in order. Each resource is a store: the present objects
//     sorted by key, and a ring of its past events.
//  2. A request is routed (serve.go), its Accept header negotiated, and its list
//     options decoded and checked by apimachinery.
//  3. A list is a snapshot: of now, or of an older version by undoing the events
//     since. A watch reads the ring at a position of its own and holds no queue:
//     one that the ring has overtaken gets 410 Gone, one whose connection takes
//     nothing is closed. Neither the writers nor the other watches wait for it.
//  4. Objects are encoded by apimachinery's codecs, each state once for each
//     media type, when somebody first wants it; lists and watches of all clients
//     share the bytes.
//  5. On purpose, and only then, it is a bad server: watches stall, break in the
//     middle of an event, miss changes for good, are told events twice or in
//     another order (Front's Disturbance and the methods of disturb.go), and a
//     Listener refuses connections for a while. No event is lost by that but those
//     that a client learns of by listing again.
//
// Served are Services, EndpointSlices, Nodes, and what clients need beside them:
// Namespaces (those of the objects and those every cluster has), the ServiceCIDR
// "kubernetes", discovery, /version and health checks. Events may be written, in
// both API groups, and read; the last ones are kept. Everything else is
// read-only.
//
// Differences to a real API server: a token is all the authentication there is; a version to
// come is refused at once (the API server waits up to 3 s for it); watches end
// only when somebody ends them (there, after half an hour or more); a list's
// items carry kind and apiVersion in JSON. Not modelled: other resources (Pods
// and Leases above all, which kubectl describe node asks for) and versions,
// subresources, OpenAPI, field validation, CBOR, WebSocket watches, shard
// selectors, HTTP/2, priority and fairness.
package front
