package agreement

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/raw"
	"synclab/reports/model"
	"synclab/reports/synthetic"
	"synclab/scenarios"
)

// Durations of a synthetic proxier's syncs, and the watch delay of its changes.
const (
	syntheticFull    = 300 * time.Millisecond
	syntheticPartial = 40 * time.Millisecond
	syntheticWay     = 3 * time.Millisecond
)

// completionToStart computes kube-proxy's loop by hand. Given the sorted arrival times of changes, it returns the ends
// of syncs. Each sync starts at least an interval after the end of the one before.
func completionToStart(arrivals []time.Duration, idle time.Duration, interval time.Duration) (ends []time.Duration, took [][]int) {
	for i := 0; i < len(arrivals); {
		start := max(arrivals[i], idle+interval)
		var one []int
		for i < len(arrivals) && arrivals[i] <= start {
			one = append(one, i)
			i++
		}
		idle = start + syntheticPartial
		ends, took = append(ends, idle), append(took, one)
	}
	return ends, took
}

// syntheticCell records a repetition of kube-proxy in a cell: its first sync, then the syncs of completionToStart. The
// changes are those of the scenario. In each group of ten, the last change has no effect on packets.
func syntheticCell(t *testing.T, cell scenarios.Cell, rep int, put func(raw.Record)) (syncs int) {
	t.Helper()
	traces, err := tracesOf(&cell.Scenario, rep)
	if err != nil {
		t.Fatal(err)
	}
	record := func(metric raw.Metric, at, value time.Duration, r raw.Record) {
		r.Metric, r.At, r.Value, r.Unit = metric, at.Seconds(), value.Seconds(), "s"
		r.Scenario, r.Subject, r.Rep, r.Params = cell.Scenario.Name, "kube-proxy/nftables", rep, cell.Params
		r.Services, r.Endpoints, r.Family = cell.Scenario.Shape.Services, cell.Scenario.Shape.Endpoints.Mean(), "IPv4"
		put(r)
	}
	const direct = 700 * time.Millisecond // start of the first sync, which the runner does not start
	record(raw.FullSync, direct+syntheticFull, syntheticFull, raw.Record{Step: "2:settle", Sync: 1, Kind: "full"})
	type arrival struct {
		at, due time.Duration
		unseen  bool
	}
	var arrivals []arrival
	began := 1500*time.Millisecond + time.Duration(rep)*17*time.Microsecond
	for _, p := range traces {
		record(raw.ChangesApplied, began, 0, raw.Record{Step: p.step})
		late := 300 * time.Microsecond // the first change is due shortly after the recorded start of the step
		for i, c := range p.changes {
			due := began + late + c.Due
			arrivals = append(arrivals, arrival{due + syntheticWay, due, i%10 == 9})
		}
		began += late + p.changes[len(p.changes)-1].Due + 2*time.Second
	}
	slices.SortStableFunc(arrivals, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	var at []time.Duration
	for _, a := range arrivals {
		at = append(at, a.at)
	}
	ends, took := completionToStart(at, direct-100*time.Millisecond, cell.Scenario.Proxy.MinSyncPeriod)
	for k, end := range ends {
		id := raw.Record{Step: "3:churn", Sync: k + 2, Kind: "partial"}
		record(raw.PartialSync, end, syntheticPartial, id)
		record(raw.ToolUser, end, syntheticPartial/2, id)
		for _, i := range took[k] {
			if !arrivals[i].unseen {
				record(raw.NetworkProgrammingLatency, end, end-arrivals[i].due, raw.Record{Step: "3:churn"})
			}
		}
	}
	return len(ends)
}

// syntheticAgreement makes a run's folder: three intervals, two repetitions. It returns the median number of syncs
// of each cell.
func syntheticAgreement(t *testing.T) (dir string, syncs map[string]float64) {
	t.Helper()
	s := scenarios.Scenario{
		Name: "by-hand", Seed: 7, Shape: scenarios.Shape{Services: 30, Endpoints: scenarios.Endpoints{Count: 4}},
		Proxy: scenarios.Proxy{SyncPeriod: 30 * time.Second},
		Sweep: []scenarios.Axis{{Field: "proxy.minSyncPeriod", Values: []string{"200ms", "1s", "5s"}}},
		Steps: []scenarios.Step{{Create: &scenarios.Create{}}, {Settle: &scenarios.Settle{}},
			{Churn: &scenarios.Churn{Rate: 4, Events: 120, Arrivals: "poisson"}}, {Rollout: &scenarios.Rollout{Services: 2}}, {Settle: &scenarios.Settle{}}},
	}
	s.Fill()
	cells, err := s.Cells()
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "run")
	w, err := raw.OpenRun(dir, raw.Run{ID: "run", Scenario: s, Subjects: []string{"kube-proxy/nftables"}, Reps: 2, Seed: 7, Feed: raw.FeedAPI}, false)
	if err != nil {
		t.Fatal(err)
	}
	syncs = map[string]float64{}
	for _, cell := range cells {
		for rep := 1; rep <= 2; rep++ {
			n := syntheticCell(t, cell, rep, func(r raw.Record) {
				if err := w.Write(r); err != nil {
					t.Fatal(err)
				}
			})
			syncs[cell.Params["proxy.minSyncPeriod"]] += float64(n) / 2
		}
	}
	if err := w.Close(raw.StatusComplete, ""); err != nil {
		t.Fatal(err)
	}
	return dir, syncs
}

