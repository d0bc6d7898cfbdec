// Package capture takes the Services, EndpointSlices and Nodes of a real cluster as objects for a simulated one.
//
//  1. Take lists them in pages, each kind as of one moment.
//  2. Strip leaves what a Service proxy reads (strip.go): no managed fields, last applied configurations, selectors, owners,
//     images or capacities.
//  3. Anonymize, where it is asked for, renames everything and renumbers all addresses so that the rules have the same
//     shape and count, and nothing of the cluster can be read from them (anonymize.go, addresses.go). It copies the fields on
//     a list, and nothing else.
//  4. sim.WriteObjects writes the result, sim.ReadObjects reads it.
//
// Not modelled: one moment for all kinds. Lists are made one after another, so a Service may be newer than its slices. A
// load balancer without an address yet gets one when the file is read, as one of a manifest does (sim.ReadObjects).
package capture
