package plots

import (
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"synclab/reports/figure"
	"synclab/reports/records"
	"synclab/reports/sections"
)

// coldFigure draws the share of visible Services over the time since the start, at the largest size. It draws nothing if
// every subject shows all Services at once.
func coldFigure(s *sections.Summary) *figure.Figure {
	var largest records.Cell
	for _, cell := range s.Collected.Cells {
		for _, one := range s.Collected.Series {
			if cell.Services > largest.Services && len(sections.ColdTimes(one, cell, sections.ColdShares[0])) > 0 {
				largest = cell
			}
		}
	}
	if largest.Services == 0 {
		return nil
	}
	f := &figure.Figure{Name: "cold-start", Title: "Visible Services after the start at " + records.SizesText([]records.Cell{largest}) +
		records.SettingsTail(records.ShortSettings(largest.Settings())),
		Caption: "Medians of the repetitions. A vertical line: the subject makes all Services visible at once."}
	p := figure.NewPlot("time since the start of the subject's process (log scale)", "share of Services visible")
	const gradual = 1.05 // the last Services come later than the first by this factor
	steps := true
	for i, one := range s.Collected.Series {
		var points plotter.XYs
		for _, share := range sections.ColdShares {
			if times := sections.ColdTimes(one, largest, share); len(times) > 0 {
				points = append(points, plotter.XY{X: times.Median(), Y: float64(share)})
			}
		}
		if len(points) < 2 {
			continue
		}
		points = append(plotter.XYs{{X: points[0].X, Y: 0}}, points...)
		steps = steps && points[len(points)-1].X < gradual*points[0].X
		f.Explain(one.Name, figure.AddLine(p, points, s.Color(i)))
	}
	if steps {
		return nil
	}
	figure.LogAxis(&p.X, figure.TickSeconds)
	figure.LinearAxis(&p.Y, true, func(v float64) string { return figure.TickCount(v) + " %" })
	f.Add(p, vg.Length(220))
	return f
}
