// Package runner decides when a proxier syncs.
//
// The way of a request:
//
//  1. Trigger (Runner) or Request (Schedule) asks for a sync. Any number of
//     requests that arrive before the sync starts become one sync.
//  2. The policy says when it may start: TokenBucket spaces the starts,
//     CompletionToStart leaves a gap after each end.
//  3. The sync runs. While it runs, further requests wait for the next one.
//  4. Its error, if any, schedules a retry with exponential back-off. Success
//     forgets the retry.
//
// Schedule is the decision alone: a state machine without goroutines, timers
// or a clock of its own; every call is told the time. A discrete-event
// simulation (sim/twin) drives it directly, thousands of nodes in one goroutine
// if need be. Runner is the loop around it that waits on a clock and calls the
// sync. This package imports neither sim nor bench.
//
// What it does differently from kube-proxy 1.36, and why:
//
//   - Every failed sync is retried, whoever asked for it. kube-proxy retries
//     only the syncs that its runner started: the first sync of all and the
//     ones started by the canary monitor call the sync function directly and
//     drop its error, so that a failure there waits for the next API event or
//     for the hourly sync. Here there is no other door to the sync function.
//   - The first retry comes after FirstRetry (1 s), not after the sync period
//     (30 s), and later ones back off to RetryInterval. A lock held for a
//     moment costs a second instead of half a minute.
//   - A request during back-off never moves the retry: it may run earlier, as
//     the policy allows, and if it fails as well the retry stays where it was.
//     Steady churn therefore neither starves the retry nor lengthens the
//     back-off.
//   - The policy is a setting. The token bucket (bursts of 2, spacing between
//     starts) was replaced upstream by completion-to-start; which is better
//     for whom is something the lab measures.
//
// Not modelled: priorities among requests, and cancelling a sync because a
// newer request came in.
package runner
