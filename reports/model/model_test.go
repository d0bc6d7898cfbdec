package model

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"synclab/bench/raw"
)

// law is the true cost of a synthetic subject, in seconds.
type law func(services, endpoints, changed float64) float64

// synthetic is a run whose syncs have known costs with noise: a lognormal factor for each cell, and one for each sync.
type synthetic struct {
	full, partial  law
	cells          [][2]int
	reps           int
	between, noise float64
	outliers       float64 // share of syncs that take five times as long
}

var sizes = [][2]int{{250, 10}, {500, 10}, {1000, 10}, {2000, 10}, {4000, 10}, {250, 2}, {1000, 2}, {2000, 2}, {4000, 2}, {250, 30}, {500, 30}, {1000, 30}, {2000, 30}}

func (y synthetic) records(seed uint64, subject string) []raw.Record {
	rng := rand.New(rand.NewPCG(seed, 1))
	var out []raw.Record
	for _, cell := range y.cells {
		s, e := float64(cell[0]), float64(cell[1])
		base := raw.Record{Scenario: "calibrate", Subject: subject, Services: cell[0], Endpoints: e, Unit: "s"}
		fullHere, partialHere := math.Exp(rng.NormFloat64()*y.between), math.Exp(rng.NormFloat64()*y.between)
		for rep := 1; rep <= y.reps; rep++ {
			at, sync := 0.0, 0
			one := func(metric raw.Metric, kind string, took float64, changed int) {
				at, sync = at+took+1, sync+1
				took *= math.Exp(rng.NormFloat64() * y.noise)
				if rng.Float64() < y.outliers {
					took *= 5
				}
				r := base
				r.Rep, r.At, r.Sync, r.Kind, r.Family, r.Step, r.Metric, r.Value = rep, at, sync, kind, "IPv4", fmt.Sprintf("%d:settle", sync), metric, took
				out = append(out, r)
				if metric == raw.PartialSync {
					r.Metric, r.Value, r.Unit = raw.Changes, float64(changed), "count"
					out = append(out, r)
				}
			}
			one(raw.FullSync, Full, fullHere*y.full(s, e, 0), 0)
			for _, c := range []int{1, 1, 1, 7, 40, 120} {
				one(raw.PartialSync, Partial, partialHere*y.partial(s, e, float64(c)), c)
			}
		}
	}
	return out
}

