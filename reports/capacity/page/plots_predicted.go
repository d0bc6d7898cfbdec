package page

import (
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/figure"
	"synclab/reports/model"
)

// predictedGroup are the quantities of one plot of predicted versus measured values.
type predictedGroup struct {
	name, title, unit string
	quantities        []model.Quantity
}

var predictedGroups = []predictedGroup{
	{"capacity-predicted-syncs", "Whole syncs, predicted versus measured", "s", []model.Quantity{model.Total}},
	{"capacity-predicted-cpu", "CPU time of syncs, predicted versus measured", "s", []model.Quantity{model.CPU}},
	{"capacity-predicted-memory", "Memory, predicted versus measured", "B", []model.Quantity{model.PeakRSS, model.ChildPeakRSS}},
	{"capacity-predicted-packets", "First packets (median and p99), predicted versus measured", "s", []model.Quantity{model.FirstPacket, model.FirstPacketP99}},
	{"capacity-predicted-rules", "Rules and elements, predicted versus measured", "count", []model.Quantity{model.Rules, model.Elements}},
}

// figure draws the held-out cells; nil without any.
func (g predictedGroup) figure(r *report) *figure.Figure {
	f := &figure.Figure{Name: g.name, Title: g.title, Caption: "Each mark is a cell that was held out of the fit, larger than all fitted cells. " +
		"Its bar is the interval of the prediction. On the line, prediction and measurement are equal; the band is ± 10 %."}
	p := figure.NewPlot("measured (log scale)", "predicted (log scale)")
	low, high := math.Inf(1), 0.0
	missed := false
	for i, s := range r.Subjects {
		var marks plotter.XYs
		var bars figure.Intervals
		var outside plotter.XYs
		for _, row := range r.Model.Validation.Rows {
			if row.Subject != s.Name || row.Slight || !slices.Contains(g.quantities, row.Quantity) || !(row.Value > 0) || !(row.Predicted.Median > 0) {
				continue
			}
			at := plotter.XY{X: row.Value, Y: row.Predicted.Median}
			marks = append(marks, at)
			if !row.Covered {
				outside = append(outside, at)
			}
			bars = append(bars, figure.SizePoint{X: at.X, Distribution: estimate.Distribution{Median: at.Y, Low: &row.Predicted.Low, High: &row.Predicted.High}})
			low, high = min(low, at.X, at.Y), max(high, at.X, at.Y)
		}
		if len(marks) == 0 {
			continue
		}
		if len(outside) > 0 {
			missed = true
			p.Add(&plotter.Scatter{XYs: outside, GlyphStyle: draw.GlyphStyle{Color: figure.Ink, Radius: 5.5, Shape: figure.Hollow{GlyphDrawer: draw.CircleGlyph{}}}})
		}
		f.Explain(s.Name, figure.AddMedians(p, bars, r.looks[i].Color, r.looks[i].Shape))
	}
	if len(f.Legend) == 0 {
		return nil
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = low/1.2, high*1.2, low/1.2, high*1.2
	format := func(v float64) string { return doc.TrimTick(doc.Format(figure.RoundTick(v), g.unit)) }
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		figure.LogAxis(axis, format)
		if g.unit == "B" {
			axis.Tick.Marker = plot.TickerFunc(logByteTicks)
		}
	}
	a, b := p.X.Min, p.X.Max
	figure.AddLine(p, plotter.XYs{{X: a, Y: a}, {X: b, Y: b}}, figure.Grey)
	p.Add(paleBand{figure.Ribbon{Low: plotter.XYs{{X: a, Y: a * 0.9}, {X: b, Y: b * 0.9}}, High: plotter.XYs{{X: a, Y: a * 1.1}, {X: b, Y: b * 1.1}}, Look: figure.Look{Color: figure.Ink}}})
	f.Explain("agreement, ± 10 %", bandThumb{}, figure.LineThumb{Style: draw.LineStyle{Color: figure.Grey, Width: 1.3}})
	if missed {
		f.Explain("outside its interval", &plotter.Scatter{GlyphStyle: draw.GlyphStyle{Color: figure.Ink, Radius: 5.5, Shape: figure.Hollow{GlyphDrawer: draw.CircleGlyph{}}}})
	}
	f.Add(p, figure.PanelHeight+30)
	return f
}

// bandThumb is the legend mark of a band.
type bandThumb struct{}

// Thumbnail implements plot.Thumbnailer.
func (bandThumb) Thumbnail(c *draw.Canvas) {
	c.FillPolygon(figure.WithAlpha(figure.Ink, 0x1a), []vg.Point{c.Min, {X: c.Max.X, Y: c.Min.Y}, c.Max, {X: c.Min.X, Y: c.Max.Y}})
}
