package comparison

import (
	"slices"

	"synclab/bench/raw"
	"synclab/reports/estimate"
	"synclab/reports/records"
	"synclab/scenarios"
)

// The functions below read the figures of a side from the records of a cell, by repetition.

func valuesOf(metric raw.Metric) func(*records.Samples, SameSource) estimate.Sample {
	return func(c *records.Samples, _ SameSource) estimate.Sample {
		return c.ByRepetition(func(r *raw.Record) bool { return r.Metric == metric })
	}
}

// LargestOf returns the peak of each repetition.
func LargestOf(metric raw.Metric) func(*records.Samples, SameSource) estimate.Sample {
	return func(c *records.Samples, source SameSource) estimate.Sample {
		return largest(valuesOf(metric)(c, source))
	}
}

// largest keeps the largest value of each repetition.
func largest(out estimate.Sample) estimate.Sample {
	for of, values := range out {
		out[of] = []float64{slices.Max(values)}
	}
	return out
}

// writerWaits are the calls of other programs by one tool, those that failed included; or only the longest.
func writerWaits(tool string, longest bool) func(*records.Samples, SameSource) estimate.Sample {
	return func(c *records.Samples, _ SameSource) estimate.Sample {
		out := c.ByRepetition(func(r *raw.Record) bool { return r.Metric == raw.WriterWait && r.Method == tool })
		if longest {
			out = largest(out)
		}
		return out
	}
}

// TotalRSSValues adds the peak of the largest tool to the peak of the process, in repetitions that have the latter. A
// subject that starts no tool, such as one that uses netlink, has only the peak of its process.
func TotalRSSValues(c *records.Samples, source SameSource) estimate.Sample {
	out, children := LargestOf(raw.PeakRSS)(c, source), LargestOf(raw.ChildPeakRSS)(c, source)
	for of, own := range out {
		if child := children[of]; len(child) > 0 {
			out[of] = []float64{own[0] + child[0]}
		}
	}
	return out
}

// ofKind are the values of the syncs of one kind.
func ofKind(metric raw.Metric, kind string) func(*records.Samples, SameSource) estimate.Sample {
	return func(c *records.Samples, _ SameSource) estimate.Sample {
		return c.ByRepetition(func(r *raw.Record) bool { return r.Metric == metric && r.Kind == kind })
	}
}

// ofWrites are the values of the writes of rules: of full syncs only, where every side knows the kind.
func ofWrites(metric raw.Metric) func(*records.Samples, SameSource) estimate.Sample {
	return func(c *records.Samples, source SameSource) estimate.Sample {
		return c.ByRepetition(func(r *raw.Record) bool {
			return r.Metric == metric && (!source.fullRestores || r.Kind == "full")
		})
	}
}

// lastPacketValues are the first packets by one method to the last Service of the dispatch.
func lastPacketValues(method string) func(*records.Samples, SameSource) estimate.Sample {
	return func(c *records.Samples, _ SameSource) estimate.Sample {
		positions := c.Positions(method)
		if len(positions) == 0 {
			return nil
		}
		return c.Packets(raw.FirstPacket, method, positions[len(positions)-1])
	}
}

// ConnectionValues are a metric of the connections through Services, at all positions.
func ConnectionValues(metric raw.Metric) func(*records.Samples, SameSource) estimate.Sample {
	return func(c *records.Samples, _ SameSource) estimate.Sample {
		return c.ByRepetition(func(r *raw.Record) bool { return r.Metric == metric && r.Target == "" })
	}
}

func connectionTime(c *records.Samples, source SameSource) estimate.Sample {
	out := ConnectionValues(raw.ConnectionsPerSecond)(c, source)
	for _, values := range out {
		for i := range values {
			values[i] = 1 / values[i] // a turn completes one connection at least
		}
	}
	return out
}

// CountValues is the total over the tables at the end of each repetition, of rules or of elements.
func CountValues(elements bool) func(*records.Samples, SameSource) estimate.Sample {
	return func(c *records.Samples, source SameSource) estimate.Sample {
		metric := raw.Rules
		if source.KernelRules && c.Has(raw.RulesKernel) || elements && !c.HasElements(metric) || !c.Has(metric) {
			metric = raw.RulesKernel
		}
		return c.LastCounts(metric, func(table string) bool { return records.IsElements(table) == elements })
	}
}

// stepParts assigns steps to sums. The first create and the settle after it are the cold start. Steps that change the
// cluster, and the settles after them, are the changes. Other steps, such as a probe or a restart, are neither.
func stepParts(c *records.Samples) (cold, changes map[string]bool) {
	cold, changes = map[string]bool{}, map[string]bool{}
	var before map[string]bool // the set of the step before
	first := cold
	for _, name := range c.Steps() {
		_, kind := scenarios.StepOf(name)
		switch scenarios.RoleOf(kind) {
		case scenarios.Cold:
			before, first = first, nil
		case scenarios.Change:
			before = changes
		case scenarios.Wait: // part of the step before
		default:
			before = nil
		}
		if before != nil {
			before[name] = true
		}
	}
	return cold, changes
}

func ColdCPU(c *records.Samples, _ SameSource) estimate.Sample {
	cold, _ := stepParts(c)
	return cpuOf(c, cold)
}

// ChangeCPU also counts changes that were reverted before they were written. A slow subject meets more of them, and
// they cost CPU time as well.
func ChangeCPU(c *records.Samples, _ SameSource) estimate.Sample {
	_, steps := stepParts(c)
	out := cpuOf(c, steps)
	changes := c.ByRepetition(func(r *raw.Record) bool {
		return (r.Metric == raw.Reaction || r.Metric == raw.NetworkProgrammingLatency || r.Metric == raw.ChangeReverted) && steps[r.Step]
	})
	for of, cpu := range out {
		n := len(changes[of])
		if n == 0 {
			delete(out, of)
			continue
		}
		out[of] = []float64{cpu[0] / float64(n)}
	}
	return out
}

// cpuOf adds up the CPU time of steps. It omits stopped repetitions, which did only a part of the work.
func cpuOf(c *records.Samples, steps map[string]bool) estimate.Sample {
	out := c.ByRepetition(func(r *raw.Record) bool { return r.Metric == raw.SubjectCPU && steps[r.Step] })
	for of, values := range out {
		out[of] = []float64{Sum(values)}
	}
	for _, e := range ExceededOf(c) {
		delete(out, e.of)
	}
	return out
}

func Sum(values []float64) float64 {
	var total float64
	for _, v := range values {
		total += v
	}
	return total
}
