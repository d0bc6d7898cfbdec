package page

import (
	"cmp"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"synclab/reports/capacity"
	"synclab/reports/doc"
	"synclab/reports/figure"
	"synclab/reports/model"
)

// capacityFigures are the names of all plots that a page may have, so that those of an earlier page can be removed.
var capacityFigures = []string{
	"capacity-frontier",
	"capacity-programming_p99", "capacity-cpu", "capacity-memory", "capacity-first_packet", "capacity-start",
	"capacity-predicted-syncs", "capacity-predicted-cpu", "capacity-predicted-memory", "capacity-predicted-packets", "capacity-predicted-rules",
	"capacity-sensitivity",
	"capacity-growth-rules", "capacity-growth-memory", "capacity-growth-first_packet", "capacity-growth-start", "capacity-growth-syncs",
}

// curve is a quantity along the growth of the cluster, smallest size first.
type curve []curvePoint

type curvePoint struct {
	x float64
	capacity.Estimate
}

// estimateOf reads a quantity of an evaluation; false if it is unknown.
type estimateOf func(capacity.Evaluation) (capacity.Estimate, bool)

func estimateNamed(name string) estimateOf {
	return func(o capacity.Evaluation) (capacity.Estimate, bool) {
		e, ok := o.Quantities[name]
		return e, ok && e.Median > 0
	}
}

func (r *report) curve(subject int, of estimateOf) curve {
	var out curve
	for _, o := range r.Subjects[subject].Curve {
		if e, ok := of(o); ok && o.Size > 0 {
			out = append(out, curvePoint{o.Size, e})
		}
	}
	slices.SortStableFunc(out, func(a, b curvePoint) int { return cmp.Compare(a.x, b.x) })
	return slices.CompactFunc(out, func(a, b curvePoint) bool { return a.x == b.x })
}

// at interpolates the curve linearly on logarithmic axes. Outside its range, it returns the end point.
func (c curve) at(x float64) capacity.Estimate {
	i, found := slices.BinarySearchFunc(c, x, func(p curvePoint, x float64) int { return cmp.Compare(p.x, x) })
	switch {
	case found || i == 0:
		return c[i].Estimate
	case i == len(c):
		return c[i-1].Estimate
	}
	a, b := c[i-1], c[i]
	share := math.Log(x/a.x) / math.Log(b.x/a.x)
	between := func(y0, y1 float64) float64 {
		if !(y0 > 0) || !(y1 > 0) {
			return y0 + share*(y1-y0)
		}
		return y0 * math.Pow(y1/y0, share)
	}
	return capacity.Estimate{Median: between(a.Median, b.Median), Low: between(a.Low, b.Low), High: between(a.High, b.High),
		Basis: worseBasis(a.Basis, b.Basis), Beyond: max(a.Beyond, b.Beyond)}
}

// extrapolatedDashes are the dashes of extrapolated lines.
var extrapolatedDashes = []vg.Length{4, 3.2}

func basisLine(c color.NRGBA, extrapolated bool) draw.LineStyle {
	if extrapolated {
		return draw.LineStyle{Color: figure.WithAlpha(c, 0xc0), Width: 1.1, Dashes: extrapolatedDashes}
	}
	return draw.LineStyle{Color: c, Width: 1.7}
}

