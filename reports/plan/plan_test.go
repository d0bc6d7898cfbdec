package plan

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"synclab/bench"
	"synclab/bench/raw"
	"synclab/bench/search"
	"synclab/proxier/runner"
	"synclab/reports/comparison"
	"synclab/reports/reportstest"
)

// proxy is a made-up subject: what its cells record is known.
type proxy struct {
	name             string
	start, memory    float64 // at 1,000 Services; both grow in proportion
	packet           float64
	full, partial    float64
	cpu              float64 // s of a change
	withoutSyncs     bool
	withoutReports   bool // of the changes of a sync
	startsNeverAbove int
}

// records are those of one repetition.
func (p proxy) records(size, rep int, setting string, rate float64) []raw.Record {
	by := float64(size) / 1000
	params := map[string]string{raw.PlanSizeField: strconv.Itoa(size)}
	if setting != "" {
		period, policy, _ := strings.Cut(setting, " ")
		if params["proxy.minSyncPeriod"] = period; policy != "" {
			params["proxy.policy"] = policy
		}
	}
	var out []raw.Record
	put := func(at float64, step string, metric raw.Metric, value float64, more func(*raw.Record)) {
		r := raw.Record{At: at, Step: step, Scenario: "plan", Subject: p.name, Services: size, Endpoints: 10, Params: params, Rep: rep, Metric: metric, Value: value, Unit: "s"}
		if more != nil {
			more(&r)
		}
		out = append(out, r)
	}
	if p.startsNeverAbove > 0 && size > p.startsNeverAbove {
		put(60, "2:settle", raw.Exceeded, 60, func(r *raw.Record) { r.Error = "not converged" })
		return out
	}
	start := p.start * by
	put(start, "2:settle", raw.ColdStart, start, nil)
	put(start, "2:settle", raw.FullSync, p.full*by, func(r *raw.Record) { r.Sync, r.Kind = 1, "full" })
	put(start, "2:settle", raw.SubjectCPU, p.full*by, nil)
	for i := range 100 {
		position := 1 + i%2*(size-1)
		put(start+1, "3:probe", raw.FirstPacket, p.packet*by, func(r *raw.Record) { r.Position = &position })
	}
	at := start + 2
	sync := 1
	partial := func(step string, changes int, metric raw.Metric) {
		sync++
		at += p.partial
		for range changes {
			put(at, step, metric, p.partial+0.001, nil)
		}
		if !p.withoutSyncs {
			put(at, step, raw.PartialSync, p.partial, func(r *raw.Record) { r.Sync, r.Kind = sync, "partial" })
		}
		if !p.withoutSyncs && !p.withoutReports {
			put(at, step, raw.Changes, float64(changes), func(r *raw.Record) { r.Sync, r.Kind = sync, "partial" })
		}
		at++
	}
	for range 4 {
		partial("4:react", 1, raw.Reaction)
	}
	changes := int(rate * ChurnSeconds)
	put(at, "5:churn", raw.ChangesApplied, float64(changes), nil)
	for range ChurnSeconds {
		partial("5:churn", max(1, int(rate)), raw.NetworkProgrammingLatency)
	}
	put(at, "6:settle", raw.SubjectCPU, p.cpu*float64(changes), nil)
	partial("8:settle", int(10*rate), raw.NetworkProgrammingLatency)
	put(at, "8:settle", raw.PeakRSS, p.memory*by, nil)
	return out
}

func question(subjects ...string) Question {
	c := Cluster{Services: 10000, Endpoints: 10, Nodes: 1000, Churn: Churn{Endpoints: 10}}
	return Question{Subjects: subjects, Today: c, Asked: c, Shape: "10 endpoints each", Key: "k", SLOs: comparison.PlanSLOs, MinSyncPeriod: time.Second, SliceBytes: 1000, Seed: 1}
}

var (
	legacy   = proxy{name: "kube-proxy/iptables-legacy", start: 1.2, memory: 20 << 20, packet: 3e-6, full: 1, partial: 0.4, cpu: 0.02}
	nftables = proxy{name: "kube-proxy/nftables", start: 3.7, memory: 10 << 20, packet: 0.5e-6, full: 2.5, partial: 0.2, cpu: 0.01}
)

