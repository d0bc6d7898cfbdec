package reports

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
	"synclab/reports/figure"
)

// level is a horizontal line across the plot.
type level struct {
	y     float64
	style draw.LineStyle
}

// Plot implements plot.Plotter.
func (l level) Plot(c draw.Canvas, p *plot.Plot) {
	_, y := p.Transforms(&c)
	if at := y(l.y); c.ContainsY(at) {
		c.StrokeLine2(l.style, c.Min.X, at, c.Max.X, at)
	}
}

// Thumbnail implements plot.Thumbnailer.
func (l level) Thumbnail(c *draw.Canvas) {
	c.StrokeLine2(l.style, c.Min.X, c.Center().Y, c.Max.X, c.Center().Y)
}

// sizePoint is the median of a group at one size, with its interval if there is one.
type sizePoint struct {
	x float64
	estimate.Distribution
}

// intervals implements plotter.XYer and plotter.YErrorer.
type intervals []sizePoint

func (v intervals) Len() int                    { return len(v) }
func (v intervals) XY(i int) (float64, float64) { return v[i].x, v[i].Median }
func (v intervals) YError(i int) (float64, float64) {
	if v[i].Low == nil {
		return 0, 0
	}
	return v[i].Median - *v[i].Low, *v[i].High - v[i].Median
}

// addMedians draws points with error bars and returns their legend mark.
func addMedians(p *plot.Plot, points intervals, c color.Color, shape draw.GlyphDrawer) plot.Thumbnailer {
	dots := &plotter.Scatter{XYs: make(plotter.XYs, len(points)), GlyphStyle: draw.GlyphStyle{Color: c, Radius: 3.2, Shape: shape}}
	for i, v := range points {
		dots.XYs[i] = plotter.XY{X: v.x, Y: v.Median}
	}
	if bars, err := plotter.NewYErrorBars(points); err == nil {
		bars.LineStyle = draw.LineStyle{Color: c, Width: 1}
		bars.CapWidth = 5
		p.Add(bars)
	}
	p.Add(dots)
	return dots
}

// addLine draws a line through points and returns its legend mark.
func addLine(p *plot.Plot, points plotter.XYs, c color.Color, dashes ...vg.Length) plot.Thumbnailer {
	line := &plotter.Line{XYs: points, LineStyle: draw.LineStyle{Color: c, Width: 1.3, Dashes: dashes}}
	p.Add(line)
	return line
}

// ribbon is the pale area between two lines over the same x.
type ribbon struct {
	low, high plotter.XYs
	look      figure.Look
}

// Plot implements plot.Plotter.
func (r ribbon) Plot(c draw.Canvas, p *plot.Plot) { r.fill(c, p, 0x24) }

// fill draws the ribbon with an opacity.
func (r ribbon) fill(c draw.Canvas, p *plot.Plot, alpha uint8) {
	x, y := p.Transforms(&c)
	var ring []vg.Point
	for _, point := range r.low {
		ring = append(ring, vg.Point{X: x(point.X), Y: y(point.Y)})
	}
	for _, point := range slices.Backward(r.high) {
		ring = append(ring, vg.Point{X: x(point.X), Y: y(point.Y)})
	}
	c.FillPolygon(figure.WithAlpha(r.look.Color, alpha), c.ClipPolygonXY(ring))
}

// DataRange implements plot.DataRanger.
func (r ribbon) DataRange() (xmin, xmax, ymin, ymax float64) {
	xmin, ymin, xmax, ymax = math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)
	for _, point := range append(slices.Clone(r.low), r.high...) {
		xmin, xmax, ymin, ymax = min(xmin, point.X), max(xmax, point.X), min(ymin, point.Y), max(ymax, point.Y)
	}
	return xmin, xmax, ymin, ymax
}

// lineThumb is the legend mark of a line.
type lineThumb struct{ style draw.LineStyle }

// Thumbnail implements plot.Thumbnailer.
func (l lineThumb) Thumbnail(c *draw.Canvas) {
	c.StrokeLine2(l.style, c.Min.X, c.Center().Y, c.Max.X, c.Center().Y)
}

// longSeconds keeps seconds above ten minutes, where "16m40s" would be a bad axis label.
func longSeconds(v float64) string {
	if v = figure.RoundTick(v); v >= 600 {
		return doc.Grouped(int64(v)) + " s"
	}
	return figure.TickSeconds(v)
}
