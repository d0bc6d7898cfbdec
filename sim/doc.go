// Package sim is the simulated cluster: the Services, EndpointSlices and Nodes
// that a Service proxy watches, how they change, and the client-go side through
// which a proxy sees them. The way of the data:
//
//  1. A scenario's shape and a seed become a World (NewWorld), or manifests and
//     dumps do (ReadObjects, WorldOf). Objects of an API server may hold legacy
//     spellings of addresses (see legacy.go); new manifests are checked strictly.
//  2. Steps (Create, React, Churn, Rollout, Scale, NodeLoss) plan what happens as a
//     Trace of Changes with due times, and move the World past them. Same seed,
//     same bytes.
//  3. A Cluster holds the objects in client-go's fake clientset: Load puts a
//     first state there, Play and Apply the changes of a Trace.
//  4. Real shared informers (Cluster.Informers) list and watch them into the
//     proxy's handlers. Whoever else wants to know observes it (Cluster.Observe):
//     sim/front, which speaks the Kubernetes API to any process.
//  5. A Disturbance comes between the objects and those who watch them: watches
//     stall, end, miss changes, repeat and swap them. The Cluster has one for its
//     informers, a front one for its clients; both know no time.
//
// Objects are immutable once handed out: a Trace holds new ones, which share
// with the old ones what has not changed, and informers share them with the
// World. Nobody may write to them, as with any informer's objects.
//
// Not modelled: pods as objects, the scheduler, kubelets, readiness probes, the
// delay of the API server and of the controllers (a due time is the moment a
// change reaches the watchers), server-side validation, label and field
// selectors other than a fixed label selector of a watch.
package sim
