package page

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"synclab/reports/capacity"
	"synclab/reports/figure"
)

// sensitivityFigure is a tornado plot for each subject: how much the largest cluster changes with each input.
func (r *report) sensitivityFigure() *figure.Figure {
	f := &figure.Figure{Name: "capacity-sensitivity", Title: fmt.Sprintf("Sensitivity of the largest cluster (%s, log scale)", r.Unit),
		Caption: "Each bar spans the largest clusters with the lower input, with the higher input, and as in the question (the vertical line). " +
			"The input with the longest bar matters most."}
	low, high := math.Inf(1), 0.0
	for _, s := range r.Subjects {
		for _, one := range s.Sensitivity {
			low, high = min(low, positive(one.AtLower), positive(one.AtHigher)), max(high, one.AtLower, one.AtHigher)
		}
	}
	if !(high > 0) {
		return nil
	}
	for i, s := range r.Subjects {
		if len(s.Sensitivity) == 0 {
			continue
		}
		p := figure.NewPlot("", s.Name)
		p.X.Min, p.X.Max = low/1.5, high*1.5
		if at := s.Largest.Size.Median; at > 0 {
			p.Add(upright{at, draw.LineStyle{Color: figure.Ink, Width: 1}})
		}
		var names []plot.Tick
		for k, one := range s.Sensitivity {
			row := float64(len(s.Sensitivity) - 1 - k)
			names = append(names, plot.Tick{Value: row, Label: inputText(one.Input)})
			p.Add(tornadoBar{row, s.Largest.Size.Median, one, r.looks[i].Color})
		}
		figure.LogAxis(&p.X, figure.TickCount)
		p.Y.Min, p.Y.Max = -0.6, float64(len(s.Sensitivity))-0.4
		p.Y.Tick.Marker, p.Y.Tick.Length, p.Y.LineStyle.Width = plot.ConstantTicks(names), 0, 0
		f.Add(p, vg.Length(34+19*len(s.Sensitivity)))
	}
	f.Explain("lower input", tornadoThumb{true})
	f.Explain("higher input", tornadoThumb{false})
	f.Explain("as in the question", uprightThumb{})
	return f
}

// positive returns v, or infinity if v has no logarithm.
func positive(v float64) float64 {
	if v > 0 {
		return v
	}
	return math.Inf(1)
}

// inputText names an input of the sensitivity.
func inputText(input string) string {
	if text, ok := map[string]string{"cost": "cost of syncs", "endpoints": "endpoints per Service"}[input]; ok {
		return text
	}
	return input
}

// tornadoBar is one input: a hollow end for the lower factor, a filled end for the higher.
type tornadoBar struct {
	row   float64
	asked float64 // the answer with no input changed
	of    capacity.Sensitivity
	color color.NRGBA
}

// Plot implements plot.Plotter.
func (b tornadoBar) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	clip := func(v float64) vg.Length { return max(min(x(v), c.Max.X), c.Min.X) }
	lower, higher, asked, at := clip(b.of.AtLower), clip(b.of.AtHigher), clip(b.asked), y(b.row)
	left, right := min(lower, higher, asked), max(lower, higher, asked)
	c.FillPolygon(figure.WithAlpha(b.color, 0x60), []vg.Point{{X: left, Y: at - 5}, {X: right, Y: at - 5}, {X: right, Y: at + 5}, {X: left, Y: at + 5}})
	drawTornadoEnd(&c, b.color, vg.Point{X: lower, Y: at}, true)
	drawTornadoEnd(&c, b.color, vg.Point{X: higher, Y: at}, false)
	first, last := "× "+factorText(b.of.Lower), "× "+factorText(b.of.Higher)
	if lower > higher {
		first, last = last, first
	}
	switch {
	case right-left < 3:
		b.write(&c, right, at, "no difference", false)
	case max(lower, higher)-min(lower, higher) < 12: // both on one side
		b.write(&c, min(lower, higher), at, first+" and "+last, true)
	default:
		b.write(&c, min(lower, higher), at, first, true)
		b.write(&c, max(lower, higher), at, last, false)
	}
}

// write puts a text at the left or right of a bar's end, or on the other side if there is no room.
func (b tornadoBar) write(c *draw.Canvas, end, at vg.Length, text string, left bool) {
	style := figure.Sans(figure.SmallSize-1, false)
	style.YAlign = draw.YCenter
	width := style.Width(text) + 6
	if left && end-width < c.Min.X || !left && end+width > c.Max.X {
		left = !left
	}
	if style.XAlign = draw.XLeft; left {
		style.XAlign, width = draw.XRight, -width
	}
	from := end + 6
	if left {
		from = end - 6
	}
	box := []vg.Point{{X: from, Y: at - 4}, {X: end + width, Y: at - 4}, {X: end + width, Y: at + 4}, {X: from, Y: at + 4}}
	c.FillPolygon(color.NRGBA{0xff, 0xff, 0xff, 0xa0}, box)
	c.FillText(style, vg.Point{X: from, Y: at + 1}, text)
}

func drawTornadoEnd(c *draw.Canvas, ink color.NRGBA, at vg.Point, lower bool) {
	if lower {
		c.FillPolygon(color.White, []vg.Point{{X: at.X - 3, Y: at.Y - 5}, {X: at.X + 3, Y: at.Y - 5}, {X: at.X + 3, Y: at.Y + 5}, {X: at.X - 3, Y: at.Y + 5}})
		line := draw.LineStyle{Color: ink, Width: 1.2}
		c.StrokeLines(line, []vg.Point{{X: at.X - 3, Y: at.Y - 5}, {X: at.X + 3, Y: at.Y - 5}, {X: at.X + 3, Y: at.Y + 5}, {X: at.X - 3, Y: at.Y + 5}, {X: at.X - 3, Y: at.Y - 5}})
		return
	}
	c.FillPolygon(ink, []vg.Point{{X: at.X - 3, Y: at.Y - 5}, {X: at.X + 3, Y: at.Y - 5}, {X: at.X + 3, Y: at.Y + 5}, {X: at.X - 3, Y: at.Y + 5}})
}

type tornadoThumb struct{ lower bool }

// Thumbnail implements plot.Thumbnailer.
func (t tornadoThumb) Thumbnail(c *draw.Canvas) { drawTornadoEnd(c, figure.Grey, c.Center(), t.lower) }

type uprightThumb struct{}

// Thumbnail implements plot.Thumbnailer.
func (uprightThumb) Thumbnail(c *draw.Canvas) {
	c.StrokeLine2(draw.LineStyle{Color: figure.Ink, Width: 1}, c.Center().X, c.Min.Y, c.Center().X, c.Max.Y)
}
