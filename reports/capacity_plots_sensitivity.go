package reports

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"synclab/reports/capacity"
)

// sensitivityFigure is a tornado for each subject: how far the largest cluster moves with each input.
func (r *capacityReport) sensitivityFigure() *figure {
	f := &figure{name: "capacity-sensitivity", title: "What moves the largest cluster (Services, log scale)",
		caption: "Each bar goes from the largest cluster with the lower input to that with the higher one; the upright line is the answer as asked. The longest bar is the input to know best."}
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
		p := newPlot("", s.Name)
		p.X.Min, p.X.Max = low/1.5, high*1.5
		var names []plot.Tick
		for k, one := range s.Sensitivity {
			row := float64(len(s.Sensitivity) - 1 - k)
			names = append(names, plot.Tick{Value: row, Label: inputText(one.Input)})
			p.Add(tornadoBar{row, one, r.looks[i].color})
		}
		logAxis(&p.X, tickCount)
		if at := s.Largest.Services.Median; at > 0 {
			p.Add(upright{at, draw.LineStyle{Color: ink, Width: 1}})
		}
		p.Y.Min, p.Y.Max = -0.6, float64(len(s.Sensitivity))-0.4
		p.Y.Tick.Marker, p.Y.Tick.Length, p.Y.LineStyle.Width = plot.ConstantTicks(names), 0, 0
		f.add(p, vg.Length(34+19*len(s.Sensitivity)))
	}
	f.explain("lower input", tornadoThumb{true})
	f.explain("higher input", tornadoThumb{false})
	f.explain("as asked", uprightThumb{})
	return f
}

// positive takes out what a logarithm cannot show.
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

// tornadoBar is one input: a hollow end for the lower factor, a filled one for the higher.
type tornadoBar struct {
	row   float64
	of    capacity.Sensitivity
	color color.NRGBA
}

// Plot implements plot.Plotter.
func (b tornadoBar) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	clip := func(v float64) vg.Length { return max(min(x(v), c.Max.X), c.Min.X) }
	lower, higher, at := clip(b.of.AtLower), clip(b.of.AtHigher), y(b.row)
	left, right := min(lower, higher), max(lower, higher)
	c.FillPolygon(withAlpha(b.color, 0x60), []vg.Point{{X: left, Y: at - 5}, {X: right, Y: at - 5}, {X: right, Y: at + 5}, {X: left, Y: at + 5}})
	drawTornadoEnd(&c, b.color, vg.Point{X: lower, Y: at}, true)
	drawTornadoEnd(&c, b.color, vg.Point{X: higher, Y: at}, false)
	style := sans(smallSize-1, false)
	style.YAlign = draw.YCenter
	texts := map[bool]string{true: "× " + factorText(b.of.Lower), false: "× " + factorText(b.of.Higher)}
	if right-left < 3 {
		style.XAlign = draw.XLeft
		c.FillText(style, vg.Point{X: right + 6, Y: at + 1}, texts[true]+" to "+texts[false]+": no difference")
		return
	}
	style.XAlign = draw.XRight
	from := left - 6
	if from < c.Min.X+style.Width(texts[lower < higher]) { // no room: inside
		style.XAlign, from = draw.XLeft, left+6
	}
	c.FillText(style, vg.Point{X: from, Y: at + 1}, texts[lower < higher])
	style.XAlign = draw.XLeft
	c.FillText(style, vg.Point{X: right + 6, Y: at + 1}, texts[lower >= higher])
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
func (t tornadoThumb) Thumbnail(c *draw.Canvas) { drawTornadoEnd(c, grey, c.Center(), t.lower) }

type uprightThumb struct{}

// Thumbnail implements plot.Thumbnailer.
func (uprightThumb) Thumbnail(c *draw.Canvas) {
	c.StrokeLine2(draw.LineStyle{Color: ink, Width: 1}, c.Center().X, c.Min.Y, c.Center().X, c.Max.Y)
}
