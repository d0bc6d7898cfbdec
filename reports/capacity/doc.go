// Package capacity says how far a cluster can grow: from a fitted cost model (reports/model) and the sync loop in virtual
// time (sim/twin) it finds, for each subject, the largest cluster at which every promise holds, which promise breaks
// first and why, and the settings that suit.
//
// The way of the answer:
//
//  1. A Question has a Cluster as it is today, what happens in it (Churn), how it grows (Growth), and what it shall hold
//     (Promise).
//  2. outlook.go answers for one subject, cluster and policy: quantities of the state (memory, rules, first packet, the
//     sync of a start) from the model; latency of changes and CPU from the twin, which draws its syncs from the model.
//  3. limit.go looks for the largest scale at which each promise holds, between bounds that come from the intervals of the
//     model.
//  4. frontier.go tries policies at one size: what each costs in CPU, and what latency it gives. The recommended one is
//     the cheapest that holds the promise.
//  5. sensitivity.go moves each input and looks how far the answer moves.
//  6. words.go says it in plain words. reports draws the page.
//
// Every number has a Basis: measured, interpolated or extrapolated, and nothing is shown without it.
//
// Not modelled: what sim/twin and reports/model do not model; the control plane, which has to send every change to every
// node; conntrack, bandwidth and what pods themselves need.
package capacity
