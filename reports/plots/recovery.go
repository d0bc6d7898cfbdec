package plots

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"synclab/reports/doc"
	"synclab/reports/figure"
	"synclab/reports/records"
	"synclab/reports/sections"
)

// recoveryFigure draws how long each subject took to recover from each fault.
func recoveryFigure(s *sections.Summary) *figure.Figure {
	cells := s.FaultCells()
	if len(cells) == 0 {
		return nil
	}
	names, series := s.FaultsOf(cells[0])
	f := &figure.Figure{Name: "recovery", Title: "Time to recover from each fault, at " + records.SizesText(cells[:1]),
		Caption: "From the end of the fault until rules and packets are right again: the slowest of the repetitions. A cross at the right edge: not recovered."}
	p := figure.NewPlot("time to recover (log scale)", "")
	low, high := 0.0, 0.0
	for _, name := range names {
		for _, one := range series {
			if r := s.FaultOf(cells[0], name, one); r != nil && r.Recovered != nil && r.Recovered.Max > 0 {
				if low == 0 || r.Recovered.Max < low {
					low = r.Recovered.Max
				}
				high = max(high, r.Recovered.Max)
			}
		}
	}
	if high == 0 { // nothing recovered
		low, high = 0.1, 1
	}
	p.X.Min, p.X.Max = low/1.5, high*3
	figure.LogAxis(&p.X, figure.TickSeconds)
	var ticks []plot.Tick
	for i, name := range names {
		row := -float64(i)
		ticks = append(ticks, plot.Tick{Value: row, Label: sections.FaultName(name, names)})
		for j, one := range series {
			r := s.FaultOf(cells[0], name, one)
			if r == nil {
				continue
			}
			at, _ := s.SeriesNamed(one)
			y := row
			if len(series) > 1 {
				y += 0.3 - 0.6*float64(j)/float64(len(series)-1)
			}
			m := recoveryMark{row: y, look: s.Look(at), never: r.Never > 0}
			text := one + ", " + sections.FaultName(name, names) + ": not recovered"
			switch {
			case r.Never > 0:
				m.value = p.X.Max
			case r.Recovered == nil || !(r.Recovered.Max > 0):
				continue
			default:
				m.value = r.Recovered.Max
				text = one + ", " + sections.FaultName(name, names) + ": " + doc.Format(m.value, "s")
			}
			p.Add(m)
			f.Place(p, m.value, y, text, s.Color(at))
		}
	}
	for _, one := range series {
		at, _ := s.SeriesNamed(one)
		f.Explain(one, figure.LineThumb{Style: draw.LineStyle{Color: s.Color(at), Width: 2}})
	}
	p.Y.Min, p.Y.Max = -float64(len(names))+0.4, 0.6
	p.Y.Tick.Marker = plot.ConstantTicks(ticks)
	p.Y.Tick.Length, p.Y.LineStyle.Width = 0, 0
	f.Add(p, vg.Length(40+max(15, 3*len(series))*len(names)))
	return f
}

// recoveryMark is one subject's time, or a cross for none.
type recoveryMark struct {
	row, value float64
	look       figure.Look
	never      bool
}

// Plot implements plot.Plotter.
func (m recoveryMark) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	at := vg.Point{X: x(m.value), Y: y(m.row)}
	if m.never {
		at.X -= 6
		c.DrawGlyph(draw.GlyphStyle{Color: m.look.Color, Radius: 3.5, Shape: draw.CrossGlyph{}}, at)
		return
	}
	c.DrawGlyph(draw.GlyphStyle{Color: m.look.Color, Radius: 3, Shape: m.look.Shape}, at)
}
