// Package reports derives everything people read from the raw files of runs. It measures nothing.
//
// The way of the numbers:
//
//  1. load.go reads run.json and records.jsonl of each run folder.
//  2. samples.go groups the records: series (what is one colour in a plot) × cell (one size and one set of swept values)
//     × metric. Failed syncs are left out of durations and become warnings.
//  3. statistics.go turns a group into a distribution (median with its confidence interval, percentiles) and groups of
//     sizes or positions into fits.
//  4. summary.go collects rows, fits, comparisons and the capacity answer in one Summary. Every output is written from it:
//     summary.json, summary.md, the table of the terminal, the plots and index.html, so that they cannot disagree.
//     bench.txt holds the raw syncs, one line each, for benchstat.
//
// Not modelled here: sizes that were not measured. Capacity is an answer from measured sizes only.
package reports
