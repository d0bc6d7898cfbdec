package plots

import (
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/figure"
	"synclab/reports/records"
	"synclab/reports/sections"
)

// sizeShapes distinguish the sizes of one series.
var sizeShapes = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.TriangleGlyph{}, draw.SquareGlyph{}, draw.PyramidGlyph{}, draw.BoxGlyph{}, draw.CrossGlyph{}}

// maxPacketLines bounds the lines of the plot by position: the last ones, with the largest sizes.
const maxPacketLines = 8

// packetPositionFigure draws the medians by dispatch position with the fitted line.
func packetPositionFigure(s *sections.Summary) *figure.Figure {
	if manyPackets(s) {
		return packetsByPosition(s)
	}
	f := &figure.Figure{Name: "first-packet-by-position", Title: "First-packet cost by dispatch position",
		Caption: "The cost of the system call that sends the first packet of a new flow, at the first … last Service (median, 95 % confidence interval (from 6 repetitions on)) and for an " +
			"address of no Service (hollow, at the right end); the slope of the line is the cost of each rule in front, for every new flow."}
	p := figure.NewPlot("dispatch position of the Service", "first packet, median")
	lines := s.Traversal[max(0, len(s.Traversal)-maxPacketLines):]
	sizes := []int{}
	for _, t := range lines {
		sizes = append(sizes, t.Cell.Services)
	}
	sizes = records.Distinct(sizes)
	drawn := 0
	for _, t := range lines {
		i, one := s.SeriesNamed(t.Series)
		shape := sizeShapes[slices.Index(sizes, t.Cell.Services)%len(sizeShapes)]
		var points figure.Intervals
		for _, position := range one.Positions(t.Cell) {
			points = append(points, figure.SizePoint{X: float64(position), Distribution: estimate.Describe(one.At(t.Cell, position))})
		}
		if len(points) == 0 {
			continue
		}
		drawn++
		last := points[len(points)-1].X
		thumbs := []plot.Thumbnailer{figure.AddMedians(p, points, s.Color(i), shape)}
		label := fmt.Sprintf("%s, %s", t.Series, doc.Grouped(int64(t.Cell.Services)))
		if t.N >= 2 {
			ends := plotter.XYs{{X: points[0].X, Y: t.At(points[0].X)}, {X: last, Y: t.At(last)}}
			thumbs = append(thumbs, figure.AddLine(p, ends, s.Color(i)))
			cost := doc.Format(t.Slope, "s") + slopeError(t.Fit) + " per rule"
			if t.HoldsZero() {
				cost = "none shown"
			}
			label += ": " + cost
		}
		f.Explain(label, thumbs...)
		if miss := one.At(t.Cell, -1); len(miss) > 0 {
			p.Add(&plotter.Scatter{XYs: plotter.XYs{{X: last * 1.02, Y: miss.Median()}},
				GlyphStyle: draw.GlyphStyle{Color: s.Color(i), Radius: 4, Shape: figure.Hollow{GlyphDrawer: draw.SquareGlyph{}}}})
		}
	}
	if drawn == 0 {
		return nil
	}
	addEmptyLevel(f, lines, p)
	p.X.Min = 0
	figure.CountAxis(&p.X)
	p.Y.Max *= 1.05
	figure.LinearAxis(&p.Y, true, figure.TickSeconds)
	f.Add(p, figure.PanelHeight)
	return f
}

// slopeError is half the width of the slope's interval, " ± 0.1 ns".
func slopeError(fit estimate.Fit) string {
	if fit.SlopeLow == nil {
		return ""
	}
	half := (*fit.SlopeHigh - *fit.SlopeLow) / 2
	if half < 1e-11 {
		return " ± 0.01 ns" // finer than the clock: rounded up
	}
	return " ± " + doc.Format(half, "s")
}

// addEmptyLevel draws the cost in an empty ruleset, median of the cells, as a dotted level on each panel.
func addEmptyLevel(f *figure.Figure, lines []sections.Traversal, panels ...*plot.Plot) {
	var empty []float64
	for _, t := range lines {
		if t.Empty != nil {
			empty = append(empty, *t.Empty)
		}
	}
	if len(empty) == 0 {
		return
	}
	look := figure.Level{Y: estimate.Median(empty), Style: draw.LineStyle{Color: figure.Grey, Width: 1.2, Dashes: []vg.Length{1.5, 2.5}}}
	for _, p := range panels {
		p.Add(look)
		p.Y.Min, p.Y.Max = min(p.Y.Min, look.Y), max(p.Y.Max, look.Y)
	}
	f.Explain("empty ruleset: "+doc.Format(look.Y, "s"), look)
}

// packetSizeFigure draws the last and the middle position and the miss versus Services.
func packetSizeFigure(s *sections.Summary, line records.SweepLine) *figure.Figure {
	f := &figure.Figure{Name: "first-packet-vs-services", Title: "First-packet cost versus Services" + records.SettingsTail(line.Settings),
		Caption: "Medians with 95 % confidence intervals (from 6 repetitions on). If dispatch is a list of rules, the costs of the last Service and of the miss grow with the number of Services."}
	if manyPackets(s) {
		return packetsBySize(s, line, f)
	}
	p := figure.NewPlot("Services (log scale)", "first packet (log scale)")
	spots := []struct {
		text   string
		shape  draw.GlyphDrawer
		dashes []vg.Length
		values func(*records.Series, records.Cell) estimate.Sample
	}{
		{"last Service", draw.CircleGlyph{}, nil, (*records.Series).LastPosition},
		{"middle", draw.TriangleGlyph{}, figure.Dashed, (*records.Series).MiddlePosition},
		{"miss", figure.Hollow{GlyphDrawer: draw.SquareGlyph{}}, []vg.Length{1.5, 2.5}, func(s *records.Series, c records.Cell) estimate.Sample { return s.At(c, -1) }},
	}
	for i, one := range s.Collected.Series {
		for _, spot := range spots {
			var points figure.Intervals
			var xys plotter.XYs
			for _, cell := range line.Cells {
				if values := spot.values(one, cell); len(values) > 0 {
					d := estimate.Describe(values)
					points = append(points, figure.SizePoint{X: float64(cell.Services), Distribution: d})
					xys = append(xys, plotter.XY{X: float64(cell.Services), Y: d.Median})
				}
			}
			if len(points) < 2 {
				continue
			}
			var c color.Color = s.Color(i)
			f.Explain(one.Name+", "+spot.text, figure.AddLine(p, xys, c, spot.dashes...), figure.AddMedians(p, points, c, spot.shape))
		}
	}
	if len(f.Legend) == 0 {
		return nil
	}
	addEmptyLevel(f, s.Traversal, p)
	figure.LogCountAxis(&p.X)
	figure.LogAxis(&p.Y, figure.TickSeconds)
	f.Add(p, figure.PanelHeight)
	return f
}
