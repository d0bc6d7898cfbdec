// Package twin is the sync loop in virtual time: what a proxier would do to a stream of changes, without a kernel, an
// object or a clock. It answers for sizes, rates and lengths that nobody can set up: thousands of nodes, a day, millions
// of changes, in seconds to minutes.
//
// The way of the data:
//
//  1. A Source gives Events: when a change is due, in which Service, of what weight. There are seeded ones (Poisson, with
//     a rate that may swing with the hour; Bursts; Rollouts, many of them together for deploy storms; NodeLosses), those
//     of a trace (Recorded), and mixtures (Merge). They stream: memory does not grow with their length.
//  2. Run takes them through one node's loop, one by one. They coalesce in a tracker.Pending and ask a runner.Schedule for
//     a sync: the very code that the proxier runs, told of virtual times.
//  3. When the schedule says so, a sync takes what is pending. Its kind is decided as the engine does: full at the start,
//     after FullInterval, and again when a full one failed. A Cost draws how long it takes, by kind and by what changed.
//     It may fail; what it took is then given back, and the schedule retries.
//  4. At its end the changes are in the kernel: network programming latency is counted from when each was due, as is the
//     time in which any was missing. Result has the rest: syncs by kind, CPU, how busy the loop was, backlogs.
//  5. RunFleet does the same for all nodes of a cluster, which see the same events (fleet.go). Nodes keep no events, but
//     positions in one timeline that all share (timeline.go): what a sync takes is an interval of it, and the number of
//     changes and of different Services in any interval is looked up. So a node costs by the sync, and little by the event.
//     Time passes in windows, in each of which nodes live one after the other, on all CPUs. Only what some node still
//     needs is held.
//
// A node of a fleet does exactly what Run does with its Settings, sync by sync; tests hold the one against the other, and
// Run against a whole proxier in virtual time. Same seed, same result to the last bit, on any number of CPUs.
//
// Quantiles over a fleet are SIG-Scalability's: all changes on all nodes in one pool, by windows of 5 minutes; its
// objective is the 99th percentile of these over a day (FleetResult.Objective).
//
// Of the proxier this package imports proxier/runner and proxier/tracker, which import neither sim nor bench; its tests
// import more.
//
// Not modelled: the way to the node (a change is due when the proxier's informers tell of it; add what comes before), what
// happens between the start of a sync and its last restore (changes show at the end, also those that stages of a sync
// would show earlier), changes that undo each other before a sync (the proxier drops them, here they count), Services and
// clusters that grow (a Cost is for one size), checks for drift and what they find, the second IP family of a node (its
// engine is another node, on the same CPUs), and nodes that slow each other down.
package twin
