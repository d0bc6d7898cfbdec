package diff

import (
	"slices"

	"synclab/bench/raw"
	"synclab/reports/comparison"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

// `synclab diff` compares the figures of a comparison of subjects, and further figures of two runs of one subject.

// Figure is a figure. If a cell has several faults or kinds of packets, it belongs to one of them: Detail.
type Figure struct {
	comparison.FigureText
	Detail string
	// Counted: a count that is equal in all repetitions needs no statistics.
	Counted bool
	// Never: a single occurrence is too many.
	Never bool
	// quiet: not shown while it is 0.
	quiet bool
}

// Names of figures that only a diff has.
const (
	figurePacketFirst   = "first_packet_first"
	figurePacketMiss    = "first_packet_miss"
	figurePacketKind    = "first_packet" // to a kind of destination, or by another method
	figureChains        = "chains"
	figureFullBytes     = "full_sync_bytes"
	figurePartialBytes  = "partial_sync_bytes"
	figureKernelMemory  = "kernel_memory"
	figureFlow50        = "flow_p50"
	figureFlow99        = "flow_p99"
	figureFlowsFailed   = "flows_failed"
	figureFlowsMisroute = "flows_misrouted"
	figureRepaired      = "fault_repaired"
	figureSyncsFailed   = "syncs_failed"
	figureViolations    = "violations"
)

// Named returns the figure of a name, without detail. Figures of one kind that have details are alike.
func Named(name string) (Figure, bool) {
	for _, f := range append(Figures(), duration(figurePacketKind, "First packet", 50, nil), duration(figureRepaired, "Time to recover", 50, nil),
		Figure{FigureText: comparison.FigureTextOf(comparison.FigureTotalRSS)}) {
		if f.Name == name {
			return f, true
		}
	}
	return Figure{}, false
}

// Title is the figure's display name.
func (f Figure) Title() string {
	if f.Detail != "" {
		return f.Text + ", " + f.Detail
	}
	return f.Text
}

// Of returns the figure of a sample; nil if it was not measured.
func (f Figure) Of(c *records.Samples, source comparison.SameSource, exceeded []comparison.Exceeded) *estimate.Estimate {
	return f.Figure(f.Values(c, source), exceeded)
}

// valuesBy reads a figure's values by repetition.
type valuesBy = func(*records.Samples, comparison.SameSource) estimate.Sample

// Figures lists the possible figures of two samples of one cell, in the order of the table.
func Figures(both ...*records.Samples) []Figure {
	var out []Figure
	for _, text := range comparison.FigureTexts {
		f := Figure{FigureText: text, Counted: text.Unit == "count"}
		if text.Name == comparison.FigureTotalRSS && !slices.ContainsFunc(both, func(c *records.Samples) bool { return c.Has(raw.ChildPeakRSS) }) {
			continue // without tools, this figure equals the peak of the process
		}
		if text.Name == comparison.FigureFirstPacket {
			out = append(out, duration(figurePacketFirst, "First packet, first", 50, firstPacketValues))
			f.Text = "First packet, last"
			out = append(out, f, duration(figurePacketMiss, "First packet, miss", 50, missValues))
			out = append(out, packetKinds(both)...)
			continue
		}
		out = append(out, f)
	}
	size := func(name, text, unit string, values valuesBy) Figure {
		return Figure{FigureText: comparison.FigureText{Name: name, Text: text, Unit: unit, More: "more", Less: "less", Percent: 50, Values: values}}
	}
	chains, fullBytes := size(figureChains, "Chains", "count", chainValues), size(figureFullBytes, "Bytes, full sync", "B", bytesOf("full"))
	chains.Counted, chains.Less, fullBytes.Counted = true, "fewer", true
	failed, misroutes := size(figureFlowsFailed, "Flows failed", "count", flowsBy(flowFailed)), size(figureFlowsMisroute, "Flows misrouted", "count", flowsBy(flowMisrouted))
	syncs, violations := size(figureSyncsFailed, "Syncs failed", "count", failedSyncs), size(figureViolations, "Violations", "count", violationValues)
	misroutes.Never, violations.Never, syncs.quiet = true, true, true
	out = append(out, chains, fullBytes, size(figurePartialBytes, "Bytes, partial sync", "B", bytesOf("partial")),
		size(figureKernelMemory, "Kernel memory", "B", comparison.LargestOf(raw.KernelMemory)),
		duration(figureFlow50, "New flow p50", 50, answeredFlows), duration(figureFlow99, "New flow p99", 99, answeredFlows), failed, misroutes)
	out = append(out, repairs(both)...)
	return append(out, syncs, violations)
}

func duration(name, text string, percent float64, values valuesBy) Figure {
	return Figure{FigureText: comparison.FigureText{Name: name, Text: text, Unit: "s", More: "slower", Less: "faster", Percent: percent, Values: values}}
}

// packetKinds are the first packets to each kind of destination, and the round trips.
func packetKinds(both []*records.Samples) []Figure {
	var out []Figure
	for _, method := range records.Methods {
		var targets []string
		for _, c := range both {
			if slices.Contains(records.FlowMethods, method) && len(c.Positions(method)) > 0 {
				targets = append(targets, "")
			}
			targets = append(targets, c.Targets(method)...)
		}
		for _, target := range records.Distinct(targets) {
			detail := target
			switch {
			case method != "" && target == "":
				detail = method + ", last"
			case method != "":
				detail = method + ", " + target
			}
			f := duration(figurePacketKind, "First packet", 50, packetsTo(method, target))
			f.Detail = detail
			out = append(out, f)
		}
	}
	return out
}

// packetsTo returns first packets to a kind of destination; if target is empty, to the last position.
func packetsTo(method, target string) valuesBy {
	return func(c *records.Samples, _ comparison.SameSource) estimate.Sample {
		positions := c.Positions(method)
		return c.ByRepetition(func(r *raw.Record) bool {
			if r.Metric != raw.FirstPacket || r.Target != target || records.MethodOf(r) != method {
				return false
			}
			if target != "" {
				return r.Position == nil || *r.Position != 0
			}
			return r.Position != nil && len(positions) > 0 && *r.Position == positions[len(positions)-1]
		})
	}
}

func firstPacketValues(c *records.Samples, _ comparison.SameSource) estimate.Sample {
	positions := c.Positions("")
	if len(positions) < 2 {
		return nil
	}
	return c.PacketsAt("", positions[0])
}

func missValues(c *records.Samples, _ comparison.SameSource) estimate.Sample {
	return c.PacketsAt("", -1)
}

func chainValues(c *records.Samples, _ comparison.SameSource) estimate.Sample {
	return c.LastCounts(raw.Chains, func(string) bool { return true })
}

func bytesOf(kind string) valuesBy {
	return func(c *records.Samples, _ comparison.SameSource) estimate.Sample {
		return c.ByRepetition(func(r *raw.Record) bool { return r.Metric == raw.RestoreBytes && r.Kind == kind })
	}
}

func flowFailed(r *raw.Record) bool    { return r.Outcome != "" && r.Outcome != records.Misrouted }
func flowMisrouted(r *raw.Record) bool { return r.Outcome == records.Misrouted }

func flowsBy(outcome func(*raw.Record) bool) valuesBy {
	return func(c *records.Samples, _ comparison.SameSource) estimate.Sample {
		return c.CountIn(raw.Flow, func(r *raw.Record) bool { return r.Metric == raw.Flow && outcome(r) })
	}
}

func answeredFlows(c *records.Samples, _ comparison.SameSource) estimate.Sample {
	return c.ByRepetition(func(r *raw.Record) bool { return r.Metric == raw.Flow && r.Outcome == "" })
}

func violationValues(c *records.Samples, _ comparison.SameSource) estimate.Sample {
	out := c.CountIn(raw.InvariantChecks, func(*raw.Record) bool { return false }) // 0 where invariants were checked
	for _, r := range c.Records {
		if at := (records.Repetition{Run: r.Run, Rep: r.Rep}); r.Metric == raw.Violation && out[at] != nil {
			out[at][0] += r.Value // the last record of many stands for the others
		}
	}
	return out
}

// failedSyncs counts failed syncs in every repetition.
func failedSyncs(c *records.Samples, _ comparison.SameSource) estimate.Sample {
	out := estimate.Sample{}
	for _, r := range c.Records {
		at := records.Repetition{Run: r.Run, Rep: r.Rep}
		if out[at] == nil {
			out[at] = []float64{0}
		}
		if r.Metric == raw.SyncFailed {
			out[at][0] += r.Value
		}
	}
	return out
}

// repairs are the times to recover from each fault. Without a recovery, the value is the waiting time of the check,
// which is longer than any recovery.
func repairs(both []*records.Samples) []Figure {
	var names []string
	for _, c := range both {
		names = append(names, records.FaultsIn(c)...)
	}
	var out []Figure
	for _, name := range records.Distinct(names) {
		f := duration(figureRepaired, "Time to recover", 50, func(c *records.Samples, _ comparison.SameSource) estimate.Sample {
			values := estimate.Sample{}
			for _, r := range c.Records {
				if r.Metric == raw.FaultRepaired && r.Fault == name {
					values[records.Repetition{Run: r.Run, Rep: r.Rep}] = append(values[records.Repetition{Run: r.Run, Rep: r.Rep}], r.Value)
				}
			}
			return values
		})
		f.Detail = name
		out = append(out, f)
	}
	return out
}