// If all syncs take the same time, nothing is random: the simulator predicts each change and sync as measured. With a
// longer interval, there are fewer syncs and longer waits.
func TestSimulatorReplaysARun(t *testing.T) {
	dir, syncs := syntheticAgreement(t)
	a, err := Build(dir, Options{Seeds: 3})
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Cells) != 3 || len(a.Remarks) != 0 {
		t.Fatalf("%d cells, remarks %q", len(a.Cells), a.Remarks)
	}
	var page bytes.Buffer
	if err := a.Page(&page); err != nil {
		t.Fatal(err)
	}
	synthetic.CheckAccess(t, page.Bytes())
	for i, c := range a.Cells {
		period := c.Cell.Params["proxy.minSyncPeriod"]
		if len(c.Simulations) != 1 || c.Reps != 2 {
			t.Fatalf("%s: %d simulations of %d repetitions", period, len(c.Simulations), c.Reps)
		}
		says := c.Simulations[0]
		if math.Abs(says.ToNode-syntheticWay.Seconds()) > 1e-6 {
			t.Errorf("%s: the watch delay is %g s", period, says.ToNode)
		}
		for name, p := range map[string]Predicted{"p50": says.P50, "p90": says.P90, "p99": says.P99} {
			if math.Abs(p.Ratio-1) > 1e-5 || !p.Within {
				t.Errorf("%s: %s is %g s, × %.6f of the measured value", period, name, p.Value, p.Ratio)
			}
		}
		if !says.Within || says.Syncs.Value != syncs[period] || c.Measured.Syncs != syncs[period] {
			t.Errorf("%s: %g syncs, recorded %g, simulated %g", period, syncs[period], c.Measured.Syncs, says.Syncs.Value)
		}
		if len(c.measured) != len(says.latencies)/3 || c.Changes != len(c.measured) {
			t.Errorf("%s: %d changes visible, %d in the simulator", period, len(c.measured), len(says.latencies)/3)
		}
		if i > 0 {
			before := a.Cells[i-1].Simulations[0]
			if says.P50.Value <= before.P50.Value || says.Syncs.Value >= before.Syncs.Value {
				t.Errorf("%s: p50 %g s in %g syncs, with the shorter interval %g s in %g", period, says.P50.Value, says.Syncs.Value, before.P50.Value, before.Syncs.Value)
			}
		}
	}
	var table strings.Builder
	if err := a.Table(&table); err != nil || strings.Count(table.String(), "agrees") != 3 || !strings.Contains(table.String(), "9 of 9 quantiles") {
		t.Errorf("%v\n%s", err, table.String())
	}
	if _, err := json.Marshal(a); err != nil {
		t.Error(err)
	}
}

