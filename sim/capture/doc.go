// Package capture takes the Services, EndpointSlices and Nodes of a real cluster as objects for a simulated one.
//
//  1. Take lists them in pages, each kind as of one moment.
//  2. Strip keeps what a Service proxy reads (strip.go). It drops managed fields, last applied configurations,
//     selectors, owners, images and capacities.
//  3. Anonymize, if requested, renames everything and renumbers all addresses. The rules keep their shape and count,
//     and reveal nothing about the cluster (anonymize.go, addresses.go). It copies the fields on a list, and nothing
//     else.
//  4. manifests.WriteObjects writes the result, manifests.ReadObjects reads it.
//  5. ProxyConfig takes the ConfigMap with kube-proxy's configuration, if the cluster has one.
//
// Not modelled: one moment for all kinds. Kinds are listed one after another, so a Service may be newer than its
// slices. A load balancer without an address gets one when the file is read, like one in a manifest (manifests.ReadObjects).
package capture
