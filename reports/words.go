package reports

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"synclab/bench/raw"
	"synclab/reports/estimate"
)

// warnings collects the caveats of the report.
func warnings(c *collection, s *Summary) []string {
	var out []string
	for i, l := range c.runs {
		where := "run " + c.labels[i] + ": "
		if l.run.Status != "complete" {
			text := where + "its status is " + cmp.Or(l.run.Status, "unknown") + ", not complete"
			if l.run.Reason != "" {
				text += " (" + l.run.Reason + ")"
			}
			out = append(out, text+"; the report covers the records until then")
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
		if row.Repetitions < estimate.Enough && row.Unit == "s" {
			few++
		}
	}
	if few > 0 {
		out = append(out, fmt.Sprintf("%s of durations have fewer than %d repetitions: they show the observed range, without a 95 %% interval; for intervals, use --reps %[2]d", plural(few, "group"), estimate.Enough))
	}
	for _, g := range s.Growth {
		switch {
		case len(g.Sizes) < 3:
			out = append(out, fmt.Sprintf("growth of %s (%s) is fitted to 2 sizes only", g.Label(), g.Series))
		case g.Bends:
			out = append(out, fmt.Sprintf("growth of %s (%s) does not follow a power law: the fit is off by %s at %s Services; the exponents between sizes are %s", g.Label(), g.Series,
				signedPercent(g.Misfit), Grouped(int64(g.MisfitAt)), localText(g.Power)))
		}
	}
	return out
}

// ruleMismatches compares, after each settle, the kernel's rule counts with the expected numbers.
func ruleMismatches(c *collection) []string {
	type count struct {
		place
		table string
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
			for _, pass := range []raw.Metric{raw.RulesKernel, raw.RulesExpected} {
				for _, r := range samples.records {
					if r.Metric != pass {
						continue
					}
					key := count{place{run: r.run, rep: r.Rep, step: r.Step, family: r.Family}, r.Table}
					if pass == raw.RulesKernel {
						kernel[key] = r.Value
						continue
					}
					if have, ok := kernel[key]; ok {
						compared++
						if have != r.Value {
							differ++
							example = fmt.Sprintf("table %s: the kernel has %s, expected are %s", r.Table, Format(have, "count"), Format(r.Value, "count"))
						}
					}
				}
			}
			if differ > 0 {
				out = append(out, fmt.Sprintf("%s at %s Services: %d of %d rule counts differ from the expected numbers (%s)",
					s.name, Grouped(int64(cell.Services)), differ, compared, example))
			}
		}
	}
	return out
}

// maxNamed bounds how many items of a list a sentence names.
const maxNamed = 6

// differentMachines warns if compared runs differ in a condition that their numbers depend on.
func differentMachines(c *collection) []string {
	var out []string
	first := c.runs[0].run
	for i, l := range c.runs[1:] {
		var what []string
		for _, u := range unlikes(first, l.run) {
			cells := u.What == "scenario" || u.What == sizeField || strings.HasPrefix(u.What, "sweep.") // the cells show these
			if !cells {
				what = append(what, u.What)
			}
		}
		if left := len(what) - maxNamed; left > 0 {
			what = append(what[:maxNamed], fmt.Sprintf("%d more", left))
		}
		if len(what) > 0 {
			out = append(out, fmt.Sprintf("run %s differs from %s in %s: compare with care", c.labels[i+1], c.labels[0], joinWords(what)))
		}
	}
	return out
}

