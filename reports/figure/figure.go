package figure

import (
	"bytes"
	"fmt"
	"image/color"
	"math"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"synclab/bench/outfile"
	"synclab/reports/doc"
)

// Sizes of a plot. It is drawn for a card about 680 CSS pixels wide and must stay readable at half of that.
const (
	figureWidth = 510 * vg.Inch / 72
	PanelHeight = 270 * vg.Inch / 72
	textSize    = 10
	SmallSize   = 9
	titleSize   = 12
	pngDPI      = 192
	Margin      = 10
)

var (
	Ink   = color.NRGBA{0x22, 0x26, 0x2b, 0xff}
	faint = color.NRGBA{0xe3, 0xe6, 0xea, 0xff}
	Grey  = color.NRGBA{0x6b, 0x72, 0x7b, 0xff}
	Paper = color.NRGBA{0xff, 0xff, 0xff, 0xff}
)

func WithAlpha(c color.NRGBA, alpha uint8) color.NRGBA {
	c.A = alpha
	return c
}

// Figure is a plot: a title, a legend below it, and panels below one another. The legend is outside the panels, so
// that it never covers a point.
type Figure struct {
	Name, Title, Caption string
	Badges               []string // caveats, as in doc.Plot
	Legend               []legendEntry
	Panels               []panel

	hots []hot // of the last drawing
}

type legendEntry struct {
	text   string
	thumbs []plot.Thumbnailer
}

// panel is one set of axes. The label of its vertical axis is horizontal and above it, which is easier to read.
type panel struct {
	Plot   *plot.Plot
	above  string
	height vg.Length
}

func (f *Figure) Add(p *plot.Plot, height vg.Length) {
	above := p.Y.Label.Text
	p.Y.Label.Text = ""
	if above != "" {
		height += aboveHeight
	}
	f.Panels = append(f.Panels, panel{p, above, height})
}

func (f *Figure) Explain(text string, thumbs ...plot.Thumbnailer) {
	f.Legend = append(f.Legend, legendEntry{text, thumbs})
}

func Sans(size vg.Length, bold bool) text.Style {
	face := font.Font{Typeface: "Liberation", Variant: "Sans"}
	if bold {
		face.Weight = xfont.WeightBold
	}
	return text.Style{Color: Ink, Font: font.From(face, size), Handler: plot.DefaultTextHandler}
}

// NewPlot returns an empty panel in the style of the report.
func NewPlot(xLabel, yLabel string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		position := axis.Label.TextStyle
		axis.Label.TextStyle = Sans(textSize, false)
		axis.Label.TextStyle.XAlign, axis.Label.TextStyle.YAlign = position.XAlign, position.YAlign
		axis.Label.TextStyle.Rotation = position.Rotation
		ticks := axis.Tick.Label
		axis.Tick.Label = Sans(SmallSize, false)
		axis.Tick.Label.XAlign, axis.Tick.Label.YAlign = ticks.XAlign, ticks.YAlign
		axis.LineStyle.Color, axis.Tick.LineStyle.Color = Grey, Grey
		axis.LineStyle.Width, axis.Tick.LineStyle.Width = 0.6, 0.6
		axis.Tick.Length = 4
		axis.Padding = 4
		axis.Label.Padding = 4
	}
	p.X.Label.Text, p.Y.Label.Text = xLabel, yLabel
	p.Add(grid{})
	return p
}

// grid draws faint lines at the labelled ticks.
type grid struct{}

// Plot implements plot.Plotter.
func (grid) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	style := draw.LineStyle{Color: faint, Width: 0.6}
	for _, tick := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
		if at := x(tick.Value); !tick.IsMinor() && c.ContainsX(at) {
			c.StrokeLine2(style, at, c.Min.Y, at, c.Max.Y)
		}
	}
	if p.Y.Tick.Length == 0 {
		return // rows with names, no scale
	}
	for _, tick := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
		if at := y(tick.Value); !tick.IsMinor() && c.ContainsY(at) {
			c.StrokeLine2(style, c.Min.X, at, c.Max.X, at)
		}
	}
}

// legendRows breaks the legend into rows that fit the width.
func (f *Figure) legendRows(width vg.Length) [][]legendEntry {
	var rows [][]legendEntry
	var used vg.Length
	for _, e := range f.Legend {
		w := legendEntryWidth(e)
		if len(rows) == 0 || used+w > width {
			rows, used = append(rows, nil), 0
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], e)
		used += w
	}
	return rows
}

