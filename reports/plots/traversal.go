package plots

import (
	"fmt"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"synclab/bench/raw"
	"synclab/reports/comparison"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/figure"
	"synclab/reports/records"
	"synclab/reports/sections"
)

// blogLine is a line of the published chart, in seconds by Services, read from the chart within ± 4 µs.
type blogLine struct {
	mode, percentile string
	points           plotter.XYs
}

var blogLines = []blogLine{
	{"iptables", "p50", plotter.XYs{{X: 5000, Y: 49e-6}, {X: 10000, Y: 61e-6}, {X: 30000, Y: 274e-6}}},
	{"iptables", "p99", plotter.XYs{{X: 5000, Y: 156e-6}, {X: 10000, Y: 262e-6}, {X: 30000, Y: 716e-6}}},
	{"nftables", "p50", plotter.XYs{{X: 5000, Y: 14e-6}, {X: 10000, Y: 14e-6}, {X: 30000, Y: 14e-6}}},
	{"nftables", "p99", plotter.XYs{{X: 5000, Y: 37e-6}, {X: 10000, Y: 37e-6}, {X: 30000, Y: 37e-6}}},
}

const blogCaption = " Grey lines, for orientation only, are the chart of the " + sections.BlogSource + ", read from it within ± 4 µs: round trips, on another machine."

var blogColor = figure.WithAlpha(figure.Grey, 0xa0)

func (l blogLine) style() draw.LineStyle {
	style := draw.LineStyle{Color: blogColor, Width: 0.9}
	style.Dashes = map[string][]vg.Length{"iptables p99": {5, 3}, "nftables p50": {7, 2, 1, 2}, "nftables p99": {1, 2}}[l.mode+" "+l.percentile]
	return style
}

