package bench

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"synclab/bench/raw"
	"synclab/scenarios"
)

// Until decides when cells have been repeated often enough.
type Until struct {
	// Imprecise reads the run's folder, and returns the swept values (Cell.Params) of the cells that need more
	// repetitions. It is called after each round from LeastReps on.
	Imprecise func(dir string) ([]map[string]string, error)
	// Precision is the share that Imprecise judges by, for run.json.
	Precision float64
	// Budget is the time for the run. Once all cells have LeastReps, a repetition of a cell begins only if it would end
	// within the budget when it takes as long as the previous one.
	Budget time.Duration
}

// LeastReps is how often every cell is repeated regardless of the budget: as often as by default.
const LeastReps = 3

// runUntil repeats the cells in turn, and in each the subjects, until all are precise or the budget is used.
func (o *ExecuteOptions) runUntil(ctx context.Context, w *raw.RunWriter, cells []scenarios.Cell) error {
	began := time.Now()
	o.ends = began.Add(o.Until.Budget)
	took := make([]time.Duration, len(cells)) // by the last repetition of each cell
	stopped := map[string]bool{}
	var pending []int
	for number := range cells {
		pending = append(pending, number)
	}
	done := 0
	for rep := 1; len(pending) > 0; rep++ {
		var left []int // cells of this round that time allows
		for _, number := range pending {
			if rep > LeastReps && time.Since(began)+took[number] > o.Until.Budget {
				o.Progress(Progress{Note: fmt.Sprintf("%s: %d repetitions; another would not end within the budget of %v", o.cellName(cells[number]), rep-1, o.Until.Budget)})
				continue
			}
			all := slices.DeleteFunc(turn(cells, number, rep, o.Subjects, o.Scenario.Seed), func(p slot) bool { return stopped[o.slotName(p)] })
			if len(all) == 0 {
				continue
			}
			start := time.Now()
			if err := o.runSlots(ctx, w, all, stopped, done, done+len(all)); err != nil {
				return err
			}
			took[number], done, left = time.Since(start), done+len(all), append(left, number)
		}
		if len(left) == 0 {
			return nil
		}
		if err := w.Update(func(run *raw.Run) { run.Reps = rep }); err != nil {
			return err
		}
		pending = left
		if rep < LeastReps {
			continue
		}
		if err := w.Flush(); err != nil {
			return err
		}
		imprecise, err := o.Until.Imprecise(w.Dir())
		if err != nil {
			return fmt.Errorf("precision after %d repetitions: %w", rep, err)
		}
		pending = slices.DeleteFunc(pending, func(number int) bool {
			return !slices.ContainsFunc(imprecise, func(params map[string]string) bool { return maps.Equal(params, cells[number].Params) })
		})
	}
	return nil
}
