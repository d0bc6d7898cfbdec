package model

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"synclab/bench"
)

// Way is what network programming latency is beside waiting for the runner and the sync itself: from when a change is due
// to the proxier's handlers, less what a sync does after its rules are in the kernel, which shows no more. It is measured
// at changes that met a proxier at rest, which syncs at once: latency less the sync's duration. Where a sync has much to
// do afterwards, it is below 0.
type Way struct {
	Median float64 `json:"median"` // s
	Low    float64 `json:"low"`    // s: 5th percentile of single changes
	High   float64 `json:"high"`   // s: 95th percentile
	N      int     `json:"n"`      // changes
	// Values are those of single changes, in order, at most mostWays of them: what a simulation draws from.
	Values []float64 `json:"values,omitempty"`
}

// mostWays is how many values are kept: enough for a 95th percentile.
const mostWays = 200

// Draw one way, in seconds.
func (w *Way) Draw(rng *rand.Rand) float64 {
	if w == nil || len(w.Values) == 0 {
		return 0
	}
	return w.Values[rng.IntN(len(w.Values))]
}

// ToNode is the way of each subject of a run, in each of its cells as one.
func ToNode(run bench.Run, records []bench.Record) map[string]*Way {
	found := map[string][]float64{}
	for _, p := range parts(records) {
		found[p.subject] = append(found[p.subject], p.ways(minSyncPeriod(run, p.records))...)
	}
	out := map[string]*Way{}
	for subject, ways := range found {
		if len(ways) == 0 {
			continue
		}
		slices.Sort(ways)
		at := func(share float64) float64 { return stat.Quantile(share, stat.Empirical, ways, nil) }
		out[subject] = &Way{Median: median(ways), Low: at(0.05), High: at(0.95), N: len(ways), Values: ways}
		if n := len(ways); n > mostWays {
			kept := make([]float64, mostWays)
			for i := range kept {
				kept[i] = ways[i*(n-1)/(mostWays-1)]
			}
			out[subject].Values = kept
		}
	}
	return out
}

// minSyncPeriod of a cell, as it was swept or as the scenario has it.
func minSyncPeriod(run bench.Run, records []bench.Record) time.Duration {
	if len(records) > 0 {
		if d, err := time.ParseDuration(records[0].Params["proxy.minSyncPeriod"]); err == nil {
			return d
		}
	}
	return cmp.Or(run.Scenario.Proxy.MinSyncPeriod, time.Second)
}

// restSlack is how much longer than its runner asks for a proxier must have rested: what is known of its last sync
// is when it wrote, not when it ended.
const restSlack = 0.01 // s, and a tenth of that sync

// ways are those of the changes in a repetition that a sync of their own answered, at once.
func (p part) ways(interval time.Duration) []float64 {
	syncs := syncsOf(p.records)
	type first struct{ due, seen float64 }
	firsts := make([]*first, len(syncs)) // of the changes that each wrote, the one that was due first
	var turns []float64                  // of the runner, those that found nothing to write too
	for _, r := range p.records {
		if r.Metric == bench.Backlog {
			turns = append(turns, r.At)
		}
		if r.Metric != bench.NetworkProgrammingLatency {
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
			continue // without its tools, when it wrote is not known either
		}
		before := syncs[i-1]
		if firsts[i].due < before.at+interval.Seconds()+restSlack+before.took()/10 {
			continue // it had to wait
		}
		if slices.ContainsFunc(turns, func(at float64) bool { return at < firsts[i].due && firsts[i].due < at+interval.Seconds()+restSlack }) {
			continue // as after a turn that found nothing to write, and counts for the runner all the same
		}
		out = append(out, firsts[i].seen-firsts[i].due-s.took())
	}
	return out
}