// draw adds the curve: solid within the measured range, dashed and lighter beyond. Its interval is a band, and a
// filled mark shows a value that was measured at exactly that size.
func (c curve) draw(p *plot.Plot, l figure.Look, band bool) {
	points := func(of func(curvePoint) float64) plotter.XYs {
		var out plotter.XYs
		for _, one := range c {
			if y := of(one); y > 0 {
				out = append(out, plotter.XY{X: one.x, Y: y})
			}
		}
		return out
	}
	low, high := points(func(p curvePoint) float64 { return p.Low }), points(func(p curvePoint) float64 { return p.High })
	if band && len(low) == len(c) && len(high) == len(c) {
		p.Add(paleBand{figure.Ribbon{Low: low, High: high, Look: l}})
	}
	median := points(func(p curvePoint) float64 { return p.Median })
	for i := 0; i+1 < len(c); {
		beyond := func(k int) bool {
			return c[k].Basis == model.Extrapolated || c[k+1].Basis == model.Extrapolated
		}
		end := i + 1
		for end+1 < len(c) && beyond(end) == beyond(i) {
			end++
		}
		p.Add(&plotter.Line{XYs: median[i : end+1], LineStyle: basisLine(l.Color, beyond(i))})
		i = end
	}
	var measured plotter.XYs
	for i, one := range c {
		if one.Basis == model.Measured {
			measured = append(measured, median[i])
		}
	}
	if len(measured) > 0 {
		p.Add(&plotter.Scatter{XYs: measured, GlyphStyle: draw.GlyphStyle{Color: l.Color, Radius: 3.2, Shape: solid(l.Shape)}})
	}
}

// solid returns the filled form of a mark, since a hollow mark would not look measured here.
func solid(shape draw.GlyphDrawer) draw.GlyphDrawer {
	if h, ok := shape.(figure.Hollow); ok {
		shape = h.GlyphDrawer
	}
	switch shape.(type) {
	case draw.TriangleGlyph:
		return draw.PyramidGlyph{}
	case draw.SquareGlyph:
		return draw.BoxGlyph{}
	case draw.RingGlyph:
		return draw.CircleGlyph{}
	}
	return shape
}

// paleBand is a ribbon that does not widen the axes, since an interval may be large.
type paleBand struct{ figure.Ribbon }

// Plot implements plot.Plotter.
func (b paleBand) Plot(c draw.Canvas, p *plot.Plot) { b.Fill(c, p, 0x1a) }

// DataRange implements plot.DataRanger.
func (b paleBand) DataRange() (xmin, xmax, ymin, ymax float64) {
	return math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
}

// boundLook is the line of an SLO.
var boundLook = draw.LineStyle{Color: figure.Ink, Width: 1.1, Dashes: []vg.Length{1.5, 2}}

// explainBases adds the legend entries of every plot with curves.
func explainBases(f *figure.Figure, measured, bound bool) {
	if measured {
		f.Explain("measured", &plotter.Scatter{GlyphStyle: draw.GlyphStyle{Color: figure.Grey, Radius: 3.2, Shape: draw.CircleGlyph{}}})
	}
	f.Explain("interpolated", figure.LineThumb{Style: basisLine(figure.Grey, false)})
	f.Explain("extrapolated", figure.LineThumb{Style: basisLine(figure.Grey, true)})
	if bound {
		f.Explain("SLO", figure.LineThumb{Style: boundLook}, &plotter.Scatter{GlyphStyle: draw.GlyphStyle{Color: figure.Grey, Radius: 4, Shape: crossGlyph{}}})
	}
}

// crossGlyph is a cross in a ring, where a curve meets its SLO.
type crossGlyph struct{}

// DrawGlyph implements draw.GlyphDrawer.
func (crossGlyph) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	r := style.Radius
	line := draw.LineStyle{Color: style.Color, Width: 1.2}
	var path vg.Path
	path.Move(vg.Point{X: at.X + r, Y: at.Y})
	path.Arc(at, r, 0, 2*math.Pi)
	path.Close()
	c.SetColor(color.White)
	c.Fill(path)
	c.SetLineStyle(line)
	c.Stroke(path)
	d := r * 0.6
	c.StrokeLine2(line, at.X-d, at.Y-d, at.X+d, at.Y+d)
	c.StrokeLine2(line, at.X-d, at.Y+d, at.X+d, at.Y-d)
}

// growthPanel is one quantity of all subjects along the growth of the cluster.
type growthPanel struct {
	text, unit string
	of         estimateOf
	slo        string // whose bound is drawn; empty: none
	// measured returns single points of the calibration.
	measured func(*model.Subject) []model.Point
}

