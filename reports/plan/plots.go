package plan

import (
	"fmt"
	"slices"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"synclab/reports/doc"
	"synclab/reports/figure"
)

// figures draw each SLO's quantity by size: a filled mark for each repetition that meets the SLO, a hollow one for each that
// violates it, and a line between the medians of measured sizes. Nothing is drawn beyond them.
func (a *Answer) figures() (out []*figure.Figure) {
	looks := a.looks()
	for _, one := range slos {
		bound := one.bound(a.Question.SLOs)
		if bound == 0 {
			continue
		}
		f := &figure.Figure{Name: "plan-" + one.name, Title: fmt.Sprintf("%s, SLO ≤ %s", doc.UpperFirst(one.text), amount(one, bound)),
			Caption: "A mark is a repetition: filled where it meets this SLO, hollow where it violates it. Lines join medians of measured sizes."}
		p := figure.NewPlot("Services", "")
		low, high := bound, bound
		var sizes []int
		for i := range a.Subjects {
			s := &a.Subjects[i]
			var met, violated, line plotter.XYs
			for _, size := range s.Sizes() {
				if v, ok := s.Value(one.name, size); ok && v.V > 0 {
					line = append(line, plotter.XY{X: float64(size), Y: v.V})
				}
				for _, c := range s.at(size) {
					v, ok := c.Values[one.name]
					if !ok || v.V <= 0 {
						continue
					}
					point := plotter.XY{X: float64(size), Y: v.V}
					if slices.Contains(c.Violated, one.name) {
						violated = append(violated, point)
					} else {
						met = append(met, point)
					}
					low, high = min(low, v.V), max(high, v.V)
					sizes = append(sizes, size)
				}
			}
			if len(line) == 0 {
				continue
			}
			thumb := figure.AddLine(p, line, looks[i].Color)
			for _, group := range []struct {
				at    plotter.XYs
				shape draw.GlyphDrawer
			}{{met, draw.CircleGlyph{}}, {violated, figure.Hollow{GlyphDrawer: draw.CircleGlyph{}}}} {
				if len(group.at) > 0 {
					p.Add(&plotter.Scatter{XYs: group.at, GlyphStyle: draw.GlyphStyle{Color: looks[i].Color, Radius: 3.4, Shape: group.shape}})
				}
			}
			f.Explain(s.Name, thumb)
		}
		if len(sizes) == 0 {
			continue
		}
		limit := figure.Level{Y: bound, Style: draw.LineStyle{Color: figure.Ink, Width: 1, Dashes: []vg.Length{4, 3}}}
		p.Add(limit)
		f.Explain("SLO", limit)
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = float64(slices.Min(sizes))/1.3, float64(slices.Max(sizes))*1.3, low/1.5, high*1.5
		figure.LogCountAxis(&p.X)
		figure.LogAxis(&p.Y, func(v float64) string { return amount(one, figure.RoundTick(v)) })
		f.Add(p, figure.PanelHeight-40)
		out = append(out, f)
	}
	return out
}
