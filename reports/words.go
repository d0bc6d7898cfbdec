package reports

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"synclab/bench"
)

// warnings collects what a reader must know before trusting a number.
func warnings(c *collection, s *Summary) []string {
	var out []string
	for i, l := range c.runs {
		where := "run " + c.labels[i] + ": "
		if l.run.Status != "complete" {
			text := where + "its status is " + cmpOr(l.run.Status, "unknown") + ", not complete"
			if l.run.Reason != "" {
				text += " (" + l.run.Reason + ")"
			}
			out = append(out, text+"; the numbers are of what was measured until then")
		}
		for _, w := range l.warnings {
			out = append(out, where+w)
		}
	}
	for _, one := range c.series {
		if n := c.failed[one.name]; n > 0 {
			out = append(out, fmt.Sprintf("%s: %s failed; their durations are left out", one.name, plural(n, "sync")))
		}
	}
	out = append(out, ruleMismatches(c)...)
	out = append(out, differentMachines(c)...)
	few := 0
	for _, row := range s.Rows {
		if row.Low == nil && row.Unit == "s" {
			few++
		}
	}
	if few > 0 {
		out = append(out, fmt.Sprintf("%s of durations with fewer than 6 values have no 95 %% confidence interval; more repetitions (REPS) give one", plural(few, "group")))
	}
	for _, g := range s.Growth {
		if len(g.Sizes) < 3 {
			out = append(out, fmt.Sprintf("growth of %s (%s) rests on 2 sizes only", g.Label(), g.Series))
		}
	}
	return out
}

