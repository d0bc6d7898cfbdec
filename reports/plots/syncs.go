package plots

import (
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"synclab/bench/raw"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/figure"
	"synclab/reports/records"
	"synclab/reports/sections"
)

// phaseLook is the colour of a phase. The series have other colours.
type phaseLook struct {
	text  string
	color color.NRGBA
	of    func(sections.Phases) float64
}

var phaseLooks = []phaseLook{
	{"plan", color.NRGBA{0x33, 0x22, 0x88, 0xff}, func(p sections.Phases) float64 { return p.Plan }},
	{"encode", color.NRGBA{0x88, 0xcc, 0xee, 0xff}, func(p sections.Phases) float64 { return p.Encode }},
	{"jumps", color.NRGBA{0x44, 0xaa, 0x99, 0xff}, func(p sections.Phases) float64 { return p.Jumps }},
	{"tool or netlink, user time", color.NRGBA{0xdd, 0xaa, 0x33, 0xff}, func(p sections.Phases) float64 { return p.ToolUser }},
	{"kernel (system time)", color.NRGBA{0x88, 0x22, 0x55, 0xff}, func(p sections.Phases) float64 { return p.ToolSys }},
	{"post-sync work", color.NRGBA{0x11, 0x77, 0x33, 0xff}, func(p sections.Phases) float64 { return p.PostSync }},
	{"rest", color.NRGBA{0xc4, 0xc8, 0xcd, 0xff}, func(p sections.Phases) float64 { return p.Rest }},
}

// maxBars keeps the phase plot on one screen. The tables have all phases.
const maxBars = 24

// phasesFigure draws each kind of sync as one bar of shares, with its duration at the end. It draws shares because
// durations of different sizes and kinds span decades.
func phasesFigure(s *sections.Summary) *figure.Figure {
	bars := s.Phases
	if len(bars) == 0 {
		return nil
	}
	f := &figure.Figure{Name: "phases", Title: "Where the time of a sync goes (queue excluded)",
		Caption: "Phases as shares of the time of a repetition's syncs, mean of the repetitions. The median duration is at the right. Plan and encode are the proxier's " +
			"own work. User time is that of the iptables tool, or of the thread that uses netlink. System time is the kernel's."}
	if slices.ContainsFunc(bars, func(p sections.Phases) bool { return p.OwnUntold }) {
		f.Caption += " For subjects that do not report plan and encode, both are in the rest."
	}
	if slices.ContainsFunc(bars, func(p sections.Phases) bool { return !p.SplitKnown() }) {
		f.Caption += fmt.Sprintf(" Where tools ran for less than %s in total, the kernel's clock is too coarse to separate user time from system time: only their sum is known.",
			doc.Format(sections.EnoughTicks*sections.ClockTick, "s"))
	}
	if c := s.LargestComparison(); c != nil && len(s.Collected.Series) >= manySeries {
		bars = slices.DeleteFunc(slices.Clone(bars), func(p sections.Phases) bool { return p.Cell.ID() != c.Cell.ID() })
		f.Title = "Where the time of a sync goes at " + records.SizesText([]records.Cell{c.Cell})
	}
	if len(bars) == 0 {
		return nil
	}
	if len(bars) > maxBars {
		f.Caption += fmt.Sprintf(" The last %d of %d.", maxBars, len(bars))
		bars = bars[len(bars)-maxBars:]
	}
	p := figure.NewPlot("share of the sync", "")
	p.X.Min, p.X.Max = 0, 115
	p.X.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0 %"}, {Value: 25, Label: "25 %"}, {Value: 50, Label: "50 %"},
		{Value: 75, Label: "75 %"}, {Value: 100, Label: "100 %"}}
	p.Y.Min, p.Y.Max = -0.6, float64(len(bars))-0.4
	p.Y.LineStyle.Width = 0
	p.Y.Tick.Length = 0
	var names []plot.Tick
	for i, bar := range bars {
		row := float64(len(bars) - 1 - i)
		names = append(names, plot.Tick{Value: row, Label: barName(s, bar)})
		var total float64
		for _, look := range phaseLooks {
			total += look.of(bar)
		}
		from := 0.0
		for _, look := range phaseLooks {
			to := from + 100*look.of(bar)/math.Max(total, 1e-12)
			p.Add(rectangle{from, to, row - 0.36, row + 0.36, look.color})
			from = to
		}
		p.Add(textAt{101.5, row, doc.Format(bar.Total, "s"), draw.XLeft})
	}
	p.Y.Tick.Marker = plot.ConstantTicks(names)
	for _, look := range phaseLooks {
		if slices.ContainsFunc(bars, func(p sections.Phases) bool { return look.of(p) > 0 }) {
			f.Explain(look.text, rectangle{color: look.color})
		}
	}
	f.Add(p, vg.Length(50+18*len(bars)))
	return f
}

// barName names a bar, without the parts that all bars share.
func barName(s *sections.Summary, p sections.Phases) string {
	name := p.Kind
	if len(s.Collected.Series) > 1 {
		name = shortName(s, p.Series) + " " + name
	}
	if len(s.Collected.Cells) > 1 && len(s.Collected.Series) < manySeries {
		name += " " + cellLabel(s, p.Cell, settingValues)
	}
	return doc.Shorten(name, 46)
}

