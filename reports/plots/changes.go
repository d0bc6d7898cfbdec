package plots

import (
	"cmp"
	"fmt"
	"image/color"
	"regexp"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"synclab/bench/outfile"
	"synclab/bench/raw"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/figure"
	"synclab/reports/records"
	"synclab/reports/sections"
)

// ecdfLine is one curve of the distribution of network programming latency.
type ecdfLine struct {
	series int
	cell   records.Cell
	values []float64 // sorted
	sample estimate.Sample
}

// maxCurves bounds the curves of the distribution plot.
const maxCurves = 10

var curveDashes = [][]vg.Length{nil, {6, 3}, {2, 2.5}, {8, 3, 2, 3}, {4, 2}, {1, 3}}

// programmingFigure draws the distribution of network programming latency with its 50th, 90th and 99th percentiles.
func programmingFigure(s *sections.Summary) *figure.Figure {
	curves, all := programmingCurves(s)
	if len(curves) == 0 {
		return nil
	}
	f := &figure.Figure{Name: "programming-latency", Title: "Network programming latency",
		Caption: "Share of changes that were visible in the kernel within a time, counted from each change's due time. The dots mark 50, 90 and 99 of 100 changes."}
	if len(curves) < all {
		f.Caption += fmt.Sprintf(" %d of %d cells are drawn.", len(curves), all)
	}
	p := figure.NewPlot("time from due to visible in the kernel", "share of changes")
	cell := curves[len(curves)-1].cell
	oneCell := len(s.Collected.Cells) > 1 && !slices.ContainsFunc(curves, func(c ecdfLine) bool { return c.cell.ID() != cell.ID() })
	if oneCell {
		f.Title += " at " + records.SizesText([]records.Cell{cell}) + records.SettingsTail(records.ShortSettings(cell.Settings()))
	}
	seen := map[int]int{}
	low, high := curves[0].values[0], 0.0
	for _, curve := range curves {
		c := s.Color(curve.series)
		dashes := curveDashes[seen[curve.series]%len(curveDashes)]
		if len(s.Collected.Series) >= manySeries {
			dashes = s.Look(curve.series).Dashes
		}
		seen[curve.series]++
		line := &plotter.Line{StepStyle: plotter.PostStep, LineStyle: draw.LineStyle{Color: c, Width: 1.5, Dashes: dashes}}
		n := len(curve.values)
		for i := range min(n, 400) {
			at := i * (n - 1) / max(1, min(n, 400)-1)
			line.XYs = append(line.XYs, plotter.XY{X: curve.values[at], Y: 100 * float64(at+1) / float64(n)})
		}
		marks := &plotter.Scatter{GlyphStyle: draw.GlyphStyle{Color: c, Radius: 3.2, Shape: s.Look(curve.series).Shape}}
		label := ""
		if len(s.Collected.Series) > 1 || len(s.Collected.Cells) == 1 {
			label = s.Collected.Series[curve.series].Name + " "
		}
		if len(s.Collected.Cells) > 1 && !oneCell {
			label += cellLabel(s, curve.cell, records.ShortSettings)
		}
		label = strings.TrimSpace(label)
		for _, percent := range []float64{50, 90, 99} {
			v := curve.sample.Quantile(percent)
			marks.XYs = append(marks.XYs, plotter.XY{X: v, Y: percent})
			label += fmt.Sprintf("%s p%.0f %s", map[bool]string{true: ":", false: ","}[percent == 50], percent, doc.Format(v, "s"))
		}
		low, high = min(low, curve.values[0]), max(high, curve.values[n-1])
		p.Add(line, marks)
		f.Explain(label, line)
	}
	for _, name := range stoppedIn(s, cell, raw.NetworkProgrammingLatency) {
		i, _ := s.SeriesNamed(name)
		f.Explain(name+": stopped before a change was due", stoppedMark{color: s.Color(i)})
	}
	p.Y.Min, p.Y.Max = 0, 100
	p.Y.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0 %"}, {Value: 25, Label: "25 %"}, {Value: 50, Label: "50 %"},
		{Value: 75, Label: "75 %"}, {Value: 90, Label: "90 %"}, {Value: 99, Label: "99 %"}}
	if low > 0 && (high/low > 20 || len(s.Collected.Series) >= manySeries) {
		p.X.Label.Text += " (log scale)"
		figure.LogAxis(&p.X, figure.TickSeconds)
	} else {
		figure.LinearAxis(&p.X, true, figure.TickSeconds)
	}
	f.Add(p, figure.PanelHeight)
	return f
}

