package model

import (
	"math"
	"strings"
	"testing"

	"synclab/bench/raw"
)

// On a slower machine, predicted and simulated times are longer in proportion; counts and memory stay. If kinds of work
// differ, intervals are wider. On an equally fast machine nothing changes. A model that is stored and read again gives
// the same predictions.
func TestPaceOfToday(t *testing.T) {
	truth := laws["lines"]
	records := synthetic{full: truth.full, partial: truth.partial, cells: sizes, reps: 2, between: 0.02, noise: 0.03}.records(1, "synclab/nftables")
	for _, c := range sizes {
		records = append(records, raw.Record{Scenario: "calibrate", Subject: "synclab/nftables", Services: c[0], Endpoints: float64(c[1]), Rep: 1, Metric: raw.PeakRSS, Value: 1e8, Unit: "B"})
	}
	fit := func() *Model {
		m, err := Fit(raw.Run{ID: "r", Pace: &raw.Pace{CPU: 0.02, Memory: 0.04, Restore: 0.03, Tool: "a"}}, records, FitOptions{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	ask := func(m *Model, q Query) Prediction {
		q.Services, q.Endpoints = 8000, 10
		p, err := m.Subjects[0].Predict(q)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	full, memory := Query{Kind: Full}, Query{Quantity: PeakRSS}
	then := fit()
	slower := fit()
	if said := slower.At(raw.Pace{CPU: 0.03, Memory: 0.06, Restore: 0.045, Tool: "a"}); !strings.Contains(said, "slower") || !strings.Contains(said, "1.50 times") {
		t.Error(said)
	}
	a, b := ask(then, full), ask(slower, full)
	if math.Abs(b.Median/a.Median-1.5) > 1e-6 || math.Abs(b.High/b.Low-a.High/a.Low) > 1e-6 {
		t.Errorf("%+v, was %+v: want times 1.5 as long and intervals as wide, since all kinds of work agree", b, a)
	}
	if ask(then, memory) != ask(slower, memory) {
		t.Error("memory depends on the pace of the machine")
	}
	one, err := then.Subjects[0].Syncs(8000, 10)
	two, err2 := slower.Subjects[0].Syncs(8000, 10)
	if err != nil || err2 != nil || math.Abs(two.Median(Partial, 3)/one.Median(Partial, 3)-1.5) > 1e-6 || math.Abs(two.Median(Partial, 5000)/one.Median(Partial, 5000)-1.5) > 1e-6 || math.Abs(two.Median(Full, 0)/one.Median(Full, 0)-1.5) > 1e-6 {
		t.Errorf("%v %v", err, err2)
	}
	uneven := fit()
	uneven.At(raw.Pace{CPU: 0.02, Memory: 0.08, Restore: 0.03, Tool: "b"})
	if c := ask(uneven, full); c.High/c.Low < 1.2*a.High/a.Low || c.Median < 1.3*a.Median {
		t.Errorf("memory is half as fast, the CPU as fast as before: %+v, was %+v", c, a)
	}
	dir := t.TempDir()
	if err := uneven.Write(dir); err != nil {
		t.Fatal(err)
	}
	again, _, err := Load(dir, Here{Elsewhere: true})
	if err != nil || ask(again, full) != ask(uneven, full) {
		t.Errorf("read again, the model predicts another value: %v", err)
	}
	same := fit()
	if said := same.At(raw.Pace{CPU: 0.0201, Memory: 0.0399, Restore: 0.03, Tool: "a"}); !strings.Contains(said, "as fast as") || ask(same, full).Median != a.Median {
		t.Errorf("%s: %+v, was %+v", said, ask(same, full), a)
	}
	older := fit()
	older.Pace = nil
	if said := older.At(raw.Pace{CPU: 1}); !strings.Contains(said, "did not record") || ask(older, full) != a {
		t.Error(said)
	}
}

// The cost of first packets follows from the rules that they cross. A few cells with several positions give the cost of
// a rule, although repetitions differ, and predict 40,000 Services. With the same rules in any cluster, the cost is
// constant.
func TestPacketsFollowFromRulesCrossed(t *testing.T) {
	truth := laws["lines"]
	cells := [][2]int{{100, 10}, {400, 10}, {400, 1}, {1600, 10}, {1600, 1}}
	for _, constant := range []bool{false, true} {
		records := synthetic{full: truth.full, partial: truth.partial, cells: cells, reps: 1, noise: 0.03}.records(1, "kube-proxy/iptables-legacy")
		for i, c := range cells {
			offset := []float64{6.2e-6, 7.7e-6, 5.8e-6, 6.3e-6, 7.5e-6}[i] // of each repetition, as in real runs
			for _, share := range []int{0, 1, 2, 3, 4} {
				position := 1 + share*(c[0]-1)/4
				crossed := 12 + position
				if constant {
					crossed = 12
				}
				r := raw.Record{Scenario: "calibrate", Subject: "kube-proxy/iptables-legacy", Services: c[0], Endpoints: float64(c[1]), Rep: 1, Position: &position}
				r.Metric, r.Value = raw.RulesEvaluated, float64(crossed)
				records = append(records, r)
				r.Metric = raw.FirstPacket
				for range 5 {
					r.Value = offset + 3e-9*float64(crossed)
					records = append(records, r)
				}
			}
		}
		s := fitOne(t, records)
		p, err := s.Predict(Query{Quantity: FirstPacket, Services: 40000, Endpoints: 10})
		want := 6.5e-6 + 3e-9*40012
		if constant {
			want = 6.5e-6
		}
		if err != nil || math.Abs(p.Median/want-1) > 0.15 || p.Low > want || p.High < want {
			t.Errorf("constant %v: %+v, %v; want %.3g (%s)", constant, p, err, want, s.term(FirstPacket, "").Formula())
		}
		if shown := s.Shown(FirstPacket, ""); len(shown) != len(cells) {
			t.Errorf("%d points for %d cells", len(shown), len(cells))
		}
	}
}
