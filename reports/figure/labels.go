package figure

import (
	"cmp"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// EndLabel names a line at its right end.
type EndLabel struct {
	X, Y  float64
	Text  string
	Color color.NRGBA
}

// EndLabels are in the right margin, each connected to its line's end. They are moved apart if they would overlap.
type EndLabels struct {
	Labels []EndLabel
	width  vg.Length // of the longest label of all panels, so that all panels have the same width
}

const (
	labelLead = vg.Length(16) // between the plot and the labels
	labelStep = vg.Length(11) // between two labels
)

// GlyphBoxes implements plot.GlyphBoxer: it keeps the right margin free.
func (l *EndLabels) GlyphBoxes(*plot.Plot) []plot.GlyphBox {
	return []plot.GlyphBox{{X: 1, Y: 0.5, Rectangle: vg.Rectangle{Max: vg.Point{X: labelLead + l.width + 2}}}}
}

// AlignEnds gives all panels the margin of the widest.
func AlignEnds(all []*EndLabels) {
	style := Sans(SmallSize, false)
	var width vg.Length
	for _, l := range all {
		for _, one := range l.Labels {
			width = max(width, style.Width(one.Text))
		}
	}
	for _, l := range all {
		l.width = width
	}
}

// Plot implements plot.Plotter.
func (l *EndLabels) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	sorted := slices.Clone(l.Labels)
	slices.SortFunc(sorted, func(a, b EndLabel) int { return cmp.Compare(a.Y, b.Y) })
	wanted := make([]vg.Length, len(sorted))
	for i, one := range sorted {
		wanted[i] = y(one.Y)
	}
	at := Apart(wanted, labelStep, c.Min.Y+4, c.Max.Y-4)
	for i, one := range sorted {
		lead := draw.LineStyle{Color: WithAlpha(one.Color, 0x90), Width: 0.6}
		from := x(one.X) + 5
		c.StrokeLines(lead, []vg.Point{{X: from, Y: wanted[i]}, {X: c.Max.X + 2, Y: wanted[i]}, {X: c.Max.X + labelLead - 3, Y: at[i]}})
		style := Sans(SmallSize, false)
		style.Color, style.XAlign, style.YAlign = Darker(one.Color), draw.XLeft, draw.YCenter
		c.FillText(style, vg.Point{X: c.Max.X + labelLead, Y: at[i] + 1}, one.Text)
	}
}

// Apart moves ascending places until they are at least step apart, and keeps them between low and high. Each stays as
// near as possible to its desired place. Groups that touch are centred on their mean.
func Apart(wanted []vg.Length, step, low, high vg.Length) []vg.Length {
	type group struct {
		n   int
		sum vg.Length // of wanted, each minus its offset in the group
	}
	start := func(g group) vg.Length {
		size := step * vg.Length(g.n-1)
		return max(low, min(g.sum/vg.Length(g.n), high-size))
	}
	var groups []group
	for _, want := range wanted {
		groups = append(groups, group{1, want})
		for len(groups) > 1 {
			a, b := groups[len(groups)-2], groups[len(groups)-1]
			if start(a)+step*vg.Length(a.n) <= start(b) {
				break
			}
			merged := group{a.n + b.n, a.sum + b.sum - step*vg.Length(a.n)*vg.Length(b.n)}
			groups = append(groups[:len(groups)-2], merged)
		}
	}
	var out []vg.Length
	for _, g := range groups {
		for i := range g.n {
			out = append(out, start(g)+step*vg.Length(i))
		}
	}
	return out
}

// Darker returns a colour in which small text is readable on white.
func Darker(c color.NRGBA) color.NRGBA {
	scale := func(v uint8) uint8 { return uint8(int(v) * 7 / 10) }
	return color.NRGBA{scale(c.R), scale(c.G), scale(c.B), 0xff}
}
