package model

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"synclab/bench/raw"
)

// WatchDelay is the watch delay: network programming latency without the wait for the runner and without the sync itself. It
// lasts from the due time of a change until the proxier's handlers have it. The sync's work after its rules are in the
// kernel is subtracted, since it does not delay the change. Only changes that reach an idle proxier, which syncs at
// once, are measured: their latency minus the sync's duration. If a sync does much work after its last write, the value
// is below 0.
type WatchDelay struct {
	Median float64 `json:"median"` // s
	Low    float64 `json:"low"`    // s: 5th percentile of single changes
	High   float64 `json:"high"`   // s: 95th percentile
	N      int     `json:"n"`      // changes
	// Values are the watch delays of single changes, sorted, at most mostWays of them. A simulation draws from them.
	Values []float64 `json:"values,omitempty"`
}

// mostWays is the maximum number of stored values: enough for a 95th percentile.
const mostWatchDelays = 200

// Draw draws one watch delay, in seconds; 0 if there are none.
func (w *WatchDelay) Draw(rng *rand.Rand) float64 {
	if w == nil || len(w.Values) == 0 {
		return 0
	}
	return w.Values[rng.IntN(len(w.Values))]
}

// ToNode returns the watch delay of each subject of a run, over all its cells.
func ToNode(run raw.Run, records []raw.Record) map[string]*WatchDelay {
	found := map[string][]float64{}
	for _, p := range parts(records) {
		found[p.subject] = append(found[p.subject], p.ways(minSyncPeriod(run, p.records))...)
	}
	out := map[string]*WatchDelay{}
	for subject, ways := range found {
		if len(ways) == 0 {
			continue
		}
		slices.Sort(ways)
		at := func(share float64) float64 { return stat.Quantile(share, stat.Empirical, ways, nil) }
		out[subject] = &WatchDelay{Median: median(ways), Low: at(0.05), High: at(0.95), N: len(ways), Values: ways}
		if n := len(ways); n > mostWatchDelays {
			kept := make([]float64, mostWatchDelays)
			for i := range kept {
				kept[i] = ways[i*(n-1)/(mostWatchDelays-1)]
			}
			out[subject].Values = kept
		}
	}
	return out
}

// minSyncPeriod returns the minSyncPeriod of a cell: the swept value, or else that of the scenario.
func minSyncPeriod(run raw.Run, records []raw.Record) time.Duration {
	if len(records) > 0 {
		if d, err := time.ParseDuration(records[0].Params["proxy.minSyncPeriod"]); err == nil {
			return d
		}
	}
	return cmp.Or(run.Scenario.Proxy.MinSyncPeriod, time.Second)
}

// restSlack is added to the runner's interval before a proxier counts as idle. The records have the time of its last
// write, but not of the end of that sync.
const restSlack = 0.01 // s, plus a tenth of the duration of that sync

// ways returns the watch delays of a repetition, from each sync that started at once for a change to an idle proxier.
func (p part) ways(interval time.Duration) []float64 {
	syncs := syncsOf(p.records)
	type first struct{ due, seen float64 }
	firsts := make([]*first, len(syncs)) // for each sync, the change that was due first
	var turns []float64                  // turns of the runner, also those with nothing to write
	for _, r := range p.records {
		if r.Metric == raw.Backlog {
			turns = append(turns, r.At)
		}
		if r.Metric != raw.NetworkProgrammingLatency {
			continue
		}
		i := writer(syncs, r.At)
		if i < 0 {
			continue
		}
		if due := r.At - r.Value; firsts[i] == nil || due < firsts[i].due {
			firsts[i] = &first{due, r.At}
		}
	}
	var out []float64
	for i, s := range syncs {
		if i == 0 || firsts[i] == nil || !s.told() {
			continue // without known tools, the time of the write is unknown
		}
		before := syncs[i-1]
		if firsts[i].due < before.at+interval.Seconds()+restSlack+before.took()/10 {
			continue // the change had to wait
		}
		if slices.ContainsFunc(turns, func(at float64) bool { return at < firsts[i].due && firsts[i].due < at+interval.Seconds()+restSlack }) {
			continue // the change had to wait: a turn with nothing to write also starts the interval
		}
		out = append(out, firsts[i].seen-firsts[i].due-s.took())
	}
	return out
}
