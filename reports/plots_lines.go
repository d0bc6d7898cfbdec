package reports

import (
	"gonum.org/v1/plot/plotter"

	"synclab/reports/estimate"
)

// sizeLine is one panel of many series versus Services: its label, its format, and a series' values in a cell.
type sizeLine struct {
	text   string
	format func(float64) string
	of     func(*series, Cell) estimate.Sample
}

// comparedLines draws medians of many series versus Services, with each series' name at the end of its line.
func comparedLines(s *Summary, line sweepLine, f *figure, panels []sizeLine) *figure {
	var all []*endLabels
	for _, panel := range panels {
		p := newPlot("Services (log scale)", panel.text+" (log scale)")
		ends := &endLabels{}
		for i, one := range s.collected.series {
			var points intervals
			var xys plotter.XYs
			for _, cell := range line.cells {
				if values := panel.of(one, cell); len(values) > 0 && values.Median() > 0 {
					point := sizePoint{float64(cell.Services), estimate.Describe(values)}
					points = append(points, point)
					xys = append(xys, plotter.XY{X: point.x, Y: point.Median})
				}
			}
			if len(points) == 0 {
				continue
			}
			look := s.look(i)
			addLine(p, xys, look.color, look.dashes...)
			addMedians(p, points, look.color, look.shape)
			last := xys[len(xys)-1]
			ends.labels = append(ends.labels, endLabel{last.X, last.Y, one.name, look.color})
		}
		if len(ends.labels) == 0 {
			continue
		}
		logAxis(&p.X, tickCount)
		logAxis(&p.Y, panel.format)
		p.Add(ends)
		all = append(all, ends)
		f.add(p, panelHeight-40)
	}
	if len(f.panels) == 0 {
		return nil
	}
	alignEnds(all)
	for _, one := range f.panels[:len(f.panels)-1] {
		one.plot.X.Label.Text = ""
	}
	return f
}

// comparedCounts draws each subject's rules in all tables and, if there are any, the elements of sets and maps below.
func comparedCounts(s *Summary, line sweepLine, f *figure) *figure {
	count := func(elements bool) func(*series, Cell) estimate.Sample {
		return func(one *series, cell Cell) estimate.Sample {
			samples := one.cells[cell.id()]
			if samples == nil {
				return nil
			}
			return countValues(elements)(samples, sameSource{kernelRules: true})
		}
	}
	f.caption = "Rules in all tables, counted by the kernel where such counts exist. Lines of subjects with the same rules overlap."
	return comparedLines(s, line, f, []sizeLine{{"rules", tickCount, count(false)}, {"elements of sets and maps", tickCount, count(true)}})
}
