package reports

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"synclab/bench"
	"synclab/reports/estimate"
)

// figureValue is an estimate for tables: "1.52 s ± 3 %", "> 600 s".
func figureValue(f *estimate.Estimate, spread bool) string {
	switch {
	case f == nil:
		return "–"
	case f.AtLeast:
		return limitText(f.Value, f.Unit)
	}
	text := Format(f.Value, f.Unit)
	if share, ok := f.Spread(); ok && spread && f.Unit != "count" {
		text += spreadText(share)
	}
	return text
}

// spreadText is the wider half of an interval as a share, rounded up: an interval is not made narrower by writing it.
func spreadText(share float64) string { return fmt.Sprintf(" ± %.0f %%", math.Ceil(100*share-1e-9)) }

// spokenFigures are those that sentences speak of, the leading ones first, with the verb of each.
var spokenFigures = []struct{ name, verb, noun string }{
	{figureReaction, "had an isolated change in the kernel", "reaction"},
	{figureCold, "finished its cold start", "cold start"},
	{figureNPL99, "had 99 of 100 changes in the kernel", "latency p99"},
	{figureFirstPacket, "let the first packet through", "first packet"},
	{figureFull, "reported its full sync", "self-reported full sync"},
	{figurePartial, "reported its partial syncs", "self-reported partial sync"},
	{figureCPU, "used", "CPU per change"},
	{figureTotalRSS, "used", "peak memory with tools"},
}

// maxSpokenPairs bounds the sentences about pairs; the tables have the rest.
const maxSpokenPairs = 7

// comparisonSentences say, at the largest compared size, what each subject does faster and slower than its baseline.
func comparisonSentences(s *Summary) []string {
	c := s.largestComparison()
	if c == nil {
		return nil
	}
	var out []string
	others := slices.ContainsFunc(c.Sides, func(side Side) bool { return !strings.HasPrefix(side.Subject, kubeProxy) })
	for _, side := range c.Sides {
		if others && strings.HasPrefix(side.Subject, kubeProxy) {
			continue // what is set beside kube-proxy is spoken of
		}
		baseline := c.nearest(side)
		if text := c.pairSentence(side.Series, baseline); text != "" && baseline != "" {
			out = append(out, text)
		}
	}
	return out[:min(maxSpokenPairs, len(out))]
}

// largestComparison is the one of the most Services; of several settings the first.
func (s *Summary) largestComparison() *CellComparison {
	var largest *CellComparison
	for i, c := range s.Comparisons {
		if largest == nil || c.Cell.Services > largest.Cell.Services {
			largest = &s.Comparisons[i]
		}
	}
	return largest
}

func (c *CellComparison) pairSentence(b, a string) string {
	var told, same []string
	var few []*Comparison // without an interval
	for _, spoken := range spokenFigures {
		ratio := c.ratio(b, a, spoken.name)
		switch {
		case ratio == nil || ratio.Words == "unknown":
			continue
		case !ratio.apart():
			same = append(same, spoken.noun)
		case len(told) == 0:
			object := ""
			if spoken.verb == "used" {
				object = " " + spoken.noun
			}
			told = append(told, fmt.Sprintf("%s %s%s than %s (%s)", spoken.verb, ratio.spoken(), object, a, c.bracket(ratio)))
		default:
			text := spoken.noun + " " + ratio.spoken()
			if interval := ratio.intervalText(); interval != "" {
				text += " (" + interval + ")"
			}
			told = append(told, text)
		}
		if ratio.Warning != "" && ratio.Low == nil {
			few = append(few, ratio)
		}
	}
	if len(told)+len(same) == 0 {
		return ""
	}
	text := "At " + sizesText([]Cell{c.Cell}) + settingsTail(shortSettings(c.Cell.Settings())) + ", " + b
	switch {
	case len(told) == 0:
		text += " shows no difference to " + a + " in " + joinWords(same)
	default:
		text += " " + told[0]
		if len(told) > 1 {
			text += "; " + joinWords(told[1:])
		}
		if len(same) > 0 {
			text += "; no difference shown in " + joinWords(same)
		}
	}
	if why := whyNoInterval(few); why != "" {
		text += " (" + why + ")"
	}
	return text + "."
}