// programmingCurves selects the curves: all cells while they are few, else the largest size of each series and
// settings, evenly picked if still too many.
func programmingCurves(s *sections.Summary) (curves []ecdfLine, all int) {
	for _, cell := range s.Collected.Cells {
		for i, one := range s.Collected.Series {
			if sample := one.Of(cell, raw.NetworkProgrammingLatency); len(sample) > 0 {
				curves = append(curves, ecdfLine{i, cell, slices.Sorted(slices.Values(sample.Pooled())), sample})
			}
		}
	}
	all = len(curves)
	if all > maxCurves || (len(s.Collected.Series) >= manySeries && all > len(s.Collected.Series)) {
		largest := 0
		for _, c := range curves {
			largest = max(largest, c.cell.Services)
		}
		curves = slices.DeleteFunc(curves, func(c ecdfLine) bool { return c.cell.Services != largest })
	}
	if n := len(curves); n > maxCurves { // evenly picked
		for i := range maxCurves {
			curves[i] = curves[i*n/maxCurves]
		}
		curves = curves[:maxCurves]
	}
	return curves, all
}

// cellLabel is a cell's short name: its size, unless all cells share it, and its settings.
func cellLabel(s *sections.Summary, cell records.Cell, short func(string) string) string {
	one := !slices.ContainsFunc(s.Collected.Cells, func(c records.Cell) bool { return c.Services != cell.Services })
	tail := short(cell.Settings())
	if one && tail != "" {
		return tail
	}
	return strings.TrimSpace(doc.Grouped(int64(cell.Services)) + " " + tail)
}

// shortName is shortSeries if all series have the same proxier.
func shortName(s *sections.Summary, name string) string {
	proxier, _, _ := strings.Cut(name, "/")
	for _, other := range s.Collected.Series {
		if !strings.HasPrefix(other.Name, proxier+"/") {
			return name
		}
	}
	return records.ShortSeries(name)
}

// settingValues keeps only the values: "1s token-bucket".
func settingValues(settings string) string {
	words := strings.Fields(settings)
	for i, w := range words {
		_, words[i], _ = strings.Cut(w, "=")
	}
	return strings.Join(words, " ")
}

var notInFileNames = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// fileName makes a name safe for files and benchmark names.
func fileName(name string) string {
	return outfile.Name(strings.Trim(notInFileNames.ReplaceAllString(name, "-"), "-"))
}

// timelineFigures draws, for each series, the first repetition with a latency of its largest cell with churn.
func timelineFigures(s *sections.Summary) []*figure.Figure {
	var figures []*figure.Figure
	for i, one := range s.Collected.Series {
		var best *records.Samples
		for _, cell := range s.Collected.Cells {
			samples := one.Cells[cell.ID()]
			if samples != nil && samples.Has(raw.NetworkProgrammingLatency) && (best == nil || cell.Services > best.Cell.Services) {
				best = samples
			}
		}
		if best != nil {
			figures = append(figures, timelineFigure(s, i, best))
		}
	}
	return figures
}

// Passage is the time of one change: due in the cluster, visible in the kernel. Seconds since the repetition began.
type Passage struct{ Due, Visible float64 }

