package comparison

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/reports/estimate"
	"synclab/reports/records"
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

// Names of the figures of a side, as in summary.json.
const (
	FigureReaction    = "reaction"
	FigureCold        = "cold_start"
	FigureFull        = "full_sync"
	FigurePartial     = "partial_sync"
	FigureRestore     = "restore"
	FigureNPL50       = "network_programming_latency_p50"
	FigureNPL99       = "network_programming_latency_p99"
	FigureColdCPU     = "cold_start_cpu"
	FigureCPU         = "cpu_per_change"
	FigureRSS         = "peak_rss"
	FigureChildRSS    = "child_peak_rss"
	FigureTotalRSS    = "total_peak_rss"
	FigureFullSys     = "full_sync_kernel"
	FigurePartialSys  = "partial_sync_kernel"
	figureRestores    = "restores"
	FigureFirstPacket = "first_packet_last"
	FigureFirstSYN    = "first_packet_tcp_last"
	FigureRules       = "rules"
	FigureElements    = "elements"
)

// FigureText is the display text of a figure, and how it is computed from a cell's records.
type FigureText struct {
	Name, Text, Short, Title, Unit string
	More, Less                     string // compared with the baseline: "slower", "faster"
	Percent                        float64
	Values                         func(*records.Samples, SameSource) estimate.Sample
}

// SameSource is the source that all sides of a cell have, so that the same quantities are compared.
type SameSource struct {
	fullRestores bool // every side knows which restores were of full syncs
	KernelRules  bool // the kernel counted every side's rules
}

var FigureTexts = []FigureText{
	{FigureReaction, "Reaction", "react", "one isolated change to an idle subject, without waiting for minSyncPeriod: due in the cluster → visible in the kernel, measured from outside", "s", "slower", "faster", 50, valuesOf(raw.Reaction)},
	{FigureCold, "Cold start", "cold", "the subject's process starts → every Service is visible in the kernel, measured from outside", "s", "slower", "faster", 50, valuesOf(raw.ColdStart)},
	{FigureNPL50, "Latency p50", "npl p50", "network programming latency under churn, with the wait for minSyncPeriod: due in the cluster → visible in the kernel", "s", "slower", "faster", 50, valuesOf(raw.NetworkProgrammingLatency)},
	{FigureNPL99, "Latency p99", "npl p99", "network programming latency of 99 of 100 changes under churn, with the wait for minSyncPeriod", "s", "slower", "faster", 99, valuesOf(raw.NetworkProgrammingLatency)},
	{FigureFull, "Full sync", "full*", "one full sync, as the subject itself reports it", "s", "slower", "faster", 50, valuesOf(raw.FullSync)},
	{FigurePartial, "Partial sync", "partial*", "one partial sync, as the subject itself reports it", "s", "slower", "faster", 50, valuesOf(raw.PartialSync)},
	{FigureFullSys, "Full sync, kernel", "kernel", "kernel time of one full sync: system time of the subject's tools (which many kernels count in ticks of some ms), or wall time of the subject's own system calls", "s", "more", "less", 50, kernelValues("full")},
	{FigurePartialSys, "Partial sync, kernel", "kernel", "kernel time of one partial sync: system time of the subject's tools (which many kernels count in ticks of some ms), or wall time of the subject's own system calls", "s", "more", "less", 50, kernelValues("partial")},
	{FigureRestore, "Writing rules", "restore", "wall time of writing the rules of one sync with iptables-restore, nft or netlink; of full syncs only, where all subjects report the kind", "s", "slower", "faster", 50, restoreValues},
	{figureRestores, "Restores", "restores", "restores or transactions of one sync; of full syncs only, where all subjects report the kind", "count", "more", "fewer", 50, restoresValues},
	{FigureColdCPU, "CPU, cold start", "cpu cold", "user and system time of the subject and its children, from the first create to the end of the settle after it", "s", "more", "less", 50, ColdCPU},
	{FigureCPU, "CPU per change", "cpu/chg", "user and system time of the subject and its children over the steps with changes and the settles after them, for each change", "s", "more", "less", 50, ChangeCPU},
	{FigureRSS, "Peak RSS", "rss", "of the subject's process", "B", "more", "less", 50, LargestOf(raw.PeakRSS)},
	{FigureChildRSS, "Peak RSS, child", "child rss", "of the largest tool that the subject started", "B", "more", "less", 50, LargestOf(raw.ChildPeakRSS)},
	{FigureTotalRSS, "Peak memory", "rss+child", "sum of the peaks of the subject's process and of the largest tool that it started, if any", "B", "more", "less", 50, TotalRSSValues},
	{FigureFirstPacket, "First packet", "packet", "at the last Service of the dispatch", "s", "slower", "faster", 50, lastPacketValues("")},
	{FigureFirstSYN, "First packet, TCP", "syn", "the SYN at the last Service of the dispatch; the cluster has no UDP Service", "s", "slower", "faster", 50, lastPacketValues(raw.MethodConnect)},
	{FigureRules, "Rules", "rules", "all tables; counted by the kernel if all subjects have such counts", "count", "more", "fewer", 50, CountValues(false)},
	{FigureElements, "Elements", "elements", "elements of sets and maps", "count", "more", "fewer", 50, CountValues(true)},
}

