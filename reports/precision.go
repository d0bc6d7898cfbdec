package reports

import (
	"slices"

	"synclab/reports/comparison"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

// Imprecise returns the cells of a run that need more repetitions: cells with a requested ratio whose interval is wider
// than share of the ratio. The ratios of the scenario's targets are requested, and those of each subject's headline
// figures to its nearest baseline. In a cell with one subject, the figures themselves count.
func Imprecise(dir string, share float64) ([]records.Cell, error) {
	run, err := records.Load(dir)
	if err != nil {
		return nil, err
	}
	c := records.Collect([]*records.Run{run})
	comparisons := comparison.OfCells(c)
	var out []records.Cell
	for _, cell := range c.Cells {
		i := slices.IndexFunc(comparisons, func(o comparison.CellComparison) bool { return o.Cell.ID() == cell.ID() })
		precise := i < 0 && sidesPrecise(comparison.SidesOf(c, cell), share) ||
			i >= 0 && ratiosPrecise(comparisons[i], share) && targetsPrecise(run, comparisons[i], share)
		if !precise {
			out = append(out, cell)
		}
	}
	return out, nil
}

// headlineFigures are the figures that most readers compare: the figures measured from outside, if they exist.
// Otherwise they are the latency of changes and the sync durations that subjects report.
func headlineFigures(sides []comparison.Side) []string {
	measured := func(name string) bool {
		return slices.ContainsFunc(sides, func(s comparison.Side) bool { return s.Figure(name) != nil })
	}
	names := []string{comparison.FigureCold}
	if measured(comparison.FigureReaction) {
		names = append(names, comparison.FigureReaction)
	} else {
		names = append(names, comparison.FigureNPL50, comparison.FigureFull, comparison.FigurePartial)
	}
	return slices.DeleteFunc(names, func(name string) bool { return !measured(name) })
}

// ratiosPrecise reports whether the ratios of all headline figures are precise. A figure that one side lacks has no ratio.
func ratiosPrecise(c comparison.CellComparison, share float64) bool {
	for _, side := range c.Sides {
		baseline := c.Nearest(side)
		for _, name := range headlineFigures(c.Sides) {
			if r := c.Ratio(side.Series, baseline, name); r != nil && !r.Within(share) {
				return false
			}
		}
	}
	return true
}

// targetsPrecise reports whether the figures of the scenario's targets in a cell are precise.
func targetsPrecise(run *records.Run, c comparison.CellComparison, share float64) bool {
	for _, t := range run.Info.Scenario.Targets {
		i := slices.IndexFunc(c.Sides, func(s comparison.Side) bool { return s.Subject == t.Subject })
		if i < 0 || t.Services != c.Cell.Services {
			continue
		}
		own := c.Sides[i].Figure(t.Figure)
		j := slices.IndexFunc(c.Sides, func(s comparison.Side) bool { return s.Subject == t.Beside })
		switch {
		case own == nil:
		case j >= 0:
			if r, ok := comparison.Compare(c.Sides[j].Figure(t.Figure), own); ok && !r.Within(share) && !t.Once {
				return false // a figure that is measured once never gets an interval
			}
		case t.AtMost > 0 && !precise(own, share):
			return false
		}
	}
	return true
}

func sidesPrecise(sides []comparison.Side, share float64) bool {
	for _, side := range sides {
		for _, name := range headlineFigures(sides) {
			if f := side.Figure(name); f != nil && !precise(f, share) {
				return false
			}
		}
	}
	return true
}

// precise reports whether an estimate's interval is within a share of it. A bound counts as precise: more repetitions
// do not improve it.
func precise(f *estimate.Estimate, share float64) bool {
	spread, ok := f.Spread()
	return f.Stopped || ok && spread <= share
}