// timelineFigure has the latency of each change above and the pending changes below, with the syncs as bands.
func timelineFigure(s *sections.Summary, index int, samples *records.Samples) *figure.Figure {
	one := s.Collected.Series[index]
	// Earlier repetitions may have ended before a change was visible.
	first := samples.Records[slices.IndexFunc(samples.Records, func(r records.Record) bool { return r.Metric == raw.NetworkProgrammingLatency })]
	f := &figure.Figure{Name: "timeline-" + fileName(one.Name),
		Title: fmt.Sprintf("Timeline of a churn: %s, %s", shortName(s, one.Name), doc.Plural(samples.Cell.Services, "Service")),
		Caption: fmt.Sprintf("Repetition %d", first.Rep) + records.SettingsTail(records.ShortSettings(samples.Cell.Settings())) + ". Each dot is a change at its due time, at the height of its latency. Bands are syncs (dark: full, " +
			"pale: partial), each with a line at its start. Below are the changes that are due and not yet visible in the kernel, with a tick for each due time."}
	var passages []Passage
	var syncs []records.Record
	for _, r := range samples.Records {
		if r.Run != first.Run || r.Rep != first.Rep {
			continue
		}
		switch r.Metric {
		case raw.NetworkProgrammingLatency:
			passages = append(passages, Passage{r.At - r.Value, r.At})
		case raw.FullSync, raw.PartialSync:
			syncs = append(syncs, r)
		}
	}
	slices.SortFunc(passages, func(a, b Passage) int { return cmp.Compare(a.Due, b.Due) })
	from, to := passages[0].Due, passages[0].Visible
	for _, p := range passages {
		to = max(to, p.Visible)
	}
	pad := (to - from) * 0.01
	c := s.Color(index)
	upper, lower := figure.NewPlot("", "latency of a change"), figure.NewPlot("time since the repetition began", "pending changes")
	for _, p := range []*plot.Plot{upper, lower} {
		p.X.Min, p.X.Max = from-pad, to+pad
		p.Y.Min = 0
		p.Add(bands{syncs, c})
	}
	dots := &plotter.Scatter{GlyphStyle: draw.GlyphStyle{Color: figure.WithAlpha(figure.Ink, 0xb0), Radius: 1.5, Shape: draw.CircleGlyph{}}}
	dues := make([]float64, 0, len(passages))
	for _, p := range passages {
		dots.XYs = append(dots.XYs, plotter.XY{X: p.Due, Y: p.Visible - p.Due})
		dues = append(dues, p.Due)
	}
	dots.XYs = thinDots(dots.XYs, 1500)
	upper.Add(dots)
	backlog := &plotter.Line{XYs: UnderWay(passages), StepStyle: plotter.PostStep, LineStyle: draw.LineStyle{Color: figure.Ink, Width: 1.2}}
	rug := ticksAtFoot{thin(dues, 600)}
	lower.Add(backlog, rug)
	upper.X.Min, upper.X.Max, lower.X.Min, lower.X.Max = from-pad, to+pad, from-pad, to+pad
	for _, p := range []*plot.Plot{upper, lower} {
		p.Y.Max *= 1.08
		figure.LinearAxis(&p.X, false, figure.TickSeconds)
	}
	figure.LinearAxis(&upper.Y, true, figure.TickSeconds)
	figure.CountAxis(&lower.Y)
	f.Explain("change", dots)
	f.Explain("full sync", rectangle{color: figure.WithAlpha(c, bandFull)})
	f.Explain("partial sync", rectangle{color: figure.WithAlpha(c, bandPartial)})
	f.Explain("due and not yet visible in the kernel", backlog)
	f.Add(upper, 200)
	f.Add(lower, 150)
	return f
}

// UnderWay steps up at each due time and down when a change becomes visible.
func UnderWay(passages []Passage) plotter.XYs {
	type edge struct {
		at   float64
		step int
	}
	var edges []edge
	for _, p := range passages {
		edges = append(edges, edge{p.Due, 1}, edge{p.Visible, -1})
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), a.step-b.step) })
	var points plotter.XYs
	level := 0
	for _, e := range edges {
		level += e.step
		if n := len(points); n > 0 && points[n-1].X == e.at {
			points[n-1].Y = float64(level)
			continue
		}
		points = append(points, plotter.XY{X: e.at, Y: float64(level)})
	}
	return points
}

// thinDots keeps n dots: the tenth of n with the largest y, and evenly picked others.
func thinDots(dots plotter.XYs, n int) plotter.XYs {
	if len(dots) <= n {
		return dots
	}
	sorted := slices.Clone(dots)
	slices.SortFunc(sorted, func(a, b plotter.XY) int { return cmp.Compare(b.Y, a.Y) })
	kept := slices.Clone(sorted[:n/10])
	others := sorted[n/10:]
	for i := range n - n/10 {
		kept = append(kept, others[i*len(others)/(n-n/10)])
	}
	return kept
}

const (
	bandFull    = 0x90
	bandPartial = 0x38
)

// bands shades the time of each sync over the plot's height.
type bands struct {
	syncs []records.Record
	color color.NRGBA
}

// edgeFrom is the least width of a band with an edge.
const edgeFrom = vg.Length(2.5)

// narrowestBand bounds the width of a band from below: at least 1/400 of the axis, since a sync may take some µs.
const narrowestBand = 400

// Plot implements plot.Plotter.
func (b bands) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	for _, r := range b.syncs {
		alpha := uint8(bandPartial)
		if r.Metric == raw.FullSync {
			alpha = bandFull
		}
		start := min(r.At-r.Value, r.At-(p.X.Max-p.X.Min)/narrowestBand)
		rectangle{start, r.At, p.Y.Min, p.Y.Max, figure.WithAlpha(b.color, alpha)}.Plot(c, p)
		if x(r.At)-x(start) > edgeFrom && start >= p.X.Min { // bands back to back stay apart
			c.StrokeLine2(draw.LineStyle{Color: b.color, Width: 0.8}, x(start), c.Min.Y, x(start), c.Max.Y)
		}
	}
}

// ticksAtFoot are short lines at the bottom of the plot.
type ticksAtFoot struct{ at []float64 }

// Plot implements plot.Plotter.
func (t ticksAtFoot) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	style := draw.LineStyle{Color: figure.WithAlpha(figure.Ink, 0x70), Width: 0.5}
	for _, v := range t.at {
		c.StrokeLine2(style, x(v), c.Min.Y, x(v), c.Min.Y+5)
	}
}