// whyNoInterval says once what several ratios lack: a subject may have been measured less often than another.
func whyNoInterval(ratios []*Comparison) string {
	if len(ratios) == 0 {
		return ""
	}
	byPairs := func(a, b *Comparison) int { return a.repetitions() - b.repetitions() }
	least, most := slices.MinFunc(ratios, byPairs), slices.MaxFunc(ratios, byPairs)
	var others []string
	for _, r := range ratios {
		if r.Warning != tooFew(r.repetitions()) {
			others = append(others, r.Warning)
		}
	}
	switch {
	case len(others) > 0:
		return strings.Join(distinct(others), "; ")
	case least.repetitions() == most.repetitions():
		return least.Warning
	}
	return strings.Replace(most.Warning, "in ", fmt.Sprintf("in %d to ", least.repetitions()), 1)
}

func (c *Comparison) spoken() string {
	return strings.TrimPrefix(strings.Replace(c.Words, "> ", "more than ", 1), "observed ")
}

// bracket is the evidence of a ratio: "1.52 s against 47.1 s, 95 % CI 28–33×".
func (c *CellComparison) bracket(r *Comparison) string {
	value := func(series string) string {
		i := slices.IndexFunc(c.Sides, func(s Side) bool { return s.Series == series })
		return figureValue(c.Sides[i].figure(r.Metric), false)
	}
	text := value(r.B) + " against " + value(r.A)
	switch interval := r.intervalText(); {
	case interval == "":
	case r.Low != nil:
		text += ", 95 % CI " + interval
	default:
		text += ", " + interval
	}
	return text
}

// stopped says, for each series and cell, which subjects exceeded a budget and how far they had come.
func stopped(c *collection) []string {
	var out []string
	for _, cell := range c.cells {
		for _, one := range c.series {
			if samples := one.cells[cell.id()]; samples != nil {
				out = append(out, stoppedNotes(one.name, cell, samples.exceeded(), samples.repetitionCount())...)
			}
		}
	}
	return out
}

// stoppedNotes is one line for the repetitions of a cell that were stopped: "… stopped after 10m0s: 4,120, 4,133 and
// 4,098 of 10,000 Services visible". Empty when none was.
func stoppedNotes(series string, cell Cell, exceeded []Exceeded, repetitions int) []string {
	if len(exceeded) == 0 {
		return nil
	}
	var texts, in []string
	for _, e := range exceeded {
		texts = append(texts, cmp.Or(e.Reached, "stopped: more than "+strings.TrimPrefix(limitText(e.Used, e.Unit), "> ")))
		in = append(in, fmt.Sprint(e.Repetition))
	}
	note := fmt.Sprintf("%s at %s%s: %s", series, plural(cell.Services, "Service"), settingsTail(shortSettings(cell.Settings())), together(distinct(texts)))
	switch {
	case len(in) == repetitions && repetitions > 1:
		note += ", in all " + plural(repetitions, "repetition")
	case len(in) < repetitions && len(in) == 1:
		note += ", in repetition " + in[0] + " of " + fmt.Sprint(repetitions)
	case len(in) < repetitions:
		note += ", in repetitions " + joinWords(in) + " of " + fmt.Sprint(repetitions)
	}
	return []string{note}
}

// together says several texts as one: words that all begin or end with are said once.
func together(texts []string) string {
	first := strings.Fields(texts[0])
	head, tail := len(first), len(first)
	for _, text := range texts[1:] {
		words := strings.Fields(text)
		n := min(len(first), len(words))
		i, j := 0, 0
		for i < min(n, head) && words[i] == first[i] {
			i++
		}
		for j < min(n-i, tail) && words[len(words)-1-j] == first[len(first)-1-j] {
			j++
		}
		head, tail = i, j
	}
	if len(texts) == 1 {
		return texts[0]
	}
	var parts []string
	for _, text := range texts {
		words := strings.Fields(text)
		part := strings.Join(words[head:max(head, len(words)-tail)], " ")
		if part == "" {
			return joinWords(texts)
		}
		parts = append(parts, part)
	}
	return strings.Join(slices.DeleteFunc([]string{strings.Join(first[:head], " "), joinWords(parts), strings.Join(first[len(first)-tail:], " ")},
		func(s string) bool { return s == "" }), " ")
}

