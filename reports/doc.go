// Package reports derives everything people read from the raw files of runs. It measures nothing.
//
// The way of the numbers:
//
//  1. load.go reads run.json and records.jsonl of each run folder.
//  2. samples.go groups the records: series (what is one colour in a plot) × cell (one size and one set of swept values)
//     × metric. Failed syncs are left out of durations and become warnings.
//  3. The package estimate turns a group into a distribution or an estimate (the median of the repetitions with its 95 %
//     interval, or the range of what was observed) and groups of sizes or positions into fits. The repetition is the unit.
//  4. sides.go and figures.go make the figures of each subject of a cell, ratios.go sets them beside their baselines:
//     kube-proxy of the same backend, and one for all. Subjects of one run are paired by repetition, those of two runs are
//     not; diff.go compares two runs by the same engine. A subject that was stopped keeps its place with what it had used:
//     its figures and ratios are bounds. precision.go says which ratios need more repetitions.
//  5. traversal.go says what packets pay, disruption.go what a stream of flows met, faults.go what became of faults and
//     invariants: each with its tables, sentences and figures beside it, which are empty where a run has no such records.
//  6. summary.go collects rows, fits, comparisons and what held in one Summary. Every output is written from it:
//     summary.json, summary.md, the table of the terminal, the plots and index.html, so that they cannot disagree.
//     bench.txt holds the raw syncs, one line each, for benchstat.
//  7. capacity_page.go is another page: BuildCapacity draws what reports/capacity answered about sizes that nobody measured,
//     with what each number rests on. capacity_page_files.go keeps that answer (plan.json), so that the page can be made
//     again.
//
// Not modelled here, but for the capacity page: sizes that were not measured. held.go judges promises at measured sizes
// only. What a stopped subject would have needed is not estimated.
package reports
