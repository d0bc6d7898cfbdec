package plots

import (
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"synclab/bench/raw"
	"synclab/reports/estimate"
	"synclab/reports/figure"
	"synclab/reports/records"
	"synclab/reports/sections"
)

// addRaw draws single values as small pale dots, at most 60 at each size.
func addRaw(p *plot.Plot, x float64, values []float64, c color.NRGBA) {
	values = thin(values, 60)
	dots := &plotter.Scatter{GlyphStyle: draw.GlyphStyle{Color: figure.WithAlpha(c, 0x48), Radius: 1.6, Shape: draw.CircleGlyph{}}}
	for _, v := range values {
		if v > 0 {
			dots.XYs = append(dots.XYs, plotter.XY{X: x, Y: v})
		}
	}
	if len(dots.XYs) > 0 {
		p.Add(dots)
	}
}

// repetitions returns the median of each repetition.
func repetitions(values estimate.Sample) []float64 {
	var out []float64
	for _, v := range values.ByRepetition(50) {
		out = append(out, v.Value)
	}
	return out
}

// thin keeps at most n values, evenly picked from the sorted ones, including the smallest and the largest.
func thin(values []float64, n int) []float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) <= n {
		return sorted
	}
	kept := make([]float64, n)
	for i := range kept {
		kept[i] = sorted[i*(len(sorted)-1)/(n-1)]
	}
	return kept
}

// durationLine is one line of durations versus Services.
type durationLine struct {
	metric raw.Metric
	kind   string
	text   string
	shape  draw.GlyphDrawer
	dashes []vg.Length
}

// growthFigure draws durations versus Services on logarithmic axes, with the fitted growth and its caveats.
func growthFigure(s *sections.Summary, line records.SweepLine, name, title string, what []durationLine) *figure.Figure {
	kind := fewGrowth
	if len(s.Collected.Series) >= manySeries {
		kind = comparedGrowth
	}
	f := kind(s, line, name, title, what)
	if f == nil {
		return nil
	}
	for _, g := range s.Growth {
		drawn := slices.ContainsFunc(what, func(w durationLine) bool { return w.metric == g.Metric && w.kind == g.Kind })
		if badge := g.Badge(); drawn && badge != "" && g.Settings == line.Settings && g.Scenario == line.Scenario && !slices.Contains(f.Badges, badge) {
			f.Badges = append(f.Badges, badge)
		}
	}
	return f
}

// fewGrowth draws full and partial syncs of few series in one panel.
func fewGrowth(s *sections.Summary, line records.SweepLine, name, title string, what []durationLine) *figure.Figure {
	f := &figure.Figure{Name: name, Title: title + records.SettingsTail(line.Settings)}
	p := figure.NewPlot("Services (log scale)", "duration (log scale)")
	drawn := 0
	for i, one := range s.Collected.Series {
		for _, w := range what {
			var points figure.Intervals
			for _, cell := range line.Cells {
				values := one.KindOf(cell, w.metric, w.kind)
				if len(values) == 0 {
					continue
				}
				addRaw(p, float64(cell.Services), values.Pooled(), s.Color(i))
				points = append(points, figure.SizePoint{X: float64(cell.Services), Distribution: estimate.Describe(values)})
			}
			if len(points) == 0 {
				continue
			}
			drawn++
			thumbs := []plot.Thumbnailer{figure.AddMedians(p, points, s.Color(i), w.shape)}
			f.Values(p, one.Name+", "+w.text, "Services", points, "s", s.Color(i))
			label := one.Name + " " + w.text
			for _, g := range s.Growth {
				if g.Series == one.Name && g.Metric == w.metric && g.Kind == w.kind && g.Settings == line.Settings && g.Scenario == line.Scenario {
					first, last := points[0].X, points[len(points)-1].X
					ends := plotter.XYs{{X: first, Y: g.At(first)}, {X: last, Y: g.At(last)}}
					thumbs = append(thumbs, figure.AddLine(p, ends, s.Color(i), w.dashes...))
					label += ": exponent " + g.Exponent()
				}
			}
			f.Explain(label, thumbs...)
		}
	}
	if drawn == 0 {
		return nil
	}
	figure.LogCountAxis(&p.X)
	figure.LogAxis(&p.Y, figure.TickSeconds)
	f.Add(p, figure.PanelHeight)
	return f
}

