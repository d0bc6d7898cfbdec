// Package reports derives statistics, tables, plots and pages from the raw files of runs. It measures nothing.
//
// The way of the data:
//
//  1. load.go reads run.json and records.jsonl of each run folder. merge.go makes one run of the shards of a sweep.
//  2. samples.go groups the records by series (one colour in a plot), cell (one size and one set of swept values) and
//     metric. The durations of failed syncs are left out, and a warning reports them.
//  3. The package estimate turns a group into a distribution or an estimate. An estimate is the median of the
//     repetitions with its 95 % interval, or the observed range. It also fits groups of sizes or positions.
//     The repetition is the statistical unit.
//  4. sides.go and figures.go compute the figures (metrics) of each subject in a cell. ratios.go compares them with the
//     baselines: kube-proxy with the same backend, and one baseline for all. Subjects of one run are paired by
//     repetition, subjects of two runs are not. diff.go compares two runs with the same code. A stopped subject stays
//     in the tables with the time or memory that it had used: its figures and ratios are bounds. precision.go finds
//     the cells that need more repetitions.
//  5. traversal.go has the cost of first packets, disruption.go the outcomes of flows, faults.go the faults and
//     invariants. Each has its tables, sentences and plots in files with the same prefix, empty without such records.
//  6. summary.go collects rows, fits, comparisons and the SLOs that were met in one Summary. summary.json, summary.md,
//     the terminal's table, the plots and index.html are written from it, so that they cannot disagree. bench.txt has
//     the raw syncs for benchstat, one a line.
//  7. capacity_page.go makes a separate page: BuildCapacity draws the answers of reports/capacity about sizes that were
//     not measured, with the basis of each number. capacity_page_files.go stores the answers in plan.json, so that the
//     page can be made again.
//
// Not modelled, except on the capacity page: sizes that were not measured. held.go judges SLOs at measured sizes only.
// The time or memory that a stopped subject would have needed is not estimated.
package reports
