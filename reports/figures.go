package reports

import (
	"cmp"
	"slices"
	"strings"

	"synclab/bench"
	"synclab/reports/estimate"
)

// How each figure of a side is read from the records of a cell, by repetition.

func (c *cellSamples) byRepetition(want func(*bench.Record) bool) estimate.Sample {
	out := estimate.Sample{}
	for _, r := range c.records {
		if r.Error == "" && want(r.Record) {
			of := repetition{Run: r.run, Rep: r.Rep}
			out[of] = append(out[of], r.Value)
		}
	}
	return out
}

func valuesOf(metric bench.Metric) func(*cellSamples, sameSource) estimate.Sample {
	return func(c *cellSamples, _ sameSource) estimate.Sample {
		return c.byRepetition(func(r *bench.Record) bool { return r.Metric == metric })
	}
}

// largestOf is the peak of a repetition.
func largestOf(metric bench.Metric) func(*cellSamples, sameSource) estimate.Sample {
	return func(c *cellSamples, source sameSource) estimate.Sample {
		out := valuesOf(metric)(c, source)
		for of, values := range out {
			out[of] = []float64{slices.Max(values)}
		}
		return out
	}
}

// totalRSSValues add the peaks of the process and of its largest tool, of repetitions that know the former. One without
// tools, such as a subject that speaks to the kernel itself, has no more than its own.
func totalRSSValues(c *cellSamples, source sameSource) estimate.Sample {
	out, children := largestOf(bench.PeakRSS)(c, source), largestOf(bench.ChildPeakRSS)(c, source)
	for of, own := range out {
		if child := children[of]; len(child) > 0 {
			out[of] = []float64{own[0] + child[0]}
		}
	}
	return out
}

// kernelValues are the system times of syncs of one kind.
func kernelValues(kind string) func(*cellSamples, sameSource) estimate.Sample {
	return func(c *cellSamples, _ sameSource) estimate.Sample {
		return c.byRepetition(func(r *bench.Record) bool { return r.Metric == bench.ToolSys && r.Kind == kind })
	}
}

func restoresValues(c *cellSamples, source sameSource) estimate.Sample {
	return c.byRepetition(func(r *bench.Record) bool {
		return r.Metric == bench.Restores && (!source.fullRestores || r.Kind == "full")
	})
}

func restoreValues(c *cellSamples, source sameSource) estimate.Sample {
	return c.byRepetition(func(r *bench.Record) bool {
		return r.Metric == bench.Restore && (!source.fullRestores || r.Kind == "full")
	})
}

func lastPacketValues(c *cellSamples, _ sameSource) estimate.Sample {
	positions := c.positions("")
	if len(positions) == 0 {
		return nil
	}
	last := positions[len(positions)-1]
	return c.byRepetition(func(r *bench.Record) bool {
		return r.Metric == bench.FirstPacket && r.Target == "" && methodOf(r) == "" && r.Position != nil && *r.Position == last
	})
}

// isElements tells counts of set and map elements from those of rules: "nftables/elements".
func isElements(table string) bool { return strings.HasSuffix(table, "elements") }

// countValues is the total of the tables at the end of each repetition, of rules or of elements.
func countValues(elements bool) func(*cellSamples, sameSource) estimate.Sample {
	return func(c *cellSamples, source sameSource) estimate.Sample {
		metric := bench.Rules
		if source.kernelRules && c.has(bench.RulesKernel) || elements && !c.hasElements(metric) || !c.has(metric) {
			metric = bench.RulesKernel
		}
		return c.lastCounts(metric, func(table string) bool { return isElements(table) == elements })
	}
}

// lastCounts adds up the last counts of tables and families in each repetition. A partial sync's count may be of what it
// wrote: others are taken where there are any.
func (c *cellSamples) lastCounts(metric bench.Metric, want func(table string) bool) estimate.Sample {
	type part struct {
		repetition
		table, family string
	}
	last, whole := map[part]float64{}, map[part]bool{}
	for _, r := range c.records {
		if r.Metric != metric || r.Error != "" || !want(r.Table) {
			continue
		}
		key := part{repetition{Run: r.run, Rep: r.Rep}, r.Table, r.Family}
		if r.Kind != "partial" || !whole[key] {
			last[key] = r.Value
			whole[key] = whole[key] || r.Kind != "partial"
		}
	}
	out := estimate.Sample{}
	for key, value := range last {
		if out[key.repetition] == nil {
			out[key.repetition] = []float64{0}
		}
		out[key.repetition][0] += value
	}
	return out
}

func (c *cellSamples) hasElements(metric bench.Metric) bool {
	return slices.ContainsFunc(c.records, func(r taggedRecord) bool { return r.Metric == metric && isElements(r.Table) })
}

// stepParts says to which of the sums a step belongs: the first create and the settle after it are the cold start; steps
// that change the cluster, and the settles after them, are the changes. Whatever else, a probe or a restart, is neither.
func stepParts(c *cellSamples) (cold, changes map[string]bool) {
	names := map[string]bool{}
	for _, r := range c.records {
		names[r.Step] = true
	}
	var steps []string
	for name := range names {
		if name != "" {
			steps = append(steps, name)
		}
	}
	slices.SortFunc(steps, func(a, b string) int {
		i, _ := stepOf(a)
		j, _ := stepOf(b)
		return cmp.Or(i-j, strings.Compare(a, b))
	})
	cold, changes = map[string]bool{}, map[string]bool{}
	var before map[string]bool // what the step in front belongs to
	created := false
	for _, name := range steps {
		_, kind := stepOf(name)
		switch kind {
		case "create":
			before = nil
			if !created {
				before = cold
			}
			created = true
		case "react", "churn", "rollout", "scale", "nodeLoss", "follow":
			before = changes
		case "settle": // the work of the step in front
		default:
			before = nil
		}
		if before != nil {
			before[name] = true
		}
	}
	return cold, changes
}

func coldCPU(c *cellSamples, _ sameSource) estimate.Sample {
	cold, _ := stepParts(c)
	return c.cpuOf(cold)
}

// cpuOf adds up the CPU time of steps. Repetitions that were stopped are left out: they did not do all of it.
func (c *cellSamples) cpuOf(steps map[string]bool) estimate.Sample {
	out := c.byRepetition(func(r *bench.Record) bool { return r.Metric == bench.SubjectCPU && steps[r.Step] })
	for of, values := range out {
		out[of] = []float64{sum(values)}
	}
	for _, e := range c.exceeded() {
		delete(out, e.of)
	}
	return out
}

// changeCPU counts changes that were undone before they were written too: a subject that is late meets more of these, and
// they are work for it all the same.
func changeCPU(c *cellSamples, _ sameSource) estimate.Sample {
	_, steps := stepParts(c)
	out := c.cpuOf(steps)
	changes := c.byRepetition(func(r *bench.Record) bool {
		return (r.Metric == bench.Reaction || r.Metric == bench.NetworkProgrammingLatency || r.Metric == bench.ChangeUndone) && steps[r.Step]
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
