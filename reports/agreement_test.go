package reports

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench"
	"synclab/reports/model"
	"synclab/scenarios"
)

// What a synthetic proxier's syncs take, and what a change needs to come to it.
const (
	syntheticFull    = 300 * time.Millisecond
	syntheticPartial = 40 * time.Millisecond
	syntheticWay     = 3 * time.Millisecond
)

// completionToStart is kube-proxy's loop by hand: of changes sorted by when they come, the ends of syncs that begin an
// interval after the end of the one before.
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

// syntheticCell records a repetition of kube-proxy in a cell: its first sync, then one by one what completionToStart says.
// Of the changes, which are those of the scenario, the last of each tenth led no packet elsewhere.
func syntheticCell(t *testing.T, cell scenarios.Cell, rep int, put func(bench.Record)) (syncs int) {
	t.Helper()
	traces, err := tracesOf(&cell.Scenario)
	if err != nil {
		t.Fatal(err)
	}
	record := func(metric bench.Metric, at, value time.Duration, r bench.Record) {
		r.Metric, r.At, r.Value, r.Unit = metric, at.Seconds(), value.Seconds(), "s"
		r.Scenario, r.Subject, r.Rep, r.Params = cell.Scenario.Name, "kube-proxy/nftables", rep, cell.Params
		r.Services, r.Endpoints, r.Family = cell.Scenario.Shape.Services, cell.Scenario.Shape.Endpoints.Mean(), "IPv4"
		put(r)
	}
	const direct = 700 * time.Millisecond // start of the first sync, which is not the runner's
	record(bench.FullSync, direct+syntheticFull, syntheticFull, bench.Record{Step: "2:settle", Sync: 1, Kind: "full"})
	type arrival struct {
		at, due time.Duration
		unseen  bool
	}
	var arrivals []arrival
	began := 1500*time.Millisecond + time.Duration(rep)*17*time.Microsecond
	for _, p := range traces {
		record(bench.Played, began, 0, bench.Record{Step: p.step})
		late := 300 * time.Microsecond // the first change is due a little after the step says that it begins
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
		id := bench.Record{Step: "3:churn", Sync: k + 2, Kind: "partial"}
		record(bench.PartialSync, end, syntheticPartial, id)
		record(bench.ToolUser, end, syntheticPartial/2, id)
		for _, i := range took[k] {
			if !arrivals[i].unseen {
				record(bench.NetworkProgrammingLatency, end, end-arrivals[i].due, bench.Record{Step: "3:churn"})
			}
		}
	}
	return len(ends)
}