// answer measures sizes of subjects, three times each, and answers.
func answer(t *testing.T, q Question, sizes map[string][]int, subjects ...proxy) *Answer {
	t.Helper()
	run := &raw.Run{ID: "plan-1", Command: "synclab plan --services 10000 --churn 10", Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Status: raw.StatusComplete,
		Machine: raw.Machine{CPU: "Test CPU", CPUs: 2}, Versions: raw.Versions{Kernel: "6.12.0"}}
	var records []raw.Record
	for _, p := range subjects {
		run.Subjects = append(run.Subjects, p.name)
		for _, size := range sizes[p.name] {
			for rep := range 3 {
				records = append(records, p.records(size, rep+1, "", q.Asked.At(size).Churn.Endpoints)...)
			}
		}
	}
	a, err := NewAnswer(q, run, records)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAnswer(t *testing.T) {
	q := question(legacy.name, nftables.name)
	a := answer(t, q, map[string][]int{legacy.name: {10000, 20000}, nftables.name: {5000, 7000, 10000}}, legacy, nftables)
	for i, want := range []struct {
		met, violated int
		first, limit  string
		asked         State
	}{
		{20000, 0, "", "at least 20,000 (measured); beyond, unknown", Meets},
		{7000, 10000, Start, "met at 7,000 (measured), violated at 10,000 (measured): start 37 s", Violates},
	} {
		s := &a.Subjects[i]
		if s.Bracket.Met != want.met || s.Bracket.Violated != want.violated || strings.Join(s.First, ",") != want.first || s.Basis != Measured || a.Asked(s) != want.asked {
			t.Errorf("%s: %+v, first %v, %s, %v; want %+v", s.Name, s.Bracket, s.First, s.Basis, a.Asked(s), want)
		}
		if limit := s.Limit(&q); !strings.HasPrefix(limit, want.limit) {
			t.Errorf("%s: %q, want %q", s.Name, limit, want.limit)
		}
	}
	dir := t.TempDir()
	if err := a.Write(dir); err != nil {
		t.Fatal(err)
	}
	again, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Build(dir, false); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := again.Document(nil).Text(&text); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"✓ To at least 20,000 Services: there, kube-proxy/iptables-legacy meets every SLO", "violated at 10,000 (measured): start 37 s", "1,000 watch events"} {
		if !strings.Contains(strings.Join(strings.Fields(text.String()), " "), part) {
			t.Errorf("the answer lacks %q:\n%s", part, text.String())
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, CapacityPage))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"plan-start", "minSyncPeriod: ", "resources.limits.memory"} {
		if !strings.Contains(string(page), part) {
			t.Errorf("the page lacks %q", part)
		}
	}
	if !HasKey(dir, "k") || HasKey(dir, "other") {
		t.Error("the key of the question is not found")
	}
	for text, change := range map[string]func(*Question){
		"the same":         func(*Question) {},
		"one subject more": func(q *Question) { q.Subjects = append(slices.Clone(q.Subjects), "x/y") },
		"one subject less": func(q *Question) { q.Subjects = q.Subjects[1:] },
		"another SLO":      func(q *Question) { q.SLOs.CPU = 2 },
		"more Services":    func(q *Question) { q.Asked.Services *= 2 },
		"other changes":    func(q *Question) { q.Key = "other" },
	} {
		again := q
		change(&again)
		if got, want := again.GoesOn(dir), strings.Contains("the same, one subject more", text); got != want {
			t.Errorf("%s: goes on: %v", text, got)
		}
	}
}

// TestStopped: a subject that is stopped violates the SLO by at least that much.
func TestStopped(t *testing.T) {
	slow := nftables
	slow.startsNeverAbove = 8000
	q := question(slow.name)
	s := answer(t, q, map[string][]int{slow.name: {7000, 10000}}, slow).Subjects[0]
	if limit := s.Limit(&q); limit != "met at 7,000 (measured), violated at 10,000 (measured): start more than 60 s" {
		t.Error(limit)
	}
}

