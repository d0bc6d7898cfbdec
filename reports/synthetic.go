package reports

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"synclab/bench/raw"
	"synclab/reports/comparison"
	"synclab/reports/records"
	"synclab/scenarios"
)

// synthetic is a run with known statistics.
type synthetic struct {
	id       string
	scenario string
	subjects []syntheticSubject
	sizes    []int
	reps     int
	churn    int      // changes, at 20 a second; 0 means none
	periods  []string // swept minSyncPeriod, with both policies
	probe    int      // samples a position; 0 means none
	status   string
	failed   int  // failed syncs of each repetition
	outside  bool // subjects are processes fed by the fake API server
	targets  []scenarios.Target
	stopAt   float64 // a cold start that takes longer is stopped, in seconds; 0 means none
	noise    uint64  // another seed of the noise makes another run of the same
}

// syntheticSubject takes base × services^exponent for a full sync and perRule for each position that a packet crosses.
type syntheticSubject struct {
	name     string
	base     float64
	exponent float64
	partial  float64 // per Service
	perRule  float64
	noise    float64
}

var (
	legacy = syntheticSubject{"synclab/iptables-legacy", 1.2e-4, 1.2, 7e-5, 3e-9, 0.03}
	nft    = syntheticSubject{"synclab/iptables-nft", 2e-6, 1.9, 3e-5, 6e-9, 0.05}
)

