// Package capacity answers how far a cluster can grow. It uses a fitted cost model (reports/model) and the simulator of
// the sync loop (sim/simulator). For each subject it finds the largest cluster that meets every SLO. It names the SLO that
// is violated first, the reason, and the best settings.
//
// The steps of an answer:
//
//  1. A Question has the Cluster of today, its changes (Churn), its Growth and its SLOs (SLOs).
//  2. grow.go computes the cluster at a scale, and the Unit of growth: Services or, if their number stays the same, the
//     quantity that grows. events.go generates the changes. slo.go has the default SLOs. cost.go and simulate.go
//     run a subject's proxier in the simulator, on the cluster's nodes, for as long as a 99th percentile needs.
//     outlook.go evaluates one subject, cluster and policy. State quantities (memory, rules, first packet, first sync)
//     come from the cost model. The latency of changes and CPU come from the simulator, which draws its syncs from the
//     model. The 99th percentile of first packets is over the packets of one repetition, at the last position, as in
//     the model. Calibrations without it give the median packet, with a remark. Memory is the sum of the peaks of the
//     proxier and of its largest tool; the bounds of both are added, too. CPU time comes from the cost model of each
//     kind of sync, as a share of the sync's duration.
//  3. limit.go searches the largest scale at which each SLO is met. The bounds of a limit come from the model's
//     intervals: the search is repeated with syncs at the upper and at the lower bound of their costs. A search ends at
//     ten times the largest measured size; a limit there is only a lower bound.
//  4. frontier.go evaluates policies at one size: the CPU and the latency of each. The recommended policy is the
//     cheapest that meets the SLOs.
//  5. sensitivity.go changes each input, and computes the change of the answer.
//  6. compare.go compares the subjects. why.go names the largest part of a value. modes.go names sizes at which a
//     subject works in another way.
//  7. words.go writes the answer in sentences. Package reports makes the page.
//
// Every number has a Basis: measured, interpolated or extrapolated. No number is shown without it.
//
// All nodes are equal and see the same events, so a few simulated nodes represent many. A slow node needs another
// model. The scatter of single syncs is that of the calibration. A delay of up to half the sync's duration grows with
// the duration. The part of a delay above that has the seconds of the calibration, for any duration (reports/model,
// noise.go).
//
// Not modelled: the exclusions of sim/simulator and reports/model; the control plane, which sends every change to every
// node; conntrack, bandwidth and the resources of pods.
package capacity
