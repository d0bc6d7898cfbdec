// Package history follows figures from run to run, and finds the runs where they changed for good.
//
//  1. entry.go makes an Entry of a run: its conditions, and the figures of each subject and cell. read.go reads entries from
//     run folders, summaries and history files. Append adds one line to a history file.
//  2. trend.go puts entries in order, as points of trends: a run, or all runs of one version or kernel.
//  3. levels.go divides each trend into levels, and says which newest levels are worse.
//  4. page.go shows the trends.
//
// # Which tests, and why
//
// Within a run, the repetition is the unit: a point is the median of its repetitions, with their interval. Runs of
// different days differ by more than their repetitions show. So a level is a level of runs, and tests count runs.
//
// Earlier changes are found with estimate.Split, on logarithms, again and again on both sides. A permutation test needs
// some runs of the new level: of 24 runs, five. So the newest runs, one to eight of them, are also compared with the level
// before by estimate.StepOf. The p-value of the best start is multiplied for the starts tried. Both tests take the p-values
// of all trends, adjusted like those of a diff (estimate.Adjust), at half of estimate.Level each. So of 100
// histories without a change, about 5 show one. TestRates simulates that.
//
// Not modelled: slow drifts, which look like some levels, and machines that get slower.
package history
