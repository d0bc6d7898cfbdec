package reports

import (
	"slices"

	"synclab/reports/estimate"
)

// Imprecise are the cells of a run that need more repetitions: those with a ratio that the scenario asks for, whose interval
// does not keep within a share of it. Asked for are the ratios of its targets, and of each subject's headline figures to
// its nearest baseline. Of a cell with one subject it is the figures themselves.
func Imprecise(dir string, share float64) ([]Cell, error) {
	run, err := loadRun(dir)
	if err != nil {
		return nil, err
	}
	c := collect([]*loadedRun{run})
	comparisons := cellComparisons(c)
	var out []Cell
	for _, cell := range c.cells {
		i := slices.IndexFunc(comparisons, func(o CellComparison) bool { return o.Cell.id() == cell.id() })
		var precise bool
		if i >= 0 {
			precise = comparisons[i].precise(share) && targetsPrecise(run, comparisons[i], share)
		} else {
			precise = sidesPrecise(sidesOf(c, cell), share)
		}
		if !precise {
			out = append(out, cell)
		}
	}
	return out, nil
}

// headlineFigures are what ratios are mostly read of: what is seen from outside, where that was measured, else what
// subjects tell of themselves and the latency of changes.
func headlineFigures(sides []Side) []string {
	measured := func(name string) bool {
		return slices.ContainsFunc(sides, func(s Side) bool { return s.figure(name) != nil })
	}
	names := []string{figureCold}
	if measured(figureReaction) {
		names = append(names, figureReaction)
	} else {
		names = append(names, figureNPL50, figureFull, figurePartial)
	}
	return slices.DeleteFunc(names, func(name string) bool { return !measured(name) })
}

// precise says whether the ratios of the headline figures are. What one of the two does not have has no ratio.
func (c CellComparison) precise(share float64) bool {
	for _, side := range c.Sides {
		baseline := c.nearest(side)
		for _, name := range headlineFigures(c.Sides) {
			if r := c.ratio(side.Series, baseline, name); r != nil && !r.within(share) {
				return false
			}
		}
	}
	return true
}

// targetsPrecise says whether what the scenario's targets need of a cell is.
func targetsPrecise(run *loadedRun, c CellComparison, share float64) bool {
	for _, t := range run.run.Scenario.Targets {
		i := slices.IndexFunc(c.Sides, func(s Side) bool { return s.Subject == t.Subject })
		if i < 0 || t.Services != c.Cell.Services {
			continue
		}
		own := c.Sides[i].figure(t.Figure)
		j := slices.IndexFunc(c.Sides, func(s Side) bool { return s.Subject == t.Beside })
		switch {
		case own == nil:
		case j >= 0:
			if r, ok := compareFigures(c.Sides[j].figure(t.Figure), own); ok && !r.within(share) && !t.Once {
				return false // what is measured once never gets an interval
			}
		case t.AtMost > 0 && !precise(own, share):
			return false
		}
	}
	return true
}

func sidesPrecise(sides []Side, share float64) bool {
	for _, side := range sides {
		for _, name := range headlineFigures(sides) {
			if f := side.figure(name); f != nil && !precise(f, share) {
				return false
			}
		}
	}
	return true
}

// precise says whether an estimate's interval keeps within a share of it; a bound does, since more repetitions do not help.
func precise(f *estimate.Estimate, share float64) bool {
	spread, ok := f.Spread()
	return f.Stopped || ok && spread <= share
}