const (
	legendThumb  = vg.Length(22)
	legendGap    = vg.Length(14)
	legendHeight = vg.Length(15)
	aboveHeight  = vg.Length(18)
)

func legendEntryWidth(e legendEntry) vg.Length {
	style := Sans(SmallSize, false)
	return legendThumb + 5 + style.Width(e.text) + legendGap
}

func (f *Figure) height() vg.Length {
	h := vg.Length(2*Margin + titleSize + 8)
	h += vg.Length(len(f.legendRows(figureWidth-2*Margin))) * legendHeight
	h += 6
	for _, p := range f.Panels {
		h += p.height
	}
	return h
}

// drawOn draws the figure, with the left axes of all panels aligned.
func (f *Figure) drawOn(c draw.Canvas) {
	c.SetColor(color.White)
	c.Fill(c.Path())
	inner := draw.Crop(c, Margin, -Margin, Margin, -Margin)
	title := Sans(titleSize, true)
	title.YAlign = draw.YTop
	c.FillText(title, vg.Point{X: inner.Min.X, Y: inner.Max.Y}, f.Title)
	y := inner.Max.Y - titleSize - 8
	f.hots = nil
	label := Sans(SmallSize, false)
	label.YAlign = draw.YCenter
	for _, row := range f.legendRows(inner.Size().X) {
		x := inner.Min.X
		for _, e := range row {
			thumb := draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
				Min: vg.Point{X: x, Y: y - legendHeight + 3}, Max: vg.Point{X: x + legendThumb, Y: y - 3}}}
			for _, t := range e.thumbs {
				t.Thumbnail(&thumb)
			}
			c.FillText(label, vg.Point{X: x + legendThumb + 5, Y: y - legendHeight/2 + 1}, e.text)
			if own := thumbColor(e.thumbs[0]); own != nil {
				f.hots = append(f.hots, hot{Rectangle: vg.Rectangle{Min: vg.Point{X: x, Y: y - legendHeight}, Max: vg.Point{X: x + legendEntryWidth(e) - 4, Y: y}}, text: e.text, toggle: svgColor(own)})
			}
			x += legendEntryWidth(e)
		}
		y -= legendHeight
	}
	y -= 6
	f.drawPanels(draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{Min: inner.Min, Max: vg.Point{X: inner.Max.X, Y: y}}})
}

func (f *Figure) drawPanels(c draw.Canvas) {
	left := vg.Length(0)
	at := make([]draw.Canvas, len(f.Panels))
	y := c.Max.Y
	for i, p := range f.Panels {
		top := y
		if p.above != "" {
			label := Sans(SmallSize, false)
			label.Color, label.YAlign = Grey, draw.YTop
			c.FillText(label, vg.Point{X: c.Min.X, Y: y - 2}, p.above)
			top -= aboveHeight
		}
		at[i] = draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: c.Min.X, Y: y - p.height}, Max: vg.Point{X: c.Max.X, Y: top}}}
		left = max(left, p.Plot.DataCanvas(at[i]).Min.X)
		y -= p.height
	}
	for i, p := range f.Panels {
		p.Plot.Draw(draw.Crop(at[i], left-p.Plot.DataCanvas(at[i]).Min.X, 0, 0, 0))
	}
}

