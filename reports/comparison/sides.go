package comparison

import (
	"cmp"
	"math"
	"slices"

	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/reports/estimate"
	"synclab/reports/records"
	"synclab/scenarios"
)

// CellComparison compares the subjects of one cell. A cell with one subject has none.
type CellComparison struct {
	Cell records.Cell `json:"cell"`
	// Baseline is the side that all others are compared with: kube-proxy/iptables-legacy, else the first kube-proxy,
	// else the first side. A side of another proxier is also compared with kube-proxy on the same backend.
	Baseline string `json:"baseline"`
	Sides    []Side `json:"sides"`
	// Ratios are of each side to its baselines.
	Ratios []Comparison `json:"ratios"`
	// Floors are the kernel floors of the cell's syncs.
	Floors []Floor `json:"kernel_floors,omitempty"`
	// Noise is that of first packets, from sides that have the same rules. Differences are named only beyond it.
	Noise []Noise `json:"noise,omitempty"`
}

// Side is one subject's line in the comparison of a cell.
type Side struct {
	Series  string `json:"series"`
	Subject string `json:"subject"`
	// Figures are in the order of figureNames. A figure that was not measured is absent.
	Figures []estimate.Estimate `json:"figures"`
	// Exceeded has one entry for each repetition in which the subject was stopped.
	Exceeded []Exceeded `json:"exceeded,omitempty"`
	// Repetitions of the cell, including stopped ones.
	Repetitions int `json:"repetitions"`

	place string // kernel and processor, of its first record
}

// Exceeded is a repetition that was stopped because a budget was exceeded.
type Exceeded struct {
	Repetition int     `json:"repetition"`
	Used       float64 `json:"used"` // what the subject had used, in Unit
	Unit       string  `json:"unit"` // s, B, or count (rules)
	// Figure is the name of the figure concerned. Its value is at least Used, unless it is a latency of changes.
	Figure string `json:"figure"`
	// Reached names the exceeded budget and how far the subject had come.
	Reached string `json:"result"`

	of records.Repetition
}

// SameSource is the source that all sides of a cell have, so that the same quantities are compared.
type SameSource struct {
	fullRestores bool // every side knows which restores were of full syncs
	KernelRules  bool // the kernel counted every side's rules
}

// Figure returns a figure by name; nil if it was not measured.
func (s Side) Figure(name string) *estimate.Estimate {
	return records.Find(s.Figures, func(f estimate.Estimate) bool { return f.Name == FigureName(name) })
}

// NotReached reports whether a figure is missing because the subject was stopped in every repetition.
func (s Side) NotReached(name string) bool {
	return FigureOf(name).Ends && s.Figure(name) == nil && len(s.Exceeded) > 0 && len(s.Exceeded) == s.Repetitions
}

// StoppedAt is the maximum that the subject had used when it was stopped before a figure was complete, in the figure's unit.
func (s Side) StoppedAt(figure string) (used float64, ok bool) {
	for _, e := range s.Exceeded {
		if e.Figure == figure {
			used, ok = max(used, e.Used), true
		}
	}
	return used, ok
}

// SourceOf is the common source of several samples of one cell. It ignores nil samples.
func SourceOf(all []*records.Samples) SameSource {
	source := SameSource{fullRestores: true, KernelRules: true}
	for _, samples := range all {
		if samples == nil {
			continue
		}
		fullRestore := func(r records.Record) bool { return r.Metric == raw.Restore && r.Kind == "full" && r.Error == "" }
		if samples.Has(raw.Restore) && !slices.ContainsFunc(samples.Records, fullRestore) {
			source.fullRestores = false
		}
		if samples.Has(raw.Rules) && !samples.Has(raw.RulesKernel) {
			source.KernelRules = false
		}
	}
	return source
}

