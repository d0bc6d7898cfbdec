package search

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// machine plays a subject whose limit is at a size, with noise: the size that a repetition feels differs by this share.
type machine struct {
	limit, noise float64
	second       float64 // of a cell of 10,000
	power        float64
}

func (m machine) measure(size int, rng *rand.Rand) (Outcome, time.Duration) {
	took := time.Duration(m.second * math.Pow(float64(size)/10000, m.power) * float64(time.Second))
	if float64(size)*math.Exp(m.noise*rng.NormFloat64()) > m.limit {
		return Violated, took
	}
	return Met, took
}

// play searches in virtual time.
func play(t *testing.T, o Options, subjects map[string]machine, order []string, budget time.Duration) (*Search, time.Duration) {
	t.Helper()
	s := New(o)
	for _, name := range order {
		s.Subject(name, 0)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	used := time.Duration(0)
	for range 1000 {
		name, size, _, ok := s.Next(budget - used)
		if !ok {
			return s, used
		}
		if size < o.Least || size > o.Most {
			t.Fatalf("%s at %d: beyond %d to %d", name, size, o.Least, o.Most)
		}
		outcome, took := subjects[name].measure(size, rng)
		used += took
		s.Add(name, size, outcome, took)
	}
	t.Fatal("the search does not end")
	return nil, 0
}

var usual = Options{Asked: 10000, Least: 10, Most: 40000, Precision: 1.15, Agreeing: 3}

func TestFindsLimits(t *testing.T) {
	subjects := map[string]machine{
		"legacy": {limit: 22000, second: 60, power: 1.4}, "nftables": {limit: 8200, second: 80, power: 1.9}, "ours": {limit: 1e6, second: 35, power: 1},
		"never": {limit: 1, second: 5, power: 1},
	}
	s, _ := play(t, usual, subjects, []string{"legacy", "nftables", "ours", "never"}, 5*time.Hour)
	for name, limit := range map[string]float64{"legacy": 22000, "nftables": 8200} {
		b := s.Bracket(name)
		if float64(b.Met) > limit || float64(b.Violated) <= limit || float64(b.Violated)/float64(b.Met) > usual.Precision {
			t.Errorf("%s: %+v does not enclose %g within %g", name, b, limit, usual.Precision)
		}
		if b.MetReps != 3 || b.ViolatedReps != 3 {
			t.Errorf("%s: %+v: want three repetitions at both ends", name, b)
		}
	}
	if b := s.Bracket("ours"); b.Met != usual.Most || b.Violated != 0 || b.MetReps != 3 {
		t.Errorf("without a limit: %+v", b)
	}
	if b := s.Bracket("never"); b.Met != 0 || b.Violated != usual.Least {
		t.Errorf("always violated: %+v", b)
	}
}

// TestFirstAnswer: ten minutes give each of three subjects a bracket of at most 1.4, as the time of cells at 10,000 here.
func TestFirstAnswer(t *testing.T) {
	subjects := map[string]machine{
		"legacy": {limit: 17000, second: 40, power: 1.3}, "nftables": {limit: 8200, second: 60, power: 1.7}, "ours": {limit: 90000, second: 30, power: 0.9},
	}
	s, used := play(t, usual, subjects, []string{"legacy", "nftables", "ours"}, 12*time.Minute)
	if used > 12*time.Minute {
		t.Errorf("used %v", used)
	}
	for _, name := range []string{"legacy", "nftables"} {
		if b := s.Bracket(name); b.Met == 0 || float64(b.Violated)/float64(b.Met) > 1.42 {
			t.Errorf("%s: %+v", name, b)
		}
	}
	if b := s.Bracket("ours"); b.Met < usual.Asked {
		t.Errorf("ours: %+v", b)
	}
}

// TestNoise: a limit that moves between repetitions is an interval that encloses it.
func TestNoise(t *testing.T) {
	s, _ := play(t, usual, map[string]machine{"a": {limit: 10400, noise: 0.08, second: 10, power: 1}}, []string{"a"}, 10*time.Hour)
	b := s.Bracket("a")
	if b.Met >= 10400 || b.Violated <= 10400 {
		t.Errorf("%+v does not enclose 10400", b)
	}
	if len(b.Unclear) == 0 {
		t.Errorf("%+v: want a size whose repetitions disagree", b)
	}
}

func TestBudget(t *testing.T) {
	s := New(usual)
	s.Subject("a", 1000)
	if _, size, _, ok := s.Next(time.Second); !ok || size != 1000 {
		t.Errorf("first size %d, %v: want 1000, whatever the time", size, ok)
	}
	s.Add("a", 1000, Met, time.Minute)
	if _, size, _, ok := s.Next(30 * time.Second); ok {
		t.Errorf("size %d does not fit into 30 s", size)
	}
	if _, size, expected, ok := s.Next(time.Hour); !ok || size != 2000 || expected < time.Minute {
		t.Errorf("next: %d, %v, %v", size, expected, ok)
	}
}

// TestFails: a subject that fails at a size is tried at smaller ones. One that never works leaves the search.
func TestFails(t *testing.T) {
	s := New(usual)
	s.Subject("never", 0)
	if s.Fail("never", 10000) {
		t.Error("one failure ends the search")
	}
	if _, size, _, ok := s.Next(time.Hour); !ok || size != 5000 {
		t.Errorf("after a failure at 10,000: %d, %v", size, ok)
	}
	if !s.Fail("never", 5000) {
		t.Error("a subject that never works stays in the search")
	}
	if _, size, _, ok := s.Next(time.Hour); ok {
		t.Errorf("size %d of a subject that cannot be measured", size)
	}
	s.Subject("large", 0)
	s.Add("large", 10000, Met, time.Second)
	s.Fail("large", 20000)
	for range 100 {
		name, size, _, ok := s.Next(time.Hour)
		if !ok {
			break
		}
		if size >= 20000 {
			t.Fatalf("%s at %d, where it failed", name, size)
		}
		s.Add("large", size, Met, time.Second)
	}
	if b := s.Bracket("large"); b.Met < 17000 || b.Violated != 0 || b.MetReps != 3 {
		t.Errorf("%+v", b)
	}
}

// TestAskedSize: the size of the question is measured, though a narrow bracket encloses it.
func TestAskedSize(t *testing.T) {
	s := New(Options{Asked: 5000, Least: 10, Most: 20000, Precision: 1.15, Agreeing: 3})
	s.Subject("a", 1000)
	s.Add("a", 4800, Met, time.Second)
	s.Add("a", 5200, Violated, time.Second)
	if _, size, _, ok := s.Next(time.Hour); !ok || size != 5000 {
		t.Errorf("next %d, %v", size, ok)
	}
}

// TestNarrowsBesideUnclear: sizes whose repetitions disagree do not end the bisection below and above them.
func TestNarrowsBesideUnclear(t *testing.T) {
	s := New(usual)
	s.Subject("a", 0)
	s.Add("a", 10000, Violated, time.Second)
	s.Add("a", 5000, Met, time.Second)
	for _, outcome := range []Outcome{Met, Violated, Met} {
		s.Add("a", 7100, outcome, time.Second)
	}
	if _, size, _, ok := s.Next(time.Hour); !ok || size != 6000 {
		t.Errorf("next %d, %v: want the middle of 5,000 and 7,100", size, ok)
	}
}

// TestGoesOnBeyondUnclear: where the largest or smallest measured size is one whose repetitions disagree, the limit may lie beyond.
func TestGoesOnBeyondUnclear(t *testing.T) {
	for _, c := range []struct {
		other   Outcome // of a size beside the unclear one of 10,000
		at      int
		next    int
		outcome Outcome
	}{{Met, 9200, 20000, Violated}, {Violated, 11000, 5000, Met}} {
		s := New(Options{Asked: 10000, Least: 10, Most: 40000, Precision: 2.1, Agreeing: 3})
		s.Subject("a", 0)
		for _, outcome := range []Outcome{Met, Violated, Met} {
			s.Add("a", 10000, outcome, time.Second)
			s.Add("a", c.at, c.other, time.Second)
		}
		for range usual.Agreeing {
			if _, size, _, ok := s.Next(time.Hour); !ok || size != c.next {
				t.Fatalf("beside %d: next %d, %v: want %d", c.at, size, ok, c.next)
			}
			s.Add("a", c.next, c.outcome, time.Second)
		}
		if _, size, _, ok := s.Next(time.Hour); ok {
			t.Errorf("next %d after a bracket of %+v", size, s.Bracket("a"))
		}
	}
}

func TestContradiction(t *testing.T) {
	s := New(usual)
	s.Subject("a", 0)
	s.Add("a", 5000, Violated, time.Second)
	s.Add("a", 10000, Met, time.Second)
	s.Add("a", 20000, Violated, time.Second)
	b := s.Bracket("a")
	if b.Met != 0 || b.Violated != 20000 || len(b.Unclear) != 2 {
		t.Errorf("%+v", b)
	}
	if _, size, _, ok := s.Next(time.Hour); !ok || size != 5000 {
		t.Errorf("next %d: want the contradicting size again", size)
	}
}

// TestSecondSizes: each subject gets a second size before any gets a third, the one in use first.
func TestSecondSizes(t *testing.T) {
	s := New(usual)
	order := []string{"slow", "usual", "fast"}
	for i, name := range order {
		s.Subject(name, 0)
		s.Add(name, usual.Asked, Met, time.Duration(40-15*i)*time.Second)
	}
	for _, want := range order {
		name, size, _, ok := s.Next(time.Hour)
		if !ok || name != want || size != 2*usual.Asked {
			t.Fatalf("next: %s at %d, %v: want %s at %d", name, size, ok, want, 2*usual.Asked)
		}
		s.Add(name, size, Met, time.Minute)
	}
}
