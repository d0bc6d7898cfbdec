package bench

import (
	"errors"
	"strings"
	"synclab/bench/raw"
	"testing"
	"time"
)

// until runs a scenario until imprecise returns false, and returns the number of repetitions of each subject.
func until(t *testing.T, budget time.Duration, imprecise func(asked int) bool) (tr *trial, reps int) {
	t.Helper()
	tr = newTrial(t, "cold-start", 5)
	tr.options.Subjects, tr.options.Reps = tr.options.Subjects[:1], 0
	asked := 0
	tr.options.Until = &Until{Precision: 0.05, Budget: budget, Imprecise: func(dir string) ([]map[string]string, error) {
		asked++
		if _, records, err := raw.ReadRun(dir); err != nil || len(records) == 0 {
			t.Errorf("asked for precision without records: %v", err)
		}
		if imprecise(asked) {
			return []map[string]string{nil}, nil
		}
		return nil, nil
	}}
	tr.mustExecute()
	seen := map[int]bool{}
	for _, r := range tr.records {
		seen[r.Rep] = true
	}
	if len(seen) != tr.run.Reps || tr.run.Precision != 0.05 {
		t.Errorf("%d repetitions have records; run.json says %d, precision %v", len(seen), tr.run.Reps, tr.run.Precision)
	}
	return tr, len(seen)
}

// TestUntilPrecise repeats cells until they are precise, and not beyond the budget.
func TestUntilPrecise(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	if _, reps := until(t, time.Hour, func(asked int) bool { return asked < 3 }); reps != LeastReps+2 {
		t.Errorf("%d repetitions, want %d", reps, LeastReps+2)
	}
	if _, reps := until(t, time.Nanosecond, func(int) bool { return true }); reps != LeastReps {
		t.Errorf("%d repetitions without time, want %d", reps, LeastReps)
	}
	tr := newTrial(t, "cold-start", 5)
	tr.options.Until, tr.options.Shard, tr.options.Shards = &Until{}, 1, 2
	if _, err := Execute(t.Context(), tr.options); err == nil || !strings.Contains(err.Error(), "shards need a number") {
		t.Errorf("shards: %v", err)
	}
	tr = newTrial(t, "cold-start", 5)
	tr.options.Until = &Until{Imprecise: func(string) ([]map[string]string, error) { return nil, errors.New("unreadable") }}
	if err := tr.execute(t.Context()); err == nil || !strings.Contains(err.Error(), "unreadable") {
		t.Errorf("an error of the judge: %v", err)
	}
}
