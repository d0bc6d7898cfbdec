// Package model says what a sync would cost at a size that was not measured: it fits laws of growth to the records of a
// run, most often of `synclab calibrate`, and predicts from them, with intervals.
//
// The way of the numbers:
//
//  1. points.go turns the records of a run into points: one quantity (the whole sync, one of its phases, CPU time, memory,
//     rules, the first packet at the last position) of one kind of sync, at one size, for one number of changed Services.
//     Kinds are full (into empty tables), resync (full, over the rules that are there) and partial. A point is the median of
//     the medians of a cell's repetitions, which are the unit of all intervals; how far single values scatter around it is
//     kept apart, for simulations.
//  2. forms.go lists the laws that are tried: constants, lines, powers, lines with a bend, in Services, endpoints, rules,
//     and for partial syncs a part that grows with what changed. All coefficients are costs, so none is negative; model.go
//     leaves out laws that only noise can speak for.
//  3. solve.go fits one law to points: relative errors, since the values spread over decades, and robust (Huber), since
//     machines hiccup.
//  4. choose.go tries all laws on sizes that were left out: each size in turn, and all sizes beyond one. The latter count
//     more, since going beyond is what the model is for. Of laws that predict alike, the simplest is taken. Counts of rules
//     have no noise: the simplest law that fits them all is theirs. First packets follow from the rules that they cross,
//     which is a count of its own, and a cost of each rule, from all positions that were probed.
//  5. sum.go predicts whole syncs as the sum of their phases, where these are known: what grows faster than the rest shows
//     in its own phase long before it shows in the whole.
//  6. term.go adds what the interval of a prediction is made of: scatter, uncertain coefficients (bootstrap over cells), laws
//     that fit nearly as well and say something else, and how fast predictions went astray beyond the sizes they were
//     fitted to. bend.go widens it where local exponents rise. What is answered is the mean of the law and its rivals.
//  7. predict.go answers: a median with an interval, and whether it was measured, interpolated or extrapolated. Syncs
//     draws single syncs for a simulation, with the noise of the calibration's (noise.go).
//  8. store.go keeps all of it, points included, in model.json, and refuses it on another machine.
//  9. validate.go fits the small cells of a run only, and holds the large ones against what was predicted for them;
//     validate_table.go sums that up by quantity, by subject and by how far beyond the fit. judge.go says which cell a
//     calibration should measure next, usable.go whether there is enough to answer from.
//
// 10. pace.go scales times, and widens intervals, by how fast the machine is when the model is used.
//
// Not modelled: what a size cannot show that is not in any cell, such as a cache, a limit of the kernel or a time-out that
// is met later only; failed syncs; what other processes on the node do to a sync; the chains that kube-proxy leaves for a
// later clean-up; Services of other types or with more ports than those of the calibration; dual stack, where each family's
// sync is a point of its own.
package model
