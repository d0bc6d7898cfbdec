// Package estimate computes numbers with their uncertainty from samples. It does not depend on metrics or pages.
//
// The repetition is the statistical unit. The values of one repetition share a process, a cluster and the machine's
// state at that time, so they depend on each other. A hundred packets of one repetition predict the next repetition
// less well than two packets of two repetitions. Every number is therefore computed for each repetition first. The
// estimate is the median of these numbers.
//
//  1. sample.go groups values by repetition and reduces each repetition to a quantile.
//  2. estimate.go makes an Estimate or a Distribution of a sample: the median of the repetitions with its 95 %
//     interval.
//  3. ratio.go compares two estimates. Paired: subjects of one run take turns, so each repetition gives one ratio.
//     Unpaired: the estimates are of two runs. All ratios between their repetitions are used, by ranks. Repetitions
//     that were not interleaved are never paired.
//  4. paired.go tests pairs of a few repetitions, which is what time allows where two builds are compared.
//  5. adjust.go adjusts p-values for multiple testing.
//  6. fit.go fits lines and power laws in each repetition, with local exponents between neighbouring sizes.
//  7. step.go compares neighbouring levels of a series of runs.
//  8. share.go bounds the share of a rare event: 0 of n does not mean never.
//
// # Which interval, and why
//
// The interval of a median comes from order statistics, as in the sign test: its ends are measured repetitions. It
// covers the median of any distribution in at least 95 % of cases. That takes Enough (six) repetitions: all of five
// values lie on one side of the median in 2/32 = 6 % of cases. With fewer repetitions there is no interval, and the
// observed range is reported as a range.
//
// Simulations compared this interval with others, for a strong repetition effect and 6 to 12 repetitions. The
// percentile interval of a hierarchical bootstrap covered the median in 90 to 93 % of cases: a few repetitions,
// resampled, spread less than the original ones. Student's t on logarithms covered it in 95 % of cases with log-normal
// noise, and in 92 to 95 % with skewed noise. Order statistics covered it in 95 % or more with both. The tests of this
// package simulate that, also for runs that stop as soon as the interval is narrow.
//
// An extreme quantile, such as p99 of 90 values, is also uncertain within a repetition: perhaps no value lies beyond
// it. First, order statistics bound the quantile of each repetition. Then order statistics of these bounds over the
// repetitions give the interval. There is no interval if the values cannot bound the quantile from both sides.
//
// Not modelled: trends over the repetitions of a run, and differences between machines.
package estimate
