// Package records reads the records of runs and groups them.
//
//  1. load.go reads run.json and records.jsonl of a folder. merge.go makes one run of the shards of a sweep.
//  2. samples.go groups the records by series (one colour in a plot), cell (one size and one set of swept values) and
//     metric. The durations of failed syncs are left out. positions.go aligns the positions of first packets between
//     repetitions. values.go picks groups.
//  3. conditions.go has what a run's numbers depend on, run_labels.go short names of runs, metrics.go the order and the
//     names of metrics.
package records
