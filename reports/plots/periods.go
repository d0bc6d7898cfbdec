package plots

import (
	"maps"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"synclab/bench/raw"
	"synclab/reports/figure"
	"synclab/reports/records"
	"synclab/reports/sections"
)

// The swept fields of a sync-period scenario.
const (
	periodField = "proxy.minSyncPeriod"
	policyField = "proxy.policy"
)

// periodLine is one series under one policy, by minSyncPeriod.
type periodLine struct {
	series int
	policy string
	cells  []records.Cell
}

// periodLines groups the cells of the largest size by series and policy. It returns lines with at least two periods.
func periodLines(s *sections.Summary) []periodLine {
	largest := 0
	for _, cell := range s.Collected.Cells {
		if cell.Params[periodField] != "" {
			largest = max(largest, cell.Services)
		}
	}
	var lines []periodLine
	for i, one := range s.Collected.Series {
		for _, cell := range s.Collected.Cells {
			_, ok := records.Quantity(cell.Params[periodField])
			if !ok || cell.Services != largest || len(one.Of(cell, raw.NetworkProgrammingLatency)) == 0 {
				continue
			}
			policy := cell.Params[policyField]
			at := slices.IndexFunc(lines, func(l periodLine) bool { return l.series == i && l.policy == policy })
			if at < 0 {
				lines = append(lines, periodLine{series: i, policy: policy})
				at = len(lines) - 1
			}
			lines[at].cells = append(lines[at].cells, cell)
		}
	}
	return slices.DeleteFunc(lines, func(l periodLine) bool { return len(l.cells) < 2 })
}

// periodFigure draws the effect of minSyncPeriod at the largest size: latency above, time spent in syncs below.
func periodFigure(s *sections.Summary) *figure.Figure {
	lines := periodLines(s)
	if len(lines) == 0 {
		return nil
	}
	f := &figure.Figure{Name: "sync-period", Title: "Latency and work versus minSyncPeriod",
		Caption: "Above: median and 99th percentile of network programming latency; below: the share of the churn spent in syncs. " +
			"A good setting is a long period with nearly the latency of shorter periods."}
	upper, lower := figure.NewPlot("", "programming latency"), figure.NewPlot("minSyncPeriod", "share spent in syncs")
	shapes := []draw.GlyphDrawer{draw.CircleGlyph{}, draw.TriangleGlyph{}, draw.SquareGlyph{}}
	policies := map[string]bool{}
	for _, l := range lines {
		policies[l.policy] = true
	}
	order := slices.Sorted(maps.Keys(policies))
	var periods []float64
	for _, l := range lines {
		c := s.Color(l.series)
		if len(s.Collected.Series) == 1 {
			c = s.Color(slices.Index(order, l.policy)) // the plot compares the policies
		}
		shape := shapes[slices.Index(order, l.policy)%len(shapes)]
		one := s.Collected.Series[l.series]
		var half, most, busy plotter.XYs
		for _, cell := range l.cells {
			period, _ := records.Quantity(cell.Params[periodField])
			periods = append(periods, period)
			values := one.Of(cell, raw.NetworkProgrammingLatency)
			half = append(half, plotter.XY{X: period, Y: values.Median()})
			most = append(most, plotter.XY{X: period, Y: values.Quantile(99)})
			if shares := sections.BusyShares(one.Cells[cell.ID()]); len(shares) > 0 {
				busy = append(busy, plotter.XY{X: period, Y: 100 * shares.Median()})
			}
		}
		name := one.Name
		if l.policy != "" && len(s.Collected.Series) == 1 {
			name = l.policy
		} else if l.policy != "" {
			name += ", " + l.policy
		}
		solid := figure.AddLine(upper, half, c)
		upper.Add(&plotter.Scatter{XYs: half, GlyphStyle: draw.GlyphStyle{Color: c, Radius: 3, Shape: shape}})
		dash := figure.AddLine(upper, most, c, figure.Dashed...)
		marks := &plotter.Scatter{XYs: most, GlyphStyle: draw.GlyphStyle{Color: c, Radius: 3, Shape: shape}}
		upper.Add(marks)
		f.Explain(name+" p50", solid, marks)
		f.Explain("p99", dash, marks)
		if len(busy) > 0 {
			figure.AddLine(lower, busy, c)
			lower.Add(&plotter.Scatter{XYs: busy, GlyphStyle: draw.GlyphStyle{Color: c, Radius: 3, Shape: shape}})
		}
	}
	low, high := slices.Min(periods), slices.Max(periods)
	for _, p := range []*plot.Plot{upper, lower} {
		if low > 0 && high/low > 8 {
			figure.LogAxis(&p.X, figure.TickSeconds)
		} else {
			figure.LinearAxis(&p.X, false, figure.TickSeconds)
		}
	}
	if low > 0 && high/low > 8 {
		lower.X.Label.Text += " (log scale)"
	}
	upper.Y.Max *= 1.08
	figure.LinearAxis(&upper.Y, true, figure.TickSeconds)
	lower.Y.Max = min(100, lower.Y.Max*1.15)
	figure.LinearAxis(&lower.Y, true, func(v float64) string { return figure.TickCount(v) + " %" })
	f.Add(upper, vg.Length(220))
	f.Add(lower, vg.Length(170))
	return f
}
