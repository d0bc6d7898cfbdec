package reportstest

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/reports/records"
	"synclab/scenarios"
)

// Run is a run with known statistics.
type Run struct {
	ID       string
	Scenario string
	Subjects []Subject
	Sizes    []int
	Reps     int
	Churn    int      // changes, at 20 a second; 0 means none
	Periods  []string // swept minSyncPeriod, with both policies
	Probe    int      // samples a position; 0 means none
	Status   string
	Failed   int  // failed syncs of each repetition
	Outside  bool // subjects are processes fed by the fake API server
	Targets  []scenarios.Target
	StopAt   float64 // a cold start that takes longer is stopped, in seconds; 0 means none
	Noise    uint64  // another seed of the noise makes another run of the same
}

// Subject takes base × services^exponent for a full sync and perRule for each position that a packet crosses.
type Subject struct {
	Name     string
	Base     float64
	Exponent float64
	partial  float64 // per Service
	PerRule  float64
	noise    float64
}

var (
	Legacy = Subject{"synclab/iptables-legacy", 1.2e-4, 1.2, 7e-5, 3e-9, 0.03}
	NFT    = Subject{"synclab/iptables-nft", 2e-6, 1.9, 3e-5, 6e-9, 0.05}
)

// Write writes the run folder.
func (y Run) Write(t testing.TB, dir string) {
	t.Helper()
	started := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	finished := started.Add(14 * time.Minute)
	run := raw.Run{ID: y.ID, Started: started, Finished: &finished, Status: y.Status, Reps: y.Reps, Seed: 7,
		Command:  "synclab run " + y.Scenario + " --services " + strconv.Itoa(y.Sizes[len(y.Sizes)-1]) + " --reps " + strconv.Itoa(y.Reps) + " --seed 7",
		Scenario: scenarios.Scenario{Name: y.Scenario, Description: "N Services loaded, one cold full sync, then an open-loop stream of single EndpointSlice changes.", Seed: 7, Targets: y.Targets},
		Versions: raw.Versions{Synclab: "v0.1.0", Go: "go1.26.8", Kernel: "6.18.0", IPTablesLegacy: "1.8.9", IPTablesNft: "1.8.9", Nft: "1.0.6"},
		Machine:  raw.Machine{OS: "Debian GNU/Linux 12", CPU: "Example CPU @ 2.60GHz", CPUs: 2, MemoryBytes: 8 << 30}}
	if y.Outside {
		run.Feed, run.Versions.KubeProxy = raw.FeedAPI, "v1.36.3"
	}
	for _, s := range y.Subjects {
		run.Subjects = append(run.Subjects, s.Name)
	}
	if run.Status == "" {
		run.Status = "complete"
	}
	head, err := json.Marshal(run)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "run.json"), head, 0o644); err != nil {
		t.Fatal(err)
	}
	w := &syntheticWriter{y: y, random: rand.New(rand.NewPCG(7, 7+y.Noise))}
	encoder := json.NewEncoder(&w.out)
	w.encode = func(r raw.Record) {
		if err := encoder.Encode(r); err != nil {
			t.Fatal(err)
		}
	}
	w.all()
	if err := os.WriteFile(filepath.Join(dir, "records.jsonl"), w.out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

type syntheticWriter struct {
	y      Run
	random *rand.Rand
	out    bytes.Buffer
	encode func(raw.Record)
	cell   raw.Record // common to all records of the repetition
	sync   int
}

// put writes one value, times in whole nanoseconds.
func (w *syntheticWriter) put(at float64, metric raw.Metric, value float64, unit string, more raw.Record) {
	r := w.cell
	if unit == "s" {
		value = math.Round(value*1e9) / 1e9
	}
	r.At, r.Metric, r.Value, r.Unit = at, metric, value, unit
	r.Change, r.Kind, r.Sync, r.Table, r.Position, r.Error, r.Step, r.Share = more.Change, more.Kind, more.Sync, more.Table, more.Position, more.Error, more.Step, more.Share
	w.encode(r)
}

func (w *syntheticWriter) all() {
	if w.y.Outside {
		for _, services := range w.y.Sizes {
			for rep := 1; rep <= w.y.Reps; rep++ {
				for _, subject := range w.y.Subjects {
					w.cell = raw.Record{Scenario: w.y.Scenario, Subject: subject.Name, Services: services, Endpoints: 10, Rep: rep}
					w.repetition(subject)
				}
			}
		}
		return
	}
	for _, subject := range w.y.Subjects {
		for _, services := range w.y.Sizes {
			settings := []map[string]string{nil}
			if len(w.y.Periods) > 0 {
				settings = nil
				for _, policy := range []string{"token-bucket", "completion-to-start"} {
					for _, period := range w.y.Periods {
						settings = append(settings, map[string]string{"proxy.minSyncPeriod": period, "proxy.policy": policy})
					}
				}
			}
			for _, params := range settings {
				for rep := 1; rep <= w.y.Reps; rep++ {
					w.cell = raw.Record{Scenario: w.y.Scenario, Subject: subject.Name, Services: services, Endpoints: 10, Params: params, Rep: rep}
					w.repetition(subject)
				}
			}
		}
	}
}

// noisy multiplies a value by log-normal noise of the subject.
func (w *syntheticWriter) noisy(s Subject, v float64) float64 {
	return v * math.Exp(s.noise*w.random.NormFloat64())
}

func (w *syntheticWriter) repetition(s Subject) {
	w.sync = 0
	n := float64(w.cell.Services)
	if w.y.Outside && w.fromOutside(s) {
		return
	}
	w.put(0.5, raw.Load, 1.5e-4*n, "s", raw.Record{Step: "1:create"})
	at := 0.5 + w.oneSync(s, 0.5, "full")
	for i := range w.y.Failed {
		w.sync++
		w.put(at+float64(i), raw.PartialSync, 9, "s", raw.Record{Kind: "partial", Sync: w.sync, Error: "iptables-restore: killed"})
		w.put(at+float64(i), raw.SyncFailed, 1, "count", raw.Record{Kind: "partial", Sync: w.sync, Error: "iptables-restore: killed"})
	}
	if w.y.Churn > 0 {
		w.churn(s, at+0.5)
	}
	if s.Name == ProxyNftables.Name {
		w.put(at+60, raw.RulesKernel, 30+4*n, "count", raw.Record{Table: "nftables", Step: "3:settle"})
		w.put(at+60, raw.RulesKernel, 2*n, "count", raw.Record{Table: "nftables/elements", Step: "3:settle"})
	}
	for _, table := range []string{"nat", "filter"} {
		if s.Name == ProxyNftables.Name {
			break
		}
		for _, metric := range []raw.Metric{raw.RulesKernel, raw.RulesExpected} {
			w.put(at+60, metric, closedForm(table, w.cell.Services), "count", raw.Record{Table: table, Step: "3:settle"})
		}
	}
	w.put(at+60, raw.PeakRSS, 6e7+2.2e4*n, "B", raw.Record{})
	if w.y.Probe > 0 {
		w.traversal(s)
	}
}

func closedForm(table string, services int) float64 {
	if table == "filter" {
		return 9
	}
	return float64(11 + services*(2+10*2+1))
}

// oneSync writes all values of a sync that starts at a given time, and returns the sync's duration.
func (w *syntheticWriter) oneSync(s Subject, start float64, kind string) float64 {
	w.sync++
	n := float64(w.cell.Services)
	d, metric := w.noisy(s, s.Base*math.Pow(n, s.Exponent)), raw.FullSync
	if kind == "partial" {
		d, metric = w.noisy(s, 0.02+s.partial*n), raw.PartialSync
	}
	of := raw.Record{Kind: kind, Sync: w.sync, Step: "2:churn"}
	w.put(start+d, metric, d, "s", of)
	for _, part := range []struct {
		metric raw.Metric
		share  float64
	}{{raw.Plan, 0.08}, {raw.Encode, 0.12}, {raw.ToolUser, 0.55}, {raw.ToolSys, 0.18}, {raw.Restore, 0.76}} {
		if own := part.metric == raw.Plan || part.metric == raw.Encode; own && subject.IsKubeProxy(s.Name) {
			continue // kube-proxy does not report these
		}
		w.put(start+d, part.metric, d*part.share, "s", of)
	}
	w.put(start, raw.Queue, 0.2, "s", of)
	w.put(start, raw.Backlog, 4, "count", of)
	w.put(start+d, raw.RestoreBytes, 1800*n, "B", of)
	w.put(start+d, raw.ChildPeakRSS, 2.3e4*n, "B", of)
	for _, table := range []string{"nat", "filter"} {
		if w.y.Outside {
			break // only the kernel's counts exist
		}
		w.put(start+d, raw.Rules, closedForm(table, w.cell.Services), "count", raw.Record{Kind: kind, Sync: w.sync, Table: table, Step: of.Step})
	}
	return d
}

// churn makes changes that are due 20 a second. Syncs start at least one period apart.
func (w *syntheticWriter) churn(s Subject, start float64) {
	period := 1.0
	if text := w.cell.Params["proxy.minSyncPeriod"]; text != "" {
		period, _ = records.Quantity(text)
	}
	next, done := start, 0
	for i := 0; done < w.y.Churn; i++ {
		kind := "partial"
		if i%25 == 24 {
			kind = "full"
		}
		due := start + float64(done)/20
		begin := max(next, due)
		d := w.oneSync(s, begin, kind)
		end := begin + d
		if w.cell.Params["proxy.policy"] == "completion-to-start" {
			next = end + period
		} else {
			next = max(begin+period, end)
		}
		for done < w.y.Churn && start+float64(done)/20 <= begin {
			w.put(end, raw.NetworkProgrammingLatency, end-(start+float64(done)/20), "s", raw.Record{Kind: kind, Sync: w.sync, Step: "2:churn", Change: done + 1})
			done++
		}
	}
}

// traversal costs 3 µs before the first rule and perRule for each position crossed. One packet in fifty meets an
// interrupt.
func (w *syntheticWriter) traversal(s Subject) {
	cost := func(crossed float64) float64 {
		v := 3e-6 + s.PerRule*crossed + 1e-7*math.Abs(w.random.NormFloat64())
		if w.random.IntN(50) == 0 {
			v += 5e-5
		}
		return v
	}
	n := w.cell.Services
	for i := -2; i <= 10; i++ {
		position, crossed := max(1, n*i/10), float64(max(1, n*i/10))
		if i == -2 {
			position, crossed = 0, -300
		}
		if i == -1 {
			position, crossed = -1, float64(n)
		}
		for range w.y.Probe {
			w.put(70, raw.FirstPacket, cost(crossed), "s", raw.Record{Position: &position, Step: "4:probe"})
		}
	}
}

// Churning is a run of two subjects with a stream of changes.
var Churning = Run{Scenario: "steady-churn", Subjects: []Subject{Legacy, NFT}, Sizes: []int{1000}, Reps: 8, Churn: 60, Probe: 40}
