package plots

import (
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"synclab/reports/doc"
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
