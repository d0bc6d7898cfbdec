package model

import (
	"testing"
	"time"

	"synclab/bench/raw"
)

// A change right after a turn of the runner with nothing to write has to wait for the next turn. It does not reach an
// idle proxier.
func TestWaysAtRest(t *testing.T) {
	record := func(at float64, m raw.Metric, value float64, sync int) raw.Record {
		return raw.Record{At: at, Subject: "synclab/nftables", Services: 100, Endpoints: 10, Rep: 1, Metric: m, Value: value, Step: "3:churn", Sync: sync, Kind: "partial"}
	}
	wrote := func(at float64, sync int) []raw.Record {
		return []raw.Record{record(at, raw.PartialSync, 0.01, sync), record(at, raw.ToolUser, 0.005, sync), record(at, raw.Backlog, 1, sync)}
	}
	var records []raw.Record
	records = append(records, wrote(1, 1)...)
	records = append(records, wrote(5.013, 2)...)
	records = append(records, record(5.015, raw.NetworkProgrammingLatency, 0.015, 0)) // due at 5, idle
	records = append(records, record(9.9, raw.Backlog, 1, 3))                         // a turn with nothing to write
	records = append(records, wrote(10.41, 4)...)
	records = append(records, record(10.412, raw.NetworkProgrammingLatency, 0.412, 0)) // due at 10, had to wait
	run := raw.Run{}
	run.Scenario.Proxy.MinSyncPeriod = 500 * time.Millisecond
	way := ToNode(run, records)["synclab/nftables"]
	if way == nil || way.N != 1 {
		t.Fatalf("%+v, want one change to an idle proxier", way)
	}
	if way.Median < 0.004 || way.Median > 0.006 {
		t.Errorf("%g s, want 0.005", way.Median)
	}
}
