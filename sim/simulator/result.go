package simulator

import "time"

// Result is the result of one node.
type Result struct {
	// Latency is the network programming latency of every change: from its due time to the end of the sync that
	// installed it.
	Latency Histogram
	// Waiting is the number of changes that were not installed at the end.
	Waiting int64
	// FullSyncs and PartialSyncs count successful syncs; Failed counts those of either kind.
	FullSyncs, PartialSyncs, Failed int64
	// Lived is how long the proxier ran, Busy how much of it was in syncs.
	Lived, Busy time.Duration
	// CPU is the CPU time of all syncs.
	CPU time.Duration
	// Backlog is the number of changes that waited at the start of a sync, summed over all starts; MaxBacklog the highest.
	Backlog    int64
	MaxBacklog int
	// Stale is the time in which any change was missing, MaxStale the longest time for one change.
	Stale, MaxStale time.Duration
	// StaleAge is the age of the oldest missing change, summed over time: divided by Lived it is the mean age.
	StaleAge float64 // s²
}

// Syncs returns the number of syncs of any kind and outcome.
func (r *Result) Syncs() int64 { return r.FullSyncs + r.PartialSyncs + r.Failed }

// BusyShare returns the share of time in syncs.
func (r *Result) BusyShare() float64 { return share(r.Busy, r.Lived) }

// CPUShare returns how many CPUs were busy on average.
func (r *Result) CPUShare() float64 { return share(r.CPU, r.Lived) }

// StaleShare returns the share of time in which any change was missing.
func (r *Result) StaleShare() float64 { return share(r.Stale, r.Lived) }

// MeanBacklog returns the mean number of changes that waited at the start of a sync.
func (r *Result) MeanBacklog() float64 {
	if r.Syncs() == 0 {
		return 0
	}
	return float64(r.Backlog) / float64(r.Syncs())
}

func share(part, whole time.Duration) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
