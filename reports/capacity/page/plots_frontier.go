package page

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"synclab/reports/capacity"
	"synclab/reports/figure"
	"synclab/reports/model"
)

// frontierFigure draws each subject's latency versus CPU, by minSyncPeriod.
func (r *report) frontierFigure() *figure.Figure {
	f := &figure.Figure{Name: "capacity-frontier", Title: "Latency versus CPU at " + r.frontierAt(),
		Caption: "One curve for each subject, one point for each evaluated minSyncPeriod; the ring is the recommended one. Lower is faster, further left is cheaper. " +
			"CPU is the average of the proxier and its tools on one node. Latency is network programming latency, of all changes on all nodes. " +
			"For a subject with several policies, the curve is that of the recommended one; the tables below have all."}
	var all []*figure.EndLabels
	slos := r.Question.SLOs
	for k, what := range []struct {
		text  string
		of    func(capacity.Evaluation) float64
		bound float64
	}{{"99 of 100 changes within", func(o capacity.Evaluation) float64 { return o.P99.Seconds() }, slos.ProgrammingP99.Seconds()},
		{"half of all changes within", func(o capacity.Evaluation) float64 { return o.P50.Seconds() }, 0}} {
		p, ends, labels := figure.NewPlot("CPUs (log scale)", what.text+" (log scale)"), &figure.EndLabels{}, &pointLabels{}
		low, high := math.Inf(1), 0.0
		for i, s := range r.Subjects {
			line, periods, best := frontierCurve(s, what.of)
			if len(line) == 0 {
				continue
			}
			line.draw(p, r.looks[i], false)
			for j, one := range line {
				low, high = min(low, one.Median), max(high, one.Median)
				labels.at = append(labels.at, pointLabel{one.x, one.Median, periods[j], r.looks[i], j == best, one.Basis == model.Extrapolated})
			}
			last := slices.MaxFunc(line, func(a, b curvePoint) int { return cmp.Compare(a.x, b.x) })
			ends.Labels = append(ends.Labels, figure.EndLabel{X: last.x, Y: last.Median, Text: s.Name, Color: r.looks[i].Color})
		}
		if len(ends.Labels) == 0 {
			continue
		}
		if what.bound > 0 {
			low, high = min(low, what.bound), max(high, what.bound)
		}
		p.Y.Min, p.Y.Max = low/1.15, high*1.15
		widen(&p.X)
		figure.LogAxis(&p.X, figure.TickCount)
		figure.LogAxis(&p.Y, figure.LongSeconds)
		if what.bound > 0 {
			p.Add(figure.Level{Y: what.bound, Style: boundLook})
		}
		if k == 0 && slos.CPU > 0 {
			p.Add(upright{slos.CPU, boundLook})
			p.X.Max = max(p.X.Max, slos.CPU*1.1)
		}
		p.Add(labels, ends)
		all = append(all, ends)
		f.Add(p, figure.PanelHeight-30*vg.Length(k))
	}
	if len(f.Panels) == 0 {
		return nil
	}
	figure.AlignEnds(all)
	f.Explain("interpolated", figure.LineThumb{Style: basisLine(figure.Grey, false)}, &plotter.Scatter{GlyphStyle: draw.GlyphStyle{Color: figure.Grey, Radius: 3, Shape: draw.CircleGlyph{}}})
	f.Explain("extrapolated", figure.LineThumb{Style: basisLine(figure.Grey, true)}, &plotter.Scatter{GlyphStyle: draw.GlyphStyle{Color: figure.Grey, Radius: 3, Shape: draw.RingGlyph{}}})
	f.Explain("recommended", &plotter.Scatter{GlyphStyle: draw.GlyphStyle{Color: figure.Grey, Radius: 6.5, Shape: figure.Hollow{GlyphDrawer: draw.CircleGlyph{}}}})
	f.Explain("SLO", figure.LineThumb{Style: boundLook})
	for _, panel := range f.Panels[:len(f.Panels)-1] {
		panel.Plot.X.Label.Text = ""
	}
	return f
}

// frontierAt is the cluster at which the settings were evaluated.
func (r *report) frontierAt() string { return r.sizeText(r.grown()) }

// widen makes room for labels at the first and last points of a logarithmic axis.
func widen(a *plot.Axis) {
	if a.Min > 0 && a.Max > 0 {
		a.Min, a.Max = a.Min/1.2, a.Max*1.2
	}
}