func syncGrowthFigure(s *sections.Summary, line records.SweepLine) *figure.Figure {
	kinds := []durationLine{{raw.FullSync, "", "full", draw.CircleGlyph{}, nil}, {raw.PartialSync, "", "partial", draw.TriangleGlyph{}, figure.Dashed}}
	many := len(s.Collected.Series) >= manySeries
	if many {
		kinds = []durationLine{{metric: raw.ColdStart, text: "cold start"}, {metric: raw.FullSync, text: "full sync"}, {metric: raw.PartialSync, text: "partial sync"}}
	}
	f := growthFigure(s, line, "sync-vs-services", "Full and partial sync versus Services", kinds)
	if f != nil {
		f.Caption = "Medians of syncs with 95 % confidence intervals (from 6 repetitions on), single syncs pale; the slope of a fitted line is the exponent: " +
			"1 means that twice the Services take twice as long, 2 four times."
		if many {
			f.Title = "Cold start and syncs versus Services" + records.SettingsTail(line.Settings)
			f.Caption += " The number after a name is its exponent."
		}
	}
	return f
}

func restoreGrowthFigure(s *sections.Summary, line records.SweepLine) *figure.Figure {
	kinds := []durationLine{{raw.Restore, "full", "full", draw.CircleGlyph{}, nil}, {raw.Restore, "partial", "partial", draw.TriangleGlyph{}, figure.Dashed}}
	if len(s.Collected.Series) >= manySeries {
		kinds[0].text, kinds[1].text = "restore of a full sync", "restore of a partial sync"
		if !restoresHaveKinds(s.Collected, line) {
			kinds = []durationLine{{metric: raw.Restore, text: "restore"}}
		}
	}
	f := growthFigure(s, line, "restore-vs-services", "Restore latency versus Services", kinds)
	if f != nil {
		f.Caption = "Wall time of one iptables-restore (or nft), from fork to exit. It is the part of a sync that the tool and the kernel take."
	}
	return f
}

// restoresHaveKinds reports whether the kind of sync is known for every restore.
func restoresHaveKinds(c *records.Collection, line records.SweepLine) bool {
	for _, one := range c.Series {
		for _, cell := range line.Cells {
			if samples := one.Cells[cell.ID()]; samples != nil && slices.ContainsFunc(samples.Records, func(r records.Record) bool {
				return r.Metric == raw.Restore && r.Kind == ""
			}) {
				return false
			}
		}
	}
	return true
}

// rulesFigure draws installed and expected rules versus Services, by table. A closed form predicts the expected rules.
func rulesFigure(s *sections.Summary, line records.SweepLine) *figure.Figure {
	f := &figure.Figure{Name: "rules-vs-services", Title: "Rules versus Services" + records.SettingsTail(line.Settings),
		Caption: "Rules installed by table; the lines are the expected numbers, from a closed form. A point off its line means too many or too few rules."}
	if len(s.Collected.Series) >= manySeries {
		return comparedCounts(s, line, f)
	}
	p := figure.NewPlot("Services (log scale)", "rules (log scale)")
	shapes := map[string]draw.GlyphDrawer{"nat": draw.CircleGlyph{}, "filter": draw.TriangleGlyph{}}
	forms := map[string]bool{}
	for i, one := range s.Collected.Series {
		for _, table := range one.Tables(line.Cells) {
			installed, form := plotter.XYs{}, plotter.XYs{}
			for _, cell := range line.Cells {
				if v := one.TableMedian(cell, raw.Rules, table); v > 0 {
					installed = append(installed, plotter.XY{X: float64(cell.Services), Y: v})
				}
				if v := one.TableMedian(cell, raw.RulesExpected, table); v > 0 {
					form = append(form, plotter.XY{X: float64(cell.Services), Y: v})
				}
			}
			if len(form) > 1 && !forms[fmt.Sprint(form)] {
				forms[fmt.Sprint(form)] = true // subjects of one layout share it: one line
				f.Explain(table+" expected", figure.AddLine(p, form, figure.Grey, figure.Dashed...))
			}
			if len(installed) == 0 {
				continue
			}
			shape, ok := shapes[table]
			if !ok {
				shape = draw.SquareGlyph{}
			}
			// Rings of growing size, since points of subjects with one layout overlap.
			dots := &plotter.Scatter{XYs: installed, GlyphStyle: draw.GlyphStyle{Color: s.Color(i), Radius: 3 + 1.8*vg.Length(i), Shape: figure.Hollow{GlyphDrawer: shape}}}
			p.Add(dots)
			f.Explain(one.Name+" "+table, dots)
		}
	}
	if len(f.Legend) == 0 {
		return nil
	}
	figure.LogCountAxis(&p.X)
	figure.LogCountAxis(&p.Y)
	f.Add(p, figure.PanelHeight)
	return f
}
