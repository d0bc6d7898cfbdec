package plots

import (
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"synclab/reports/comparison"
	"synclab/reports/doc"
	"synclab/reports/figure"
	"synclab/reports/records"
	"synclab/reports/sections"
)

// ratioFigures are the figures of the plot of ratios, in its order.
var ratioFigures = []string{comparison.FigureReaction, comparison.FigureNPL99, comparison.FigureCold, comparison.FigureFull, comparison.FigurePartial,
	comparison.FigureCPU, comparison.FigureTotalRSS, comparison.FigureFirstPacket, comparison.FigureFirstSYN}

// ratiosFigure draws each subject's figures divided by its baseline's, with their intervals, at the largest compared size.
func ratiosFigure(s *sections.Summary) *figure.Figure {
	c := s.LargestComparison()
	if c == nil {
		return nil
	}
	shown := c.Compared()
	f := &figure.Figure{Name: "ratios", Title: "Ratios to the baseline at " + records.SizesText([]records.Cell{c.Cell}) + records.SettingsTail(records.ShortSettings(c.Cell.Settings())),
		Caption: "Each figure of a subject divided by its baseline's: left of 1 it is faster or less, right of it slower or more. Lines are 95 % confidence intervals, from 6 repetitions on. " +
			"A hollow mark: no difference shown."}
	p := figure.NewPlot("← faster, less · ratio to the baseline (log scale) · slower, more →", "")
	low, high := 1.0, 1.0
	var marks []ratioMark
	var names []plot.Tick
	row := 0.0
	for _, name := range ratioFigures {
		if comparison.FigureOf(name).Packet && c.Cell.InGuest() {
			continue
		}
		first := row
		for _, side := range shown {
			r := c.Ratio(side.Series, c.Nearest(side), name)
			if r == nil || r.Words == "unknown" || !(r.Ratio > 0) {
				continue
			}
			i, _ := s.SeriesNamed(side.Series)
			m := ratioMark{row: -row, value: r.Ratio, low: r.Low, high: r.High, look: s.Look(i), hollow: !r.Apart(), text: strings.TrimSuffix(r.Short(), "?")}
			for _, v := range []*float64{&m.value, m.low, m.high} {
				if v != nil && *v > 0 {
					low, high = min(low, *v), max(high, *v)
				}
			}
			marks = append(marks, m)
			f.Place(p, m.value, m.row, side.Series+", "+doc.LowerFirst(comparison.FigureOf(name).Text)+": "+doc.Exact(r.Ratio)+" of "+c.Nearest(side)+"'s ("+r.Words+")", s.Color(i))
			row++
		}
		if row > first {
			names = append(names, plot.Tick{Value: -(first + row - 1) / 2, Label: comparison.FigureOf(name).Text})
			row += 0.7
		}
	}
	if len(marks) == 0 {
		return nil
	}
	for _, side := range shown {
		i, _ := s.SeriesNamed(side.Series)
		f.Explain(side.Series+" to "+c.Nearest(side), figure.LineThumb{Style: draw.LineStyle{Color: s.Color(i), Width: 2}})
	}
	p.X.Min, p.X.Max = low/1.1, high*math.Pow(high/low, 0.12)*1.1
	figure.LogAxis(&p.X, func(v float64) string { return comparison.Times(v) + "×" })
	p.Y.Min, p.Y.Max = -row+0.2, 0.8
	p.Y.Tick.Marker = plot.ConstantTicks(names)
	p.Y.Tick.Length, p.Y.LineStyle.Width = 0, 0
	p.Add(unity{})
	for _, m := range marks {
		p.Add(m)
	}
	f.Add(p, vg.Length(40+13*row))
	return f
}

// unity is the line at ratio 1.
type unity struct{}

// Plot implements plot.Plotter.
func (unity) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	c.StrokeLine2(draw.LineStyle{Color: figure.Grey, Width: 1.2}, x(1), c.Min.Y, x(1), c.Max.Y)
}

// ratioMark is a ratio with its interval.
type ratioMark struct {
	row, value float64
	low, high  *float64
	look       figure.Look
	hollow     bool
	text       string
}

// Plot implements plot.Plotter.
func (m ratioMark) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	end := x(m.value) + 4
	if m.low != nil && m.high != nil && *m.low > 0 {
		c.StrokeLine2(draw.LineStyle{Color: m.look.Color, Width: 1.4}, x(*m.low), y(m.row), x(*m.high), y(m.row))
		end = max(end, x(*m.high))
	}
	style := draw.GlyphStyle{Color: m.look.Color, Radius: 3.2, Shape: draw.CircleGlyph{}}
	at := vg.Point{X: x(m.value), Y: y(m.row)}
	if m.hollow {
		c.DrawGlyph(draw.GlyphStyle{Color: figure.Paper, Radius: 3.2, Shape: draw.CircleGlyph{}}, at)
		style.Shape = figure.Hollow{GlyphDrawer: draw.CircleGlyph{}}
	}
	c.DrawGlyph(style, at)
	words := figure.Sans(figure.SmallSize-1, false)
	words.XAlign, words.YAlign = draw.XLeft, draw.YCenter
	if left := end + 5; left < x(1) && left+words.Width(m.text) > x(1) { // not across the line
		end = x(1)
	}
	c.FillText(words, vg.Point{X: end + 5, Y: y(m.row) + 1}, m.text)
}
