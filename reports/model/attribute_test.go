package model

import (
	"fmt"
	"slices"
	"testing"

	"synclab/bench/raw"
)

// A change belongs to the sync that wrote it, even if it becomes visible long after the end of that sync. A sync whose
// tools are unknown keeps no changes.
func TestChangesOfASync(t *testing.T) {
	var records []raw.Record
	sync := func(number int, at, took float64, told bool) {
		r := raw.Record{Metric: raw.PartialSync, At: at, Value: took, Sync: number, Kind: Partial}
		records = append(records, r)
		if r.Metric, r.Value = raw.ToolUser, took/2; told {
			records = append(records, r)
		}
	}
	sync(1, 10, 0.1, true)
	sync(2, 12, 0.5, true)
	sync(3, 12.6, 0.6, true)
	sync(4, 20, 0.1, false)
	sync(5, 22, 0.1, true)
	for _, seen := range []float64{
		9.9995, 10.004, 10.065, 11.4, // sync 1: sync 2 has not started yet
		11.9, 12.003, // sync 2: at its end and right after, while sync 3 runs
		12.01, 12.6, // sync 3
		18,     // sync 4, whose tools are unknown, or sync 3 late
		22, 30, // sync 5
	} {
		records = append(records, raw.Record{Metric: raw.NetworkProgrammingLatency, At: seen, Value: 0.2})
	}
	changed := func(records []raw.Record) []int {
		syncs := syncsOf(records)
		attribute(records, syncs)
		var out []int
		for _, s := range syncs {
			out = append(out, s.changed)
		}
		return out
	}
	if got, want := changed(records), []int{4, 2, 2, 0, 2}; !slices.Equal(got, want) {
		t.Errorf("changes %v, want %v", got, want)
	}
	// Without known tools, a sync is reported after its end. A change that was visible before then belongs to it.
	untold := slices.DeleteFunc(slices.Clone(records), func(r raw.Record) bool { return r.Metric == raw.ToolUser })
	if got, want := fmt.Sprint(changed(untold)), "[2 4 2 1 2]"; got != want {
		t.Errorf("without tools: changes %s, want %s", got, want)
	}
}
