package sections

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"synclab/bench/raw"
	"synclab/reports/comparison"
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
			out = append(out, warning{text: doc.Sentence(incompleteRun, warningWords{Label: c.Labels[i], Status: l.Info.Status, Reason: l.Info.Reason}), badge: "incomplete run"})
		}
		for _, remark := range l.Info.LeftOut {
			out = append(out, warning{text: doc.UpperFirst(remark), badge: "steps left out"})
		}
		for _, w := range l.Warnings {
			out = append(out, warning{text: "run " + c.Labels[i] + ": " + w})
		}
	}
	out = append(out, unobservedStalls(c)...)
	for _, one := range c.Series {
		if n := c.Failed[one.Name]; n > 0 {
			out = append(out, warning{doc.Sentence(failedDurations, warningWords{Series: one.Name, Failed: n}), one.Name, doc.Plural(n, "failed sync")})
		}
	}
	for _, one := range c.Series {
		if shownByPackets(one) {
			out = append(out, warning{doc.Sentence(byPackets, warningWords{Series: one.Name}), one.Name, "seen by packets"})
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
		out = append(out, warning{text: doc.Sentence(fewRepetitions, warningWords{Groups: few, Enough: estimate.Enough})}) // notes at the figures say so
	}
	for _, g := range s.Growth {
		switch g.Badge() { // it stands at the exponents: the main figures have none
		case twoSizes:
			out = append(out, warning{text: doc.Sentence(fewSizes, g)})
		case bends:
			out = append(out, warning{text: doc.Sentence(noPowerLaw, g)})
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
			told := ruleWords{Series: s.Name, Services: cell.Services}
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
						told.Compared++
						if have != r.Value {
							told.Differ++
							told.Table, told.Kernel, told.Expected = r.Table, have, r.Value
						}
					}
				}
			}
			if told.Differ > 0 {
				out = append(out, warning{doc.Sentence(rulesDiffer, told), s.Name, "unexpected rule counts"})
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
			out = append(out, warning{text: doc.Sentence(machinesDiffer, warningWords{Label: c.Labels[i+1], First: c.Labels[0], What: what}), badge: "runs differ"})
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
	for _, note := range comparison.Stopped(s.Collected) {
		compared = append(compared, note+".")
	}
	lists := [][]string{
		syncSentence(largest), programmingSentence(largest), packetSentence(s, largest), PhaseSentence(s, largest),
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
		out = append([]string{doc.Sentence(syncsFailed, failed)}, out...)
	}
	out = out[:min(max(6, len(compared)+2), len(out))]
	return append(answers, out...)
}

// answers are the main results of runs about packets, flows, faults or invariants.
func (s *Summary) answers() []string {
	return slices.Concat(s.packetAnswers(), s.DisruptionAnswers(), s.faultAnswers(), s.invariantAnswers())
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
		largest[i].Series = records.ShortSeries(largest[i].Series)
	}
	short.Phases, short.Traversal = slices.Clone(s.Phases), slices.Clone(s.Traversal)
	short.Growth, short.Capacity = slices.Clone(s.Growth), slices.Clone(s.Capacity)
	for i := range short.Phases {
		short.Phases[i].Series = records.ShortSeries(short.Phases[i].Series)
	}
	for i := range short.Traversal {
		short.Traversal[i].Series = records.ShortSeries(short.Traversal[i].Series)
	}
	for i := range short.Growth {
		short.Growth[i].Series = records.ShortSeries(short.Growth[i].Series)
	}
	for i := range short.Capacity {
		short.Capacity[i].Series = records.ShortSeries(short.Capacity[i].Series)
	}
	return &short
}

func syncSentence(largest []KeyFigures) []string {
	synced := slices.DeleteFunc(slices.Clone(largest), func(k KeyFigures) bool { return k.FullSync == nil && k.PartialSync == nil })
	if len(synced) == 0 {
		return nil
	}
	cell := largest[0].Cell
	return []string{doc.Sentence(syncTimes, syncWords{records.SizesText([]records.Cell{cell}), records.ShortSettings(cell.Settings()), synced})}
}

func programmingSentence(largest []KeyFigures) []string {
	programmed := slices.DeleteFunc(slices.Clone(largest), func(k KeyFigures) bool { return k.Programming == nil })
	if len(programmed) == 0 {
		return nil
	}
	return []string{doc.Sentence(changeTimes, programmed)}
}

func packetSentence(s *Summary, largest []KeyFigures) []string {
	if s.ProbedDeeply() {
		return nil // the packet answers state the cost
	}
	var told []firstPacketWords
	for _, k := range largest {
		i := slices.IndexFunc(s.Traversal, func(t Traversal) bool { return t.Series == k.Series && t.Cell.ID() == k.Cell.ID() })
		if i < 0 || k.FirstPacketLast == nil {
			continue
		}
		one := firstPacketWords{Series: k.Series, First: k.FirstPacketFirst.Median, Last: k.FirstPacketLast.Median}
		switch t := s.Traversal[i]; {
		case t.SlopeLow != nil && *t.SlopeLow > 0:
			one.Slope = &t.Slope
		case t.SlopeRangeLow != nil && *t.SlopeRangeLow > 0:
			one.Slope, one.Observed = &t.Slope, true
		}
		told = append(told, one)
	}
	if len(told) == 0 {
		return nil
	}
	return []string{doc.Sentence(firstPackets, told)}
}