// Column is the figure's heading in a comparison. It marks the figures that only the subject reports.
func (t FigureText) Column() string {
	if t.Name == FigureFull || t.Name == FigurePartial {
		return t.Text + ", self-reported"
	}
	return t.Text
}

// FigureName returns the figure for the name in a scenario's target.
func FigureName(word string) string {
	if word == "first_packet" {
		return FigureFirstPacket
	}
	return word
}

func FigureTextOf(name string) FigureText {
	i := slices.IndexFunc(FigureTexts, func(t FigureText) bool { return t.Name == FigureName(name) })
	return FigureTexts[i]
}

// Figure returns a figure by name; nil if it was not measured.
func (s Side) Figure(name string) *estimate.Estimate {
	i := slices.IndexFunc(s.Figures, func(f estimate.Estimate) bool { return f.Name == FigureName(name) })
	if i < 0 {
		return nil
	}
	return &s.Figures[i]
}

// NotReached reports whether a figure is missing because the subject was stopped in every repetition.
func (s Side) NotReached(name string) bool {
	ends := name == FigureReaction || name == FigureCold || name == FigureFull || name == FigureNPL50 || name == FigureNPL99
	return ends && s.Figure(name) == nil && len(s.Exceeded) > 0 && len(s.Exceeded) == s.Repetitions
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
		for _, text := range FigureTexts {
			if f := text.Figure(text.Values(samples, source), side.Exceeded); f != nil {
				side.Figures = append(side.Figures, *f)
			}
		}
		sides = append(sides, side)
	}
	return sides
}

// Figure makes an estimate from the values of all repetitions. The value of a stopped repetition is what its subject
// had used.
func (t FigureText) Figure(values estimate.Sample, exceeded []Exceeded) *estimate.Estimate {
	stoppedAt := math.Inf(1)
	for _, e := range exceeded {
		own, have := values[e.of]
		switch {
		case t.Name == e.Figure && t.Name != FigureNPL99:
			if values == nil {
				values = estimate.Sample{}
			}
			values[e.of] = []float64{slices.Max(append(own, e.Used))}
			stoppedAt = min(stoppedAt, values[e.of][0])
		case have && t.underestimatedWhenStopped():
			stoppedAt = min(stoppedAt, slices.Min(own))
		}
	}
	f := estimate.Of(t.Name, t.Unit, values, t.Percent)
	if f == nil {
		return nil
	}
	f.AtLeast, f.Stopped = f.Value >= stoppedAt, !math.IsInf(stoppedAt, 1)
	same := t.Unit == "count" && f.Constant() // equal counts need no interval
	if f.Stopped || same {
		f.Unbounded()
	}
	return f
}

// underestimatedWhenStopped: changes that did not become visible are missing, and memory was still growing.
func (t FigureText) underestimatedWhenStopped() bool {
	return t.Name == FigureReaction || t.Name == FigureNPL50 || t.Name == FigureNPL99 || t.Name == FigureRSS || t.Name == FigureChildRSS || t.Name == FigureTotalRSS
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
			if _, kind := StepOf(r.Step); kind == "react" {
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

// StepOf parses "2:churn" into the index and the kind of a step.
func StepOf(name string) (index int, kind string) {
	number, kind, _ := strings.Cut(name, ":")
	index, _ = strconv.Atoi(number)
	return index, kind
}

// Compared returns the sides that have a baseline. Beside other proxiers, kube-proxies are baselines only.
func (c CellComparison) Compared() []Side {
	others := slices.ContainsFunc(c.Sides, func(side Side) bool { return !subject.IsKubeProxy(side.Subject) })
	return slices.DeleteFunc(slices.Clone(c.Sides), func(side Side) bool {
		return c.Nearest(side) == "" || others && subject.IsBaseline(side.Subject)
	})
}