// Save writes NAME.svg into out, and NAME.png if png is set.
func (f *Figure) Save(out *outfile.Folder, png bool) (doc.Plot, error) {
	one := doc.Plot{Name: f.Name, Title: f.Title, Caption: f.Caption, Badges: f.Badges, SVG: f.Name + ".svg"}
	vector := vgsvg.New(figureWidth, f.height())
	f.drawOn(draw.New(vector))
	var b bytes.Buffer
	if _, err := vector.WriteTo(&b); err != nil {
		return one, fmt.Errorf("%s: %w", one.SVG, err)
	}
	// A machine without the Liberation fonts uses fonts of the same widths.
	one.Markup = bytes.ReplaceAll([]byte(doc.Visible(b.String())), []byte("font-family:Liberation Sans"),
		[]byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif"))
	if err := out.Write(one.SVG, one.Markup, 0o644); err != nil {
		return one, err
	}
	one.Places = f.interactive()
	if !png {
		return one, nil
	}
	one.PNG = f.Name + ".png"
	raster := vgimg.NewWith(vgimg.UseWH(figureWidth, f.height()), vgimg.UseDPI(pngDPI))
	f.drawOn(draw.New(raster))
	b.Reset()
	if _, err := (vgimg.PngCanvas{Canvas: raster}).WriteTo(&b); err != nil {
		return one, fmt.Errorf("%s: %w", one.PNG, err)
	}
	return one, out.Write(one.PNG, b.Bytes(), 0o644)
}

// mostTicks bounds the ticks of an axis, and the decades of a logarithmic one, whatever the values are.
const mostTicks = 40

// LogAxis makes an axis logarithmic with ticks at 1, 2 and 5, fewer if it spans many decades; one of less than half a decade
// has about six round ticks.
func LogAxis(a *plot.Axis, format func(float64) string) { logAxis(a, 0, format) }

// LogCountAxis is a logarithmic axis for counts: no ticks are between whole numbers.
func LogCountAxis(a *plot.Axis) { logAxis(a, 1, TickCount) }

func logAxis(a *plot.Axis, leastStep float64, format func(float64) string) {
	a.Scale = clampedLog{}
	a.Tick.Marker = plot.TickerFunc(func(low, high float64) []plot.Tick { return logTicks(low, high, leastStep, format) })
	if !(a.Max > 0) {
		a.Max = 1
	}
	if !(a.Min > 0) {
		a.Min = a.Max / 10
	}
	a.Min, a.Max = a.Min/1.15, a.Max*1.15
}

// clampedLog puts values without a logarithm at the low end, where plot.LogScale panics.
type clampedLog struct{}

// Normalize implements plot.Normalizer.
func (clampedLog) Normalize(low, high, x float64) float64 {
	if !(x > 0) {
		return 0
	}
	return math.Log(x/low) / math.Log(high/low)
}

func logTicks(low, high, leastStep float64, format func(float64) string) []plot.Tick {
	low = max(low, high/math.Pow(10, mostTicks)) // also if low has no logarithm
	decades := math.Log10(high / low)
	if !(decades <= mostTicks) {
		return nil
	}
	if decades < 0.5 { // too short for ticks at 1, 2 and 5
		return roundTicks(low, high, leastStep, format)
	}
	var ticks []plot.Tick
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		for digit := 1.0; digit < 10; digit++ {
			v := digit * math.Pow(10, e)
			if v < low*0.999 || v > high*1.001 {
				continue
			}
			labelled := digit == 1 || (decades < 3.2 && (digit == 2 || digit == 5)) || (decades < 0.7 && digit != 9)
			tick := plot.Tick{Value: v}
			if labelled {
				tick.Label = format(v)
			}
			ticks = append(ticks, tick)
		}
	}
	return ticks
}

// LinearAxis gives an axis about six round ticks. If from0 is set, the axis starts at zero.
func LinearAxis(a *plot.Axis, from0 bool, format func(float64) string) {
	roundAxis(a, from0, 0, format)
}

// CountAxis is a linear axis for counts: it starts at zero, and no ticks are between whole numbers.
func CountAxis(a *plot.Axis) { roundAxis(a, true, 1, TickCount) }

// roundAxis has ticks at least leastStep apart.
func roundAxis(a *plot.Axis, from0 bool, leastStep float64, format func(float64) string) {
	if from0 {
		a.Min = 0
	}
	if a.Max <= a.Min {
		a.Max = a.Min + 1
	}
	a.Tick.Marker = plot.TickerFunc(func(low, high float64) []plot.Tick { return roundTicks(low, high, leastStep, format) })
}

func roundTicks(low, high, leastStep float64, format func(float64) string) (ticks []plot.Tick) {
	step := max(leastStep, RoundStep((high-low)/6))
	first := math.Ceil(low/step - 1e-9)
	for i := range mostTicks {
		if !((first+float64(i))*step <= high+step*1e-9) {
			break
		}
		v := RoundTick((first + float64(i)) * step) // no zero with a sign in a range from 0
		ticks = append(ticks, plot.Tick{Value: v, Label: format(v)})
	}
	return ticks
}

// RoundStep is the smallest of 1, 2, 5 × 10^k at or above v.
func RoundStep(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, digit := range []float64{1, 2, 5, 10} {
		if digit*power >= v {
			return digit * power
		}
	}
	return 10 * power
}

func TickSeconds(v float64) string { return doc.TrimTick(doc.Format(RoundTick(v), "s")) }
func TickCount(v float64) string   { return doc.TrimTick(doc.Format(RoundTick(v), "count")) }

// RoundTick removes the rounding error of i × step.
func RoundTick(v float64) float64 {
	if v == 0 {
		return 0
	}
	scale := math.Pow(10, 6-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}