// add draws the panel into f and returns its labels; nil without any curve.
func (g growthPanel) add(r *report, f *figure.Figure, height vg.Length) *figure.EndLabels {
	label := g.text
	if len(f.Panels) == 0 && strings.EqualFold(f.Title, g.text) {
		label = map[string]string{"s": "time", "B": "bytes", "CPUs": "CPUs", "count": "rules in all tables"}[g.unit] // the title has the rest
	}
	p := figure.NewPlot(string(r.Unit)+" (log scale)", strings.TrimSpace(label+" (log scale)"))
	ends, marks := &figure.EndLabels{}, &crossings{}
	bound := r.Question.SLOs.Bound(g.slo)
	low, high := math.Inf(1), 0.0
	for i, s := range r.Subjects {
		line := r.curve(i, g.of)
		if len(line) == 0 {
			continue
		}
		line.draw(p, r.looks[i], true)
		for _, one := range line {
			low, high = min(low, one.Median), max(high, one.Median)
		}
		last := line[len(line)-1]
		ends.Labels = append(ends.Labels, figure.EndLabel{X: last.x, Y: last.Median, Text: s.Name, Color: r.looks[i].Color})
		for _, l := range s.Limits {
			if l.SLO == g.slo && bound > 0 && (!l.Never || l.Smaller) && !l.Unbounded {
				marks.at = append(marks.at, crossingMark{l.Size.Median, bound, r.count(l.Size.Median), r.looks[i].Color})
			}
		}
	}
	if len(ends.Labels) == 0 {
		return nil
	}
	least, most := r.addMeasured(p, g)
	low, high = min(low, least), max(high, most)
	if bound > 0 {
		p.Add(figure.Level{Y: bound, Style: boundLook})
		p.Add(marks)
		low, high = min(low, bound), max(high, bound)
		if high > bound*300 { // a loop that cannot keep up has an unbounded latency
			high = bound * 300
		}
	}
	p.Y.Min, p.Y.Max = low, max(high, low*2)
	figure.LogAxis(&p.X, figure.TickCount)
	format := figure.LongSeconds
	if g.unit != "s" {
		format = figure.TickCount
	}
	figure.LogAxis(&p.Y, format)
	if g.unit == "B" {
		p.Y.Tick.Marker = plot.TickerFunc(logByteTicks)
	}
	for i, l := range ends.Labels { // lines beyond the top end there
		ends.Labels[i].Y = max(min(l.Y, p.Y.Max), p.Y.Min)
	}
	p.Add(ends)
	f.Add(p, height)
	return ends
}

// addMeasured marks measured values if Services or endpoints grow. Marks are filled if the cell's other size is near
// that of the curves, else small and pale. It returns the range of the values.
func (r *report) addMeasured(p *plot.Plot, g growthPanel) (low, high float64) {
	low = math.Inf(1)
	if g.measured == nil || r.Unit != capacity.InServices && r.Unit != capacity.InEndpoints {
		return low, high
	}
	for i, s := range r.Subjects {
		known := r.measuredSubject(s.Name)
		if known == nil {
			continue
		}
		line := r.curve(i, g.of)
		for _, point := range g.measured(known) {
			x := r.Unit.Of(capacity.Cluster{Services: point.Services, Endpoints: point.Endpoints})
			if len(line) == 0 || x < line[0].x/1.5 || x > line[len(line)-1].x*1.5 || !(point.Value > 0) {
				continue
			}
			style := draw.GlyphStyle{Color: r.looks[i].Color, Radius: 3, Shape: solid(r.looks[i].Shape)}
			if !r.alike(s, point) {
				style.Color, style.Radius = figure.WithAlpha(r.looks[i].Color, 0x60), 1.7
			}
			p.Add(&plotter.Scatter{XYs: plotter.XYs{{X: x, Y: point.Value}}, GlyphStyle: style})
			low, high = min(low, point.Value), max(high, point.Value)
		}
	}
	return low, high
}

