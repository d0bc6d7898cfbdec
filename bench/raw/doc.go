// Package raw has what a run measured: raw samples, nothing averaged.
//
//  1. Record is one measured value; Metric is its name and meaning (record.go).
//  2. OpenRun makes a run's folder, and RunWriter appends records to it (store.go): run.json (Run), records.jsonl (one
//     Record a line) and, at the end, bench.txt (the medians of repetitions in the Go benchmark format, benchformat.go).
//  3. ReadRun and Records read a folder back. SweepRuns marks killed runs as interrupted, and
//     removes their temporary folders.
//  4. Shard describes the part of a run that one machine does (shard.go).
//
// Not modelled: how values are measured (package bench), and what follows from them (package reports).
package raw
