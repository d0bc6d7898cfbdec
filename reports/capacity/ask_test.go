package capacity_test

import (
	"bytes"
	"encoding/json"
	"runtime"
	"strings"
	"testing"
	"time"

	"synclab/reports/capacity"
	"synclab/reports/capacity/capacitytest"
	"synclab/reports/model"
)

// An answer is complete, and every number has a basis.
func TestAnswerIsComplete(t *testing.T) {
	a := capacitytest.Answer()
	if len(a.Subjects) != 4 || a.Target == nil || a.Target.Services != 6000 || len(a.Comparisons) != 3 || a.Defaulted {
		t.Fatalf("%d subjects, target %+v, %d comparisons", len(a.Subjects), a.Target, len(a.Comparisons))
	}
	if n := len(a.Words); n < 3 || n > 9 {
		t.Errorf("%d sentences: %q", n, a.Words)
	}
	if all := strings.Join(a.Words, " "); !strings.Contains(all, "extrapolated to") || strings.Contains(all, "NaN") || strings.Contains(all, "%!") {
		t.Errorf("words: %s", all)
	}
	for _, s := range a.Subjects {
		if s.Target == nil || len(s.Limits) != 5 || len(s.Sensitivity) != 5 || len(s.Curve) < 12 || s.MemoryLimit%(16<<20) != 0 || s.MemoryLimit == 0 {
			t.Errorf("%s: %d limits, %d inputs, %d points, limit %d", s.Name, len(s.Limits), len(s.Sensitivity), len(s.Curve), s.MemoryLimit)
		}
		for i := 1; i < len(s.Limits); i++ {
			if s.Limits[i].Size.Median < s.Limits[i-1].Size.Median {
				t.Errorf("%s: limits are out of order: %+v", s.Name, s.Limits)
			}
		}
		for i, o := range append([]capacity.Evaluation{s.Today, *s.Target}, s.Curve...) {
			for _, name := range capacity.SLONames() {
				e, ok := o.Quantities[name]
				if !ok || e.Basis == "" || e.Low > e.Median || e.Median > e.High || e.Beyond < 1 {
					t.Errorf("%s, outlook %d, %s: %+v", s.Name, i, name, e)
				}
			}
			if i > 2 && o.Cluster.Services < s.Curve[i-3].Cluster.Services {
				t.Errorf("%s: the curve is out of order at %d Services", s.Name, o.Cluster.Services)
			}
		}
		if s.Largest.Size.Median == 0 || s.Recommended.Policy.MinSyncPeriod == 0 || s.Furthest.Size < 0.95*s.Largest.Size.Median {
			t.Errorf("%s: largest %+v, recommended %+v, furthest %+v", s.Name, s.Largest, s.Recommended.Policy, s.Furthest)
		}
	}
	if _, err := json.Marshal(a); err != nil {
		t.Error(err)
	}
}

// The same question has the same answer, byte for byte, on one CPU and on several.
func TestAnswerIsTheSame(t *testing.T) {
	q := capacitytest.Question()
	q.Subjects, q.Length = []string{nft, own}, time.Minute
	ask := func(cpus int) []byte {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cpus))
		var last int
		a, err := capacity.Ask(t.Context(), capacitytest.Model(), q, func(done, of int, what string) {
			if done != last+1 || done > of || what == "" {
				t.Errorf("progress %d of %d: %q, after %d", done, of, what, last)
			}
			last = done
		})
		if err != nil {
			t.Fatal(err)
		}
		if last != 12 {
			t.Errorf("%d progress reports, want 6 of each subject", last)
		}
		b, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if !bytes.Equal(ask(1), ask(4)) {
		t.Error("answers differ")
	}
}