// frontierCurve is a subject's curve over CPU with the recommended policy, in the order of minSyncPeriod. periods are
// the points' labels; best is the index of the recommended one.
func frontierCurve(s capacity.SubjectAnswer, of func(capacity.Evaluation) float64) (line curve, periods []string, best int) {
	best = -1
	for _, setting := range s.Frontier {
		cpu, ok := setting.Outlook.Quantities[capacity.CPU]
		if y := of(setting.Outlook); ok && cpu.Median > 0 && y > 0 && setting.Policy.Runner == s.Recommended.Policy.Runner {
			if setting.Policy == s.Recommended.Policy {
				best = len(line)
			}
			e := cpu // the latency has the same basis as its syncs
			e.Median, e.Low, e.High = y, 0, 0
			e.Basis = worseBasis(cpu.Basis, setting.Outlook.Quantities[capacity.ProgrammingP99].Basis)
			line, periods = append(line, curvePoint{cpu.Median, e}), append(periods, periodText(setting.Policy.MinSyncPeriod))
		}
	}
	return line, periods, best
}

// upright is a vertical line across the plot.
type upright struct {
	x     float64
	style draw.LineStyle
}

// Plot implements plot.Plotter.
func (l upright) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	if at := x(l.x); c.ContainsX(at) {
		c.StrokeLine2(l.style, at, c.Min.Y, at, c.Max.Y)
	}
}

// pointLabels are marks with texts next to them. Texts without room are omitted, except for the recommended setting.
type pointLabels struct{ at []pointLabel }

type pointLabel struct {
	x, y         float64
	text         string
	look         figure.Look
	best, beyond bool
}

// Plot implements plot.Plotter. The canvas draws the marks, since it sets the fill colour. The shape itself does not.
func (l *pointLabels) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	var taken []vg.Rectangle
	square := func(at vg.Point, r vg.Length) vg.Rectangle {
		return vg.Rectangle{Min: vg.Point{X: at.X - r, Y: at.Y - r}, Max: vg.Point{X: at.X + r, Y: at.Y + r}}
	}
	for _, one := range l.at {
		at := vg.Point{X: x(one.x), Y: y(one.y)}
		shape := solid(one.look.Shape)
		if one.beyond {
			shape = figure.Hollow{GlyphDrawer: one.look.Shape}
			if h, ok := one.look.Shape.(figure.Hollow); ok {
				shape = h
			}
		}
		c.DrawGlyph(draw.GlyphStyle{Color: one.look.Color, Radius: 3, Shape: shape}, at)
		taken = append(taken, square(at, 3))
	}
	sorted := slices.Clone(l.at)
	slices.SortStableFunc(sorted, func(a, b pointLabel) int { return cmp.Compare(rank(b), rank(a)) })
	for _, one := range sorted {
		at := vg.Point{X: x(one.x), Y: y(one.y)}
		style := figure.Sans(figure.SmallSize-1, one.best)
		style.Color, style.YAlign = figure.Darker(one.look.Color), draw.YCenter
		if one.best {
			c.DrawGlyph(draw.GlyphStyle{Color: one.look.Color, Radius: 6.5, Shape: figure.Hollow{GlyphDrawer: draw.CircleGlyph{}}}, at)
		}
		width, away := style.Width(one.text), vg.Length(5)
		if one.best {
			away = 8.5
		}
		for i, corner := range []vg.Point{{X: at.X + away, Y: at.Y + 5}, {X: at.X - away - width, Y: at.Y - 5}, {X: at.X + away, Y: at.Y - 5},
			{X: at.X - away - width, Y: at.Y + 5}, {X: at.X - width/2, Y: at.Y + away + 5}, {X: at.X - width/2, Y: at.Y - away - 5}} {
			box := vg.Rectangle{Min: vg.Point{X: corner.X, Y: corner.Y - 4}, Max: vg.Point{X: corner.X + width, Y: corner.Y + 4}}
			free := !slices.ContainsFunc(taken, func(r vg.Rectangle) bool { return overlap(r, box) }) && c.Contains(box.Min) && c.Contains(box.Max)
			if free || one.best && i == 5 {
				taken = append(taken, box)
				c.FillText(style, vg.Point{X: corner.X, Y: corner.Y + 1}, one.text)
				break
			}
		}
	}
}

func rank(l pointLabel) int {
	if l.best {
		return 1
	}
	return 0
}
