package plots

import (
	"image/color"
	"math"
	"slices"
	"strings"

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

// comparedBars draws the subjects' figures as bars, one panel for each figure, at the largest compared size.
func comparedBars(s *sections.Summary, name, title, caption string, figures []string) *figure.Figure {
	c := s.LargestComparison()
	if c == nil {
		return nil
	}
	f := &figure.Figure{Name: name, Title: title + " at " + records.SizesText([]records.Cell{c.Cell}) + records.SettingsTail(records.ShortSettings(c.Cell.Settings())), Caption: caption}
	logarithmic, stopped := false, false
	for _, figure := range figures {
		for _, side := range c.Sides {
			one := side.Figure(figure)
			stopped = stopped || one != nil && one.AtLeast
		}
		p, log := barPanel(f, s, c, comparison.FigureOf(figure))
		if p == nil {
			continue
		}
		logarithmic = logarithmic || log
		f.Add(p, vg.Length(24+17*len(c.Sides)))
	}
	if len(f.Panels) == 0 {
		return nil
	}
	if stopped {
		f.Caption += " An open bar with an arrow: the subject was stopped at this value."
	}
	if logarithmic {
		f.Caption += " On a logarithmic scale, compare the ends of the bars, not their lengths."
	}
	return f
}

func comparedDurations(s *sections.Summary) *figure.Figure {
	title := "Syncs"
	if len(s.Collected.Pooled(raw.ColdStart)) > 0 {
		title = "Reaction, cold start and syncs"
	}
	caption := "Medians with 95 % confidence intervals; of fewer than 6 repetitions, their range."
	if len(s.Collected.Pooled(raw.ToolSys)) > 0 {
		caption += " The tall tick in the bar of a sync is the kernel time."
	}
	return comparedBars(s, "compared-durations", title, caption,
		[]string{comparison.FigureReaction, comparison.FigureCold, comparison.FigureFull, comparison.FigurePartial})
}

func comparedCost(s *sections.Summary) *figure.Figure {
	title, caption := "Memory", "Medians with 95 % confidence intervals, or the range of fewer than 6 repetitions: peak memory of the process and of its largest tool."
	if len(s.Collected.Pooled(raw.SubjectCPU)) > 0 {
		title = "CPU and memory"
		caption = "Medians with 95 % confidence intervals, or the range of fewer than 6 repetitions: CPU time of the subject and its tools, peak memory of its process and of its largest tool."
	}
	if len(s.Collected.Pooled(raw.ScheduleGap)) > 0 {
		title, caption = strings.Replace(title, " and ", ", ", 1)+" and the longest stall", caption+" A stall: another process that was ready to run on a CPU could not."
	}
	return comparedBars(s, "compared-cost", title, caption,
		[]string{comparison.FigureCPU, comparison.FigureColdCPU, comparison.FigureRSS, comparison.FigureChildRSS, string(raw.ScheduleGap)})
}

// barPanel has one row for each side. It returns nil if fewer than two sides have the figure.
func barPanel(f *figure.Figure, s *sections.Summary, c *comparison.CellComparison, text comparison.Figure) (p *plot.Plot, logarithmic bool) {
	low, high, most := math.Inf(1), 0.0, 0.0
	have := 0
	for _, side := range c.Sides {
		if f := side.Figure(text.Name); f != nil && f.Value > 0 {
			have++
			low, high = min(low, f.Value), max(high, f.Value)
			if k := side.Figure(comparison.FigureOf(text.Name).Kernel); k != nil && k.Value > 0 {
				low = min(low, k.Value)
			}
			most = max(most, high)
			if _, to := span(f); to != nil {
				most = max(most, *to)
			}
		}
	}
	if have < 2 {
		return nil, false
	}
	logarithmic = high/low > 10
	label := text.Text
	if logarithmic {
		label += " (log scale)"
	}
	p = figure.NewPlot("", label)
	format := func(v float64) string { return doc.TrimTick(doc.Format(figure.RoundTick(v), text.Unit)) }
	if text.Unit == "s" {
		format = figure.LongSeconds
	}
	p.X.Min, p.X.Max = 0, most*1.24
	switch {
	case logarithmic:
		p.X.Min, p.X.Max = low/2, most
		p.X.Max *= math.Pow(p.X.Max/p.X.Min, 0.22)
		figure.LogAxis(&p.X, format)
	case text.Unit == "B":
		byteAxis(&p.X)
	default:
		figure.LinearAxis(&p.X, true, format)
	}
	var names []plot.Tick
	for i, side := range c.Sides {
		row := float64(len(c.Sides) - 1 - i)
		names = append(names, plot.Tick{Value: row, Label: side.Series})
		j, _ := s.SeriesNamed(side.Series)
		one := bar{row: row, color: s.Color(j), text: "–", value: p.X.Min}
		if own := side.Figure(text.Name); own != nil && own.Value > 0 {
			one.value, one.text, one.open = own.Value, comparison.FigureValue(own, false), own.AtLeast
			one.low, one.high = span(own)
			if k := side.Figure(comparison.FigureOf(text.Name).Kernel); k != nil && k.Value > 0 {
				one.kernel = &k.Value
			}
		} else if len(side.Exceeded) > 0 {
			one.text = "stopped before"
		}
		p.Add(one)
		if one.value > p.X.Min {
			f.Place(p, one.value, row, side.Series+", "+doc.LowerFirst(text.Text)+": "+one.text, one.color)
		}
	}
	p.Y.Min, p.Y.Max = -0.6, float64(len(c.Sides))-0.4
	p.Y.Tick.Marker = plot.ConstantTicks(names)
	p.Y.Tick.Length = 0
	p.Y.LineStyle.Width = 0
	return p, logarithmic
}

// span is the confidence interval of a value, or of few repetitions their range; nil: neither.
func span(v *estimate.Estimate) (low, high *float64) {
	if v.Low != nil || v.AtLeast {
		return v.Low, v.High
	}
	return v.RangeLow, v.RangeHigh
}

// byteAxis starts at zero and has ticks that are round numbers in their unit.
func byteAxis(a *plot.Axis) {
	a.Tick.Marker = plot.TickerFunc(func(_, high float64) []plot.Tick {
		unit := 1.0
		for high/unit >= 1024 {
			unit *= 1024
		}
		step := figure.RoundStep(high/unit/6) * unit
		var ticks []plot.Tick
		for i := 0.0; i*step <= high; i++ {
			ticks = append(ticks, plot.Tick{Value: i * step, Label: doc.TrimTick(doc.Format(i*step, "B"))})
		}
		return ticks
	})
}

// bar is one row: a bar from the axis to a value, with its interval and then its text.
type bar struct {
	row, value float64
	low, high  *float64
	kernel     *float64 // the kernel's part of the value
	text       string
	color      color.NRGBA
	open       bool
}

// Plot implements plot.Plotter.
func (b bar) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	end, at := x(b.value), x(b.value)
	switch {
	case b.open:
		edge := draw.LineStyle{Color: b.color, Width: 1.4}
		c.StrokeLine2(edge, c.Min.X, y(b.row+0.3), end, y(b.row+0.3))
		c.StrokeLine2(edge, c.Min.X, y(b.row-0.3), end, y(b.row-0.3))
		c.StrokeLine2(edge, end, y(b.row-0.3), end, y(b.row+0.3))
		arrow(&c, b.color, vg.Point{X: end, Y: y(b.row)}, vg.Point{X: 1})
		at += arrowLength
	case b.value > p.X.Min:
		rectangle{p.X.Min, b.value, b.row - 0.32, b.row + 0.32, b.color}.Plot(c, p)
	}
	if b.kernel != nil {
		// In white, to be visible on dark bars, too.
		for _, mark := range []draw.LineStyle{{Color: color.White, Width: 3.2}, {Color: figure.Ink, Width: 1.6}} {
			c.StrokeLine2(mark, x(*b.kernel), y(b.row-0.32), x(*b.kernel), y(b.row+0.32))
		}
	}
	if b.low != nil {
		line := draw.LineStyle{Color: figure.Ink, Width: 1}
		left, right := max(x(*b.low), c.Min.X), x(*b.high)
		c.StrokeLine2(line, left, y(b.row), right, y(b.row))
		for _, cap := range []vg.Length{left, right} {
			c.StrokeLine2(line, cap, y(b.row)-2.5, cap, y(b.row)+2.5)
		}
		at = max(at, right)
	}
	style := figure.Sans(figure.SmallSize, false)
	style.XAlign, style.YAlign = draw.XLeft, draw.YCenter
	c.FillText(style, vg.Point{X: at + 4, Y: y(b.row) + 1}, b.text)
}