// PhaseSentence states how the time of a full sync divides into all its parts.
func PhaseSentence(s *Summary, largest []KeyFigures) []string {
	var told phaseWords
	for _, k := range largest {
		for _, p := range s.Phases {
			if p.Kind != "full" || p.Series != k.Series || p.Cell.ID() != k.Cell.ID() || p.Total == 0 {
				continue
			}
			told.Phases = append(told.Phases, seriesShares{p.Series, p.Shares()})
			told.Rest, told.Untold = told.Rest || p.Rest > p.Total/200, told.Untold || p.OwnUntold
		}
	}
	if len(told.Phases) == 0 {
		return nil
	}
	return []string{doc.Sentence(phasesOfSync, told)}
}

// Shares lists the parts of a sync: "70 % goes to iptables-restore, 22 % to the kernel and 8 % to the rest".
func (p Phases) Shares() string {
	var parts []float64
	var names []string
	left := p.Total // the time that no other part has
	add := func(seconds float64, to string) {
		parts, names = append(parts, seconds/p.Total), append(names, to)
		left -= seconds
	}
	switch {
	case p.Tool == "":
		add(p.ToolSys, "the kernel")
		add(p.ToolUser, "its own thread between system calls")
	case p.SplitKnown():
		add(p.ToolUser, p.Tool)
		add(p.ToolSys, "the kernel")
	default:
		add(p.ToolUser+p.ToolSys, p.Tool+" and the kernel together (too short for the kernel's clock to separate them)")
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
	for i, percent := range WholePercents(parts) {
		if percent != 0 {
			out = append(out, doc.Sentence(phaseShare, shareWords{percent, names[i], len(out) == 0}))
		}
	}
	return doc.JoinWords(out)
}

// WholePercents rounds shares that add up to one to percents that add up to 100. The most truncated are rounded up.
func WholePercents(shares []float64) []int {
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
	ClockTick   = 0.004 // s
	EnoughTicks = 5
)

// SplitKnown reports whether the user and system time of the tools are separately meaningful.
func (p Phases) SplitKnown() bool {
	return p.Tool == "" || p.ToolUser+p.ToolSys >= EnoughTicks*ClockTick
}

// ToolOf returns the tool that a subject writes rules with; empty if it uses netlink.
func ToolOf(series string) string {
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
	return PhaseSentence(s, largest)
}

// periodSentence names the settings with the lowest p99 in a sync-period sweep, and the share of time spent in syncs.
func periodSentence(s *Summary) []string {
	if len(PeriodLines(s)) == 0 {
		return nil
	}
	var best *KeyFigures
	for i, k := range s.KeyFigures {
		if k.Programming != nil && (best == nil || k.Programming.P99 < best.Programming.P99) {
			best = &s.KeyFigures[i]
		}
	}
	settings := strings.ReplaceAll(records.ShortSettings(best.Cell.Settings()), " ", " with ")
	return []string{doc.Sentence(bestPeriod, periodWords{settings, best.Programming.P99, best.SyncBusy})}
}

func growthSentence(s *Summary) []string {
	var told []growthWords
	for _, g := range s.Growth {
		if g.Metric != raw.FullSync {
			continue
		}
		one := growthWords{Growth: g}
		if g.Bends { // one number would be wrong at every size
			one.First, one.Last = g.Local[0], g.Local[len(g.Local)-1]
		}
		told = append(told, one)
	}
	if len(told) == 0 {
		return nil
	}
	withSettings(told, func(g *growthWords) (*string, string) { return &g.Series, g.Settings })
	return []string{doc.Sentence(doubledSizes, told)}
}

// withSettings adds the settings to the names of series, if they differ.
func withSettings[T any](told []T, of func(*T) (series *string, settings string)) {
	_, first := of(&told[0])
	if !slices.ContainsFunc(told, func(one T) bool { _, own := of(&one); return own != first }) {
		return
	}
	for i := range told {
		series, settings := of(&told[i])
		*series += records.SettingsTail(records.ShortSettings(settings))
	}
}

func capacitySentence(s *Summary) []string {
	var told []Capacity
	for _, c := range s.Capacity {
		single := c.Clause != ClauseAll && !slices.ContainsFunc(s.Capacity, func(o Capacity) bool {
			return o.Clause == ClauseAll && o.Series == c.Series && o.Settings == c.Settings && o.Scenario == c.Scenario
		})
		if c.Clause == ClauseAll || single {
			told = append(told, c)
		}
	}
	if len(told) == 0 {
		return nil
	}
	withSettings(told, func(c *Capacity) (*string, string) { return &c.Series, c.Settings })
	return []string{doc.Sentence(slosMet, sloWords{s.SLOs, told})}
}
