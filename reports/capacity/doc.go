// Package capacity says how far a cluster can grow: from a fitted cost model (reports/model) and the sync loop in virtual
// time (sim/twin) it finds, for each subject, the largest cluster at which every promise holds, which promise breaks
// first and why, and the settings that suit.
//
// The way of the answer:
//
//  1. A Question has a Cluster as it is today, what happens in it (Churn), how it grows (Growth), and what it shall hold
//     (Promise).
//  2. grow.go says what the cluster is at a scale, and in what Unit it is told how far it has grown: Services, or, where these
//     stay as many, what does grow. events.go says what happens in it, promise.go what is promised where nobody
//     says; cost.go and simulate.go let the twin run a subject's proxier on its nodes, for as long as a 99th percentile needs.
//     outlook.go answers for one subject, cluster and policy: quantities of the state (memory, rules, first packet, the
//     sync of a start) from the model; latency of changes and CPU from the twin, which draws its syncs from the model.
//     The 99th percentile of first packets is that of the packets of one repetition, at the last position, as the model
//     has it; of calibrations that have none it is their median packet, with a remark. Memory is the peak of the proxier and
//     that of its largest tool together, with the bounds of both added up. CPU time is by the model's law for each kind of
//     sync, as a share of what the sync took.
//  3. limit.go looks for the largest scale at which each promise holds, between bounds that come from the intervals of the
//     model: the search is repeated with syncs that cost as much, or as little, as the intervals allow. It ends at ten times
//     the largest size measured: a limit there is only "at least".
//  4. frontier.go tries policies at one size: what each costs in CPU, and what latency it gives. The recommended one is
//     the cheapest that holds the promise.
//  5. sensitivity.go moves each input and looks how far the answer moves.
//  6. compare.go holds the subjects against one another; why.go says what a value is made of.
//  7. words.go says it in plain words. reports draws the page.
//
// Every number has a Basis: measured, interpolated or extrapolated, and nothing is shown without it.
//
// All nodes are alike and see the same events, so a few are simulated for many; a slow node is another model. The scatter of
// single syncs is the calibration's: in proportion to the sync up to half as long again, and what was beyond that for as many
// seconds as it lasted there, however long the sync is (reports/model, noise.go).
//
// Not modelled: what sim/twin and reports/model do not model; the control plane, which has to send every change to every
// node; conntrack, bandwidth and what pods themselves need.
package capacity