const arrowLength = vg.Length(13)

// arrow points from a place in a direction, given as a unit vector, towards the real value.
func arrow(c *draw.Canvas, ink color.Color, from, way vg.Point) {
	line := draw.LineStyle{Color: ink, Width: 1.4}
	tip := vg.Point{X: from.X + way.X*arrowLength, Y: from.Y + way.Y*arrowLength}
	c.StrokeLine2(line, from.X, from.Y, tip.X, tip.Y)
	for _, side := range []vg.Length{-1, 1} {
		c.StrokeLine2(line, tip.X, tip.Y, tip.X-4*way.X+side*3*way.Y, tip.Y-4*way.Y+side*3*way.X)
	}
}

// manySeries is the number of series from which a panel has room for one kind of curve of each only.
const manySeries = 3

// stoppedMark is an open diamond where a subject was stopped, with an arrow upwards.
type stoppedMark struct {
	x, y  float64
	color color.NRGBA
}

// Plot implements plot.Plotter.
func (m stoppedMark) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	at := vg.Point{X: x(m.x), Y: y(m.y)}
	figure.Outline(&c, draw.GlyphStyle{Color: m.color, Radius: 3.6}, at, 4, 0)
	arrow(&c, m.color, vg.Point{X: at.X, Y: at.Y + 4.5}, vg.Point{Y: 1})
}