// TestHeadline: the first line answers the title's question, with growth and without, and the next one names what was assumed.
func TestHeadline(t *testing.T) {
	for _, c := range []struct {
		services, today int
		sizes           []int
		title, first    string
	}{
		{10000, 10000, []int{10000, 20000}, "How far can this cluster grow?", "To at least 20,000 Services: there, "},
		{5000, 5000, []int{5000, 7000, 10000}, "How far can this cluster grow?", "To 7,000 Services: there, "},
		{10000, 10000, []int{7000, 10000}, "How far can this cluster grow?", "Not at all: already at 10,000 Services, "},
		{5000, 2500, []int{5000, 10000}, "Can this cluster grow to 5,000 Services?", "Yes: at 5,000 Services, "},
		{10000, 5000, []int{7000, 10000}, "Can this cluster grow to 10,000 Services?", "No: at 10,000 Services, "},
	} {
		p := nftables
		if len(c.sizes) == 2 && c.first[:2] == "To" {
			p = legacy
		}
		q := question(p.name)
		q.Today.Services, q.Asked.Services, q.Assumed = c.today, c.services, true
		a := answer(t, q, map[string][]int{p.name: c.sizes}, p)
		lines := a.Verdict()
		if title := a.Document(nil).Title; title != c.title || !strings.HasPrefix(lines[0].Text, c.first) {
			t.Errorf("%s %s; want %s %s", title, lines[0].Text, c.title, c.first)
		}
		if assumed := lines[1].Text; assumed != p.name+" was assumed to be in use today: --today names another subject." {
			t.Error(assumed)
		}
	}
}

// A plan for more changes, of as many Services, is asked whether that can be.
func TestOtherGrowth(t *testing.T) {
	q := question(legacy.name)
	q.Asked.Churn.Endpoints, q.Asked.Churn.Trace = 30, []float64{}
	a := answer(t, q, map[string][]int{legacy.name: {10000, 20000}}, legacy)
	if title, first := a.Document(nil).Title, a.Verdict()[0].Text; title != "Can this cluster become what was asked for?" || !strings.Contains(first, ": at 10,000 Services, ") {
		t.Errorf("%s %s", title, first)
	}
	q.Asked.Churn.Endpoints = q.Today.Churn.Endpoints // a list of no times is none
	if q.grows() {
		t.Error("an equal cluster is another one")
	}
}

// The SLOs of earlier versions had other units and names: such a plan is refused, and no cell of it is taken over as the same question's.
func TestPlanOfAnEarlierVersion(t *testing.T) {
	dir := t.TempDir()
	a := answer(t, question(legacy.name), map[string][]int{legacy.name: {10000}}, legacy)
	if err := a.Write(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, AnswerFile)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.Replace(text, []byte(`"limits"`), []byte(`"slos"`), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "not a plan of this version of synclab; plan again: synclab plan") {
		t.Errorf("%v", err)
	}
}

// TestConstant: a quantity that violates its SLO at every size alike is said not to grow with the number of Services.
func TestConstant(t *testing.T) {
	q := question(legacy.name)
	for same, want := range map[bool]string{
		true:  "first packet p99 200 µs (it hardly grows with the number of Services); at no measured size met",
		false: "first packet p99 200 µs; at no measured size met",
	} {
		var list []raw.Record
		for _, size := range []int{1000, 2000, 4000} {
			for _, r := range legacy.records(size, 1, "", 1) {
				if r.Metric == raw.FirstPacket {
					if r.Value = 200e-6; !same {
						r.Value *= float64(size) / 1000
					}
				}
				list = append(list, r)
			}
		}
		a, err := NewAnswer(q, &raw.Run{Subjects: q.Subjects}, list)
		if err != nil {
			t.Fatal(err)
		}
		if limit := a.Subjects[0].Limit(&q); !strings.HasSuffix(limit, want) {
			t.Errorf("%q, want %q", limit, want)
		}
	}
}

// TestChance: an SLO that a size violates and a larger one meets is not what limits the subject, or not for sure.
func TestChance(t *testing.T) {
	q := question(legacy.name)
	var list []raw.Record
	for size, packet := range map[int]float64{1000: 50e-6, 2000: 200e-6, 4000: 90e-6} {
		for _, r := range legacy.records(size, 1, "", 1) {
			switch {
			case r.Metric == raw.FirstPacket:
				r.Value = packet
			case r.Metric == raw.PeakRSS && size == 4000:
				r.Value = 1e12
			}
			list = append(list, r)
		}
	}
	a, err := NewAnswer(q, &raw.Run{Subjects: q.Subjects}, list)
	if err != nil {
		t.Fatal(err)
	}
	if limit := a.Subjects[0].Limit(&q); !strings.Contains(limit, "violated at 2,000 (observed): first packet p99 200 µs (but met at 4,000") {
		t.Errorf("%q", limit)
	}
}

