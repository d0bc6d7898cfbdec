package model

import (
	"testing"
	"time"

	"synclab/bench"
)

// A change that came right after a turn of the runner that found nothing to write had to wait for the next one: it did not
// meet a proxier at rest.
func TestWaysAtRest(t *testing.T) {
	record := func(at float64, m bench.Metric, value float64, sync int) bench.Record {
		return bench.Record{At: at, Subject: "synclab/nftables", Services: 100, Endpoints: 10, Rep: 1, Metric: m, Value: value, Step: "3:churn", Sync: sync, Kind: "partial"}
	}
	wrote := func(at float64, sync int) []bench.Record {
		return []bench.Record{record(at, bench.PartialSync, 0.01, sync), record(at, bench.ToolUser, 0.005, sync), record(at, bench.Backlog, 1, sync)}
	}
	var records []bench.Record
	records = append(records, wrote(1, 1)...)
	records = append(records, wrote(5.013, 2)...)
	records = append(records, record(5.015, bench.NetworkProgrammingLatency, 0.015, 0)) // due at 5, at rest
	records = append(records, record(9.9, bench.Backlog, 1, 3))                         // found nothing to write
	records = append(records, wrote(10.41, 4)...)
	records = append(records, record(10.412, bench.NetworkProgrammingLatency, 0.412, 0)) // due at 10, had to wait
	run := bench.Run{}
	run.Scenario.Proxy.MinSyncPeriod = 500 * time.Millisecond
	way := ToNode(run, records)["synclab/nftables"]
	if way == nil || way.N != 1 {
		t.Fatalf("%+v, want one change at rest", way)
	}
	if way.Median < 0.004 || way.Median > 0.006 {
		t.Errorf("%g s, want 0.005", way.Median)
	}
}