func cmpOr(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// ruleMismatches compares the counts of each settle: what the kernel holds against the closed form.
func ruleMismatches(c *collection) []string {
	type count struct {
		place
		table, step string
	}
	var out []string
	for _, s := range c.series {
		for _, cell := range c.cells {
			samples := s.cells[cell.id()]
			if samples == nil {
				continue
			}
			kernel := map[count]float64{}
			differ, compared, example := 0, 0, ""
			for _, pass := range []bench.Metric{bench.RulesKernel, bench.RulesClosedForm} {
				for _, r := range samples.records {
					if r.Metric != pass {
						continue
					}
					key := count{place{run: r.run, rep: r.Rep, family: r.Family}, r.Table, r.Step}
					if pass == bench.RulesKernel {
						kernel[key] = r.Value
						continue
					}
					if have, ok := kernel[key]; ok {
						compared++
						if have != r.Value {
							differ++
							example = fmt.Sprintf("table %s: the kernel has %s, the closed form says %s", r.Table, Format(have, "count"), Format(r.Value, "count"))
						}
					}
				}
			}
			if differ > 0 {
				out = append(out, fmt.Sprintf("%s at %s Services: %d of %d rule counts differ from the closed form (%s)",
					s.name, Grouped(int64(cell.Services)), differ, compared, example))
			}
		}
	}
	return out
}

// differentMachines warns when runs side by side are not of one machine and one set of tools.
func differentMachines(c *collection) []string {
	var out []string
	first := c.runs[0].run
	for i, l := range c.runs[1:] {
		var what []string
		if l.run.Machine != first.Machine {
			what = append(what, "machine")
		}
		if l.run.Versions != first.Versions {
			what = append(what, "versions")
		}
		if len(what) > 0 {
			out = append(out, fmt.Sprintf("run %s was made with another %s than %s: compare with care",
				c.labels[i+1], strings.Join(what, " and other "), c.labels[0]))
		}
	}
	return out
}

// sentences say the result in plain words, at most six, about the largest cell of each series.
func sentences(s *Summary) []string {
	if len(s.KeyFigures) == 0 {
		return []string{"Nothing was measured: there are no records to report on."}
	}
	largest := largestFigures(s.KeyFigures)
	lists := [][]string{
		syncSentence(largest), programmingSentence(largest), packetSentence(s, largest), phaseSentence(s, largest),
		growthSentence(s), capacitySentence(s),
	}
	var out []string
	for _, l := range lists {
		out = append(out, l...)
	}
	var failed int
	for _, k := range s.KeyFigures {
		failed += k.SyncsFailed
	}
	if failed > 0 {
		out = append([]string{plural(failed, "sync") + " failed during the measurement."}, out...)
	}
	return out[:min(6, len(out))]
}

// largestFigures is, for each series, the line of its largest cell (the first of several settings).
func largestFigures(all []KeyFigures) []KeyFigures {
	var out []KeyFigures
	for _, k := range all {
		i := slices.IndexFunc(out, func(o KeyFigures) bool { return o.Series == k.Series })
		switch {
		case i < 0:
			out = append(out, k)
		case k.Cell.Services > out[i].Cell.Services:
			out[i] = k
		}
	}
	return out
}

func syncSentence(largest []KeyFigures) []string {
	var parts []string
	for _, k := range largest {
		var have []string
		if k.FullSync != nil {
			have = append(have, Format(k.FullSync.Median, "s")+" to write all rules (a full sync)")
		}
		if k.PartialSync != nil {
			have = append(have, Format(k.PartialSync.Median, "s")+" to bring a few changes in (a partial sync)")
		}
		if len(have) > 0 {
			parts = append(parts, k.Series+" needs "+joinWords(have))
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{"With " + sizesText([]Cell{largest[0].Cell}) + " each, " + strings.Join(parts, "; ") + "."}
}

func programmingSentence(largest []KeyFigures) []string {
	var parts []string
	for _, k := range largest {
		if d := k.Programming; d != nil {
			parts = append(parts, fmt.Sprintf("%s for half of %s, and %s for 99 of 100 (%s)",
				Format(d.Median, "s"), plural(d.N, "change"), Format(d.P99, "s"), k.Series))
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{"From a change in the cluster to its rules in the kernel it takes at most " + strings.Join(parts, "; ") + "."}
}

func packetSentence(s *Summary, largest []KeyFigures) []string {
	var parts []string
	for _, k := range largest {
		i := slices.IndexFunc(s.Traversal, func(t Traversal) bool { return t.Series == k.Series && t.Cell.id() == k.Cell.id() })
		if i < 0 || k.FirstPacketLast == nil {
			continue
		}
		t := s.Traversal[i]
		part := fmt.Sprintf("%s at the first Service and %s at the last", Format(k.FirstPacketFirst.Median, "s"), Format(k.FirstPacketLast.Median, "s"))
		if t.N >= 2 && t.Slope > 0 {
			part += ", " + Format(t.Slope, "s") + " for each Service in front of it"
		}
		parts = append(parts, part+" ("+k.Series+")")
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{"The first packet of a new connection pays " + strings.Join(parts, "; ") + "."}
}

func phaseSentence(s *Summary, largest []KeyFigures) []string {
	var parts []string
	for _, k := range largest {
		for _, p := range s.Phases {
			if p.Kind != "full" || p.Series != k.Series || p.Cell.id() != k.Cell.id() || p.Total == 0 {
				continue
			}
			percent := func(v float64) string { return fmt.Sprintf("%.0f %%", math.Min(100, 100*v/p.Total)) }
			parts = append(parts, fmt.Sprintf("%s goes to the iptables tool, %s to the kernel, %s to the proxier itself (%s)",
				percent(p.ToolUser), percent(p.ToolSys), percent(p.Plan+p.Encode), p.Series))
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{"Of a full sync's time " + strings.Join(parts, "; ") + "."}
}

func growthSentence(s *Summary) []string {
	var parts []string
	for _, g := range s.Growth {
		if g.Metric == bench.FullSync {
			parts = append(parts, fmt.Sprintf("%.1f times as long (%s)", math.Pow(2, g.Slope), g.Series))
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{"Over the measured sizes, twice as many Services make a full sync take " + joinWords(parts) + "."}
}

func capacitySentence(s *Summary) []string {
	var parts []string
	for _, c := range s.Capacity {
		single := c.Clause != clauseAll && !slices.ContainsFunc(s.Capacity, func(o Capacity) bool {
			return o.Clause == clauseAll && o.Series == c.Series && o.Settings == c.Settings && o.Scenario == c.Scenario
		})
		if c.Clause == clauseAll || single {
			parts = append(parts, c.Series+" "+c.Verdict)
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("The promise (full sync ≤ %s, 99 of 100 changes ≤ %s, first packet ≤ %s): %s.",
		Format(s.Promise.FullSync, "s"), Format(s.Promise.ProgrammingP99, "s"), Format(s.Promise.FirstPacket, "s"), strings.Join(parts, "; "))}
}