// write writes the run folder.
func (y synthetic) write(t testing.TB, dir string) {
	t.Helper()
	started := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	finished := started.Add(14 * time.Minute)
	run := raw.Run{ID: y.id, Started: started, Finished: &finished, Status: y.status, Reps: y.reps, Seed: 7,
		Command:  "synclab run " + y.scenario + " --services " + strconv.Itoa(y.sizes[len(y.sizes)-1]) + " --reps " + strconv.Itoa(y.reps) + " --seed 7",
		Scenario: scenarios.Scenario{Name: y.scenario, Description: "N Services loaded, one cold full sync, then an open-loop stream of single EndpointSlice changes.", Seed: 7, Targets: y.targets},
		Versions: raw.Versions{Synclab: "v0.1.0", Go: "go1.26.8", Kernel: "6.18.0", IPTablesLegacy: "1.8.9", IPTablesNft: "1.8.9", Nft: "1.0.6"},
		Machine:  raw.Machine{OS: "Debian GNU/Linux 12", CPU: "Example CPU @ 2.60GHz", CPUs: 2, MemoryBytes: 8 << 30}}
	if y.outside {
		run.Feed, run.Versions.KubeProxy = raw.FeedAPI, "v1.36.3"
	}
	for _, s := range y.subjects {
		run.Subjects = append(run.Subjects, s.name)
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
	w := &syntheticWriter{y: y, random: rand.New(rand.NewPCG(7, 7+y.noise))}
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
	y      synthetic
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
	r.Kind, r.Sync, r.Table, r.Position, r.Error, r.Step = more.Kind, more.Sync, more.Table, more.Position, more.Error, more.Step
	w.encode(r)
}

func (w *syntheticWriter) all() {
	if w.y.outside {
		for _, services := range w.y.sizes {
			for rep := 1; rep <= w.y.reps; rep++ {
				for _, subject := range w.y.subjects {
					w.cell = raw.Record{Scenario: w.y.scenario, Subject: subject.name, Services: services, Endpoints: 10, Rep: rep}
					w.repetition(subject)
				}
			}
		}
		return
	}
	for _, subject := range w.y.subjects {
		for _, services := range w.y.sizes {
			settings := []map[string]string{nil}
			if len(w.y.periods) > 0 {
				settings = nil
				for _, policy := range []string{"token-bucket", "completion-to-start"} {
					for _, period := range w.y.periods {
						settings = append(settings, map[string]string{"proxy.minSyncPeriod": period, "proxy.policy": policy})
					}
				}
			}
			for _, params := range settings {
				for rep := 1; rep <= w.y.reps; rep++ {
					w.cell = raw.Record{Scenario: w.y.scenario, Subject: subject.name, Services: services, Endpoints: 10, Params: params, Rep: rep}
					w.repetition(subject)
				}
			}
		}
	}
}

// noisy multiplies a value by log-normal noise of the subject.
func (w *syntheticWriter) noisy(s syntheticSubject, v float64) float64 {
	return v * math.Exp(s.noise*w.random.NormFloat64())
}

func (w *syntheticWriter) repetition(s syntheticSubject) {
	w.sync = 0
	n := float64(w.cell.Services)
	if w.y.outside && w.fromOutside(s) {
		return
	}
	w.put(0.5, raw.Load, 1.5e-4*n, "s", raw.Record{Step: "1:create"})
	at := 0.5 + w.oneSync(s, 0.5, "full")
	for i := range w.y.failed {
		w.sync++
		w.put(at+float64(i), raw.PartialSync, 9, "s", raw.Record{Kind: "partial", Sync: w.sync, Error: "iptables-restore: killed"})
		w.put(at+float64(i), raw.SyncFailed, 1, "count", raw.Record{Kind: "partial", Sync: w.sync, Error: "iptables-restore: killed"})
	}
	if w.y.churn > 0 {
		w.churn(s, at+0.5)
	}
	if s.name == proxyNftables.name {
		w.put(at+60, raw.RulesKernel, 30+4*n, "count", raw.Record{Table: "nftables", Step: "3:settle"})
		w.put(at+60, raw.RulesKernel, 2*n, "count", raw.Record{Table: "nftables/elements", Step: "3:settle"})
	}
	for _, table := range []string{"nat", "filter"} {
		if s.name == proxyNftables.name {
			break
		}
		for _, metric := range []raw.Metric{raw.RulesKernel, raw.RulesExpected} {
			w.put(at+60, metric, closedForm(table, w.cell.Services), "count", raw.Record{Table: table, Step: "3:settle"})
		}
	}
	w.put(at+60, raw.PeakRSS, 6e7+2.2e4*n, "B", raw.Record{})
	if w.y.probe > 0 {
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
func (w *syntheticWriter) oneSync(s syntheticSubject, start float64, kind string) float64 {
	w.sync++
	n := float64(w.cell.Services)
	d, metric := w.noisy(s, s.base*math.Pow(n, s.exponent)), raw.FullSync
	if kind == "partial" {
		d, metric = w.noisy(s, 0.02+s.partial*n), raw.PartialSync
	}
	of := raw.Record{Kind: kind, Sync: w.sync, Step: "2:churn"}
	w.put(start+d, metric, d, "s", of)
	for _, part := range []struct {
		metric raw.Metric
		share  float64
	}{{raw.Plan, 0.08}, {raw.Encode, 0.12}, {raw.ToolUser, 0.55}, {raw.ToolSys, 0.18}, {raw.Restore, 0.76}} {
		if own := part.metric == raw.Plan || part.metric == raw.Encode; own && strings.HasPrefix(s.name, comparison.KubeProxy) {
			continue // kube-proxy does not report these
		}
		w.put(start+d, part.metric, d*part.share, "s", of)
	}
	w.put(start, raw.Queue, 0.2, "s", of)
	w.put(start, raw.Backlog, 4, "count", of)
	w.put(start+d, raw.RestoreBytes, 1800*n, "B", of)
	w.put(start+d, raw.ChildPeakRSS, 2.3e4*n, "B", of)
	for _, table := range []string{"nat", "filter"} {
		if w.y.outside {
			break // only the kernel's counts exist
		}
		w.put(start+d, raw.Rules, closedForm(table, w.cell.Services), "count", raw.Record{Kind: kind, Sync: w.sync, Table: table, Step: of.Step})
	}
	return d
}

// churn makes changes that are due 20 a second. Syncs start at least one period apart.
func (w *syntheticWriter) churn(s syntheticSubject, start float64) {
	period := 1.0
	if text := w.cell.Params["proxy.minSyncPeriod"]; text != "" {
		period, _ = records.Quantity(text)
	}
	next, done := start, 0
	for i := 0; done < w.y.churn; i++ {
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
		for done < w.y.churn && start+float64(done)/20 <= begin {
			w.put(end, raw.NetworkProgrammingLatency, end-(start+float64(done)/20), "s", raw.Record{Kind: kind, Sync: w.sync, Step: "2:churn"})
			done++
		}
	}
}

// traversal costs 3 µs before the first rule and perRule for each position crossed. One packet in fifty meets an
// interrupt.
func (w *syntheticWriter) traversal(s syntheticSubject) {
	cost := func(crossed float64) float64 {
		v := 3e-6 + s.perRule*crossed + 1e-7*math.Abs(w.random.NormFloat64())
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
		for range w.y.probe {
			w.put(70, raw.FirstPacket, cost(crossed), "s", raw.Record{Position: &position, Step: "4:probe"})
		}
	}
}
