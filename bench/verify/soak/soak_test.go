package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"synclab/bench/raw"
	"synclab/scenarios"
)

// player is a RunFunc without a kernel: each run takes a minute of the synctest bubble's time.
type player struct {
	played []string // "seed subject"
	fails  func(s *scenarios.Scenario, subject string) bool
}

func (p *player) run(ctx context.Context, s *scenarios.Scenario, subject, dir string) (Outcome, error) {
	p.played = append(p.played, fmt.Sprintf("%d %s", s.Seed, subject))
	select {
	case <-time.After(time.Minute):
	case <-ctx.Done():
		return Outcome{}, ctx.Err()
	}
	o := Outcome{Totals: Totals{Scenarios: 1, Events: 10, Flows: 100, Answered: 100, Faults: map[string]int{"flush": 1}}}
	if p.fails != nil && p.fails(s, subject) {
		o.add(Failure{Kind: Violated, Invariant: "I3", Step: fmt.Sprintf("%d:check", len(s.Steps)), Error: "wrong"})
		o.Totals.Violations++
	}
	return o, nil
}

func soaked(t *testing.T, ctx context.Context, p *player, change func(*Options)) (Summary, []string, error) {
	t.Helper()
	var lines []string
	o := Options{
		Seed: 7, Time: 150 * time.Second, Subjects: []string{"a", "b"}, Run: p.run, Dir: filepath.Join(t.TempDir(), "soak"),
		Flags: []string{"--without", "x"}, Tell: func(line string) { lines = append(lines, line) },
	}
	change(&o)
	k, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	summary, err := k.Run(ctx)
	var written Summary
	text, readErr := os.ReadFile(filepath.Join(o.Dir, "summary.json"))
	if readErr != nil {
		t.Fatal(readErr)
	}
	if err := json.Unmarshal(text, &written); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(summary.Totals, written.Totals); diff != "" {
		t.Errorf("summary.json (-returned +written):\n%s", diff)
	}
	return summary, lines, err
}

// Seeds follow one another, subjects take turns, and no run starts after the time.
func TestSoakPlaysUntilTheTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &player{}
		summary, lines, err := soaked(t, t.Context(), p, func(*Options) {})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"7 a", "8 b", "9 a"}, p.played); diff != "" {
			t.Errorf("played (-want +got):\n%s", diff)
		}
		want := Totals{Scenarios: 3, Events: 30, Flows: 300, Answered: 300, Faults: map[string]int{"flush": 3}}
		if diff := cmp.Diff(want, summary.Totals); diff != "" {
			t.Errorf("totals (-want +got):\n%s", diff)
		}
		if n := summary.BySubject["a"].Events; n != 20 {
			t.Errorf("%d events of a, want 20", n)
		}
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, "; now seed") }) {
			t.Errorf("no line reports the progress: %q", lines)
		}
	})
}

func TestSoakStopsAtTheFirstThatFailsAndMakesItSmaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &player{fails: func(s *scenarios.Scenario, subject string) bool { return subject == "b" && len(s.Steps) > 4 }}
		summary, lines, err := soaked(t, t.Context(), p, func(o *Options) { o.Minimize, o.Where = 20*time.Minute, []string{"--tools", "my tools"} })
		if err != nil {
			t.Fatal(err)
		}
		if summary.Seeds != 2 || len(summary.Failed) != 1 || summary.Totals.Scenarios != 2 {
			t.Fatalf("%+v", summary)
		}
		f := summary.Failed[0]
		smallest, err := scenarios.Load(f.Minimal, nil, scenarios.Sizes{})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(smallest.Steps); n != 5 {
			t.Errorf("%d steps are left, want 5", n)
		}
		for _, want := range []string{"soak --seed 8 --seeds 1 --subjects b --without x --tools 'my tools'", "run " + f.Minimal + " --subjects b --reps 1 --feed api --tools 'my tools'"} {
			if !strings.Contains(strings.Join(f.Again, "\n"), want) || !strings.Contains(strings.Join(lines, "\n"), want) {
				t.Errorf("no command contains %q: %q", want, f.Again)
			}
		}
		whole, err := scenarios.Load(f.Folder+".yaml", nil, scenarios.Sizes{})
		if err != nil || whole.Seed != 8 {
			t.Errorf("the seed's own scenario: %v, %v", whole, err)
		}
	})
}