// sentences states the result for the largest cell of each series: ratios first where subjects are compared.
func sentences(s *Summary) []string {
	if len(s.KeyFigures) == 0 {
		return []string{"Nothing was measured: the runs have no records."}
	}
	answers := s.answers()
	largest := largestFigures(s.KeyFigures)
	s = s.shortNames(largest)
	compared := comparisonSentences(s)
	for _, note := range stopped(s.collected) {
		compared = append(compared, note+".")
	}
	lists := [][]string{
		syncSentence(largest), programmingSentence(largest), packetSentence(s, largest), phaseSentence(s, largest),
		periodSentence(s), growthSentence(s), capacitySentence(s),
	}
	if len(compared) > 0 { // the ratios cover durations, latencies and packets
		lists = append([][]string{compared[:min(6, len(compared))]}, phaseOfFew(s, largest), periodSentence(s), growthSentence(s), capacitySentence(s))
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
	out = out[:min(max(6, len(compared)+2), len(out))]
	return append(answers, out...)
}

// answers are the main results of runs about packets, flows, faults or invariants.
func (s *Summary) answers() []string {
	return slices.Concat(s.packetAnswers(), s.disruptionAnswers(), s.faultAnswers(), s.invariantAnswers())
}

// largestFigures returns, for each series, the line of its largest cell (the first of several settings).
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

// shortNames returns a copy. If all series share the proxier's name, the copy's names omit it, for shorter sentences.
func (s *Summary) shortNames(largest []KeyFigures) *Summary {
	prefixes := map[string]bool{}
	for _, k := range largest {
		prefix, _, _ := strings.Cut(k.Series, "/")
		prefixes[prefix] = true
	}
	short := *s
	if len(largest) < 2 || len(prefixes) > 1 {
		return &short
	}
	for i := range largest {
		largest[i].Series = shortSeries(largest[i].Series)
	}
	short.Phases, short.Traversal = slices.Clone(s.Phases), slices.Clone(s.Traversal)
	short.Growth, short.Capacity = slices.Clone(s.Growth), slices.Clone(s.Capacity)
	for i := range short.Phases {
		short.Phases[i].Series = shortSeries(short.Phases[i].Series)
	}
	for i := range short.Traversal {
		short.Traversal[i].Series = shortSeries(short.Traversal[i].Series)
	}
	for i := range short.Growth {
		short.Growth[i].Series = shortSeries(short.Growth[i].Series)
	}
	for i := range short.Capacity {
		short.Capacity[i].Series = shortSeries(short.Capacity[i].Series)
	}
	return &short
}

// each joins the parts of several series with their names. A single part has no name, since the first sentence names
// the series.
func each(names, parts []string) string {
	if len(parts) == 1 {
		return parts[0]
	}
	var named []string
	for i := range parts {
		named = append(named, "with "+names[i]+" "+parts[i])
	}
	return strings.Join(named, "; ")
}

func syncSentence(largest []KeyFigures) []string {
	var parts []string
	for _, k := range largest {
		var have []string
		if k.FullSync != nil {
			have = append(have, Format(k.FullSync.Median, "s")+" to write all rules (a full sync)")
		}
		if k.PartialSync != nil {
			have = append(have, Format(k.PartialSync.Median, "s")+" to write only what changed (a partial sync)")
		}
		if len(have) > 0 {
			parts = append(parts, k.Series+" needs "+joinWords(have))
		}
	}
	if len(parts) == 0 {
		return nil
	}
	text := "With " + sizesText([]Cell{largest[0].Cell}) + " each, " + strings.Join(parts, "; ")
	if tail := shortSettings(largest[0].Cell.Settings()); tail != "" {
		text += " (" + tail + ")"
	}
	return []string{text + "."}
}

func programmingSentence(largest []KeyFigures) []string {
	var names, parts []string
	for _, k := range largest {
		if d := k.Programming; d != nil {
			names = append(names, k.Series)
			parts = append(parts, fmt.Sprintf("within %s for half of %s and within %s for 99 of 100",
				Format(d.Median, "s"), plural(d.N, "change"), Format(d.P99, "s")))
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{"A change in the cluster reached the kernel " + each(names, parts) + "."}
}

func packetSentence(s *Summary, largest []KeyFigures) []string {
	if s.probedDeeply() {
		return nil // the packet answers state the cost
	}
	var names, parts []string
	for _, k := range largest {
		i := slices.IndexFunc(s.Traversal, func(t Traversal) bool { return t.Series == k.Series && t.Cell.id() == k.Cell.id() })
		if i < 0 || k.FirstPacketLast == nil {
			continue
		}
		t := s.Traversal[i]
		part := fmt.Sprintf("%s to the first Service and %s to the last", Format(k.FirstPacketFirst.Median, "s"), Format(k.FirstPacketLast.Median, "s"))
		switch {
		case t.SlopeLow != nil && *t.SlopeLow > 0: // otherwise the slope may be zero
			part += ", " + Format(t.Slope, "s") + " for each Service in front"
		case t.SlopeRangeLow != nil && *t.SlopeRangeLow > 0:
			part += ", observed " + Format(t.Slope, "s") + " for each Service in front"
		}
		names, parts = append(names, k.Series), append(parts, part)
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{"The first packet of a new connection costs " + each(names, parts) + "."}
}

// phaseSentence states how the time of a full sync divides into all its parts.
func phaseSentence(s *Summary, largest []KeyFigures) []string {
	var names, parts []string
	rest, untold := false, false
	for _, k := range largest {
		for _, p := range s.Phases {
			if p.Kind != "full" || p.Series != k.Series || p.Cell.id() != k.Cell.id() || p.Total == 0 {
				continue
			}
			names, parts = append(names, p.Series), append(parts, p.shares())
			rest, untold = rest || p.Rest > p.Total/200, untold || p.OwnUntold
		}
	}
	if len(parts) == 0 {
		return nil
	}
	text := "Of the time of a full sync " + each(names, parts)
	switch {
	case rest && untold:
		text += "; the rest is the proxier's own work where it reports none, starting tools, waiting and bookkeeping"
	case rest:
		text += "; the rest is starting tools, waiting and bookkeeping"
	}
	return []string{text + "."}
}

// shares lists the parts of a sync: "70 % goes to iptables-restore, 22 % to the kernel and 8 % to the rest".
func (p Phases) shares() string {
	var parts []float64
	var names []string
	left := p.Total // the time that no other part has
	add := func(seconds float64, to string) {
		parts, names = append(parts, seconds/p.Total), append(names, to)
		left -= seconds
	}
	switch {
	case p.tool == "":
		add(p.ToolSys, "the kernel")
		add(p.ToolUser, "its own thread between system calls")
	case p.splitKnown():
		add(p.ToolUser, p.tool)
		add(p.ToolSys, "the kernel")
	default:
		add(p.ToolUser+p.ToolSys, p.tool+" and the kernel together (too short for the kernel's clock to separate them)")
	}
	if !p.OwnUntold {
		add(p.Plan+p.Encode, "the proxier itself")
	}
	if p.Jumps > p.Total/20 {
		add(p.Jumps, "checking its base chains and jumps")
	}
	add(p.PostSync, "post-sync work")
	add(left, "the rest")
	var out []string
	for i, percent := range wholePercents(parts) {
		switch text := fmt.Sprintf("%d %%", percent); {
		case percent == 0:
		case len(out) == 0:
			out = append(out, text+" goes to "+names[i])
		default:
			out = append(out, text+" to "+names[i])
		}
	}
	return joinWords(out)
}

// wholePercents rounds shares that add up to one to percents that add up to 100. The most truncated are rounded up.
func wholePercents(shares []float64) []int {
	out := make([]int, len(shares))
	order := make([]int, len(shares))
	left := 100
	for i, share := range shares {
		out[i], order[i] = int(math.Floor(100*share+1e-9)), i
		left -= out[i]
	}
	cut := func(i int) float64 { return 100*shares[i] - float64(out[i]) }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(cut(b), cut(a)) })
	for _, i := range order[:max(0, min(left, len(order)))] {
		out[i]++
	}
	return out
}

// The kernel measures exactly how long a process ran. It divides user from system time by ticks, of 4 ms at 250 Hz.
// With few ticks the division is a guess, and with a single tick all time is of one kind.
const (
	clockTick   = 0.004 // s
	enoughTicks = 5
)

// splitKnown reports whether the user and system time of the tools are separately meaningful.
func (p Phases) splitKnown() bool {
	return p.tool == "" || p.ToolUser+p.ToolSys >= enoughTicks*clockTick
}

// toolOf returns the tool that a subject writes rules with; empty if it uses netlink.
func toolOf(series string) string {
	kubeProxy := strings.Contains(series, "kube-proxy")
	switch {
	case strings.Contains(series, "nftables") && kubeProxy:
		return "nft"
	case strings.Contains(series, "nftables"):
		return ""
	}
	return "iptables-restore"
}

// phaseOfFew returns the phases while the sentence stays short.
func phaseOfFew(s *Summary, largest []KeyFigures) []string {
	if len(largest) > 2 {
		return nil
	}
	return phaseSentence(s, largest)
}

// periodSentence names the settings with the lowest p99 in a sync-period sweep, and the share of time spent in syncs.
func periodSentence(s *Summary) []string {
	if len(periodLines(s)) == 0 {
		return nil
	}
	var best *KeyFigures
	for i, k := range s.KeyFigures {
		if k.Programming != nil && (best == nil || k.Programming.P99 < best.Programming.P99) {
			best = &s.KeyFigures[i]
		}
	}
	text := fmt.Sprintf("Of the measured settings, %s has the lowest latency: 99 of 100 changes were visible within %s",
		strings.ReplaceAll(shortSettings(best.Cell.Settings()), " ", " with "), Format(best.Programming.P99, "s"))
	if best.SyncBusy != nil {
		text += fmt.Sprintf("; syncs then ran %.0f %% of the time", 100**best.SyncBusy)
	}
	return []string{text + "."}
}

func growthSentence(s *Summary) []string {
	var names, parts []string
	for _, g := range s.Growth {
		if g.Metric == raw.FullSync {
			part := fmt.Sprintf("%.1f times as long", math.Pow(2, g.Slope))
			if g.Bends { // one number would be wrong at every size
				first, last := g.Local[0], g.Local[len(g.Local)-1]
				part = fmt.Sprintf("%.1f times as long from %s to %s and %.1f times from %s to %s", math.Pow(2, first.Exponent), Grouped(int64(first.From)),
					Grouped(int64(first.To)), math.Pow(2, last.Exponent), Grouped(int64(last.From)), Grouped(int64(last.To)))
			}
			names, parts = append(names, g.Series), append(parts, part)
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{"Over the measured sizes, twice as many Services make a full sync take " + each(names, parts) + "."}
}

func capacitySentence(s *Summary) []string {
	var parts []string
	for _, c := range s.Capacity {
		single := c.Clause != clauseAll && !slices.ContainsFunc(s.Capacity, func(o Capacity) bool {
			return o.Clause == clauseAll && o.Series == c.Series && o.Settings == c.Settings && o.Scenario == c.Scenario
		})
		if c.Clause == clauseAll || single {
			parts = append(parts, c.Series+": "+c.Verdict)
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("SLOs (full sync ≤ %s, network programming latency p99 ≤ %s, first packet ≤ %s): %s.",
		trimTick(Format(s.SLOs.FullSync, "s")), trimTick(Format(s.SLOs.ProgrammingP99, "s")),
		trimTick(Format(s.SLOs.FirstPacket, "s")), strings.Join(parts, "; "))}
}
