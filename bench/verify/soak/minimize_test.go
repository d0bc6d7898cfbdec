package soak

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"synclab/scenarios"
)

// random returns the scenario of the first seed for which fails returns true.
func random(t *testing.T, fails func(*scenarios.Scenario) bool) *scenarios.Scenario {
	t.Helper()
	for seed := range uint64(1000) {
		s, err := scenarios.Random(seed, scenarios.RandomOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if fails(s) {
			return s
		}
	}
	t.Fatal("no seed fails")
	return nil
}

// flushThenServices simulates a bug that needs two kinds of steps in order: Services churn after a flush, with five or
// more Services and a settle step at the end.
func flushThenServices(s *scenarios.Scenario) bool {
	flushed, changed := false, false
	for _, step := range s.Steps {
		flushed = flushed || (step.Fault != nil && step.Fault.Kind == scenarios.FaultFlush)
		changed = changed || (flushed && step.Churn != nil && step.Churn.Kind == "services" && step.Churn.Events >= 3)
		if changed && step.Settle != nil {
			return s.Shape.Services >= 5
		}
	}
	return false
}

func kindsOf(s *scenarios.Scenario) string {
	var kinds []string
	for _, step := range s.Steps {
		kind := step.Kind()
		if step.Fault != nil {
			kind += " " + step.Fault.Kind
		}
		kinds = append(kinds, kind)
	}
	return strings.Join(kinds, ", ")
}

func TestMinimize(t *testing.T) {
	s := random(t, flushThenServices)
	tries := 0
	m := Minimizer{
		Budget: time.Hour, Tries: 1, FailedAt: len(s.Steps) - 1, Tell: func(string) {},
		Fails: func(_ context.Context, s *scenarios.Scenario) (bool, error) {
			tries++
			if err := s.Validate(); err != nil {
				t.Errorf("tried: %v", err)
			}
			return flushThenServices(s), nil
		},
	}
	got, err := m.Minimize(t.Context(), s)
	if err != nil || got == nil {
		t.Fatalf("%v, %v", got, err)
	}
	if kinds := kindsOf(got); kinds != "create, settle, fault flush, churn, settle, check" {
		t.Errorf("steps: %s", kinds)
	}
	if n := got.Shape.Services; n < 5 || n >= 10 {
		t.Errorf("%d Services, want 5 to 9: half as many do not fail", n)
	}
	for _, step := range got.Steps {
		if step.Churn != nil && step.Churn.Events >= 6 {
			t.Errorf("churn of %d events, want less than 6", step.Churn.Events)
		}
	}
	if len(got.Shape.Types) > 0 || len(got.Shape.Families) != 1 || got.Shape.Ports != 1 {
		t.Errorf("shape %+v", got.Shape)
	}
	t.Logf("%d of %d steps after %d tries", len(got.Steps), len(s.Steps), tries)
}

// A failure in every third run is found with three tries; a failure that never returns is not found.
func TestMinimizeWhatComesNowAndThen(t *testing.T) {
	s := random(t, flushThenServices)
	played := 0
	m := Minimizer{
		Budget: time.Hour, Tries: 3, FailedAt: -1, Tell: func(string) {},
		Fails: func(_ context.Context, s *scenarios.Scenario) (bool, error) {
			played++
			return flushThenServices(s) && played%3 == 0, nil
		},
	}
	got, err := m.Minimize(t.Context(), s)
	if err != nil || got == nil {
		t.Fatalf("%v, %v", got, err)
	}
	if kinds := kindsOf(got); kinds != "create, settle, fault flush, churn, settle, check" {
		t.Errorf("steps: %s", kinds)
	}
	m.Fails = func(context.Context, *scenarios.Scenario) (bool, error) { return false, nil }
	if got, err := m.Minimize(t.Context(), s); got != nil || err != nil {
		t.Errorf("a failure that never returns: %v, %v", got, err)
	}
}

// When the budget is used up, the current run is cancelled and the best result so far counts.
func TestMinimizeEndsWithItsBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := random(t, flushThenServices)
		began, tries := time.Now(), 0
		m := Minimizer{
			Budget: 5 * time.Minute, Tries: 1, FailedAt: len(s.Steps) - 1, Tell: func(string) {},
			Fails: func(ctx context.Context, s *scenarios.Scenario) (bool, error) {
				tries++
				select {
				case <-time.After(70 * time.Second):
					return flushThenServices(s), nil
				case <-ctx.Done():
					return false, ctx.Err()
				}
			},
		}
		got, err := m.Minimize(t.Context(), s)
		if err != nil || got == nil {
			t.Fatalf("%v, %v", got, err)
		}
		if took := time.Since(began); took != 5*time.Minute || tries != 5 {
			t.Errorf("%v and %d tries, want 5m and 5, the last one cut short", took, tries)
		}
		if len(got.Steps) >= len(s.Steps) || !flushThenServices(got) {
			t.Errorf("%d steps of %d", len(got.Steps), len(s.Steps))
		}
	})
}

func TestMinimizeTellsOfErrors(t *testing.T) {
	s, err := scenarios.Random(1, scenarios.RandomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("no namespace")
	m := Minimizer{Budget: time.Hour, FailedAt: 9, Tell: func(string) {}, Fails: func(context.Context, *scenarios.Scenario) (bool, error) { return false, broken }}
	if got, err := m.Minimize(t.Context(), s); got != nil || !errors.Is(err, broken) {
		t.Errorf("%v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := m.Minimize(ctx, s); got != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v, %v", got, err)
	}
}
