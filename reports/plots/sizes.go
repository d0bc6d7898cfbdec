package plots

import (
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
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

// durationLine is one panel of durations versus Services.
type durationLine struct {
	metric     raw.Metric
	kind, text string
}

func syncGrowthFigure(s *sections.Summary, line records.SweepLine) *figure.Figure {
	f := comparedGrowth(s, line, "sync-vs-services", "Cold start and syncs versus Services",
		[]durationLine{{raw.ColdStart, "", "cold start"}, {raw.FullSync, "", "full sync"}, {raw.PartialSync, "", "partial sync"}})
	if f != nil {
		f.Caption = "Medians of syncs with 95 % confidence intervals (from 6 repetitions on), single syncs pale; the slope of a fitted line is the exponent: " +
			"1 means that twice the Services take twice as long, 2 four times. The number after a name is its exponent."
	}
	return f
}

func restoreGrowthFigure(s *sections.Summary, line records.SweepLine) *figure.Figure {
	kinds := []durationLine{{raw.Restore, "full", "restore of a full sync"}, {raw.Restore, "partial", "restore of a partial sync"}}
	if !restoresHaveKinds(s.Collected, line) {
		kinds = []durationLine{{raw.Restore, "", "restore"}}
	}
	f := comparedGrowth(s, line, "restore-vs-services", "Restore latency versus Services", kinds)
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
