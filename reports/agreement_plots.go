package reports

import (
	"fmt"
	"image/color"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// scatter draws predicted versus measured quantiles, one panel for each cost.
func (a *Agreement) scatter() *figure {
	f := &figure{name: "twin-scatter", title: "Predicted versus measured: p50, p90 and p99"}
	f.caption = fmt.Sprintf("Network programming latency. The band is ± %.0f %%; marks grow from p50 over p90 to p99, bars are the 5th and 95th percentile over seeds.", 100*a.Within)
	low, high := a.extremes()
	explained := map[string]bool{}
	for _, cost := range []struct{ name, text string }{{OwnCost, "twin, with this run's own sync times"}, {ModelCost, "twin, with the cost model"}} {
		p := newPlot("measured (log scale)", cost.text+" (log scale)")
		band := &plotter.Polygon{XYs: []plotter.XYs{{{X: low, Y: low * (1 - a.Within)}, {X: high, Y: high * (1 - a.Within)},
			{X: high, Y: high * (1 + a.Within)}, {X: low, Y: low * (1 + a.Within)}}}, Color: color.NRGBA{0x00, 0x72, 0xb2, 0x1c}}
		p.Add(band)
		equal := addLine(p, plotter.XYs{{X: low, Y: low}, {X: high, Y: high}}, grey, 3, 2)
		drawn := false
		for _, c := range a.Cells {
			for _, s := range c.Twins {
				if s.Cost != cost.name {
					continue
				}
				drawn = true
				for i, q := range []struct {
					measured Spread
					says     Predicted
				}{{c.Measured.P50, s.P50}, {c.Measured.P90, s.P90}, {c.Measured.P99, s.P99}} {
					addLine(p, plotter.XYs{{X: q.measured.Value, Y: *q.says.Low}, {X: q.measured.Value, Y: *q.says.High}}, withAlpha(c.look.color, 0x90))
					dot := &plotter.Scatter{XYs: plotter.XYs{{X: q.measured.Value, Y: q.says.Value}},
						GlyphStyle: draw.GlyphStyle{Color: c.look.color, Shape: c.look.shape, Radius: 2.2 + vg.Length(i)}}
					p.Add(dot)
					if !explained[c.Subject] && i == 1 {
						explained[c.Subject] = true
						f.explain(c.Subject, dot)
					}
				}
			}
		}
		if !drawn {
			continue
		}
		if !explained["="] {
			explained["="] = true
			f.explain("equal", equal)
		}
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = low, high, low, high
		logAxis(&p.X, tickSeconds)
		logAxis(&p.Y, tickSeconds)
		f.add(p, panelHeight)
	}
	return f
}

// extremes of all quantiles.
func (a *Agreement) extremes() (low, high float64) {
	var all []float64
	for _, c := range a.Cells {
		all = append(all, c.Measured.P50.Value, c.Measured.P99.Value)
		for _, s := range c.Twins {
			all = append(all, *s.P50.Low, *s.P50.High, *s.P99.Low, *s.P99.High)
		}
	}
	all = slices.DeleteFunc(all, func(v float64) bool { return !(v > 0) })
	if len(all) == 0 {
		return 0.001, 1
	}
	return slices.Min(all), slices.Max(all)
}

// mostPanels of one figure.
const mostPanels = 6

// distributions draw, for each subject, the share of changes that had arrived after a time: measured, and by the twin.
func (a *Agreement) distributions() []*figure {
	var out []*figure
	sizes := slices.ContainsFunc(a.Cells, func(c AgreementCell) bool { return c.Cell.Services != a.Cells[0].Cell.Services })
	for i := range a.Cells {
		c := &a.Cells[i]
		same := slices.IndexFunc(out, func(f *figure) bool { return f.name == "twin-"+fileName(c.Subject) })
		var f *figure
		if same >= 0 {
			f = out[same]
		} else {
			f = &figure{name: "twin-" + fileName(c.Subject), title: c.Subject + ": changes that had arrived after a time"}
			f.caption = "Network programming latency of all changes: share of them that is at most as long. The twin's are those of all seeds."
			out = append(out, f)
		}
		if len(f.panels) == mostPanels {
			continue
		}
		label := c.Cell.Settings()
		if sizes {
			label = strings.TrimSpace(label + " " + Grouped(int64(c.Cell.Services)) + " Services")
		}
		p := newPlot("network programming latency", strings.TrimSuffix("share of changes, "+strings.ReplaceAll(label, "proxy.", ""), ", "))
		thumbs := c.drawDistributions(p)
		if len(f.panels) == 0 {
			names := []string{"measured", costTexts[OwnCost], costTexts[ModelCost]}
			for k, thumb := range thumbs {
				f.explain(names[k], thumb)
			}
		}
		f.add(p, panelHeight*6/10)
	}
	for _, f := range out {
		for _, one := range f.panels[:len(f.panels)-1] {
			one.plot.X.Label.Text = ""
		}
	}
	return out
}

// drawDistributions of a cell: measured first.
func (c *AgreementCell) drawDistributions(p *plot.Plot) (thumbs []plot.Thumbnailer) {
	line := func(values []float64, ink color.Color, width vg.Length, dashes ...vg.Length) {
		drawn := &plotter.Line{XYs: shareLine(values), LineStyle: draw.LineStyle{Color: ink, Width: width, Dashes: dashes}}
		p.Add(drawn)
		thumbs = append(thumbs, drawn)
	}
	line(c.measured, withAlpha(ink, 0xb0), 2.4)
	for _, s := range c.Twins {
		if s.Cost == OwnCost {
			line(s.latencies, color.NRGBA{0x00, 0x72, 0xb2, 0xff}, 1.2)
		} else {
			line(s.latencies, color.NRGBA{0xd5, 0x5e, 0x00, 0xff}, 1.2, 5, 2)
		}
	}
	linearAxis(&p.X, true, tickSeconds)
	p.Y.Min, p.Y.Max = 0, 1
	linearAxis(&p.Y, true, tickShare)
	return thumbs
}

// shareLine is the empirical distribution of values, at up to 300 of them.
func shareLine(values []float64) plotter.XYs {
	const most = 300
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	var out plotter.XYs
	for i := range min(n, most) {
		k := i
		if n > most {
			k = i * (n - 1) / (most - 1)
		}
		out = append(out, plotter.XY{X: sorted[k], Y: float64(k+1) / float64(n)})
	}
	return out
}
