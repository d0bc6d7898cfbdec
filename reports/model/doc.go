// Package model predicts what a sync costs at sizes that were not measured. It fits formulas of growth to the records
// of a run, usually of `synclab calibrate`. Predictions have intervals.
//
// A Form is a formula without numbers. A Term is the fit of one quantity: a Form with parameters and their uncertainty.
// All fits of a subject are its cost model.
//
// The path of the data:
//
//  1. points.go turns the records of a run into points. A point is one quantity of one kind of sync, at one size, for
//     one number of changed Services. Quantities are the whole sync, its phases, CPU time, memory, rules, and the first
//     packet at the last position. Kinds are full (into empty tables), resync (full, over existing rules) and partial.
//     A point's value is the median of the medians of a cell's repetitions. Repetitions are the unit of all intervals.
//     The scatter of single values around the median is kept separately, for simulations. way.go measures the watch
//     delay.
//  2. forms.go lists the candidate formulas: constants, lines, powers, and lines with a bend. Their variables are
//     Services, endpoints and rules. Formulas for partial syncs also have a part that grows with the changes. All
//     coefficients are costs, so none is negative. model.go excludes formulas that only noise can support, and laws.go
//     those that contradict a known cause.
//  3. solve.go fits a formula to points. It uses relative errors, since the values spread over decades. Its loss is
//     robust (Huber), since machines have hiccups.
//  4. choose.go tests all formulas on sizes that were left out of the fit: each size in turn, and all sizes beyond one.
//     Errors beyond the fit have more weight, since the model is for extrapolation. Among formulas with similar errors
//     it chooses the simplest. Counts of rules have no noise: it chooses the simplest formula that fits all of them.
//     The cost of first packets depends on the number of rules that they cross, which is a separate count. The cost of
//     each rule comes from all probed positions.
//  5. sum.go predicts whole syncs as the sum of their phases, if these are known. A phase that grows faster than the
//     others is visible in its own numbers long before it is visible in the whole.
//  6. term.go adds the components of an interval: scatter, uncertain coefficients (bootstrap over cells), alternatives
//     that fit nearly as well, and the growth of errors beyond the fit. bend.go widens the interval if local exponents
//     rise. The prediction is the mean of the fit and its alternatives.
//  7. predict.go predicts a median with an interval, and reports whether it was measured, interpolated or extrapolated.
//     Syncs draws durations of single syncs for a simulation, with the noise of the calibration (noise.go). pace.go
//     scales times to the machine's current pace, and widens intervals.
//  8. store.go keeps the model with its points in model.json, and refuses it on another machine.
//  9. validate.go fits only the small cells of a run, and compares the large cells with their predictions.
//     validate_table.go sums up the errors by quantity, by subject and by distance beyond the fit. judge.go estimates
//     which cell a calibration should measure next. usable.go checks whether a subject has enough data for an answer.
//
// Not modelled: Services with different numbers of endpoints, which only validations contain; effects that no measured
// cell shows, such as those of a cache, a kernel limit or a time-out; failed syncs; the effect of other processes on
// the node; chains that kube-proxy leaves for a later cleanup; Services of other types or with more ports than in the
// calibration; dual stack, where the sync of each family is a separate point.
package model
