package bench_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"synclab/bench"
	"synclab/bench/raw"
	"synclab/reports/model"
)

// costing is a subject whose syncs take the time of a formula, in seconds.
type costing struct {
	name          string
	full, partial func(s, n float64) float64
}

// pass makes the records of one pass, and its duration: its syncs, and the rest.
func (y costing) pass(rng *rand.Rand, cell bench.CalibrationCell, rep int) (out []raw.Record, took time.Duration) {
	s, n := float64(cell.Services), float64(cell.Services*cell.Endpoints)
	here, at := math.Exp(0.03*rng.NormFloat64()), 0.0
	shape := map[string]string{}
	if cell.Skewed {
		shape["shape.endpoints.distribution"] = "zipf"
	}
	for i, changed := range []int{0, 1, 1, 1, 40} {
		metric, kind, value := raw.PartialSync, model.Partial, y.partial(s, n)+1e-4*float64(changed)
		if i == 0 {
			metric, kind, value = raw.FullSync, model.Full, y.full(s, n)
		}
		value *= here * math.Exp(0.04*rng.NormFloat64())
		at += value + 0.3
		r := raw.Record{At: at, Scenario: "calibrate", Subject: y.name, Services: cell.Services, Endpoints: float64(cell.Endpoints), Params: shape, Rep: rep,
			Sync: i + 1, Kind: kind, Family: "IPv4", Step: fmt.Sprintf("%d:settle", i), Metric: metric, Unit: "s", Value: value}
		out = append(out, r)
		if changed > 0 {
			r.Metric, r.Unit, r.Value = raw.Changes, "count", float64(changed)
			out = append(out, r)
		}
	}
	return out, time.Duration((at + 1 + 2e-5*n) * float64(time.Second))
}

// climbing are two subjects: the costs of one have a bend and are soon slow.
var climbing = []costing{
	{"kube-proxy/nftables", func(s, n float64) float64 { return 0.05 + 1e-4*s + 1e-5*n + 40*math.Pow(s/1e4, 2.4) },
		func(s, n float64) float64 { return 0.03 + 5e-5*s + 3*math.Pow(s/1e4, 2) }},
	{"kube-proxy/iptables-legacy", func(s, n float64) float64 { return 0.1 + 3e-5*n + 3e-5*max(0, n-20000) },
		func(s, n float64) float64 { return 0.02 + 1.8e-5*n }},
	{"synclab/nftables", func(s, n float64) float64 { return 0.002 + 4e-6*n }, func(_, _ float64) float64 { return 2e-4 }},
}

// A calibration of four minutes climbs to where a bend shows, keeps its budget, and predicts 10,000 × 10, the asked
// cluster, within its intervals.
func TestClimb(t *testing.T) {
	judge := func(subject string, records []raw.Record, asked bench.CalibrationCell, cells []bench.CalibrationCell) []bench.Judgement {
		return model.Judge(subject, records, model.FitOptions{Seed: 1}, asked, cells)
	}
	covered, points := 0, 0
	var errs []float64
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 9))
		var names []string
		spent, largest := time.Duration(0), map[string]int{}
		for _, y := range climbing {
			names = append(names, y.name)
		}
		records, err := bench.Climb(t.Context(), bench.CalibrateOptions{Budget: 4 * time.Minute, Seed: 1, Judge: judge}, names, func(subject string, cell bench.CalibrationCell, rep int) ([]raw.Record, time.Duration) {
			i := slices.IndexFunc(climbing, func(y costing) bool { return y.name == subject })
			records, took := climbing[i].pass(rng, cell, rep)
			spent, largest[subject] = spent+took, max(largest[subject], cell.Services)
			return records, took
		})
		if err != nil {
			t.Fatal(err)
		}
		if spent > 5*time.Minute || spent < 2*time.Minute {
			t.Errorf("seed %d: it took %v of 4m", seed, spent)
		}
		m, err := model.Fit(raw.Run{}, records, model.FitOptions{Seed: seed + 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, y := range climbing {
			if largest[y.name] < 4000 {
				t.Errorf("seed %d: %s was measured up to %d Services only", seed, y.name, largest[y.name])
			}
			s, err := m.Subject(y.name)
			if err != nil {
				t.Fatal(err)
			}
			for _, size := range [][2]int{{10000, 10}, {20000, 10}, {40000, 10}, {10000, 2}} {
				for _, kind := range []string{model.Full, model.Partial} {
					p, err := s.Predict(model.Query{Kind: kind, Services: size[0], Endpoints: float64(size[1])})
					if err != nil {
						t.Fatal(err)
					}
					truth := y.full
					if kind == model.Partial {
						truth = y.partial
					}
					is := truth(float64(size[0]), float64(size[0]*size[1]))
					if kind == model.Partial {
						is += 1e-4 // for its one change
					}
					points++
					errs = append(errs, math.Abs(p.Median/is-1))
					if p.Low <= is && is <= p.High {
						covered++
					} else {
						t.Logf("seed %d: %s %s %v: %.3g s (%.3g … %.3g), is %.3g s", seed, y.name, kind, size, p.Median, p.Low, p.High, is)
					}
				}
			}
		}
	}
	slices.Sort(errs)
	if share := float64(covered) / float64(points); share < 0.88 || errs[len(errs)/2] > 0.15 {
		t.Errorf("%.0f %% of %d are within intervals of 90 %%, median error %.1f %%", 100*share, points, 100*errs[len(errs)/2])
	}
	t.Logf("%d of %d covered, median error %.1f %%", covered, points, 100*errs[len(errs)/2])
}
