package model

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"synclab/bench/raw"
)

// phased is a synthetic subject. Each phase has its own cost model, as in real subjects: s Services, n endpoints in
// all, c changed Services.
type phased struct {
	name          string
	full, partial map[raw.Metric]func(s, n, c float64) float64
}

// rest is the part of a sync that no metric measures.
const rest raw.Metric = "rest"

// lifelike has cost models with the shapes of real calibrations, but not their numbers.
var lifelike = []phased{
	{"kube-proxy/iptables-legacy",
		map[raw.Metric]func(s, n, c float64) float64{
			rest:         func(s, n, _ float64) float64 { return 0.06 + 90e-6*s + 25e-6*n },
			raw.ToolUser: func(_, n, _ float64) float64 { return 0.03 + 12e-6*n*(1+n/40e3) },
			raw.ToolSys:  func(_, n, _ float64) float64 { return 0.018 + 2.8e-6*n*(1+n/300e3) },
		},
		map[raw.Metric]func(s, n, c float64) float64{
			rest:         func(s, n, c float64) float64 { return 0.04 + 40e-6*s + 3e-6*n + 30e-6*c },
			raw.ToolUser: func(s, n, c float64) float64 { return 0.004 + 9e-6*s + 0.5e-6*n + 0.2e-3*c },
			raw.ToolSys:  func(_, n, _ float64) float64 { return 0.012 + 2.8e-6*n*(1+n/300e3) },
		}},
	{"kube-proxy/nftables",
		map[raw.Metric]func(s, n, c float64) float64{
			rest:         func(s, n, _ float64) float64 { return 0.05 + 100e-6*s + 10e-6*n },
			raw.ToolUser: func(_, n, _ float64) float64 { return 0.02 + 8e-6*n },
			raw.ToolSys:  func(s, n, _ float64) float64 { return 0.01 + 1e-6*n + 23.7*math.Pow(s/1e4, 2.6) },
		},
		map[raw.Metric]func(s, n, c float64) float64{
			rest:         func(s, n, c float64) float64 { return 0.03 + 15e-6*s + 0.1e-3*c },
			raw.ToolUser: func(s, n, c float64) float64 { return 0.01 + 60e-6*s + 2e-6*n + 0.1e-3*c },
			raw.ToolSys:  func(s, n, c float64) float64 { return 0.005 + 10e-6*s + 5.5*math.Pow(s/1e4, 2.2) + 0.3e-3*c },
		}},
	{"synclab/iptables-legacy",
		map[raw.Metric]func(s, n, c float64) float64{
			raw.Plan: func(_, n, _ float64) float64 { return 1e-6 * n }, raw.Encode: func(_, n, _ float64) float64 { return 3e-6 * n },
			rest:         func(_, n, _ float64) float64 { return 0.004 + 1e-6*n },
			raw.ToolUser: func(_, n, _ float64) float64 { return 0.01 + 6e-6*n*(1+n/60e3) },
			raw.ToolSys:  func(_, n, _ float64) float64 { return 0.006 + 3e-6*n },
		},
		map[raw.Metric]func(s, n, c float64) float64{
			raw.Plan: func(_, _, c float64) float64 { return 20e-6 * c }, raw.Encode: func(_, _, c float64) float64 { return 40e-6 * c },
			rest:         func(_, _, _ float64) float64 { return 0.003 },
			raw.ToolUser: func(s, n, c float64) float64 { return 0.002 + 0.8e-6*n + 0.1e-3*c },
			raw.ToolSys:  func(_, n, _ float64) float64 { return 0.006 + 3e-6*n*math.Pow(1+n/100e3, 0.3) },
		}},
	{"synclab/nftables",
		map[raw.Metric]func(s, n, c float64) float64{
			raw.Plan: func(_, n, _ float64) float64 { return 1.5e-6 * n }, raw.Encode: func(s, n, _ float64) float64 { return 2e-6*s + 1e-6*n },
			rest:        func(_, n, _ float64) float64 { return 0.001 + 0.3e-6*n },
			raw.ToolSys: func(s, n, _ float64) float64 { return 0.001 + 4e-6*s + 2e-6*n*math.Pow(1+n/20e3, 0.15) },
		},
		map[raw.Metric]func(s, n, c float64) float64{
			raw.Plan: func(_, _, c float64) float64 { return 15e-6 * c }, raw.Encode: func(_, _, c float64) float64 { return 25e-6 * c },
			rest:        func(_, _, _ float64) float64 { return 40e-6 },
			raw.ToolSys: func(_, _, c float64) float64 { return 60e-6 + 30e-6*c },
		}},
	{"synclab/iptables-nft-tree",
		map[raw.Metric]func(s, n, c float64) float64{
			raw.Plan: func(_, n, _ float64) float64 { return 1.2e-6 * n }, raw.Encode: func(_, n, _ float64) float64 { return 4e-6 * n },
			rest:         func(_, n, _ float64) float64 { return 0.006 + 2e-6*n },
			raw.ToolUser: func(_, n, _ float64) float64 { return 0.01 + 3e-6*n*math.Log(n+10)/3 },
			raw.ToolSys:  func(_, n, _ float64) float64 { return 0.004 + 9e-6*n*(1+n/500e3) },
		},
		map[raw.Metric]func(s, n, c float64) float64{
			raw.Plan: func(_, _, c float64) float64 { return 20e-6 * c }, raw.Encode: func(_, _, c float64) float64 { return 50e-6 * c },
			rest:         func(_, _, _ float64) float64 { return 0.004 },
			raw.ToolUser: func(_, _, c float64) float64 { return 0.003 + 0.15e-3*c },
			raw.ToolSys:  func(s, n, c float64) float64 { return 0.004 + 0.04e-6*n + 0.2e-3*c },
		}},
}