// method says how the numbers of a comparison were taken.
func (s *Summary) method() []string {
	var out []string
	feeds, observed := map[string]bool{}, map[string]bool{}
	var kubeProxies []string
	for _, run := range s.Runs {
		feeds[cmp.Or(run.Feed, bench.FeedInformers)], observed[observedBy(run.Feed, run.Observed)] = true, true
		if v := run.Versions.KubeProxy; v != "" {
			kubeProxies = append(kubeProxies, v)
		}
	}
	if feeds[bench.FeedAPI] {
		out = append(out, "Every subject is a process of its own, in a network namespace of its own. Objects reached it over HTTP from the lab's API front, "+
			"the same events at the same due times. Reaction, cold start, network programming latency, restores, rules, CPU and memory are taken from outside, the "+
			"same way for all; full and partial syncs are self-reported, by kube-proxy in its metrics, by the lab's in a log of its syncs. "+
			"A reaction is of one change that nothing held back: the subject had converged and then idled for longer than minSyncPeriod. "+
			"A change that was undone before it was written has no network programming latency, and counts as undone: who is late has more of these. Where only "+
			"reading the tables shows a change, its moment is the end of the read.")
		out = append(out, s.shimWords()...)
		if lost := s.collected.pooled(bench.SyncsNotSeparable); len(lost) > 0 {
			out = append(out, fmt.Sprintf("%s ended between two readings of their subject's metrics and could not be told apart: they are left out.",
				plural(int(sum(lost)), "sync")))
		}
		out = append(out, "A full or partial sync counts if it wrote rules and did not fail, for all subjects alike.")
	}
	if len(s.collected.pooled(bench.ToolSys)) > 0 {
		out = append(out, "Kernel time is, of iptables and nft, the system time of their processes. Many kernels count that in ticks of some milliseconds: user and "+
			"system time of a run shorter than some 10 ms are coarse, often 0, and only a median over many says something. Subjects without tools give the wall time of their system calls.")
	}
	if feeds[bench.FeedInformers] {
		out = append(out, "Objects reached the subjects through client-go informers in the lab's own process; peak RSS is that of the lab, the simulated cluster included.")
	}
	if len(observed) > 1 {
		out = append(out, "Do not compare these runs' network programming latencies: in some the kernel tells when a change had arrived, in older ones the end of the subject's sync.")
	} else if observed["syncs"] {
		out = append(out, "Network programming latency ends with the subject's own sync: the run is from before the kernel told.")
	}
	if v := distinct(kubeProxies); len(v) > 0 {
		out = append(out, "kube-proxy is "+joinWords(v)+", unmodified.")
	}
	if len(s.Comparisons) == 0 {
		return out
	}
	return append(out,
		"Baselines: a subject is set beside kube-proxy with the same backend where the cell has one (synclab/iptables-nft-tree beside kube-proxy/iptables-nft), and beside one baseline for "+
			"all: kube-proxy/iptables-legacy, else the first kube-proxy, else the first subject.",
		"The repetition is the unit: a value is the median of the repetitions' medians (or 99th percentiles, or peaks), since the values of one repetition "+
			"influence one another. Its 95 % interval is that of order statistics, which assumes no distribution and takes 6 repetitions; ± is its wider half, rounded up. With fewer "+
			"repetitions the range of what was observed is shown, and no verdict is given.",
		"A ratio is that of the two values shown. Subjects of one run take turns, so that their repetitions are paired: the k-th of one over the k-th of the other is one observation, and "+
			"the interval is that of the median of these by order statistics, widened to hold the ratio itself. Subjects of two runs are never paired: there the interval is by ranks of all ratios between "+
			"them (Hodges-Lehmann), from 4 repetitions of each. p belongs to the interval: of a sign test, or of a Mann-Whitney U test. “No difference shown” is not “equal”: more repetitions may show one. "+
			"Each interval is for itself: of 20 ratios of subjects that are alike, one or so leaves 1 out; p_adjusted in summary.json allows for all of a cell (Benjamini-Hochberg).")
}

// shimWords say what measuring costs.
func (s *Summary) shimWords() []string {
	byBytes := map[int][]float64{}
	for _, one := range s.collected.series {
		for _, samples := range one.cells {
			for _, r := range samples.records {
				if r.Metric == bench.ShimCost {
					byBytes[r.Bytes] = append(byBytes[r.Bytes], r.Value)
				}
			}
		}
	}
	if len(byBytes) == 0 {
		return nil
	}
	var parts []string
	for _, size := range slices.Sorted(maps.Keys(byBytes)) {
		part := Format(estimate.Median(byBytes[size]), "s")
		if size > 0 {
			part += " to one of " + Format(float64(size), "B")
		} else {
			part += " to a call"
		}
		parts = append(parts, part)
	}
	return []string{"A shim in front of iptables and nft takes their times; it adds " + joinWords(parts) +
		" (medians). Its own CPU time is no part of the subject's."}
}

func (c *collection) pooled(metric bench.Metric) []float64 {
	var out []float64
	for _, one := range c.series {
		for _, cell := range c.cells {
			out = append(out, one.of(cell, metric).Pooled()...)
		}
	}
	return out
}