// SidesOf returns the sides of a cell, in the order of the series.
func SidesOf(c *records.Collection, cell records.Cell) []Side {
	var all []*records.Samples
	for _, one := range c.Series {
		all = append(all, one.Cells[cell.ID()])
	}
	source := SourceOf(all)
	var sides []Side
	for _, one := range c.Series {
		samples := one.Cells[cell.ID()]
		if samples == nil {
			continue
		}
		side := Side{Series: one.Name, Subject: one.Subject, Exceeded: ExceededOf(samples), Repetitions: samples.RepetitionCount(),
			place: placeOf(c.Runs[samples.Records[0].Run].Info)}
		for _, text := range Compared {
			if f := text.Of(samples, source, side.Exceeded); f != nil {
				side.Figures = append(side.Figures, *f)
			}
		}
		sides = append(sides, side)
	}
	return sides
}

// Of makes an estimate from the values of all repetitions of a cell; nil: it was not measured.
func (f Figure) Of(c *records.Samples, source SameSource, exceeded []Exceeded) *estimate.Estimate {
	return f.Estimate(f.Values(c, source), exceeded)
}

// Estimate makes one from values by repetition. The value of a stopped repetition is what its subject had used.
func (f Figure) Estimate(values estimate.Sample, exceeded []Exceeded) *estimate.Estimate {
	stoppedAt := math.Inf(1)
	for _, e := range exceeded {
		own, have := values[e.of]
		switch {
		case f.Name == e.Figure && f.Name != FigureNPL99:
			if values == nil {
				values = estimate.Sample{}
			}
			values[e.of] = []float64{slices.Max(append(own, e.Used))}
			stoppedAt = min(stoppedAt, values[e.of][0])
		case have && f.Growing:
			stoppedAt = min(stoppedAt, slices.Min(own))
		}
	}
	out := estimate.Of(f.Name, f.Unit, values, cmp.Or(f.Percent, 50))
	if out == nil {
		return nil
	}
	out.AtLeast, out.Stopped = out.Value >= stoppedAt, !math.IsInf(stoppedAt, 1)
	same := f.Unit == "count" && out.Constant() // equal counts need no interval
	if out.Stopped || same {
		out.Unbounded()
	}
	return out
}

// ExceededOf returns the stopped repetitions, each with the figure that it concerns: memory, or the unfinished work. The
// unfinished work is the cold start (in process: the full sync) or the changes.
func ExceededOf(c *records.Samples) []Exceeded {
	cold := map[records.Repetition]bool{}
	full := map[records.Repetition]bool{}
	var out []Exceeded
	for _, r := range c.Records {
		of := records.Repetition{Run: r.Run, Rep: r.Rep}
		switch r.Metric {
		case raw.ColdStart:
			cold[of] = true
		case raw.FullSync:
			full[of] = full[of] || r.Error == ""
		case raw.Exceeded:
			e := Exceeded{Repetition: r.Rep, Used: r.Value, Unit: r.Unit, Reached: r.Error, of: of}
			if _, kind := scenarios.StepOf(r.Step); kind == "react" {
				e.Figure = FigureReaction
			}
			out = append(out, e)
		}
	}
	for i := range out {
		e := &out[i]
		switch {
		case e.Unit == "B":
			e.Figure = FigureTotalRSS // the budget covers the process and all its children
		case e.Unit == "count":
			e.Figure = "" // a limit on rules bounds no figure
		case c.InProcess && !full[e.of]:
			e.Figure = FigureFull
		case !c.InProcess && !cold[e.of]:
			e.Figure = FigureCold
		case e.Figure == "":
			e.Figure = FigureNPL99
		}
	}
	slices.SortStableFunc(out, func(a, b Exceeded) int { return a.of.Compare(b.of) })
	return out
}

// Compared returns the sides that have a baseline. Beside other proxiers, kube-proxies are baselines only.
func (c CellComparison) Compared() []Side {
	others := slices.ContainsFunc(c.Sides, func(side Side) bool { return !subject.IsKubeProxy(side.Subject) })
	return slices.DeleteFunc(slices.Clone(c.Sides), func(side Side) bool {
		return c.Nearest(side) == "" || others && subject.IsBaseline(side.Subject)
	})
}