// TestInterrupted: what a repetition had not measured when it was interrupted is not met.
func TestInterrupted(t *testing.T) {
	q := question(legacy.name)
	run := &raw.Run{Subjects: q.Subjects}
	whole := legacy.records(5000, 1, "", 5)
	for _, n := range []int{1, 60, 110, 150, len(whole) - 1} {
		a, err := NewAnswer(q, run, whole[:n])
		if err != nil {
			t.Fatal(err)
		}
		if s := a.Subjects[0]; s.Bracket.Met != 0 || len(s.Cells) != 0 {
			t.Errorf("%d of %d records: %+v", n, len(whole), s.Bracket)
		}
	}
}

// The longest time that another process could not run, by the watchdog or by the kernel's log, is judged if the plan asks.
func TestStall(t *testing.T) {
	for _, c := range []struct {
		metric raw.Metric
		slo    float64
		want   string
	}{{raw.ScheduleGap, 1, Stall}, {raw.KernelStall, 1, Stall}, {raw.ScheduleGap, 3, ""}, {raw.ScheduleGap, 0, ""}} {
		q := question(nftables.name)
		q.SLOs.Stall = c.slo
		records := append(nftables.records(1000, 1, "", 1), raw.Record{Params: map[string]string{raw.PlanSizeField: "1000"}, Subject: nftables.name, Rep: 1, Step: "1:create", Metric: c.metric, Value: 2, Unit: "s"})
		if c.metric == raw.KernelStall {
			records[len(records)-1].Error = "watchdog: BUG: soft lockup"
		}
		cell, err := ReadCell(&q, bench.PlanCells(records)[0])
		if err != nil || strings.Join(cell.Violated, ",") != c.want {
			t.Errorf("%+v: violated %v, %v", c, cell.Violated, err)
		}
	}
}

// The longest write of another program is judged if the plan asks, and what its steps cost the subject counts for nothing else but peak
// memory.
func TestWriterWait(t *testing.T) {
	for slo, want := range map[float64]string{1: WriterWait, 3: ""} {
		q := question(nftables.name)
		q.SLOs.WriterWait = slo
		of := func(step, fault string, metric raw.Metric, value float64) raw.Record {
			return raw.Record{Params: map[string]string{raw.PlanSizeField: "1000"}, Subject: nftables.name, Rep: 1, Step: step, Fault: fault, Metric: metric, Value: value, Unit: "s"}
		}
		records := nftables.records(1000, 1, "", 1)
		if _, err := ReadCell(&q, bench.PlanCells(records)[0]); err == nil {
			t.Error("a repetition beside which nothing wrote was judged")
		}
		failed := of("10:restart", "9:fault writer", raw.WriterWait, 0.1)
		failed.Outcome = raw.WriteFailed
		for _, extra := range []raw.Record{failed, of("8:settle", "", raw.Exceeded, 60)} {
			if cell, err := ReadCell(&q, bench.PlanCells(append(slices.Clone(records), extra))[0]); err == nil {
				t.Errorf("with %+v, a repetition was judged: %+v", extra, cell)
			}
		}
		early := q // a repetition ends after its start if that violates its SLO
		early.SLOs.Start = 1e-6
		if cell, err := ReadCell(&early, bench.PlanCells(records)[0]); err != nil || !slices.Contains(cell.Violated, Start) {
			t.Errorf("a start that violates its SLO: %+v, %v", cell.Violated, err)
		}
		unasked := q
		unasked.SLOs.WriterWait = 0
		without, err := ReadCell(&unasked, bench.PlanCells(records)[0])
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, of("9:fault", "9:fault writer", raw.WriterWait, 0.1), of("10:restart", "9:fault writer", raw.WriterWait, 2),
			of("11:settle", "", raw.FullSync, 100), of("11:settle", "", raw.ColdStart, 100), of("11:settle", "", raw.SubjectCPU, 100))
		cell, err := ReadCell(&q, bench.PlanCells(records)[0])
		if err != nil || strings.Join(cell.Violated, ",") != want || cell.Values[WriterWait].V != 2 {
			t.Errorf("%v s: violated %v, %+v, %v", slo, cell.Violated, cell.Values, err)
		}
		stopped := append(slices.Clone(records), of("11:settle", "", raw.Exceeded, 60))
		cell, err = ReadCell(&q, bench.PlanCells(stopped)[0])
		if (err == nil) != (want != "") || strings.Join(cell.Violated, ",") != want {
			t.Errorf("%v s, stopped: violated %v, %v", slo, cell.Violated, err)
		}
		if *cell.FullSync != *without.FullSync || cell.Values[Start] != without.Values[Start] || cell.Values[CPU] != without.Values[CPU] {
			t.Errorf("with writers %+v, without %+v", cell, without)
		}
	}
}

