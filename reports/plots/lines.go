package plots

import (
	"gonum.org/v1/plot/plotter"

	"synclab/reports/comparison"
	"synclab/reports/estimate"
	"synclab/reports/figure"
	"synclab/reports/records"
	"synclab/reports/sections"
)

// sizeLine is one panel of all series versus Services: its label, its format, and a series' values in a cell.
type sizeLine struct {
	text   string
	format func(float64) string
	unit   string
	of     func(*records.Series, records.Cell) estimate.Sample
}

// comparedLines draws medians versus Services, with each series' name at the end of its line.
func comparedLines(s *sections.Summary, line records.SweepLine, f *figure.Figure, panels []sizeLine) *figure.Figure {
	var all []*figure.EndLabels
	for _, panel := range panels {
		p := figure.NewPlot("Services (log scale)", panel.text+" (log scale)")
		ends := &figure.EndLabels{}
		for i, one := range s.Collected.Series {
			var points figure.Intervals
			var xys plotter.XYs
			for _, cell := range line.Cells {
				if values := panel.of(one, cell); len(values) > 0 && values.Median() > 0 {
					point := figure.SizePoint{X: float64(cell.Services), Distribution: estimate.Describe(values)}
					addRaw(p, point.X, repetitions(values), s.Color(i))
					points = append(points, point)
					xys = append(xys, plotter.XY{X: point.X, Y: point.Median})
				}
			}
			if len(points) == 0 {
				continue
			}
			look := s.Look(i)
			figure.AddLine(p, xys, look.Color, look.Dashes...)
			figure.AddMedians(p, points, look.Color, look.Shape)
			f.Values(p, one.Name, "Services", points, panel.unit, look.Color)
			last := xys[len(xys)-1]
			ends.Labels = append(ends.Labels, figure.EndLabel{X: last.X, Y: last.Y, Text: one.Name, Color: look.Color})
		}
		if len(ends.Labels) == 0 {
			continue
		}
		figure.LogCountAxis(&p.X)
		figure.LogAxis(&p.Y, panel.format)
		p.Add(ends)
		all = append(all, ends)
		f.Add(p, figure.PanelHeight-40)
	}
	if len(f.Panels) == 0 {
		return nil
	}
	figure.AlignEnds(all)
	for _, one := range f.Panels[:len(f.Panels)-1] {
		one.Plot.X.Label.Text = ""
	}
	return f
}

// comparedCounts draws each subject's rules in all tables and, if there are any, the elements of sets and maps below.
func comparedCounts(s *sections.Summary, line records.SweepLine) *figure.Figure {
	count := func(elements bool) func(*records.Series, records.Cell) estimate.Sample {
		return func(one *records.Series, cell records.Cell) estimate.Sample {
			samples := one.Cells[cell.ID()]
			if samples == nil {
				return nil
			}
			return comparison.CountValues(elements)(samples, comparison.SameSource{KernelRules: true})
		}
	}
	f := &figure.Figure{Name: "rules-vs-services", Title: "Rules versus Services" + records.SettingsTail(line.Settings),
		Caption: "Rules in all tables, counted by the kernel where such counts exist. Lines of subjects with the same rules overlap."}
	return comparedLines(s, line, f, []sizeLine{{"rules", figure.TickCount, "count", count(false)}, {"elements of sets and maps", figure.TickCount, "count", count(true)}})
}
