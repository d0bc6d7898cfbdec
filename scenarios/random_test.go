package scenarios

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// drawn returns the scenarios of the first seeds.
func drawn(t *testing.T, seeds int, o RandomOptions) []*Scenario {
	t.Helper()
	all := make([]*Scenario, seeds)
	for seed := range all {
		all[seed] = mustRandom(t, uint64(seed), o)
	}
	return all
}

func TestRandomIsValidAndReadsBack(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	for _, s := range drawn(t, 1000, RandomOptions{}) { // mustRandom has validated all of them
		if s.Seed%5 != 0 {
			continue
		}
		text, err := s.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("random.yaml", text, nil, Sizes{})
		if err != nil {
			t.Fatalf("its own YAML: %v\n%s", err, text)
		}
		if !reflect.DeepEqual(s, again) {
			t.Fatalf("seed %d (-first +again):\n%s", s.Seed, cmp.Diff(s, again))
		}
	}
}

// Everything that Random can draw occurs for some seed, and ends as it should.
func TestRandomHasEverything(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range drawn(t, 300, RandomOptions{}) {
		open := false      // a fault that is not cleared yet
		var round []string // the faults since the last one was cleared
		for i, step := range s.Steps {
			seen[step.Kind()] = true
			switch {
			case step.Fault != nil:
				seen[step.Fault.Kind] = true
				seen[step.Fault.Kind+" "+step.Fault.Table+" "+step.Fault.Object] = true
				open = step.Fault.Kind != FaultClear && i > 0
				if slices.ContainsFunc(round, func(other string) bool { return excludes(step.Fault.Kind, other) }) {
					t.Errorf("seed %d: step %d, %s, does not fit beside %v", s.Seed, i, step.Fault.Kind, round)
				}
				if round = append(round, step.Fault.Kind); !open {
					round = nil
				}
				if f := step.Fault; f.Elements > 3000 || f.Rules > 200 {
					t.Errorf("seed %d: step %d makes %d elements and %d rules: too slow for many seeds", s.Seed, i, f.Elements, f.Rules)
				}
			case step.Churn != nil:
				seen[step.Churn.Kind] = true
			case step.Check != nil && open:
				t.Errorf("seed %d: step %d checks while a fault holds", s.Seed, i)
			}
		}
		if last := s.Steps[len(s.Steps)-1]; last.Check == nil {
			t.Errorf("seed %d ends with %s, want check", s.Seed, last.Kind())
		}
		for _, word := range slices.Concat(s.Shape.Families, []string{s.Proxy.Policy, s.Shape.Endpoints.Distribution}) {
			seen[word] = true
		}
		for kind := range s.Shape.Types {
			seen[kind] = true
		}
		for protocol := range s.Shape.Protocols {
			seen[protocol] = true
		}
		seen["without targetRef"] = seen["without targetRef"] || s.Shape.WithoutTargetRef > 0
		seen["shared pods"] = seen["shared pods"] || s.Shape.SharedPods > 0
		seen["dual"] = seen["dual"] || len(s.Shape.Families) == 2
	}
	want := slices.Concat(FaultKinds(), namesOf(stepType), mapKeys["shape.types"], mapKeys["shape.protocols"], []string{
		"IPv4", "IPv6", "dual", "shared pods", "without targetRef", "completion-to-start", "token-bucket", "fixed", "uniform", "zipf",
		"endpoints", "readiness", "services", "mixed", "flush mangle ", "flush all ", "delete nat jump", "delete filter chain", "delete nat rule",
	})
	for _, word := range want {
		if !seen[word] && word != "follow" && word != "probe" && word != "react" && word != "connections" && word != "migrate" { // need a real cluster, or two subjects; for measuring
			t.Errorf("no seed has %s: draw it in random.go, or except it here", word)
		}
	}
}

func TestFaultsThatExcludeEachOther(t *testing.T) {
	for _, pair := range [][2]string{{FaultAPIDown, FaultWatchStalled}, {FaultConntrackStale, FaultConntrackFull}, {FaultFlush, FaultFlush}} {
		if !excludes(pair[0], pair[1]) {
			t.Errorf("%s fits beside %s", pair[0], pair[1])
		}
	}
	if excludes(FaultKilled, FaultFlush) {
		t.Error("killed does not fit beside flush")
	}
}

func TestRandomKeepsItsBounds(t *testing.T) {
	o := RandomOptions{Duration: 20 * time.Second, Services: 50, Without: []string{"traffic", "restart", FaultMemoryLimit, "check"}}
	for _, s := range drawn(t, 200, o) {
		if n := s.Shape.Services; n < leastServices || n > 50 {
			t.Errorf("seed %d: %d Services", s.Seed, n)
		}
		var total time.Duration
		for i, took := range s.Durations() {
			if s.Steps[i].Fault == nil { // faults are active during other steps
				total += took
			}
			kind := s.Steps[i].Kind()
			if f := s.Steps[i].Fault; f != nil {
				kind = f.Kind
			}
			if slices.Contains(o.Without, kind) {
				t.Errorf("seed %d has %s", s.Seed, kind)
			}
		}
		// The last step may begin at the bound.
		if total > o.Duration+8*time.Second {
			t.Errorf("seed %d takes %v", s.Seed, total)
		}
	}
	if s, _ := Random(3, o); cmp.Diff(s, mustRandom(t, 3, o)) != "" || cmp.Diff(s, mustRandom(t, 4, o)) == "" {
		t.Error("a seed does not make its scenario")
	}
}

func mustRandom(t *testing.T, seed uint64, o RandomOptions) *Scenario {
	t.Helper()
	s, err := Random(seed, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRandomRefusesUnknownKinds(t *testing.T) {
	if _, err := Random(1, RandomOptions{Without: []string{"flsh"}}); err == nil {
		t.Error("flsh was left out")
	}
}
