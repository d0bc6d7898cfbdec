// Package runner decides when a proxier syncs.
//
// The way of a request:
//
//  1. Trigger (Runner) or Request (Schedule) requests a sync. All requests before the start of the sync become one sync.
//  2. The policy decides when the sync may start: TokenBucket spaces the starts, CompletionToStart leaves a gap after
//     each end.
//  3. The sync runs. Further requests wait for the next sync.
//  4. An error schedules a retry with exponential back-off. Success cancels the retry.
//
// Schedule is the decision alone: a state machine without goroutines, timers or a clock. Every call gets the time. A plan
// (reports/plan) plays an hour with it at once. Runner is the loop that waits on a clock and calls the sync.
//
// See docs/design/runner.md for the differences from kube-proxy 1.36.
//
// Not modelled: priorities among requests, and cancelling a sync because a newer request arrived.
package runner
