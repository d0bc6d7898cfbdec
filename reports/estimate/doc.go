// Package estimate turns samples into numbers that carry their uncertainty. It knows nothing of metrics or pages.
//
// The repetition is the unit. The values of one repetition share a process, a cluster and the machine's state of that
// minute, so they depend on one another: a hundred packets of one repetition tell less of the next repetition than two
// packets of two. Every number is therefore computed in each repetition first; the estimate is the median of those.
//
//  1. sample.go groups values by repetition and reduces each to a quantile.
//  2. estimate.go makes an Estimate of a sample, or a Distribution: the median of the repetitions with its 95 % interval.
//  3. ratio.go compares two estimates. Paired: subjects of one run take turns, so each repetition gives one ratio.
//     Unpaired: two runs; all ratios between them, by ranks. What was not interleaved is never paired.
//  4. adjust.go allows for how many p-values are looked at.
//  5. fit.go fits lines and power laws in each repetition, with local exponents between neighbouring sizes.
//  6. share.go bounds shares of which few or none were seen: 0 of n is not never.
//
// # Which interval, and why
//
// The interval of a median is that of order statistics (the sign test's): its ends are repetitions that were measured.
// It covers the median of any distribution in at least 95 % of cases, which takes Enough (six) repetitions: five values
// miss the median on one side in 2/32 = 6 % of cases. With fewer there is no interval, and the range of what was
// observed is told as a range. In simulations with a strong repetition effect and 6 to 12 repetitions, the percentile
// interval of a hierarchical bootstrap covered the median in 90 to 93 % of cases, since few repetitions, resampled,
// spread less than they did; Student's t on logarithms in 95 % of log-normal noise and 92 to 95 % of skewed noise; order
// statistics in 95 % or more of both. The tests of this package simulate that, also with stopping once it is narrow.
//
// A quantile far out, as p99 of 90 values, is uncertain within a repetition too: no value may lie beyond it. Its
// interval takes, in each repetition, the order statistics that bound that repetition's quantile, and the repetitions'
// order statistics of these bounds. It has no upper end where the values cannot give one.
//
// Not modelled: trends over the repetitions of a run, and what other machines would measure.
package estimate