// measure makes the records of one repetition of a cell. The cell, each sync and each phase have lognormal noise. A few
// syncs have a hiccup.
func (y phased) measure(rng *rand.Rand, services, endpoints, rep int, here float64) []raw.Record {
	var out []raw.Record
	s, n := float64(services), float64(services*endpoints)
	at, sync := 0.0, 0
	one := func(metric raw.Metric, kind string, laws map[raw.Metric]func(s, n, c float64) float64, changed int) {
		sync++
		r := raw.Record{Scenario: "calibrate", Subject: y.name, Services: services, Endpoints: float64(endpoints), Rep: rep, Sync: sync, Kind: kind, Family: "IPv4",
			Step: fmt.Sprintf("%d:settle", 2*sync), Unit: "s"}
		whole, common := 0.0, here*math.Exp(0.03*rng.NormFloat64())
		var phases []raw.Record
		for _, m := range []raw.Metric{raw.Plan, raw.Encode, raw.ToolUser, raw.ToolSys, rest} {
			law := laws[m]
			if law == nil {
				if m == raw.ToolUser { // the subject writes to the kernel without a tool
					phases = append(phases, raw.Record{Metric: m})
				}
				continue
			}
			v := law(s, n, float64(changed)) * common * math.Exp(0.03*rng.NormFloat64())
			if m == rest && rng.Float64() < 0.03 {
				v += 0.02 + 0.3*v
			}
			whole += v
			if m != rest {
				phases = append(phases, raw.Record{Metric: m, Value: v})
			}
		}
		if changed > 0 {
			phases = append(phases, raw.Record{Metric: raw.Changes, Value: float64(changed)})
		}
		at += whole + 1
		r.At, r.Metric, r.Value = at, metric, whole
		out = append(out, r)
		for _, p := range phases {
			r.Metric, r.Value = p.Metric, p.Value
			out = append(out, r)
		}
	}
	one(raw.FullSync, Full, y.full, 0)
	for _, c := range []int{1, 1, 1, 1, 7, 1, 39, 1, 149} {
		if c < services/2 {
			one(raw.PartialSync, Partial, y.partial, c)
		}
	}
	return out
}

// calibrated returns the records of a calibration with held-out cells. Two cells have two repetitions, the others one.
func (y phased) calibrated(rng *rand.Rand, largest int) []raw.Record {
	var out []raw.Record
	top := largest / 5
	cells := [][3]int{{top / 16, 10, 1}, {top / 4, 10, 2}, {top / 8, 50, 1}, {top / 4, 2, 1}, {top / 2, 10, 1}, {top, 10, 2}, {top / 2, 50, 1}, {top, 2, 1},
		{largest / 2, 10, 1}, {largest, 10, 1}, {largest, 5, 1}, {largest / 2, 30, 1}}
	for _, c := range cells {
		here := math.Exp(0.015 * rng.NormFloat64())
		for rep := range c[2] {
			out = append(out, y.measure(rng, c[0], c[1], rep+1, here)...)
		}
	}
	return out
}

