package figure

import (
	"fmt"
	"html"
	"image/color"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"synclab/reports/doc"
)

// hot is a place of the plot with a text, which the page shows when the reader points at it, tabs to it or taps it. A
// toggle is an entry of the legend, which hides its series.
type hot struct {
	vg.Rectangle
	text   string
	toggle string // colour of the entry, as in the SVG; empty: a value
	of     string // colour of the value's series
}

// Values gives the medians of a series texts with their values: what is at x, in unit y.
func (f *Figure) Values(p *plot.Plot, name, what string, points Intervals, unit string, c color.Color) {
	for _, point := range points {
		text := fmt.Sprintf("%s, %s %s: %s", name, doc.Format(point.X, "count"), what, doc.Format(point.Median, unit))
		if point.Low != nil && point.High != nil {
			text += fmt.Sprintf(" (95 %% %s … %s)", doc.Format(*point.Low, unit), doc.Format(*point.High, unit))
		}
		f.Place(p, point.X, point.Median, text+", "+doc.Plural(point.Repetitions, "repetition"), c)
	}
}

// spot is a place at a point of a panel.
type spot struct {
	f    *Figure
	x, y float64
	hot
}

// Plot implements plot.Plotter.
func (s spot) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	const radius = 6
	h := s.hot
	h.Rectangle = vg.Rectangle{Min: vg.Point{X: x(s.x) - radius, Y: y(s.y) - radius}, Max: vg.Point{X: x(s.x) + radius, Y: y(s.y) + radius}}
	s.f.hots = append(s.f.hots, h)
}

// Place gives a point of a panel a text.
func (f *Figure) Place(p *plot.Plot, x, y float64, text string, c color.Color) {
	p.Add(spot{f, x, y, hot{text: text, of: svgColor(c)}})
}

// thumbColor is the colour of a legend's mark.
func thumbColor(t plot.Thumbnailer) color.Color {
	switch t := t.(type) {
	case *plotter.Scatter:
		return t.GlyphStyle.Color
	case *plotter.Line:
		return t.LineStyle.Color
	case LineThumb:
		return t.Style.Color
	}
	return nil
}

// svgColor writes a colour as package vgsvg does.
func svgColor(c color.Color) string {
	n := color.NRGBAModel.Convert(c).(color.NRGBA)
	return fmt.Sprintf("%02X%02X%02X", n.R, n.G, n.B)
}

// interactive returns the markup of the places, in the coordinates of the page: y grows downwards.
func (f *Figure) interactive() string {
	var b strings.Builder
	height := f.height()
	for _, h := range f.hots {
		text := html.EscapeString(h.text)
		place := fmt.Sprintf(`x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="3"`, h.Min.X, height-h.Max.Y, h.Max.X-h.Min.X, h.Max.Y-h.Min.Y)
		if h.toggle != "" {
			fmt.Fprintf(&b, `<rect class="toggle" %s data-color="%s" aria-label="Show %s"/>`, place, h.toggle, text)
			continue
		}
		fmt.Fprintf(&b, `<rect class="hot" %s role="img" data-of="%s" data-tip="%s" aria-label="%[3]s"><title>%[3]s</title></rect>`, place, h.of, text)
	}
	return b.String()
}