// Another user may own the folder. What a seed's folder becomes during the search leads to no file outside of it.
func TestSwappedSeed(t *testing.T) {
	outside := t.TempDir()
	for _, dir := range []string{"tries", "minimal"} {
		if err := errors.Join(os.Mkdir(filepath.Join(outside, dir), 0o700), os.WriteFile(filepath.Join(outside, dir, "kept"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		p := &player{fails: func(*scenarios.Scenario, string) bool { return true }}
		_, _, err := soaked(t, t.Context(), p, func(o *Options) {
			o.Minimize = 5 * time.Minute
			seed := filepath.Join(o.Dir, "seed-7")
			o.Run = func(ctx context.Context, s *scenarios.Scenario, subject, dir string) (Outcome, error) {
				if runs++; runs == 2 { // the first one of the search
					if err := errors.Join(os.MkdirAll(seed, 0o755), os.Rename(seed, seed+"-moved"), os.Symlink(outside, seed)); err != nil {
						t.Error(err)
					}
				}
				return p.run(ctx, s, subject, dir)
			}
		})
		if runs < 3 {
			t.Errorf("%d runs: nothing was searched (%v)", runs, err)
		}
	})
	for _, dir := range []string{"tries", "minimal"} {
		if _, err := os.Stat(filepath.Join(outside, dir, "kept")); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(outside, "minimal.yaml")); err == nil {
		t.Error("a scenario was written outside of the folder")
	}
}

func TestSoakKeepsGoing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &player{fails: func(s *scenarios.Scenario, subject string) bool { return subject == "a" }}
		summary, _, err := soaked(t, t.Context(), p, func(o *Options) { o.KeepGoing, o.Time, o.Seeds = true, 0, 4 })
		if err != nil || summary.Seeds != 4 || len(summary.Failed) != 2 || summary.Totals.Violations != 2 {
			t.Errorf("%v, %+v", err, summary)
		}
	})
}

// Ctrl-C ends a soak, and keeps the counts so far.
func TestSoakInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		summary, _, err := soaked(t, ctx, &player{}, func(*Options) {})
		if !errors.Is(err, context.DeadlineExceeded) || summary.Seeds != 1 || summary.Totals.Events != 10 {
			t.Errorf("%v, %+v", err, summary)
		}
	})
}

func TestStepText(t *testing.T) {
	for _, test := range []struct {
		step scenarios.Step
		want string
	}{
		{scenarios.Step{Create: &scenarios.Create{}}, "create"},
		{scenarios.Step{Fault: &scenarios.Fault{Kind: "flush", Table: "nat"}}, "fault {kind: flush, table: nat}"},
		{scenarios.Step{Settle: &scenarios.Settle{Timeout: 2 * time.Minute}}, "settle {timeout: 2m0s}"},
	} {
		if got := stepText(test.step); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

// A flow that failed together with a control flow counts as Excused while a fault may lose flows, else as Machine.
func TestMachineFlowsAreATotal(t *testing.T) {
	var o Outcome
	for _, at := range []float64{5, 15, 25} {
		o.count(&scenarios.Scenario{}, raw.Record{Metric: raw.ControlFailure, At: at, Value: 0.9, Outcome: "timeout"}, []window{{from: 10, to: 20}})
	}
	if got := o.Totals; got.Flows != 3 || got.Machine != 2 || got.Excused != 1 || got.Lost != 0 || got.Answered != 0 {
		t.Errorf("%+v", o.Totals)
	}
}