// DataRange implements plot.DataRanger.
func (m stoppedMark) DataRange() (xmin, xmax, ymin, ymax float64) {
	return m.x, m.x, m.y, m.y * 2 // room for the arrow
}

// Thumbnail implements plot.Thumbnailer.
func (m stoppedMark) Thumbnail(c *draw.Canvas) {
	c.SetLineStyle(draw.LineStyle{Color: m.color, Width: 1.4})
	figure.Outline(c, draw.GlyphStyle{Color: m.color, Radius: 3.6}, c.Center(), 4, 0)
}

// comparedGrowth draws durations versus Services on logarithmic axes, one panel for each kind, with the fitted growth and its
// caveats.
func comparedGrowth(s *sections.Summary, line records.SweepLine, name, title string, kinds []durationLine) *figure.Figure {
	f := &figure.Figure{Name: name, Title: title + records.SettingsTail(line.Settings)}
	marked := false
	var all []*figure.EndLabels
	for _, kind := range kinds {
		p := figure.NewPlot("Services (log scale)", kind.text+" (log scale)")
		ends := &figure.EndLabels{}
		for i, one := range s.Collected.Series {
			end, stopped := growthOf(s, f, p, line, i, one, kind)
			if end != nil {
				ends.Labels = append(ends.Labels, *end)
			}
			marked = marked || stopped
		}
		if len(ends.Labels) == 0 {
			continue
		}
		figure.LogCountAxis(&p.X)
		figure.LogAxis(&p.Y, figure.LongSeconds)
		p.Add(ends)
		all = append(all, ends)
		f.Add(p, 205)
	}
	if len(f.Panels) == 0 {
		return nil
	}
	figure.AlignEnds(all)
	for _, one := range f.Panels[:len(f.Panels)-1] {
		one.Plot.X.Label.Text = "" // the lowest panel has the label for all
	}
	if marked {
		f.Explain("stopped at this size: the real value is larger", stoppedMark{color: figure.Grey})
	}
	for _, g := range s.Growth {
		drawn := slices.ContainsFunc(kinds, func(k durationLine) bool { return k.metric == g.Metric && k.kind == g.Kind })
		if badge := g.Badge(); drawn && badge != "" && g.Settings == line.Settings && g.Scenario == line.Scenario && !slices.Contains(f.Badges, badge) {
			f.Badges = append(f.Badges, badge)
		}
	}
	return f
}

// growthOf draws one series of one kind; end is nil without points.
func growthOf(s *sections.Summary, f *figure.Figure, p *plot.Plot, line records.SweepLine, i int, one *records.Series, kind durationLine) (end *figure.EndLabel, stopped bool) {
	var points figure.Intervals
	var marks []stoppedMark
	look := s.Look(i)
	for _, cell := range line.Cells {
		values := one.KindOf(cell, kind.metric, kind.kind)
		if len(values) > 0 {
			addRaw(p, float64(cell.Services), values.Pooled(), look.Color)
			points = append(points, figure.SizePoint{X: float64(cell.Services), Distribution: estimate.Describe(values)})
			continue
		}
		for _, k := range s.Figures {
			if k.Series != one.Name || k.Cell.ID() != cell.ID() {
				continue
			}
			if used, ok := k.StoppedAt(string(kind.metric)); ok && used > 0 {
				marks = append(marks, stoppedMark{float64(cell.Services), used, look.Color})
			}
		}
	}
	label := one.Name
	if len(points) > 0 {
		last := points[len(points)-1]
		end = &figure.EndLabel{X: last.X, Y: last.Median}
		for _, g := range s.Growth {
			if g.Series == one.Name && g.Metric == kind.metric && g.Kind == kind.kind && g.Settings == line.Settings && g.Scenario == line.Scenario {
				first := points[0].X
				figure.AddLine(p, plotter.XYs{{X: first, Y: g.At(first)}, {X: last.X, Y: g.At(last.X)}}, look.Color, look.Dashes...)
				label += "  " + g.Exponent()
			}
		}
		figure.AddMedians(p, points, look.Color, look.Shape)
		f.Values(p, one.Name+", "+kind.text, "Services", points, "s", look.Color)
	}
	for _, mark := range marks {
		p.Add(mark)
		end = &figure.EndLabel{X: mark.x, Y: mark.y}
	}
	if end != nil {
		end.Text, end.Color = label, look.Color
	}
	return end, len(marks) > 0
}

// stoppedIn lists the series without a value of a metric in a cell because they were stopped.
func stoppedIn(s *sections.Summary, cell records.Cell, metric raw.Metric) []string {
	var out []string
	for _, k := range s.Figures {
		if k.Cell.ID() != cell.ID() || len(k.Exceeded) == 0 {
			continue
		}
		if _, one := s.SeriesNamed(k.Series); len(one.Of(cell, metric)) == 0 {
			out = append(out, k.Series)
		}
	}
	return out
}
