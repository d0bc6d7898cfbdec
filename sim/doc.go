// Package sim is the simulated cluster: the Services, EndpointSlices and Nodes that a Service proxy watches, how they
// change, and the client-go side through which a proxy sees them. The way of the data:
//
//  1. Objects come from a scenario's shape and a seed (sim/world), from manifests and dumps (sim/manifests), at random with
//     everything an API server accepts (sim/random), or from a real cluster (sim/capture, sim/live).
//  2. A World plans a Trace of Changes with due times. Same seed, same bytes.
//  3. The cluster of sim/api holds the objects in client-go's fake clientset and applies changes when they are due. Real shared
//     informers, or the fake API server (sim/front) over HTTP, deliver them. Watches can be disturbed.
//
// This package has what the others share: Objects, Trace, the API server's defaults and checks, and legacy spellings of addresses.
//
// Objects are immutable once handed out. A Trace holds new objects, which share unchanged parts with the old ones, and
// informers share them with the World. No code may write to them, as with any informer's objects.
//
// Not modelled: pods as objects, the scheduler, kubelets, readiness probes, the delay of the API server and of the
// controllers (a due time is the moment a change reaches the watchers), server-side validation, label and field
// selectors other than a fixed label selector of a watch.
package sim