func fitOne(t *testing.T, records []raw.Record) *Subject {
	t.Helper()
	m, err := Fit(raw.Run{ID: "synthetic"}, records, FitOptions{Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	return m.Subjects[0]
}

var laws = map[string]struct{ full, partial law }{
	"lines": {
		func(s, e, _ float64) float64 { return 0.05 + 20e-6*s*e },
		func(s, e, c float64) float64 { return 0.01 + 5e-6*s*e + 0.4e-3*c },
	},
	"powers": {
		func(s, e, _ float64) float64 { return 3e-6 * math.Pow(s*e, 1.3) },
		func(s, e, c float64) float64 { return 2e-6*math.Pow(s*e, 0.9) + 30e-6*c*e },
	},
	"offset power": {
		func(s, e, _ float64) float64 { return 0.2 + 4e-9*math.Pow(s*e, 2) },
		func(s, e, c float64) float64 { return 0.004 + 0.2e-3*c },
	},
	"plane": {
		func(s, e, _ float64) float64 { return 0.03 + 80e-6*s + 15e-6*s*e },
		func(s, e, c float64) float64 { return 0.02 + 20e-6*s + 3e-6*s*e + 0.1e-3*c },
	},
	"bend": {
		func(s, e, _ float64) float64 { return 0.05 + 5e-6*s*e + 60e-6*max(0, s*e-8000) },
		func(s, e, c float64) float64 { return 0.01 + 1e-6*s*e + 8e-6*max(0, s*e-8000) },
	},
}

// Fit recovers known cost models from noisy cells: predictions at three times the largest size are near the truth.
func TestFitFindsLaws(t *testing.T) {
	for name, truth := range laws {
		t.Run(name, func(t *testing.T) {
			s := fitOne(t, synthetic{full: truth.full, partial: truth.partial, cells: sizes, reps: 3, between: 0.01, noise: 0.04, outliers: 0.03}.records(3, "synclab/nftables"))
			for _, q := range []Query{{Kind: Full}, {Kind: Partial, Changed: 1}, {Kind: Partial, Changed: 100}} {
				q.Services, q.Endpoints = 12000, 10
				of := truth.full
				if q.Kind == Partial {
					of = truth.partial
				}
				want := of(float64(q.Services), q.Endpoints, float64(q.Changed))
				p, err := s.Predict(q)
				if err != nil {
					t.Fatal(err)
				}
				if math.Abs(p.Median/want-1) > 0.1 {
					t.Errorf("%s %+v: predicted %.4g, truth %.4g (%s: %s)", name, q, p.Median, want, s.term(Total, q.Kind).FormText, s.term(Total, q.Kind).Formula())
				}
				if p.Basis != Extrapolated || math.Abs(p.Beyond-3) > 0.01 {
					t.Errorf("%+v: %s by %v, want extrapolated by 3", q, p.Basis, p.Beyond)
				}
			}
		})
	}
}

// Counts have no noise: from a few cells, Fit finds the formula that fits all counts and predicts without error.
func TestFitOfCountsIsExact(t *testing.T) {
	for _, cells := range [][][2]int{{{100, 10}, {400, 10}}, {{100, 10}, {400, 10}, {200, 30}, {400, 2}}, sizes} {
		truth := laws["lines"]
		var rules []raw.Record
		for _, c := range cells {
			services, endpoints := c[0], c[1]
			r := raw.Record{Scenario: "calibrate", Subject: "kube-proxy/iptables-legacy", Services: services, Endpoints: float64(endpoints), Rep: 1, Unit: "count", Family: "IPv4"}
			r.Metric, r.Table, r.Value = raw.RulesKernel, "nat", float64(9+2*services+3*services*endpoints)
			later := r // rules that churn leaves behind are not part of the state
			later.At, later.Value = 9, r.Value+float64(services)
			rules = append(rules, r, later)
		}
		s := fitOne(t, append(rules, synthetic{full: truth.full, partial: truth.partial, cells: cells, reps: 1}.records(1, "kube-proxy/iptables-legacy")...))
		q := Query{Quantity: Rules, Services: 30000, Endpoints: 10}
		p, err := s.Predict(q)
		if want := float64(9 + 32*30000); err != nil || math.Abs(p.Median/want-1) > 1e-3 {
			t.Errorf("of %d cells: %+v, %v; want %g (%s)", len(cells), p, err, want, s.term(Rules, "").Formula())
		}
	}
}

// The first full sync writes into empty tables, and later ones over existing rules. After a fault, the content of the
// tables is unknown.
func TestResyncsAreApart(t *testing.T) {
	truth := laws["lines"]
	records := synthetic{full: truth.full, partial: truth.partial, cells: sizes[:5], reps: 2}.records(1, "synclab/nftables")
	for _, c := range sizes[:5] {
		for rep := 1; rep <= 2; rep++ {
			records = append(records, raw.Record{At: 1e4, Scenario: "calibrate", Subject: "synclab/nftables", Services: c[0], Endpoints: float64(c[1]), Rep: rep, Sync: 99,
				Kind: Full, Family: "IPv4", Step: "90:settle", Metric: raw.FullSync, Value: 3 * truth.full(float64(c[0]), float64(c[1]), 0), Unit: "s"})
		}
	}
	s := fitOne(t, records)
	full, err := s.Predict(Query{Kind: Full, Services: 8000, Endpoints: 10})
	again, err2 := s.Predict(Query{Kind: Resync, Services: 8000, Endpoints: 10})
	if err != nil || err2 != nil || math.Abs(again.Median/full.Median-3) > 0.1 {
		t.Fatalf("%+v %v, %+v %v", full, err, again, err2)
	}
	syncs, err := s.Syncs(8000, 10)
	if err != nil || syncs.Median(Resync, 0) != again.Median || syncs.Median(Full, 0) != full.Median {
		t.Fatalf("%+v, %v", syncs, err)
	}
	for i := range records {
		if records[i].Sync == 99 {
			fault := records[i]
			fault.Metric, fault.Kind, fault.Sync = raw.FaultDuration, "", 0
			records = append(records, fault)
		}
	}
	if fitOne(t, records).Has(Total, Resync) {
		t.Error("full syncs after a fault count as over existing rules")
	}
}

// Of formulas that fit, the right one is chosen. Exponents and slopes are those of the synthetic records.
func TestFitChoosesTheForm(t *testing.T) {
	straight := laws["lines"]
	s := fitOne(t, synthetic{full: straight.full, partial: straight.partial, cells: sizes, reps: 3, between: 0.01, noise: 0.02}.records(5, "synclab/nftables"))
	full, partial := s.term(Total, Full), s.term(Total, Partial)
	if full.Form != (Form{State: "line", X: "n"}) {
		t.Errorf("full: %s, %s", full.FormText, full.Formula())
	}
	if b := full.Coefficients["b"]; math.Abs(b/20e-6-1) > 0.05 {
		t.Errorf("full: %s: b is %v, want 20 µs", full.Formula(), b)
	}
	if partial.Form.Y != "c" || partial.Form.X != "n" {
		t.Errorf("partial: %s, %s", partial.FormText, partial.Formula())
	}
	power := laws["powers"]
	s = fitOne(t, synthetic{full: power.full, partial: power.partial, cells: sizes, reps: 3, between: 0.01, noise: 0.02}.records(5, "synclab/nftables"))
	full = s.term(Total, Full)
	if p := full.Coefficients["p"]; full.Form.X != "n" || math.Abs(p-1.3) > 0.05 {
		t.Errorf("full: %s, want n^1.3", full.Formula())
	}
	flat := func(_, _, _ float64) float64 { return 0.003 }
	s = fitOne(t, synthetic{full: power.full, partial: flat, cells: sizes, reps: 3, between: 0.01, noise: 0.02}.records(5, "synclab/nftables"))
	if f := s.term(Total, Partial).Form; f != (Form{State: "const"}) {
		t.Errorf("constant partial syncs: %s", f)
	}
}

// Intervals have their coverage at two to four times the sizes of the fit, if a candidate formula is the truth.
func TestIntervalsCover(t *testing.T) {
	covered, all := 0, 0
	var halves []float64
	var names []string
	for name := range laws {
		names = append(names, name)
	}
	rng := rand.New(rand.NewPCG(11, 11))
	for draw := range 12 {
		for _, name := range names {
			truth := laws[name]
			const between, noise, reps = 0.03, 0.05, 2
			records := synthetic{full: truth.full, partial: truth.partial, cells: sizes[:9], reps: reps, between: between, noise: noise, outliers: 0.02}.records(uint64(draw), "synclab/nftables")
			m, err := Fit(raw.Run{}, records, FitOptions{Seed: uint64(draw) + 1, Quantities: []Quantity{Total}})
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range []Query{{Kind: Full}, {Kind: Partial}} {
				q.Services, q.Endpoints = 8000+rng.IntN(8000), 10
				of := truth.full
				if q.Kind == Partial {
					of = truth.partial
				}
				measured := of(float64(q.Services), 10, 1) * math.Exp(rng.NormFloat64()*math.Hypot(between, noise/math.Sqrt(valuesOfCell)))
				p, err := m.Subjects[0].Predict(q)
				if err != nil {
					t.Fatal(err)
				}
				all++
				if p.Low <= measured && measured <= p.High {
					covered++
				}
				halves = append(halves, p.High/p.Median-1)
			}
		}
	}
	share, half := float64(covered)/float64(all), median(halves)
	t.Logf("%d of %d covered (%.1f %%), half interval %.1f %%", covered, all, 100*share, 100*half)
	if share < 0.85 {
		t.Errorf("%.1f %% of %d are within 90 %% intervals, want at least 85 %%", 100*share, all)
	}
	if half > 0.6 {
		t.Errorf("the median half interval is %.0f %%: too wide to be useful", 100*half)
	}
}

// Intervals widen with the distance beyond the fit.
func TestIntervalsWiden(t *testing.T) {
	truth := laws["lines"]
	s := fitOne(t, synthetic{full: truth.full, partial: truth.partial, cells: sizes, reps: 2, between: 0.03, noise: 0.05}.records(3, "synclab/nftables"))
	before := 0.0
	for _, services := range []int{3000, 8000, 16000, 64000} {
		p, err := s.Predict(Query{Kind: Full, Services: services, Endpoints: 10})
		if err != nil {
			t.Fatal(err)
		}
		if width := p.High / p.Low; width <= before {
			t.Errorf("%d Services: the interval is %.3f wide, not wider than %.3f", services, width, before)
		} else {
			before = width
		}
	}
	p, err := s.Predict(Query{Kind: Full, Services: 1000, Endpoints: 10})
	if err != nil || p.Basis != Measured {
		t.Errorf("a cell of the fit: %+v, %v", p, err)
	}
	if p, err = s.Predict(Query{Kind: Full, Services: 1500, Endpoints: 10}); err != nil || p.Basis != Interpolated {
		t.Errorf("between cells: %+v, %v", p, err)
	}
	if p, err = s.Predict(Query{Kind: Full, Services: 1500, Endpoints: 60}); err != nil || p.Basis != Extrapolated || p.Beyond != 2 {
		t.Errorf("more endpoints each: %+v, %v", p, err)
	}
	if _, err = s.Predict(Query{Quantity: ToolUser, Kind: Full, Services: 10}); err == nil {
		t.Error("a quantity that was not measured has a prediction")
	}
}

// Durations drawn for a simulation scatter like the measured ones.
func TestSyncsAreDrawn(t *testing.T) {
	truth := laws["lines"]
	s := fitOne(t, synthetic{full: truth.full, partial: truth.partial, cells: sizes, reps: 4, between: 0.01, noise: 0.2}.records(3, "synclab/nftables"))
	syncs, err := s.Syncs(1000, 10)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var logs []float64
	for range 4000 {
		logs = append(logs, math.Log(syncs.Sync(Partial, 1, 1, rng).Seconds()/truth.partial(1000, 10, 1)))
	}
	var squares float64
	for _, l := range logs {
		squares += l * l / float64(len(logs))
	}
	if m := median(logs); math.Abs(m) > 0.06 {
		t.Errorf("the median of draws is off by %.1f %%", 100*m)
	}
	if sd := math.Sqrt(squares); math.Abs(sd-0.2) > 0.04 {
		t.Errorf("draws scatter by %.3f, measured ones by 0.2", sd)
	}
	if a, b := syncs.Median(Partial, 2000), syncs.Median(Partial, 1000); a < b {
		t.Errorf("2,000 changed Services take %v, 1,000 %v", a, b)
	}
	one, two := rand.New(rand.NewPCG(1, 2)), rand.New(rand.NewPCG(1, 2))
	if syncs.Sync(Full, 0, 0, one) != syncs.Sync(Full, 0, 0, two) {
		t.Error("the same seed draws differently")
	}
}

func smallModel(t testing.TB) (*Model, Here) {
	t.Helper()
	truth := laws["lines"]
	run := raw.Run{ID: "r", Feed: raw.FeedAPI, Versions: raw.Versions{Synclab: "a", Kernel: "6.18", IPTablesLegacy: "1.8.9", KubeProxy: "v1.36.3", Nft: "1.0.6"},
		Machine: raw.Machine{CPU: "EPYC", CPUs: 2}}
	var records []raw.Record
	for _, subject := range []string{"synclab/iptables-legacy-tree", "kube-proxy/nftables"} {
		records = append(records, synthetic{full: truth.full, partial: truth.partial, cells: sizes[:5], reps: 2, noise: 0.03}.records(1, subject)...)
	}
	m, err := Fit(run, records, FitOptions{Seed: 9})
	if err != nil {
		t.Fatal(err)
	}
	return m, Here{Versions: run.Versions, Machine: run.Machine}
}

// A model that is written and read again gives the same predictions.
func TestStore(t *testing.T) {
	m, here := smallModel(t)
	dir := t.TempDir()
	if err := m.Write(dir); err != nil {
		t.Fatal(err)
	}
	again, remarks, err := Load(dir, here)
	if err != nil || len(remarks) > 0 {
		t.Fatal(err, remarks)
	}
	for i, s := range m.Subjects {
		for _, q := range []Query{{Kind: Full, Services: 9000, Endpoints: 10}, {Kind: Partial, Services: 700, Endpoints: 5, Changed: 3}} {
			a, errA := s.Predict(q)
			b, errB := again.Subjects[i].Predict(q)
			if errA != nil || errB != nil || a != b {
				t.Errorf("%s %+v: %+v (%v), read again %+v (%v)", s.Name, q, a, errA, b, errB)
			}
		}
		if !reflect.DeepEqual(s.Terms, again.Subjects[i].Terms) {
			t.Errorf("%s: terms differ", s.Name)
		}
	}
	twice, _ := smallModel(t)
	if !reflect.DeepEqual(m.Subjects, twice.Subjects) {
		t.Error("the same seed makes another model")
	}
	if err := os.WriteFile(filepath.Join(dir, File), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(dir, here); err == nil || !strings.Contains(err.Error(), File) {
		t.Errorf("a truncated file: %v", err)
	}
}

// Load refuses a model of another machine and names the difference. With --other-machine it accepts the model, with a
// remark.
func TestLoadRefuses(t *testing.T) {
	m, here := smallModel(t)
	dir := t.TempDir()
	if err := m.Write(dir); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(h *Here){
		"kernel":          func(h *Here) { h.Versions.Kernel = "6.19" },
		"CPU":             func(h *Here) { h.Machine.CPU = "Xeon" },
		"CPUs":            func(h *Here) { h.Machine.CPUs = 64 },
		"iptables-legacy": func(h *Here) { h.Versions.IPTablesLegacy = "" },
		"kube-proxy":      func(h *Here) { h.Versions.KubeProxy = "v1.37.0" },
		"nft":             func(h *Here) { h.Versions.Nft = "1.1.0" },
	} {
		other := here
		change(&other)
		_, _, err := Load(dir, other)
		var mismatch *MismatchError
		if !errors.As(err, &mismatch) || len(mismatch.Differs) != 1 || !strings.Contains(err.Error(), what) {
			t.Errorf("another %s: %v", what, err)
		}
		other.Elsewhere = true
		if _, remarks, err := Load(dir, other); err != nil || len(remarks) != 1 {
			t.Errorf("another %s, allowed: %v %v", what, remarks, err)
		}
	}
	newer := here
	newer.Versions.Synclab = "b"
	if _, remarks, err := Load(dir, newer); err != nil || len(remarks) != 1 {
		t.Errorf("another synclab: %v %v", remarks, err)
	}
	lacking := here
	lacking.Subjects, lacking.Elsewhere = []string{"synclab/iptables-legacy"}, true
	if _, _, err := Load(dir, lacking); err == nil || !strings.Contains(err.Error(), "synclab/iptables-legacy-tree") {
		t.Errorf("a missing subject, when the model has another layout of it: %v", err)
	}
	unaffected := here
	unaffected.Subjects, unaffected.Versions.IPTablesLegacy = []string{"kube-proxy/nftables"}, "1.9"
	if _, _, err := Load(dir, unaffected); err != nil {
		t.Errorf("another iptables, which the subject does not use: %v", err)
	}
}

// Held-out cells are larger than all cells of the fit, and each has a row.
func TestValidate(t *testing.T) {
	truth := laws["plane"]
	records := synthetic{full: truth.full, partial: truth.partial, cells: append([][2]int{{10000, 10}, {20000, 10}}, sizes...), reps: 3, between: 0.02, noise: 0.04}.records(2, "kube-proxy/nftables")
	v, err := Validate(raw.Run{}, records, 0, FitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range v.Rows {
		if r.Services <= r.FitUpTo || r.FitUpTo != 4000 || r.Predicted.Basis != Extrapolated {
			t.Errorf("%+v", r)
		}
	}
	bad, coverage, points := v.Overall("")
	if points != 2*(1+4) { // full, and partial of 1, 7, 40 and 120 changes, at two sizes
		t.Errorf("%d points are held out", points)
	}
	if bad > 0.1 || coverage < 0.85 {
		t.Errorf("error %.1f %%, coverage %.0f %%", 100*bad, 100*coverage)
	}
	var text strings.Builder
	if err := v.WriteTable(&text); err != nil {
		t.Error(err)
	}
	_, each, _ := strings.Cut(text.String(), "The largest cells, one by one")
	if n := strings.Count(each, "\nkube-proxy/nftables  20000 "); n < 5 || strings.Contains(each, " 10000 ") {
		t.Errorf("%d rows of the largest cells:\n%s", n, &text)
	}
	if _, err := Validate(raw.Run{}, records[:40], 0, FitOptions{}); err == nil {
		t.Error("one cell was validated")
	}
}