// A cost model of other sync durations differs from the run, and one of equal durations agrees.
func TestSimulatorWithACostModel(t *testing.T) {
	dir, _ := syntheticAgreement(t)
	for _, partial := range []time.Duration{syntheticPartial, 20 * syntheticPartial} {
		a, err := Build(dir, Options{Seeds: 2, Model: syntheticModel(t, partial)})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range a.Cells {
			if len(c.Simulations) != 2 || c.Simulations[1].Cost != ModelCost {
				t.Fatalf("%d simulations; remarks %q", len(c.Simulations), a.Remarks)
			}
			if same := partial == syntheticPartial; c.Simulations[1].Within != same && c.Cell.Params["proxy.minSyncPeriod"] == "200ms" {
				t.Errorf("syncs of %v: p50 × %.3f, p99 × %.3f, within: %v", partial, c.Simulations[1].P50.Ratio, c.Simulations[1].P99.Ratio, c.Simulations[1].Within)
			}
		}
	}
}

// syntheticModel is fitted to small cells whose partial syncs all take the same time.
func syntheticModel(t *testing.T, partial time.Duration) *model.Model {
	t.Helper()
	var records []raw.Record
	for _, services := range []int{10, 20, 40, 80} {
		for rep := 1; rep <= 2; rep++ {
			put := func(metric raw.Metric, at, value float64, r raw.Record) {
				r.Metric, r.At, r.Value, r.Rep, r.Subject, r.Scenario, r.Family, r.Unit = metric, at, value, rep, "kube-proxy/nftables", "calibrate", "IPv4", "s"
				r.Services, r.Endpoints = services, 4
				records = append(records, r)
			}
			put(raw.FullSync, 1, 0.3, raw.Record{Step: "2:settle", Sync: 1, Kind: "full"})
			for k := range 3 {
				at, id := 3+2*float64(k), raw.Record{Step: fmt.Sprintf("%d:churn", 3+2*k), Sync: 2 + k, Kind: "partial"}
				put(raw.PartialSync, at, partial.Seconds(), id)
				put(raw.ToolUser, at, partial.Seconds()/2, id)
				put(raw.NetworkProgrammingLatency, at, (partial + syntheticWay).Seconds(), raw.Record{Step: id.Step})
			}
		}
	}
	run := raw.Run{ID: "calibrate", Feed: raw.FeedAPI, Scenario: scenarios.Scenario{Proxy: scenarios.Proxy{MinSyncPeriod: 250 * time.Millisecond}}}
	m, err := model.Fit(run, records, model.FitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if way := m.Subjects[0].ToNode; way == nil || way.N != 24 || math.Abs(way.Median-syntheticWay.Seconds()) > 1e-6 {
		t.Fatalf("the watch delay is %+v", way)
	}
	return m
}

// Changes that the scenario does not contain, as in a run from a user's manifests, are replayed as well.
func TestStreamWithoutATrace(t *testing.T) {
	records := []raw.Record{
		{Metric: raw.FullSync, At: 1, Value: 0.5, Sync: 1},
		{Metric: raw.NetworkProgrammingLatency, At: 5, Value: 1},
		{Metric: raw.NetworkProgrammingLatency, At: 5, Value: 1},
		{Metric: raw.PartialSync, At: 5, Value: 0.25, Sync: 2},
	}
	s := streamOf(records, nil, corev1.IPv4Protocol)
	if len(s.before) != 1 || len(s.syncs) != 1 || s.syncs[0].changed != 2 || s.strange != 2 {
		t.Fatalf("%+v", s)
	}
	if len(s.events) != 2 || s.events[0].Due != 4*time.Second || s.events[1].Due != 4*time.Second+1 || s.events[0].Service == s.events[1].Service {
		t.Errorf("events %+v", s.events)
	}
}