// syntheticAgreement is a run's folder: three intervals, two repetitions. It gives the number of syncs of each cell.
func syntheticAgreement(t *testing.T) (dir string, syncs map[string]int) {
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
	w, err := bench.OpenRun(dir, bench.Run{ID: "run", Scenario: s, Subjects: []string{"kube-proxy/nftables"}, Reps: 2, Seed: 7, Feed: bench.FeedAPI}, false)
	if err != nil {
		t.Fatal(err)
	}
	syncs = map[string]int{}
	for _, cell := range cells {
		for rep := 1; rep <= 2; rep++ {
			syncs[cell.Params["proxy.minSyncPeriod"]] = syntheticCell(t, cell, rep, func(r bench.Record) {
				if err := w.Write(r); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
	if err := w.Close(bench.StatusComplete, ""); err != nil {
		t.Fatal(err)
	}
	return dir, syncs
}

// Where every sync takes the same, nothing is left to chance: the twin says what was measured, change by change and sync by
// sync, and with a longer interval that there are fewer syncs and that changes wait longer.
func TestTwinReplaysARun(t *testing.T) {
	dir, syncs := syntheticAgreement(t)
	a, err := BuildAgreement(dir, AgreementOptions{Seeds: 3, NoPNG: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Cells) != 3 || len(a.Remarks) != 0 {
		t.Fatalf("%d cells, remarks %q", len(a.Cells), a.Remarks)
	}
	for i, c := range a.Cells {
		period := c.Cell.Params["proxy.minSyncPeriod"]
		if len(c.Twins) != 1 || c.Reps != 2 {
			t.Fatalf("%s: %d twins of %d repetitions", period, len(c.Twins), c.Reps)
		}
		says := c.Twins[0]
		if math.Abs(says.ToNode-syntheticWay.Seconds()) > 1e-6 {
			t.Errorf("%s: the way to the node is %g s", period, says.ToNode)
		}
		for name, p := range map[string]Predicted{"p50": says.P50, "p90": says.P90, "p99": says.P99} {
			if math.Abs(p.Ratio-1) > 1e-5 || !p.Within {
				t.Errorf("%s: %s is %g s, × %.6f of what was measured", period, name, p.Value, p.Ratio)
			}
		}
		if !says.Within || says.Syncs.Value != float64(syncs[period]) || c.Measured.Syncs != float64(syncs[period]) {
			t.Errorf("%s: %d syncs, recorded %g, the twin's %g", period, syncs[period], c.Measured.Syncs, says.Syncs.Value)
		}
		if len(c.measured) != len(says.latencies)/3 || c.Changes != len(c.measured) {
			t.Errorf("%s: %d changes seen, %d by the twin", period, len(c.measured), len(says.latencies)/3)
		}
		if i > 0 {
			before := a.Cells[i-1].Twins[0]
			if says.P50.Value <= before.P50.Value || says.Syncs.Value >= before.Syncs.Value {
				t.Errorf("%s: p50 %g s in %g syncs, with the shorter interval %g s in %g", period, says.P50.Value, says.Syncs.Value, before.P50.Value, before.Syncs.Value)
			}
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, AgreementPage))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"twin-scatter.svg", "twin-kube-proxy-nftables.svg", "minSyncPeriod=5s", "9 of 9 quantiles"} {
		if !strings.Contains(strings.ReplaceAll(string(page), "\u00a0", " "), part) {
			t.Errorf("the page lacks %q", part)
		}
	}
	var table strings.Builder
	if err := a.Table(&table); err != nil || strings.Count(table.String(), "agrees") != 3 {
		t.Errorf("%v\n%s", err, table.String())
	}
	if _, err := json.Marshal(a); err != nil {
		t.Error(err)
	}
}

// A cost model of other syncs does not agree, and the verdict says so; one of the same does.
func TestTwinOfACostModel(t *testing.T) {
	dir, _ := syntheticAgreement(t)
	for _, partial := range []time.Duration{syntheticPartial, 20 * syntheticPartial} {
		a, err := BuildAgreement(dir, AgreementOptions{Seeds: 2, NoPNG: true, Model: syntheticModel(t, partial)})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range a.Cells {
			if len(c.Twins) != 2 || c.Twins[1].Cost != ModelCost {
				t.Fatalf("%d twins; remarks %q", len(c.Twins), a.Remarks)
			}
			if same := partial == syntheticPartial; c.Twins[1].Within != same && c.Cell.Params["proxy.minSyncPeriod"] == "200ms" {
				t.Errorf("syncs of %v: p50 × %.3f, p99 × %.3f, within: %v", partial, c.Twins[1].P50.Ratio, c.Twins[1].P99.Ratio, c.Twins[1].Within)
			}
		}
	}
}

// syntheticModel is fitted to small cells whose partial syncs take the same everywhere.
func syntheticModel(t *testing.T, partial time.Duration) *model.Model {
	t.Helper()
	var records []bench.Record
	for _, services := range []int{10, 20, 40, 80} {
		for rep := 1; rep <= 2; rep++ {
			put := func(metric bench.Metric, at, value float64, r bench.Record) {
				r.Metric, r.At, r.Value, r.Rep, r.Subject, r.Scenario, r.Family, r.Unit = metric, at, value, rep, "kube-proxy/nftables", "calibrate", "IPv4", "s"
				r.Services, r.Endpoints = services, 4
				records = append(records, r)
			}
			put(bench.FullSync, 1, 0.3, bench.Record{Step: "2:settle", Sync: 1, Kind: "full"})
			for k := range 3 {
				at, id := 3+2*float64(k), bench.Record{Step: fmt.Sprintf("%d:churn", 3+2*k), Sync: 2 + k, Kind: "partial"}
				put(bench.PartialSync, at, partial.Seconds(), id)
				put(bench.ToolUser, at, partial.Seconds()/2, id)
				put(bench.NetworkProgrammingLatency, at, (partial + syntheticWay).Seconds(), bench.Record{Step: id.Step})
			}
		}
	}
	run := bench.Run{ID: "calibrate", Feed: bench.FeedAPI, Scenario: scenarios.Scenario{Proxy: scenarios.Proxy{MinSyncPeriod: 250 * time.Millisecond}}}
	m, err := model.Fit(run, records, model.FitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if way := m.Subjects[0].ToNode; way == nil || way.N != 24 || math.Abs(way.Median-syntheticWay.Seconds()) > 1e-6 {
		t.Fatalf("the way to the node is %+v", way)
	}
	return m
}

// Changes that the scenario does not make, as in a run from somebody's manifests, are replayed all the same.
func TestStreamWithoutATrace(t *testing.T) {
	records := []bench.Record{
		{Metric: bench.FullSync, At: 1, Value: 0.5, Sync: 1},
		{Metric: bench.NetworkProgrammingLatency, At: 5, Value: 1},
		{Metric: bench.NetworkProgrammingLatency, At: 5, Value: 1},
		{Metric: bench.PartialSync, At: 5, Value: 0.25, Sync: 2},
	}
	s := streamOf(records, nil, corev1.IPv4Protocol)
	if len(s.before) != 1 || len(s.syncs) != 1 || s.syncs[0].changed != 2 || s.strange != 2 {
		t.Fatalf("%+v", s)
	}
	if len(s.events) != 2 || s.events[0].Due != 4*time.Second || s.events[1].Due != 4*time.Second+1 || s.events[0].Service == s.events[1].Service {
		t.Errorf("events %+v", s.events)
	}
}
