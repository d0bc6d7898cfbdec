package model

import (
	"fmt"
	"slices"
	"testing"

	"synclab/bench"
)

// A change is of the sync that wrote it, also when it is seen long after that sync's end; which ones a sync wrote whose
// tools are not known is not known either.
func TestChangesOfASync(t *testing.T) {
	var records []bench.Record
	sync := func(number int, at, took float64, told bool) {
		r := bench.Record{Metric: bench.PartialSync, At: at, Value: took, Sync: number, Kind: Partial}
		records = append(records, r)
		if r.Metric, r.Value = bench.ToolUser, took/2; told {
			records = append(records, r)
		}
	}
	sync(1, 10, 0.1, true)
	sync(2, 12, 0.5, true)
	sync(3, 12.6, 0.6, true)
	sync(4, 20, 0.1, false)
	sync(5, 22, 0.1, true)
	for _, seen := range []float64{
		9.9995, 10.004, 10.065, 11.4, // the first's, while the second has not begun
		11.9, 12.003, // the second's, as it ends, and right after, while the third runs
		12.01, 12.6, // the third's
		18,     // of the fourth, or late
		22, 30, // the last's
	} {
		records = append(records, bench.Record{Metric: bench.NetworkProgrammingLatency, At: seen, Value: 0.2})
	}
	changed := func(records []bench.Record) []int {
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
	// Of a subject whose tools nobody sees, syncs are heard of after their end: what was seen before is theirs.
	untold := slices.DeleteFunc(slices.Clone(records), func(r bench.Record) bool { return r.Metric == bench.ToolUser })
	if got, want := fmt.Sprint(changed(untold)), "[2 4 2 1 2]"; got != want {
		t.Errorf("without tools: changes %s, want %s", got, want)
	}
}
