package comparison

import (
	"cmp"
	"slices"

	"synclab/bench/raw"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

// The functions below make the figures that only runs are compared by.

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
			out = append(out, packetKind(method, target))
		}
	}
	return out
}

// packetKind is the figure of one kind of destination, or without one of the last position, and of one method.
func packetKind(method, target string) Figure {
	f := Figure{Name: figurePacketKind, Text: "First packet", Unit: "s", Words: slower, OfRuns: true, Packet: true, Detail: target, Values: packetsTo(method, target)}
	if method != "" {
		f.Detail = method + ", " + cmp.Or(target, "last")
	}
	return f
}

// packetsTo returns first packets to a kind of destination; if target is empty, to the last position.
func packetsTo(method, target string) func(*records.Samples, SameSource) estimate.Sample {
	if target == "" {
		return lastPacketValues(method)
	}
	return func(c *records.Samples, _ SameSource) estimate.Sample {
		return c.ToTarget(raw.FirstPacket, method, target, false)
	}
}

func firstPacketValues(c *records.Samples, _ SameSource) estimate.Sample {
	positions := c.Positions("")
	if len(positions) < 2 {
		return nil
	}
	return c.Packets(raw.FirstPacket, "", positions[0])
}

func missValues(c *records.Samples, _ SameSource) estimate.Sample {
	return c.Packets(raw.FirstPacket, "", -1)
}

func chainValues(c *records.Samples, _ SameSource) estimate.Sample {
	return c.LastCounts(raw.Chains, func(string) bool { return true })
}

func flowFailed(r *raw.Record) bool    { return r.Outcome != "" && r.Outcome != records.Misrouted }
func flowMisrouted(r *raw.Record) bool { return r.Outcome == records.Misrouted }

func flowsBy(outcome func(*raw.Record) bool) func(*records.Samples, SameSource) estimate.Sample {
	return func(c *records.Samples, _ SameSource) estimate.Sample {
		return c.CountIn(raw.Flow, func(r *raw.Record) bool { return r.Metric == raw.Flow && outcome(r) })
	}
}

func answeredFlows(c *records.Samples, _ SameSource) estimate.Sample {
	return c.ByRepetition(func(r *raw.Record) bool { return r.Metric == raw.Flow && r.Outcome == "" })
}

func violationValues(c *records.Samples, _ SameSource) estimate.Sample {
	out := c.CountIn(raw.InvariantChecks, func(*raw.Record) bool { return false }) // 0 where invariants were checked
	for _, r := range c.Records {
		if at := (records.Repetition{Run: r.Run, Rep: r.Rep}); r.Metric == raw.Violation && out[at] != nil {
			out[at][0] += r.Value // the last record of many stands for the others
		}
	}
	return out
}

// failedSyncs counts failed syncs in every repetition.
func failedSyncs(c *records.Samples, _ SameSource) estimate.Sample {
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
		out = append(out, repair(name))
	}
	return out
}

func repair(fault string) Figure {
	return Figure{Name: figureRepaired, Text: "Time to recover", Unit: "s", Words: slower, OfRuns: true, Detail: fault, Values: func(c *records.Samples, _ SameSource) estimate.Sample {
		values := estimate.Sample{}
		for _, r := range c.Records { // also those with an error: see repairs
			if of := (records.Repetition{Run: r.Run, Rep: r.Rep}); r.Metric == raw.FaultRepaired && r.Fault == fault {
				values[of] = append(values[of], r.Value)
			}
		}
		return values
	}}
}