// A calibration of a few minutes on an idle machine predicts whole syncs at five times its sizes, also with other
// numbers of endpoints. The cost models have the shapes of real subjects. Intervals have their coverage, and are narrow
// enough to be useful.
func TestDesignPredicts(t *testing.T) {
	var errs, widths []float64
	covered, points := 0, 0
	for _, y := range lifelike {
		for seed := range uint64(4) {
			rng := rand.New(rand.NewPCG(seed+1, 77))
			v, err := Validate(raw.Run{}, y.calibrated(rng, 10000), 0, FitOptions{Seed: seed + 1, Quantities: []Quantity{Total}})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range v.Rows {
				if r.Quantity != Total || r.Predicted.Beyond < 2 || r.Changed > 1.5 {
					continue
				}
				points++
				if r.Covered {
					covered++
				}
				errs, widths = append(errs, math.Abs(math.Log1p(r.Error))), append(widths, r.Predicted.High/r.Predicted.Median)
				if !r.Covered || math.Abs(r.Error) > 0.5 {
					t.Logf("%s %s seed %d, %d x %g: predicted %s, measured %s (%s … %s)", r.Subject, r.Kind, seed, r.Services, r.Endpoints, Amount(Total, r.Predicted.Median), Amount(Total, r.Value), Amount(Total, r.Predicted.Low), Amount(Total, r.Predicted.High))
				}
			}
		}
	}
	t.Logf("median error %.1f %%, %d of %d covered, median upper bound %.2f times the median", 100*median(errs), covered, points, median(widths))
	if share := float64(covered) / float64(points); share < 0.9 || median(errs) > 0.15 || median(widths) > 1.8 {
		t.Errorf("median error %.1f %%, %.0f %% of %d points are within their intervals of 90 %%, whose upper bounds are %.2f times the median", 100*median(errs), 100*share, points, median(widths))
	}
}

// bending has cost models whose growth changes only at larger sizes: in seconds, by Services and endpoints per Service.
var bending = map[string]law{
	"line, then quadratic": func(s, e, _ float64) float64 { return 0.05 + 20e-6*s*e + 4e-7*max(0, s-500)*max(0, s-500) },
	"caches end":           func(s, e, _ float64) float64 { return 0.02 + 10e-6*s*e + 30e-6*max(0, s*e-6000) },
	"n log n":              func(s, e, _ float64) float64 { return 0.02 + 4e-6*s*e*math.Log2(1+s*e) },
	"hidden power":         func(s, e, _ float64) float64 { return 0.08 + 100e-6*s + 20e-6*s*e + 24*math.Pow(s/1e4, 2.6) },
	"a step": func(s, e, _ float64) float64 {
		return 0.05 + 20e-6*s*e*(1+0.6*math.Round(1/(1+math.Exp(-(s*e-9000)/500))))
	},
	"line":      func(s, e, _ float64) float64 { return 0.05 + 25e-6*s*e },
	"quadratic": func(s, e, _ float64) float64 { return 0.05 + 6e-7*s*s },
	"late":      func(s, e, _ float64) float64 { return 0.05 + 20e-6*s*e + 8e-7*max(0, s-1200)*max(0, s-1200) },
}

// A few cells show that a cost model bends. Intervals contain the truth at five times the largest size, also with other
// numbers of endpoints.
func TestBendsAreCovered(t *testing.T) {
	climbed := [][2]int{{125, 10}, {500, 10}, {250, 50}, {500, 1}, {2000, 10}, {1000, 10}, {2000, 1}}
	covered, points := 0, 0
	var errs []float64
	for _, name := range slices.Sorted(maps.Keys(bending)) {
		truth := bending[name]
		own := 0
		const seeds = 12
		for seed := range uint64(seeds) {
			rng := rand.New(rand.NewPCG(seed, 5))
			records := synthetic{full: truth, partial: truth, cells: climbed, reps: 1, between: 0.03, noise: 0.04}.records(seed, "kube-proxy/nftables")
			m, err := Fit(raw.Run{}, records, FitOptions{Seed: seed + 1, Quantities: []Quantity{Total}})
			if err != nil {
				t.Fatal(err)
			}
			for _, cell := range [][2]int{{10000, 10}, {10000, 5}, {5000, 30}} {
				measured := truth(float64(cell[0]), float64(cell[1]), 0) * math.Exp(0.05*rng.NormFloat64())
				p, err := m.Subjects[0].Predict(Query{Kind: Full, Services: cell[0], Endpoints: float64(cell[1])})
				if err != nil {
					t.Fatal(err)
				}
				points++
				if p.Low <= measured && measured <= p.High {
					covered, own = covered+1, own+1
				}
				errs = append(errs, math.Abs(math.Log(p.Median/measured)))
			}
		}
		t.Logf("%s: %d of %d covered, median error %.1f %%", name, own, 3*seeds, 100*median(errs[len(errs)-3*seeds:]))
		if own < 2*seeds {
			t.Errorf("%s: only %d of %d are within their intervals", name, own, 3*seeds)
		}
	}
	if share := float64(covered) / float64(points); share < 0.9 || median(errs) > 0.3 {
		t.Errorf("%.0f %% of %d are within intervals of 90 %%, median error %.1f %%", 100*share, points, 100*median(errs))
	}
	t.Logf("%d of %d covered, median error %.1f %%", covered, points, 100*median(errs))
}