// Only given SLOs have a limit. If none is given, the default SLOs apply.
func TestSLOs(t *testing.T) {
	q := capacitytest.Question()
	q.Subjects, q.Growth, q.Length = []string{legacy}, capacity.Growth{}, time.Minute
	q.SLOs = capacity.SLOs{Memory: 300 << 20}
	a, err := capacity.Ask(t.Context(), capacitytest.Model(), q, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := a.Subjects[0]
	if len(s.Limits) != 1 || s.Largest.SLO != capacity.Memory || a.Target != nil || s.Target != nil || a.Defaulted {
		t.Errorf("memory alone: %+v", s.Limits)
	}
	if s.Recommended.Policy != s.Today.Policy {
		t.Errorf("without an SLO for latency: recommended %+v, in use %+v", s.Recommended.Policy, s.Today.Policy)
	}
	q.SLOs = capacity.SLOs{}
	if a, err = capacity.Ask(t.Context(), capacitytest.Model(), q, nil); err != nil {
		t.Fatal(err)
	}
	if !a.Defaulted || len(a.Subjects[0].Limits) != 5 || a.Question.SLOs != (capacity.SLOs{}).WithDefaults() {
		t.Errorf("no SLOs: %+v", a.Question.SLOs)
	}
	if !strings.Contains(a.Words[len(a.Words)-1], "5 s") {
		t.Errorf("the defaults are not named: %q", a.Words)
	}
}

func TestBadQuestions(t *testing.T) {
	good := capacitytest.Question()
	for name, change := range map[string]func(q *capacity.Question){
		"no subject so":  func(q *capacity.Question) { q.Subjects = []string{"no/subject"} },
		"0 Services":     func(q *capacity.Question) { q.Today.Services = 0 },
		"churn -1":       func(q *capacity.Question) { q.Today.Churn.Endpoints = -1 },
		"nothing grows":  func(q *capacity.Question) { q.Growth = capacity.Growth{Services: 1} },
		"no churn grows": func(q *capacity.Question) { q.Growth, q.Today.Churn = capacity.Growth{Churn: 2}, capacity.Churn{} },
		"nor endpoints":  func(q *capacity.Question) { q.Growth, q.Today.Endpoints = capacity.Growth{Endpoints: 2}, 0 },
		"growth of -2":   func(q *capacity.Question) { q.Growth = capacity.Growth{Services: -2} },
		"SLO of -1":      func(q *capacity.Question) { q.SLOs.CPU = -1 },
		"length -1":      func(q *capacity.Question) { q.Length = -1 },
		"minSyncPeriod ": func(q *capacity.Question) { q.Policy = &capacity.Policy{MinSyncPeriod: -1} },
	} {
		q := good
		change(&q)
		if _, err := capacity.Ask(t.Context(), capacitytest.Model(), q, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The recommended setting is the cheapest that meets the SLOs at the upper bound, else at the median. Else it is the
// one that reaches the largest size.
func TestRecommend(t *testing.T) {
	setting := func(seconds int, p99, high, cpu float64) capacity.Setting {
		return capacity.Setting{Policy: capacity.Policy{MinSyncPeriod: time.Duration(seconds) * time.Second}, Outlook: capacity.Evaluation{
			P99: time.Duration(p99 * float64(time.Second)), Quantities: map[string]capacity.Estimate{
				capacity.ProgrammingP99: {Median: p99, High: high}, capacity.CPU: {Median: cpu, High: cpu}}}}
	}
	all := []capacity.Setting{setting(0, 0.5, 0.6, 0.05), setting(1, 1.5, 2, 0.4), setting(2, 2.5, 3, 0.2), setting(3, 3.5, 4.5, 0.195), setting(5, 5.5, 7, 0.1)}
	all[0].Discouraged = "because"
	all[1].InUse = true
	furthest := capacity.Furthest{Policy: all[2].Policy, Size: 100}
	for _, test := range []struct {
		slos capacity.SLOs
		want int
	}{
		{capacity.SLOs{ProgrammingP99: 10 * time.Second}, 4},
		{capacity.SLOs{ProgrammingP99: 5 * time.Second}, 2}, // within 5 % of the cheapest, and faster
		{capacity.SLOs{ProgrammingP99: 3 * time.Second}, 2},
		{capacity.SLOs{ProgrammingP99: 1700 * time.Millisecond}, 1}, // at the median only
		{capacity.SLOs{ProgrammingP99: 1700 * time.Millisecond, CPU: 0.3}, 2},
		{capacity.SLOs{ProgrammingP99: time.Second}, 2}, // no setting meets it: the furthest
		{capacity.SLOs{CPU: 0.15}, 1},                   // no SLO for latency: the setting in use
	} {
		if got := capacity.Recommend(all, furthest, test.slos); got.Policy != all[test.want].Policy {
			t.Errorf("%+v: %v, want %v", test.slos, got.Policy.MinSyncPeriod, all[test.want].Policy.MinSyncPeriod)
		}
	}
	if got := capacity.Recommend(all, capacity.Furthest{}, capacity.SLOs{ProgrammingP99: time.Second}); got.Policy != all[1].Policy {
		t.Errorf("no setting meets the SLO at any size: %v, want the lowest latency", got.Policy.MinSyncPeriod)
	}
	idle := []capacity.Setting{setting(1, 1, 1.2, 0.02), setting(5, 4.8, 4.9, 0.005)}
	if got := capacity.Recommend(idle, furthest, capacity.SLOs{ProgrammingP99: 5 * time.Second}); got.Policy != idle[0].Policy {
		t.Errorf("%v: 0.015 CPUs do not justify a higher latency", got.Policy.MinSyncPeriod)
	}
}

func TestCrossings(t *testing.T) {
	curve := func(f func(s float64) float64) (out []capacity.Evaluation) {
		for _, s := range []int{100, 1000, 10000, 100000} {
			out = append(out, capacity.Evaluation{Size: float64(s), Quantities: map[string]capacity.Estimate{
				capacity.Start: {Median: f(float64(s)), Basis: model.Interpolated}}})
		}
		return out
	}
	linear, flat := curve(func(s float64) float64 { return s / 1000 }), curve(func(float64) float64 { return 3 })
	if x, ok := capacity.Cross(linear, flat, capacity.Start); !ok || x.Until || x.Size < 2990 || x.Size > 3010 {
		t.Errorf("flat against linear: %+v, %v", x, ok)
	}
	if x, ok := capacity.Cross(flat, linear, capacity.Start); !ok || !x.Until || x.Size < 2990 || x.Size > 3010 {
		t.Errorf("linear against flat: %+v, %v", x, ok)
	}
	if x, ok := capacity.Cross(flat, flat, capacity.Start); !ok || !x.Never {
		t.Errorf("the same: %+v, %v", x, ok)
	}
	low := curve(func(float64) float64 { return 0.01 })
	if x, ok := capacity.Cross(flat, low, capacity.Start); !ok || !x.Always {
		t.Errorf("lower: %+v, %v", x, ok)
	}
}

func TestNumbers(t *testing.T) {
	for _, test := range []struct {
		v     float64
		basis model.Basis
		want  string
	}{
		{21345, model.Extrapolated, "21,000"}, {21345, model.Measured, "21,300"}, {999.6, model.Interpolated, "1,000"}, {0.3456, model.Extrapolated, "0.35"},
		{1234567, model.Measured, "1,230,000"}, {1, model.Measured, "1"}, {10, model.Extrapolated, "10"}, {0, model.Measured, "0"}, {0.0995, model.Extrapolated, "0.1"},
	} {
		if got := capacity.Digits(test.v, test.basis); got != test.want {
			t.Errorf("%g (%s): %s, want %s", test.v, test.basis, got, test.want)
		}
	}
	for want, got := range map[string]string{
		"1.25 s": capacity.Amount(capacity.Start, 1.25, model.Measured), "30 s": capacity.Amount(capacity.Start, 30, model.Measured),
		"12 min": capacity.Amount(capacity.Start, 712, model.Extrapolated), "340 ms": capacity.Amount(capacity.ProgrammingP99, 0.34, model.Measured),
		"33 µs": capacity.Amount(capacity.FirstPacketP99, 32.6e-6, model.Extrapolated), "512 MiB": capacity.Amount(capacity.Memory, 512<<20, model.Measured),
		"0.31 CPUs": capacity.Amount(capacity.CPU, 0.31, model.Measured), "1.5 GiB": capacity.Amount(capacity.Memory, 1.5*(1<<30), model.Measured),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := capacity.MemoryLimit(capacity.Estimate{High: 100 << 20}); got != 128<<20 {
		t.Errorf("memory limit %d, want 128 MiB: 125, rounded up to 16", got)
	}
}

// An impossible cluster is refused by name before any simulation, and so is an impossible target.
func TestTooLargeClustersAreRefused(t *testing.T) {
	for want, change := range map[string]func(*capacity.Question){
		"cluster of 100,000,000 Services: want at most 1,048,576":                   func(q *capacity.Question) { q.Today.Services = 99_999_999 },
		"cluster with 100,000 endpoints per Service: want at most 5,000":            func(q *capacity.Question) { q.Today.Endpoints = 100_000 },
		"cluster with 30,000,000 endpoints in all: want at most 10,000,000":         func(q *capacity.Question) { q.Today.Services = 3_000_000 / 3; q.Today.Endpoints = 30 },
		"the target: cluster of 3,000,000 Services: want at most 1,048,576":         func(q *capacity.Question) { q.Growth.Services = 1000 },
		"the target: cluster with 20,000 endpoints per Service: want at most 5,000": func(q *capacity.Question) { q.Growth = capacity.Growth{Endpoints: 2000} },
	} {
		q := capacitytest.Question()
		change(&q)
		if err := q.Validate(); err == nil || err.Error() != want {
			t.Errorf("%v; want %s", err, want)
		}
		if _, err := capacity.Ask(t.Context(), capacitytest.Model(), q, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("asked: %v; want %s", err, want)
		}
	}
}