// rectangle is a filled rectangle, in the coordinates of the plot.
type rectangle struct {
	left, right, bottom, top float64
	color                    color.Color
}

// Plot implements plot.Plotter.
func (r rectangle) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	left, right := max(x(r.left), c.Min.X), min(x(r.right), c.Max.X)
	bottom, top := max(y(r.bottom), c.Min.Y), min(y(r.top), c.Max.Y)
	if left < right && bottom < top {
		c.FillPolygon(r.color, []vg.Point{{X: left, Y: bottom}, {X: right, Y: bottom}, {X: right, Y: top}, {X: left, Y: top}})
	}
}

// Thumbnail implements plot.Thumbnailer.
func (r rectangle) Thumbnail(c *draw.Canvas) {
	c.FillPolygon(r.color, []vg.Point{{X: c.Min.X + 4, Y: c.Min.Y}, {X: c.Max.X, Y: c.Min.Y}, {X: c.Max.X, Y: c.Max.Y}, {X: c.Min.X + 4, Y: c.Max.Y}})
}

// textAt writes a small text next to a point.
type textAt struct {
	x, y  float64
	text  string
	align draw.XAlignment
}

// Plot implements plot.Plotter.
func (t textAt) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	style := figure.Sans(figure.SmallSize, false)
	style.XAlign, style.YAlign = t.align, draw.YCenter
	c.FillText(style, vg.Point{X: x(t.x), Y: y(t.y) + 1}, t.text)
}

// durationsFigure draws the syncs of runs of one size: one row for each kind and series, with every sync a pale dot,
// and a mark at the median with its interval.
func durationsFigure(s *sections.Summary) *figure.Figure {
	f := &figure.Figure{Name: "sync-durations", Title: "Durations of syncs",
		Caption: "Every sync is a pale dot. The mark is the median, its bar the 95 % confidence interval (from 6 repetitions on)."}
	p := figure.NewPlot("duration (log scale)", "")
	type strip struct {
		name   string
		color  color.NRGBA
		values estimate.Sample
	}
	var strips []strip
	kinds := []durationLine{{metric: raw.FullSync, text: "full sync"}, {metric: raw.PartialSync, text: "partial sync"},
		{metric: raw.Restore, kind: "full", text: "restore, full"}, {metric: raw.Restore, kind: "partial", text: "restore, partial"}}
	for _, cell := range s.Collected.Cells {
		for _, kind := range kinds {
			for i, one := range s.Collected.Series {
				if values := one.KindOf(cell, kind.metric, kind.kind); len(values) > 0 {
					name := kind.text
					if tail := cell.Settings(); tail != "" {
						name += " " + settingValues(tail)
					}
					strips = append(strips, strip{name, s.Color(i), values})
				}
			}
		}
	}
	if len(strips) == 0 || len(strips) > maxBars {
		return nil
	}
	var names []plot.Tick
	p.X.Min, p.X.Max = math.Inf(1), math.Inf(-1)
	for i, one := range strips {
		row := float64(len(strips) - 1 - i)
		names = append(names, plot.Tick{Value: row, Label: one.name})
		d := estimate.Describe(one.values)
		p.X.Min, p.X.Max = min(p.X.Min, d.Min), max(p.X.Max, d.Max)
		dots := &plotter.Scatter{GlyphStyle: draw.GlyphStyle{Color: figure.WithAlpha(one.color, 0x40), Radius: 2.2, Shape: draw.CircleGlyph{}}}
		for j, v := range thin(one.values.Pooled(), 200) {
			// Spread over the row's height by index, so that equal values do not hide one another.
			dots.XYs = append(dots.XYs, plotter.XY{X: v, Y: row + 0.5*(math.Mod(float64(j)*0.618034, 1)-0.5)})
		}
		p.Add(dots, medianMark{d, row, one.color})
	}
	p.Y.Min, p.Y.Max = -0.6, float64(len(strips))-0.4
	p.Y.Tick.Marker = plot.ConstantTicks(names)
	p.Y.Tick.Length = 0
	for i, one := range s.Collected.Series {
		f.Explain(one.Name, rectangle{color: s.Color(i)})
	}
	figure.LogAxis(&p.X, figure.TickSeconds)
	f.Add(p, vg.Length(60+26*len(strips)))
	return f
}

// medianMark is a tall tick at the median with its confidence interval.
type medianMark struct {
	d     estimate.Distribution
	row   float64
	color color.Color
}

// Plot implements plot.Plotter.
func (m medianMark) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	c.StrokeLine2(draw.LineStyle{Color: m.color, Width: 2.4}, x(m.d.Median), y(m.row-0.34), x(m.d.Median), y(m.row+0.34))
	if m.d.Low != nil {
		c.StrokeLine2(draw.LineStyle{Color: m.color, Width: 1.2}, x(*m.d.Low), y(m.row), x(*m.d.High), y(m.row))
	}
}
