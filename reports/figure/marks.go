package figure

import (
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"synclab/reports/doc"
	"synclab/reports/estimate"
)

// Level is a horizontal line across the plot.
type Level struct {
	Y     float64
	Style draw.LineStyle
}

// Plot implements plot.Plotter.
func (l Level) Plot(c draw.Canvas, p *plot.Plot) {
	_, y := p.Transforms(&c)
	if at := y(l.Y); c.ContainsY(at) {
		c.StrokeLine2(l.Style, c.Min.X, at, c.Max.X, at)
	}
}

// Thumbnail implements plot.Thumbnailer.
func (l Level) Thumbnail(c *draw.Canvas) {
	c.StrokeLine2(l.Style, c.Min.X, c.Center().Y, c.Max.X, c.Center().Y)
}

// SizePoint is the median of a group at one size, with its interval if there is one.
type SizePoint struct {
	X float64
	estimate.Distribution
}

// Intervals implements plotter.XYer and plotter.YErrorer.
type Intervals []SizePoint

func (v Intervals) Len() int                    { return len(v) }
func (v Intervals) XY(i int) (float64, float64) { return v[i].X, v[i].Median }
func (v Intervals) YError(i int) (float64, float64) {
	if v[i].Low == nil {
		return 0, 0
	}
	return v[i].Median - *v[i].Low, *v[i].High - v[i].Median
}

// AddMedians draws points with error bars and returns their legend mark.
func AddMedians(p *plot.Plot, points Intervals, c color.Color, shape draw.GlyphDrawer) plot.Thumbnailer {
	dots := &plotter.Scatter{XYs: make(plotter.XYs, len(points)), GlyphStyle: draw.GlyphStyle{Color: c, Radius: 3.2, Shape: shape}}
	for i, v := range points {
		dots.XYs[i] = plotter.XY{X: v.X, Y: v.Median}
	}
	if bars, err := plotter.NewYErrorBars(points); err == nil {
		bars.LineStyle = draw.LineStyle{Color: c, Width: 1}
		bars.CapWidth = 5
		p.Add(bars)
	}
	p.Add(dots)
	return dots
}

// AddLine draws a line through points and returns its legend mark.
func AddLine(p *plot.Plot, points plotter.XYs, c color.Color, dashes ...vg.Length) plot.Thumbnailer {
	line := &plotter.Line{XYs: points, LineStyle: draw.LineStyle{Color: c, Width: 1.3, Dashes: dashes}}
	p.Add(line)
	return line
}

// Ribbon is the pale area between two lines over the same x.
type Ribbon struct {
	Low, High plotter.XYs
	Look      Look
}

// Plot implements plot.Plotter.
func (r Ribbon) Plot(c draw.Canvas, p *plot.Plot) { r.Fill(c, p, 0x24) }

// Fill draws the ribbon with an opacity.
func (r Ribbon) Fill(c draw.Canvas, p *plot.Plot, alpha uint8) {
	x, y := p.Transforms(&c)
	var ring []vg.Point
	for _, point := range r.Low {
		ring = append(ring, vg.Point{X: x(point.X), Y: y(point.Y)})
	}
	for _, point := range slices.Backward(r.High) {
		ring = append(ring, vg.Point{X: x(point.X), Y: y(point.Y)})
	}
	c.FillPolygon(WithAlpha(r.Look.Color, alpha), c.ClipPolygonXY(ring))
}

// DataRange implements plot.DataRanger.
func (r Ribbon) DataRange() (xmin, xmax, ymin, ymax float64) {
	xmin, ymin, xmax, ymax = math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)
	for _, point := range append(slices.Clone(r.Low), r.High...) {
		xmin, xmax, ymin, ymax = min(xmin, point.X), max(xmax, point.X), min(ymin, point.Y), max(ymax, point.Y)
	}
	return xmin, xmax, ymin, ymax
}

// LineThumb is the legend mark of a line.
type LineThumb struct{ Style draw.LineStyle }

// Thumbnail implements plot.Thumbnailer.
func (l LineThumb) Thumbnail(c *draw.Canvas) {
	c.StrokeLine2(l.Style, c.Min.X, c.Center().Y, c.Max.X, c.Center().Y)
}

// LongSeconds keeps seconds above ten minutes, where "16m40s" would be a bad axis label.
func LongSeconds(v float64) string {
	if v = RoundTick(v); v >= 600 {
		return doc.Grouped(int64(v)) + " s"
	}
	return TickSeconds(v)
}
