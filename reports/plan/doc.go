// Package plan answers how large a cluster may become with a Service proxy, from cells that bench.Plan measured:
//
//   - question.go has the cluster, its changes, its growth and the SLOs.
//   - cell.go reads what one repetition of a cell shows, and judges it.
//   - loop.go plays the sync loop in virtual time, with the syncs that a cell measured: an hour of changes in milliseconds.
//   - settings.go compares values of minSyncPeriod by it.
//   - answer.go puts the cells together: where each subject's limit is, and what to set.
//   - words.go, page.go and plots.go show the answer; files.go stores it.
//
// A size meets an SLO because it was measured there. The loop computes only what takes an hour: the latency of changes beside an
// hourly full sync. Nothing is extrapolated unless asked for.
package plan