// packetsByPosition draws the medians by dispatch position at the largest size, with a band up to the 90th percentile.
func packetsByPosition(s *sections.Summary) *figure.Figure {
	cells := s.PacketCells(sections.NodeMethods...)
	if len(cells) == 0 {
		return nil
	}
	cell := cells[0]
	f := &figure.Figure{Name: "first-packet-by-position", Title: "First packet by dispatch position, " + doc.Plural(cell.Services, "Service"),
		Caption: "The cost of the system call that sends the first packet of a new flow, at the first … last Service: medians. A square at the right end is an address of no Service. " +
			"The upper scale is linear, and labels have the cost of each Service in front. The lower scale is logarithmic, with a pale band up to the 90th percentile."}
	linear, p := figure.NewPlot("", "first packet"), figure.NewPlot("dispatch position of the Service", "first packet (log scale)")
	slopes, ends := &figure.EndLabels{}, &figure.EndLabels{}
	last := 0.0
	for _, cost := range s.PacketsOf(cell, sections.NodeMethods...) {
		i, _ := s.SeriesNamed(cost.Series)
		last = max(last, addPositions(linear, slopes, cost, s.Look(i), false), addPositions(p, ends, cost, s.Look(i), true))
		if n := len(slopes.Labels); n > 0 && cost.PerService != nil {
			slopes.Labels[n-1].Text += "  " + sections.CostText(*cost.PerService, cost.Flat)
		}
	}
	if len(ends.Labels) == 0 {
		return nil
	}
	for _, line := range blogLines {
		for _, point := range line.points {
			if int(point.X) == cell.Services {
				look := figure.Level{Y: point.Y, Style: line.style()}
				p.Add(look)
				p.Y.Max, p.Y.Min = max(p.Y.Max, point.Y), min(p.Y.Min, point.Y)
				f.Explain(fmt.Sprintf("blog, %s %s: %s", line.mode, line.percentile, doc.Format(point.Y, "s")), look)
			}
		}
	}
	if len(f.Legend) > 0 {
		f.Caption += blogCaption
	}
	addEmptyLevel(f, slices.DeleteFunc(slices.Clone(s.Traversal), func(t sections.Traversal) bool { return t.Cell.ID() != cell.ID() }), linear, p)
	linear.X.Min, linear.X.Max = 0, last*1.05
	figure.CountAxis(&linear.X)
	figure.LinearAxis(&linear.Y, true, figure.TickSeconds)
	linear.Add(slopes)
	p.X.Min, p.X.Max = 0, last*1.05
	figure.CountAxis(&p.X)
	figure.LogAxis(&p.Y, figure.TickSeconds)
	p.Add(ends)
	figure.AlignEnds([]*figure.EndLabels{slopes, ends})
	f.Add(linear, figure.PanelHeight-20)
	f.Add(p, figure.PanelHeight)
	return f
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

// addPositions draws one subject's medians by position, with a band up to the 90th percentile if band is set. It
// returns the last position, or 0.
func addPositions(p *plot.Plot, ends *figure.EndLabels, cost sections.PacketCost, look figure.Look, band bool) float64 {
	var points figure.Intervals
	var middle, high plotter.XYs
	for _, spot := range cost.Spots {
		if spot.Target == "" && spot.Position > 0 {
			x := float64(spot.Position)
			points = append(points, figure.SizePoint{X: x, Distribution: spot.Distribution})
			middle, high = append(middle, plotter.XY{X: x, Y: spot.Median}), append(high, plotter.XY{X: x, Y: spot.P90})
		}
	}
	if len(points) == 0 {
		return 0
	}
	if band {
		p.Add(figure.Ribbon{Low: middle, High: high, Look: look})
	}
	figure.AddLine(p, middle, look.Color, look.Dashes...)
	figure.AddMedians(p, points, look.Color, look.Shape)
	end := middle[len(middle)-1]
	if miss := cost.Spot("miss"); miss != nil {
		p.Add(&plotter.Scatter{XYs: plotter.XYs{{X: end.X * 1.035, Y: miss.Median}},
			GlyphStyle: draw.GlyphStyle{Color: look.Color, Radius: 3, Shape: figure.Hollow{GlyphDrawer: draw.SquareGlyph{}}}})
	}
	ends.Labels = append(ends.Labels, figure.EndLabel{X: end.X, Y: end.Y, Text: cost.Series, Color: look.Color})
	return end.X
}

// packetsBySize draws the last Service and the miss versus Services, with the published chart behind them.
func packetsBySize(s *sections.Summary, line records.SweepLine) *figure.Figure {
	f := &figure.Figure{Name: "first-packet-vs-services", Title: "First-packet cost versus Services" + records.SettingsTail(line.Settings),
		Caption: "At the last Service of the dispatch, and for an address of no Service: medians with 95 % confidence intervals (from 6 repetitions on). If dispatch is a list of rules, the cost grows with the number of Services."}
	f = comparedLines(s, line, f, []sizeLine{{"first packet, last Service", figure.TickSeconds, "s", (*records.Series).LastPosition},
		{"first packet, address of no Service", figure.TickSeconds, "s", func(s *records.Series, c records.Cell) estimate.Sample { return s.At(c, -1) }}})
	if f == nil || slices.Max(line.Sizes()) < 5000 {
		return f // the chart starts at 5,000
	}
	upper := f.Panels[0].Plot
	for _, blog := range blogLines {
		drawn := &plotter.Line{XYs: blog.points, LineStyle: blog.style()}
		low, high, least, most := plotter.XYRange(drawn.XYs)
		x, y := upper.X, upper.Y
		upper.Add(drawn) // Add extends the axes as if they were linear
		upper.X, upper.Y = x, y
		upper.X.Min, upper.X.Max = min(x.Min, low/1.15), max(x.Max, high*1.15)
		upper.Y.Min, upper.Y.Max = min(y.Min, least/1.15), max(y.Max, most*1.15)
		f.Explain("blog, "+blog.mode+" "+blog.percentile, figure.LineThumb{Style: blog.style()})
	}
	for _, panel := range f.Panels[1:] {
		panel.Plot.X.Min, panel.Plot.X.Max = upper.X.Min, upper.X.Max
	}
	f.Caption += blogCaption
	return f
}

// flowTexts are the panel labels of the methods between namespaces.
var flowTexts = map[string]string{"handshake": "TCP handshake", "echo": "UDP echo", "established": "established flow, the control"}

// connectionsBySize draws connections through Services versus Services.
func connectionsBySize(s *sections.Summary, line records.SweepLine) *figure.Figure {
	of := func(metric raw.Metric) func(*records.Series, records.Cell) estimate.Sample {
		return func(one *records.Series, cell records.Cell) estimate.Sample {
			if samples := one.Cells[cell.ID()]; samples != nil {
				return comparison.ConnectionValues(metric)(samples, comparison.SameSource{})
			}
			return nil
		}
	}
	f := &figure.Figure{Name: "connections-vs-services", Title: "Connections versus Services" + records.SettingsTail(line.Settings),
		Caption: "TCP connections through Services, without keep-alive: medians over positions in the dispatch, with 95 % confidence intervals (from 6 repetitions on). Where lines cross, another subject becomes the faster one."}
	return comparedLines(s, line, f, []sizeLine{{"connections a second", figure.TickCount, "count", of(raw.ConnectionsPerSecond)}, {"CPU time of a connection", figure.TickSeconds, "s", of(raw.ConnectionCPU)}})
}

// flowsBySize draws the last Service by each method between namespaces versus Services.
func flowsBySize(s *sections.Summary, line records.SweepLine) *figure.Figure {
	var panels []sizeLine
	for _, method := range records.FlowMethods {
		panels = append(panels, sizeLine{flowTexts[method], figure.TickSeconds, "s", func(one *records.Series, cell records.Cell) estimate.Sample {
			samples := one.Cells[cell.ID()]
			positions := samples.Positions(method)
			if len(positions) == 0 {
				return nil
			}
			return samples.Packets(raw.FirstPacket, method, positions[len(positions)-1])
		}})
	}
	f := &figure.Figure{Name: "flows-vs-services", Title: "New flows between namespaces versus Services" + records.SettingsTail(line.Settings),
		Caption: "To the last Service of the dispatch: medians with 95 % confidence intervals (from 6 repetitions on). The established flow is the control."}
	return comparedLines(s, line, f, panels)
}