// TestStoppedAt: only at the start and at changes of the asked rate does a subject that is stopped violate the SLO of that step.
func TestStoppedAt(t *testing.T) {
	q := question(legacy.name)
	for _, c := range []struct {
		step, unit string
		violated   string
		err        bool
	}{
		{"6:settle", "s", Latency, false},
		{"8:settle", "s", "", false}, // a burst: most of the hour has none
		{"6:settle", "B", Memory, false},
		{"2:settle", "count", "", true}, // the tool could not write that many rules
	} {
		records := append(legacy.records(5000, 1, "", 5), raw.Record{Params: map[string]string{raw.PlanSizeField: "5000"}, Subject: legacy.name, Rep: 1, Step: c.step, Metric: raw.Exceeded, Value: 1 << 31, Unit: c.unit, Error: "too much"})
		cell, err := ReadCell(&q, bench.PlanCells(records)[0])
		if (err != nil) != c.err || strings.Join(cell.Violated, ",") != c.violated {
			t.Errorf("%+v: violated %v, %v", c, cell.Violated, err)
		}
	}
}

// TestRareChanges: without steady changes, rollouts and node losses are judged by the hour.
func TestRareChanges(t *testing.T) {
	q := question(legacy.name)
	for name, churn := range map[string]Churn{"rollouts": {Rollouts: 1000}, "losses": {NodeLosses: 24 * 50}, "nothing": {}} {
		q.Asked.Churn = churn
		var records []raw.Record
		for _, r := range legacy.records(10000, 1, "", 5) {
			if !during(r.Step, StepChurn) {
				records = append(records, r)
			}
		}
		cell, err := ReadCell(&q, bench.PlanCells(records)[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, judged := cell.Values[Latency]; judged != (name != "nothing") {
			t.Errorf("%s: %+v", name, cell.Values)
		}
	}
}

// TestFamilies: a proxier of two families has two sync loops. Each change of endpoints changes a slice of each.
func TestFamilies(t *testing.T) {
	q := question(nftables.name)
	p := nftables
	p.withoutReports = true
	var both []raw.Record
	for _, family := range []string{"IPv4", "IPv6"} {
		for _, r := range p.records(1000, 1, "", 1) {
			if r.Family = family; family == "IPv4" || r.Metric == raw.PartialSync || r.Metric == raw.FullSync || r.Metric == raw.NetworkProgrammingLatency || r.Metric == raw.Reaction {
				both = append(both, r)
			}
		}
	}
	one, err := ReadCell(&q, bench.PlanCells(p.records(1000, 1, "", 1))[0])
	if err != nil {
		t.Fatal(err)
	}
	two, err := ReadCell(&q, bench.PlanCells(both)[0])
	if err != nil {
		t.Fatal(err)
	}
	if len(two.costs) != 2 || two.PartialSync == nil || len(two.costs[0].single()) != len(two.costs[1].single()) {
		t.Fatalf("%+v", two.costs)
	}
	if a, b := one.Values[CPU].V, two.Values[CPU].V; math.Abs(a/b-1) > 0.2 {
		t.Errorf("the same CPU time is %g CPUs with one family and %g with two", a, b)
	}
}

// TestHugeChurn: more changes than are played still give an hour.
func TestHugeChurn(t *testing.T) {
	c := Cluster{Services: 40000, Endpoints: 10, Nodes: 4000, Churn: Churn{Endpoints: 4000}}
	q := question(legacy.name)
	measured := costs{full: []float64{10}, partial: []oneSync{{took: 0.1, changes: 1}, {took: 0.5, changes: 8000}}, cpuShare: 1}
	played, err := play(&q, legacy.name, &c, []costs{measured}, q.setting("1s"))
	if err != nil {
		t.Fatal(err)
	}
	if played.P99 < 0.5 || played.P99 > 3 || played.CPU < 0.2 || played.CPU > 0.4 {
		t.Errorf("%+v", played)
	}
}

func TestNothingMeasured(t *testing.T) {
	q := question(legacy.name)
	run := &raw.Run{Subjects: q.Subjects, LeftOut: []string{legacy.name + ": cannot be measured at 10000 Services: no iptables"}}
	a, err := NewAnswer(q, run, nil)
	if err != nil {
		t.Fatal(err)
	}
	if limit := a.Subjects[0].Limit(&q); !strings.Contains(limit, "no iptables") {
		t.Error(limit)
	}
	if a.Asked(&a.Subjects[0]) != Unknown {
		t.Error("a subject that was not measured is judged")
	}
}

// TestHour: an hourly full sync of 40 s delays more than one change in a hundred of a steady stream.
func TestHour(t *testing.T) {
	c := Cluster{Services: 100, Endpoints: 10, Nodes: 10, Churn: Churn{Endpoints: 5}}
	measured := costs{full: []float64{60}, partial: []oneSync{{took: 0.1, changes: 1}, {took: 0.1, changes: 5}, {took: 0.1, changes: 300}}}
	q := question(nftables.name)
	with, err := play(&q, nftables.name, &c, []costs{measured}, q.setting("1s"))
	if err != nil {
		t.Fatal(err)
	}
	if with.P99 < 20 || with.P50 > 2 {
		t.Errorf("with a full sync of 60 s: p50 %g, p99 %g", with.P50, with.P99)
	}
	c.Services = 1000 // a large cluster: the iptables modes leave the hourly full sync out
	without, err := play(&q, legacy.name, &c, []costs{measured}, q.setting("1s"))
	if err != nil {
		t.Fatal(err)
	}
	if without.P99 > 2 {
		t.Errorf("without a full sync: p99 %g", without.P99)
	}
	c.Churn.NodeLosses = 24 * 60
	c.Nodes = 20 // 500 pods each
	lost, err := play(&q, legacy.name, &c, []costs{{full: []float64{60}, partial: []oneSync{{took: 0.1, changes: 1}, {took: 20, changes: 300}}}}, q.setting("1s"))
	if err != nil {
		t.Fatal(err)
	}
	if lost.P99 < 10 {
		t.Errorf("with a node loss a minute, whose syncs take 20 s: p99 %g", lost.P99)
	}
}

// TestCanary: a sync that holds the lock for longer than kube-proxy's check waits makes it write everything.
func TestCanary(t *testing.T) {
	c := Cluster{Services: 10000, Endpoints: 10, Nodes: 10, Churn: Churn{Endpoints: 1}}
	q := question(legacy.name)
	for _, lock := range []struct {
		partial float64
		caught  bool
	}{{1, false}, {12, true}} {
		measured := costs{full: []float64{40}, fullCPU: 40, partial: []oneSync{{took: lock.partial, changes: 1}, {took: lock.partial, changes: 20}}}
		played, err := play(&q, legacy.name, &c, []costs{measured}, q.setting("1s"))
		if err != nil {
			t.Fatal(err)
		}
		if caught := played.P99 > 30; caught != lock.caught {
			t.Errorf("partial syncs of %g s: p99 %g s; written anew: want %v", lock.partial, played.P99, lock.caught)
		}
	}
}

// TestNoChangeIsMissed: each change is written within the period and a sync, whatever its time.
func TestNoChangeIsMissed(t *testing.T) {
	c := Cluster{Services: 10000, Endpoints: 10, Nodes: 10, Churn: Churn{Endpoints: 0.4}}
	for _, name := range []string{"synclab/nftables", legacy.name} {
		q := question(name)
		measured := costs{partial: []oneSync{{took: 0.0001, changes: 1}}}
		l, err := newLoop(&q, name, &c, &measured, q.today(), rand.New(rand.NewPCG(1, 1)))
		if err != nil {
			t.Fatal(err)
		}
		events := c.events(20*hour, rand.New(rand.NewPCG(1, 2)))
		ran := l.run(events, 0, math.Inf(1))
		if longest := quantile(ran.latencies, 1); len(ran.latencies) != len(events) || longest > 1.01 {
			t.Errorf("%s: %d of %d changes, the longest after %g s", name, len(ran.latencies), len(events), longest)
		}
	}
}

// TestPlaysThePolicy: between syncs at least the period passes.
func TestPlaysThePolicy(t *testing.T) {
	c := Cluster{Services: 10000, Endpoints: 10, Nodes: 10, Churn: Churn{Endpoints: 20}}
	measured := costs{partial: []oneSync{{took: 0.01, changes: 1}, {took: 0.01, changes: 300}}, cpuShare: 1}
	q := question(legacy.name)
	for _, period := range []time.Duration{200 * time.Millisecond, time.Second, 2 * time.Second} {
		played, err := playChurn(&q, legacy.name, &c, []costs{measured}, bench.Setting{MinSyncPeriod: period})
		if err != nil {
			t.Fatal(err)
		}
		if p := period.Seconds(); math.Abs(played.P50/(p/2)-1) > 0.2 || math.Abs(played.CPU/(0.01/(p+0.01))-1) > 0.3 {
			t.Errorf("minSyncPeriod %v: p50 %g, CPU %g", period, played.P50, played.CPU)
		}
	}
}

func TestRecommend(t *testing.T) {
	one := func(period time.Duration, p99, cpu float64, met bool) Setting {
		return Setting{Setting: bench.Setting{MinSyncPeriod: period}, Played: Played{P99: p99, CPU: cpu}, Met: met}
	}
	for _, c := range []struct {
		all  []Setting
		want time.Duration
	}{
		{[]Setting{one(1, 1, 0.4, true), one(2, 2, 0.2, true), one(3, 4, 0.19, true), one(4, 9, 0.1, false)}, 2}, // 3 is as cheap, and slower
		{[]Setting{one(1, 8, 0.4, false), one(2, 7, 0.7, false)}, 2},
		{[]Setting{one(1, 1, 0.4, true), {Setting: bench.Setting{MinSyncPeriod: 2}, Played: Played{P99: 1, CPU: 0.1, Beyond: 2}, Met: true}}, 1},
	} {
		if got := recommend(c.all); got.MinSyncPeriod != c.want {
			t.Errorf("%+v: %v, want %v", c.all, got.MinSyncPeriod, c.want)
		}
	}
}

// TestConfirms: a plan measures a recommended setting that is not in use, and the answer compares.
func TestConfirms(t *testing.T) {
	dear := legacy
	dear.cpu = 0.06 // 0.6 CPUs at 10 changes a second
	q := question(dear.name)
	var cells []bench.PlanCell
	var records []raw.Record
	for rep := range 3 {
		records = append(records, dear.records(5000, rep+1, "", 5)...)
	}
	cells = bench.PlanCells(records)
	confirms := Confirm(&q, map[string]search.Bracket{dear.name: {Met: 5000}}, cells)
	if len(confirms) != 1 || confirms[0].Size != 5000 || confirms[0].Setting.MinSyncPeriod == time.Second {
		t.Fatalf("confirms %+v", confirms)
	}
	records = append(records, dear.records(5000, 1, confirms[0].Setting.String(), 5)...)
	a, err := NewAnswer(q, &raw.Run{Subjects: q.Subjects, Started: time.Unix(0, 0)}, records)
	if err != nil {
		t.Fatal(err)
	}
	s := a.Subjects[0]
	if s.Recommended == nil || s.Confirmed == nil || !s.Confirmed.Run || s.Confirmed.MeasuredP99 == 0 {
		t.Errorf("%+v, confirmed %+v", s.Recommended, s.Confirmed)
	}
}

// TestPolicies: Synclab's proxier can also space its syncs by a token bucket, and its run belongs to that setting.
func TestPolicies(t *testing.T) {
	ours := legacy
	ours.name = "synclab/nftables"
	q := question(ours.name)
	bucket := bench.Setting{MinSyncPeriod: time.Second, Policy: runner.TokenBucket}
	list := append(ours.records(5000, 1, "", 5), ours.records(5000, 1, bucket.String(), 5)...)
	a, err := NewAnswer(q, &raw.Run{Subjects: q.Subjects, Started: time.Unix(0, 0)}, list)
	if err != nil {
		t.Fatal(err)
	}
	s := &a.Subjects[0]
	of := func(setting bench.Setting) *Setting {
		i := slices.IndexFunc(s.Settings, func(one Setting) bool { return one.Setting == setting })
		if i < 0 {
			t.Fatalf("no %q in %+v", setting, s.Settings)
		}
		return &s.Settings[i]
	}
	if own, other := of(q.today()), of(bucket); other.P50 >= own.P50 { // the bucket's interval begins with a sync, not after it
		t.Errorf("a second between the starts of syncs: %g s, between their ends and starts: %g s", other.P50, own.P50)
	}
	if c := s.Cells[1]; c.Setting != "1s token-bucket" || q.setting(c.Setting) != bucket {
		t.Errorf("the run with a token bucket: %+v", c)
	}
	s.Recommended = of(bucket)
	if text := s.snippet(); !strings.Contains(text, "minSyncPeriod: 1s\n") || !strings.Contains(text, "--policy token-bucket") || !strings.HasPrefix(text, "# A part of ") {
		t.Errorf("snippet %q", text)
	}
	q.Subjects = []string{legacy.name}
	if a, err = NewAnswer(q, &raw.Run{Subjects: q.Subjects, Started: time.Unix(0, 0)}, legacy.records(5000, 1, "", 5)); err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(a.Subjects[0].Settings, func(s Setting) bool { return s.Policy != "" }) {
		t.Errorf("kube-proxy has no policies: %+v", a.Subjects[0].Settings)
	}
}

func TestAlike(t *testing.T) {
	q := question(legacy.name)
	known := bench.PlanCells(legacy.records(5000, 1, "", 5))
	slower := legacy
	slower.start *= 1.3
	for _, c := range []struct {
		p    proxy
		want bool
	}{{legacy, true}, {slower, false}} {
		if alike, text := Alike(&q)(known, bench.PlanCells(c.p.records(5000, 2, "", 5))[0]); alike != c.want {
			t.Errorf("%v: %s", alike, text)
		}
	}
}

func TestExtrapolate(t *testing.T) {
	q := question(legacy.name)
	q.Extrapolate = true
	s := answer(t, q, map[string][]int{legacy.name: {5000, 10000}}, legacy).Subjects[0]
	if s.Extrapolated != 20000 { // the start grows in proportion, and would reach 25,000
		t.Errorf("extrapolated %d: want at most twice the largest size", s.Extrapolated)
	}
	q.SLOs.Start = 15
	s = answer(t, q, map[string][]int{legacy.name: {5000, 10000}}, legacy).Subjects[0]
	if math.Abs(float64(s.Extrapolated)-12500) > 100 {
		t.Errorf("extrapolated %d: want 12,500", s.Extrapolated)
	}
}

func TestGrow(t *testing.T) {
	c := Cluster{Services: 1000, Endpoints: 10, Nodes: 100, Churn: Churn{Endpoints: 10, NodeLosses: 5, Trace: []float64{0, 1, 4}}}
	grown := c.Grow(Growth{Services: 2, Nodes: 1.2})
	if grown.Services != 2000 || grown.Nodes != 120 || grown.Churn.Endpoints != 20 || grown.Churn.NodeLosses != 6 || grown.Churn.Trace[2] != 2 {
		t.Errorf("%+v", grown)
	}
	if at := grown.At(1000); at.Services != 1000 || at.Churn.Endpoints != 10 || at.Nodes != 60 || at.PodsPerNode() != grown.PodsPerNode() {
		t.Errorf("%+v", at)
	}
	if c.Churn.Trace[2] != 4 {
		t.Error("the trace of today changed")
	}
}

func TestEvents(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, churn := range []Churn{{Endpoints: 3}, {Endpoints: 3, Swing: 1}, {Endpoints: 2, Services: 1}, {Trace: []float64{0, 0.2, 0.5, 0.9, 1}}, {Rollouts: 900}} {
		c := Cluster{Services: 100, Endpoints: 8, Nodes: 1, Churn: churn}
		events := c.events(hour, rng)
		rate := 3.0
		if churn.Trace != nil {
			rate = 4
		}
		if n := float64(len(events)) / hour; math.Abs(n/rate-1) > 0.07 {
			t.Errorf("%+v: %g changes a second, want %g", churn, n, rate)
		}
		for i := 1; i < len(events); i++ {
			if events[i] < events[i-1] {
				t.Fatal(fmt.Sprint(churn, ": not sorted"))
			}
		}
	}
}

func TestAccess(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	q := question(legacy.name, nftables.name)
	a := answer(t, q, map[string][]int{legacy.name: {10000, 20000}, nftables.name: {5000, 7000, 10000}}, legacy, nftables)
	dir := t.TempDir()
	if err := a.Build(dir, false); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, CapacityPage))
	if err != nil {
		t.Fatal(err)
	}
	reportstest.CheckAccess(t, page)
}
