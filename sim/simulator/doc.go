// Package simulator simulates the sync loop in virtual time: what a proxier would do with a stream of changes, without a
// kernel, objects or a clock. It answers for sizes, rates and durations that no test setup reaches: thousands of
// nodes, a day, millions of changes, in seconds to minutes.
//
// The way of the data:
//
//  1. A Source returns Events: due time, Service and weight of a change. Sources are seeded (Poisson, with a rate that
//     may vary with the hour; Bursts; Rollouts, several at once for deploy storms; NodeLosses), recorded (Recorded),
//     or mixtures (Merge). They stream: memory does not grow with their length.
//  2. Run passes them through one node's loop, one by one. They coalesce in a tracker.Pending and request a sync from
//     a runner.Schedule. This is the proxier's own code, in virtual time.
//  3. At the time that the schedule gives, a sync takes what is pending. Its kind is decided as in the engine: full at
//     the start, after FullInterval, and again when a full one failed. A Cost draws its duration, by kind and changes.
//     A sync may fail; its changes are then requeued, and the schedule retries.
//  4. At the end of the sync the changes are in the kernel. Network programming latency counts from each due time, as
//     does the time in which any change was missing. Result has the rest: syncs by kind, CPU, busy time, backlogs.
//  5. RunFleet does the same for all nodes of a cluster, which see the same events (fleet.go). All nodes share one
//     timeline of events (timeline.go).
//
// See docs/design/simulator.md for the timeline, determinism and the fleet's quantiles.
//
// Of the proxier this package imports proxier/runner and proxier/tracker, which import neither sim nor bench; its
// tests import more.
//
// Not modelled: the delay until the proxier's informers deliver a change (a change is due at that delivery; add the
// delay); intermediate states of a sync (changes show at its end, also those that an earlier stage would show);
// changes that cancel out before a sync (the proxier drops them, here they count); Services and clusters that grow (a
// Cost is for one size); drift checks and repairs; the second IP family of a node (its engine is another node, on the
// same CPUs); nodes that slow each other down.
package simulator
