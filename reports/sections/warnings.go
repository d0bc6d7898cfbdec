package sections

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"synclab/bench/raw"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

// warning is a caveat. badge is its short form at the main figures of a series; without a series, of all.
type warning struct{ text, series, badge string }

// warnings collects the caveats of the report.
func warnings(c *records.Collection, s *Summary) []warning {
	var out []warning
	for i, l := range c.Runs {
		if l.Info.Status != raw.StatusComplete {
			text := fmt.Sprintf("run %s: its status is %s, not complete%s; the report covers the records until then",
				c.Labels[i], cmp.Or(l.Info.Status, "unknown"), records.SettingsTail(l.Info.Reason))
			out = append(out, warning{text: text, badge: "incomplete run"})
		}
		for _, remark := range l.Info.LeftOut {
			out = append(out, warning{text: doc.UpperFirst(remark), badge: "steps left out"})
		}
		for _, w := range l.Warnings {
			out = append(out, warning{text: "run " + c.Labels[i] + ": " + w})
		}
	}
	out = append(out, unobservedStalls(c)...)
	out = append(out, unsteadyCaches(c)...)
	for _, one := range c.Series {
		if n := c.Failed[one.Name]; n > 0 {
			out = append(out, warning{one.Name + ": " + doc.Plural(n, "sync") + " failed; their durations are left out", one.Name, doc.Plural(n, "failed sync")})
		}
	}
	for _, one := range c.Series {
		if shownByPackets(one) {
			out = append(out, warning{one.Name + ": Synclab knows no rules of this subject. New flows to the Services showed when a change was there; " +
				"between two flows to a Service it is not known. Changes that clients with affinity cannot notice are left out", one.Name, "seen by packets"})
		}
	}
	out = append(out, ruleMismatches(c)...)
	out = append(out, differentMachines(c)...)
	few := 0
	for _, row := range s.Rows {
		if row.Repetitions < estimate.Enough && row.Unit == "s" {
			few++
		}
	}
	if few > 0 {
		out = append(out, warning{text: fmt.Sprintf("%s of durations have fewer than %d repetitions: they show the observed range, "+
			"without a 95 %% interval; for intervals, use --reps %d", doc.Plural(few, "group"), estimate.Enough, estimate.Enough)}) // notes at the figures say so
	}
	for _, g := range s.Growth {
		switch g.Badge() { // it stands at the exponents: the main figures have none
		case twoSizes:
			out = append(out, warning{text: fmt.Sprintf("growth of %s (%s) is fitted to 2 sizes only", g.Label(), g.Series)})
		case bends:
			out = append(out, warning{text: fmt.Sprintf("growth of %s (%s) does not follow a power law: the fit is off by %s at %s Services; the exponents between sizes are %s",
				g.Label(), g.Series, signedPercent(g.Misfit), doc.Format(g.MisfitAt, "count"), LocalText(g.Power))})
		}
	}
	return out
}

// shownByPackets reports whether packets showed when a subject's changes were there.
func shownByPackets(one *records.Series) bool {
	for _, cell := range one.Cells {
		if slices.ContainsFunc(cell.Records, func(r records.Record) bool { return r.Method == raw.ByPackets }) {
			return true
		}
	}
	return false
}

// ruleMismatches compares, after each settle, the kernel's rule counts with the expected numbers.
func ruleMismatches(c *records.Collection) []warning {
	type count struct {
		records.Place
		table string
	}
	var out []warning
	for _, s := range c.Series {
		for _, cell := range c.Cells {
			samples := s.Cells[cell.ID()]
			if samples == nil {
				continue
			}
			kernel := map[count]float64{}
			compared, differ, example := 0, 0, ""
			for _, pass := range []raw.Metric{raw.RulesKernel, raw.RulesExpected} {
				for _, r := range samples.Records {
					if r.Metric != pass {
						continue
					}
					key := count{records.Place{Run: r.Run, Rep: r.Rep, Step: r.Step, Family: r.Family}, r.Table}
					if pass == raw.RulesKernel {
						kernel[key] = r.Value
						continue
					}
					if have, ok := kernel[key]; ok {
						compared++
						if have != r.Value {
							differ++
							example = fmt.Sprintf("table %s: the kernel has %s, expected are %s", r.Table, doc.Format(have, "count"), doc.Format(r.Value, "count"))
						}
					}
				}
			}
			if differ > 0 {
				text := fmt.Sprintf("%s at %s Services: %d of %d rule counts differ from the expected numbers (%s)", s.Name, doc.Grouped(int64(cell.Services)), differ, compared, example)
				out = append(out, warning{text, s.Name, "unexpected rule counts"})
			}
		}
	}
	return out
}

// maxNamed bounds how many items of a list a sentence names.
const maxNamed = 6

// differentMachines warns if compared runs differ in a condition that their numbers depend on.
func differentMachines(c *records.Collection) []warning {
	var out []warning
	first := c.Runs[0].Info
	for i, l := range c.Runs[1:] {
		var what []string
		for _, u := range records.Unlikes(first, l.Info) {
			cells := u.What == "scenario" || u.What == records.SizeField || strings.HasPrefix(u.What, "sweep.") // the cells show these
			if !cells {
				what = append(what, u.What)
			}
		}
		if left := len(what) - maxNamed; left > 0 {
			what = append(what[:maxNamed], fmt.Sprintf("%d more", left))
		}
		if len(what) > 0 {
			out = append(out, warning{text: fmt.Sprintf("run %s differs from %s in %s: compare with care", c.Labels[i+1], c.Labels[0], doc.JoinWords(what)), badge: "runs differ"})
		}
	}
	return out
}

// unsteadyFrom is the ratio of loads from a cache from which durations of two repetitions do not compare.
const unsteadyFrom = 2.0

// unsteadyCaches warns of a CPU whose caches were slower beside some repetitions than beside others.
func unsteadyCaches(c *records.Collection) []warning {
	all, worst := map[string][]float64{}, ""
	for _, samples := range c.Each() {
		beside := map[string]estimate.Sample{} // of each CPU
		for _, r := range samples.Records {
			if r.Metric == raw.CacheLoad { // each machine and each guest of a report has other caches
				of, cpu := records.Repetition{Run: r.Run, Rep: r.Rep}, fmt.Sprint(r.Kind, "\x00", r.Run, r.Params[raw.KernelField])
				if beside[cpu] == nil {
					beside[cpu] = estimate.Sample{}
				}
				beside[cpu][of] = append(beside[cpu][of], r.Value)
			}
		}
		for cpu, values := range beside {
			for _, both := range values {
				all[cpu] = append(all[cpu], slices.Max(both))
			}
		}
	}
	ratio := unsteadyFrom
	for _, cpu := range slices.Sorted(maps.Keys(all)) {
		if least, most := slices.Min(all[cpu]), slices.Max(all[cpu]); most >= ratio*least {
			ratio = most / least
			cpu, _, _ = strings.Cut(cpu, "\x00")
			worst = fmt.Sprintf("the machine's caches were not equally free: on %s, one load from 4 MiB took %s beside one repetition, and %s beside another. "+
				"Other tenants of the machine may be the cause. Durations may differ for the same reason", cpu, doc.Format(least, "s"), doc.Format(most, "s"))
		}
	}
	if worst == "" {
		return nil
	}
	return []warning{{text: worst, badge: "unsteady caches"}}
}