// alike reports whether a measured cell was similar to the cluster of that size, in the unit that the curves do not
// use.
func (r *report) alike(s capacity.SubjectAnswer, p model.Point) bool {
	cell := capacity.Cluster{Services: p.Services, Endpoints: p.Endpoints}
	other := capacity.InEndpoints
	if r.Unit == other {
		other = capacity.InServices
	}
	nearest, gap := 0.0, math.Inf(1)
	for _, o := range s.Curve {
		if d := math.Abs(math.Log(o.Size / r.Unit.Of(cell))); d < gap {
			nearest, gap = other.Of(o.Cluster), d
		}
	}
	return other.Of(cell) > nearest/1.25 && other.Of(cell) < nearest*1.25
}

// logByteTicks are powers of two of bytes.
func logByteTicks(low, high float64) []plot.Tick {
	var all []plot.Tick
	for v := math.Exp2(math.Ceil(math.Log2(low))); v <= high; v *= 2 {
		all = append(all, plot.Tick{Value: v, Label: doc.TrimTick(doc.Format(v, "B"))})
	}
	every := (len(all) + 6) / 7
	for i := range all {
		if i%max(every, 1) != 0 {
			all[i].Label = ""
		}
	}
	return all
}

// crossings are the points where curves meet the line of the SLO, each with its size.
type crossings struct{ at []crossingMark }

type crossingMark struct {
	x, y  float64
	text  string
	color color.NRGBA
}

// Plot implements plot.Plotter.
func (m *crossings) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	sorted := slices.Clone(m.at)
	slices.SortFunc(sorted, func(a, b crossingMark) int { return cmp.Compare(a.x, b.x) })
	style := figure.Sans(figure.SmallSize, true)
	style.XAlign, style.YAlign = draw.XCenter, draw.YBottom
	var taken []vg.Rectangle
	for _, one := range sorted {
		at := vg.Point{X: x(one.x), Y: y(one.y)}
		if !c.Contains(at) {
			continue
		}
		half := style.Width(one.text)/2 + 2
		middle := max(min(at.X, c.Max.X-half), c.Min.X+half)
		box := vg.Rectangle{Min: vg.Point{X: middle - half, Y: at.Y + 7}, Max: vg.Point{X: middle + half, Y: at.Y + 17}}
		for slices.ContainsFunc(taken, func(r vg.Rectangle) bool { return overlap(r, box) }) {
			box.Min.Y, box.Max.Y = box.Min.Y+11, box.Max.Y+11
		}
		if box.Max.Y > c.Max.Y { // no room above: below
			box.Min.Y, box.Max.Y = at.Y-18, at.Y-8
			for slices.ContainsFunc(taken, func(r vg.Rectangle) bool { return overlap(r, box) }) {
				box.Min.Y, box.Max.Y = box.Min.Y-11, box.Max.Y-11
			}
		}
		taken = append(taken, box)
		c.FillPolygon(color.NRGBA{0xff, 0xff, 0xff, 0xd8}, []vg.Point{box.Min, {X: box.Max.X, Y: box.Min.Y}, box.Max, {X: box.Min.X, Y: box.Max.Y}})
		edge := box.Min.Y
		if box.Max.Y < at.Y {
			edge = box.Max.Y
		}
		c.StrokeLine2(draw.LineStyle{Color: figure.WithAlpha(one.color, 0x90), Width: 0.6}, at.X, at.Y, at.X, edge)
		style.Color = figure.Darker(one.color)
		c.FillText(style, vg.Point{X: middle, Y: box.Min.Y + 1}, one.text)
		c.DrawGlyph(draw.GlyphStyle{Color: one.color, Radius: 4, Shape: crossGlyph{}}, at)
	}
}

func overlap(a, b vg.Rectangle) bool {
	return a.Min.X < b.Max.X && b.Min.X < a.Max.X && a.Min.Y < b.Max.Y && b.Min.Y < a.Max.Y
}
