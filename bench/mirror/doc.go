// Package mirror computes the desired state of each Service port of the simulated cluster, as changes are made to it.
// bench/subject/visible compares the kernel with this state. bench/traffic compares the outcomes of flows with it.
//
//  1. Changed receives each change of a Service, an EndpointSlice or the Node.
//  2. Synclab's tracker and plan, which are pure, turn the objects into Service ports, with one plan for each family.
//  3. Changed returns the affected ports, before and after the change.
//
// Not modelled: what subjects see late, or never. A mirror is as exact as Synclab's tracker and plan, so it cannot find
// their errors. Invariants I1 to I4 cover these: they compare the kernel with kube-proxy's rules, and with packets.
package mirror
