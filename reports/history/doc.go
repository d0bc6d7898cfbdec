// Package history follows figures from run to run, and finds the runs where they changed for good.
//
//  1. entry.go makes an Entry of a run: its conditions, and the figures of each subject and cell. read.go reads entries from
//     run folders, summaries and history files. Append adds one line to a history file.
//  2. trend.go puts entries in order, as points of trends: a run, or all runs of one version or kernel.
//  3. levels.go divides each trend into levels, and says which newest levels are worse.
//  4. page.go shows the trends.
//
// # Which test, and why
//
// Within a run, the repetition is the unit: a point is the median of its repetitions, with their interval. Runs of
// different days differ by more than their repetitions show. So a level is a level of runs, and tests count runs.
//
// Rounds divide the trends into more and more levels. A round tests the likeliest next start of a level in each trend, by
// estimate.StepOf on logarithms. The newest run may be a level of its own: it is the one to be warned of. The p-value is
// multiplied for the starts tried, and adjusted for all trends like those of a diff (estimate.Adjust). So of 100
// histories without a change, about 5 show one. TestRates simulates that. If runs differ by more than normal noise, as with
// some very slow ones, more histories do.
//
// Not modelled: slow drifts, which look like some levels, and machines that get slower.
package history
