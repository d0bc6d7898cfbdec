package bench

import (
	"context"
	"path/filepath"
	"strconv"
	"testing"

	"synclab/bench/raw"
)

// TestInterruptedPlanKeepsCells: known cells that an interrupted plan has not come to are in its folder, each as a repetition of
// its own.
func TestInterruptedPlanKeepsCells(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plan")
	w, err := raw.OpenRun(dir, raw.Run{}, false)
	if err != nil {
		t.Fatal(err)
	}
	cell := func(subject string) PlanCell {
		return PlanCell{Subject: subject, Size: 10, Rep: 1, Records: []raw.Record{
			{Subject: subject, Rep: 1, Metric: raw.ColdStart, Value: 1, Unit: "s", Params: map[string]string{raw.PlanSizeField: strconv.Itoa(10)}},
		}}
	}
	p := &planning{w: w, reps: map[string]int{cellKey("a/b", 10, Setting{}): 1}, left: []PlanCell{cell("a/b"), cell("a/b"), cell("c/d")}}
	if err := p.keep(t.Context()); err != nil || len(p.cells) != 0 {
		t.Fatalf("a plan that goes on took %+v, %v", p.cells, err)
	}
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.keep(interrupted); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(raw.StatusInterrupted, ""); err != nil {
		t.Fatal(err)
	}
	_, list, err := raw.ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"a/b 2": 1, "a/b 3": 1, "c/d 1": 1}
	for _, c := range PlanCells(list) {
		want[c.Subject+" "+strconv.Itoa(c.Rep)]--
	}
	for name, left := range want {
		if left != 0 {
			t.Errorf("%s: %d too few in the folder", name, left)
		}
	}
}
