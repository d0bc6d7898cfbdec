package reports

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"synclab/bench/raw"
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

// spreadText is the wider half of an interval as a share, rounded up so that the interval does not look narrower.
func spreadText(share float64) string { return fmt.Sprintf(" ± %.0f %%", math.Ceil(100*share-1e-9)) }

// spokenFigures are the figures named in sentences, the most important first, each with its verb.
var spokenFigures = []struct{ name, verb, noun string }{
	{figureReaction, "made an isolated change visible", "reaction"},
	{figureCold, "finished its cold start", "cold start"},
	{figureNPL99, "made 99 of 100 changes visible", "latency p99"},
	{figureFirstPacket, "passed the first packet", "first packet"},
	{figureFull, "completed a full sync (self-reported)", "self-reported full sync"},
	{figurePartial, "completed a partial sync (self-reported)", "self-reported partial sync"},
	{figureCPU, "used", "CPU per change"},
	{figureTotalRSS, "used", "peak memory with tools"},
}

// maxSpokenPairs bounds the number of sentences about pairs. The tables have all pairs.
const maxSpokenPairs = 7

// comparisonSentences compares each subject with its baseline, at the largest compared size.
func comparisonSentences(s *Summary) []string {
	c := s.largestComparison()
	if c == nil {
		return nil
	}
	var out []string
	others := slices.ContainsFunc(c.Sides, func(side Side) bool { return !strings.HasPrefix(side.Subject, kubeProxy) })
	for _, side := range c.Sides {
		if others && strings.HasPrefix(side.Subject, kubeProxy) {
			continue // sentences cover the subjects that are compared with kube-proxy
		}
		baseline := c.nearest(side)
		if text := c.pairSentence(side.Series, baseline); text != "" && baseline != "" {
			out = append(out, text)
		}
	}
	return out[:min(maxSpokenPairs, len(out))]
}

// largestComparison returns the comparison with the most Services; of several settings the first.
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

// whyNoInterval gives one reason for several ratios without an interval. Subjects may have different numbers of
// repetitions.
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

// bracket is the evidence for a ratio: "1.52 s against 47.1 s, 95 % CI 28–33×".
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

// stopped returns a line for each series and cell that exceeded a budget, with how far the subject had come.
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

// stoppedNotes is one line for the stopped repetitions of a cell: "… stopped after 10m0s: 4,120, 4,133 and 4,098 of
// 10,000 Services visible". It is empty if none was stopped.
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

// together joins several texts, with their common first and last words only once.
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

// method describes how the numbers of a comparison were measured.
func (s *Summary) method() []string {
	var out []string
	feeds, observed := map[string]bool{}, map[string]bool{}
	var kubeProxies []string
	for _, run := range s.Runs {
		feeds[cmp.Or(run.Feed, raw.FeedInformers)], observed[observedBy(run.Feed, run.Observed)] = true, true
		if v := run.Versions.KubeProxy; v != "" {
			kubeProxies = append(kubeProxies, v)
		}
	}
	if feeds[raw.FeedAPI] {
		out = append(out, "Every subject is a separate process in a separate network namespace. It gets its objects over HTTP from the lab's fake API server, "+
			"with the same events at the same due times. Reaction, cold start, network programming latency, restores, rules, CPU and memory are measured from outside, in the "+
			"same way for all subjects. Full and partial syncs are self-reported: by kube-proxy in its metrics, by Synclab's proxier in a log of its syncs. "+
			"A reaction is the latency of one change to an idle subject: it had converged, and then idled for longer than minSyncPeriod. "+
			"A change that was reverted before it was written has no network programming latency. It counts as reverted, and slow subjects have more reverted changes. "+
			"If only a read of the tables shows a change, the change counts as visible at the end of the read.")
		out = append(out, s.shimWords()...)
		if lost := s.collected.pooled(raw.SyncsNotSeparable); len(lost) > 0 {
			out = append(out, fmt.Sprintf("%s ended between two reads of the subject's metrics and cannot be separated. They have no durations.",
				plural(int(sum(lost)), "sync")))
		}
		out = append(out, "For all subjects, a full or partial sync counts if it wrote rules and did not fail.")
	}
	if len(s.collected.pooled(raw.ToolSys)) > 0 {
		out = append(out, "The kernel time of iptables and nft is the system time of their processes. Many kernels count it in ticks of some milliseconds. User and "+
			"system time of a run shorter than some 10 ms are then coarse, and often 0: only a median over many runs is meaningful. For subjects without tools, kernel time is the wall time of their system calls.")
	}
	if feeds[raw.FeedInformers] {
		out = append(out, "Objects reached the subjects through client-go informers in the lab's process. Peak RSS is that of this process, including the simulated cluster.")
	}
	if len(observed) > 1 {
		out = append(out, "Do not compare the network programming latencies of these runs. In some runs, the latency ends when the kernel has the change; in older runs, when the subject's sync ends.")
	} else if observed["syncs"] {
		out = append(out, "In this older run, network programming latency ends when the subject's sync ends, not when the kernel has the change.")
	}
	if v := distinct(kubeProxies); len(v) > 0 {
		out = append(out, "kube-proxy is "+joinWords(v)+", unmodified.")
	}
	if len(s.Comparisons) == 0 {
		return out
	}
	return append(out,
		"Baselines: a subject is compared with kube-proxy on the same backend, if the cell has it (synclab/iptables-nft-tree with kube-proxy/iptables-nft). It is also compared with one baseline for "+
			"all subjects: kube-proxy/iptables-legacy, else the first kube-proxy, else the first subject.",
		"The repetition is the statistical unit, since the values of one repetition depend on one another. A value is the median of the repetitions' medians "+
			"(or 99th percentiles, or peaks). Its 95 % interval comes from order statistics, which assume no distribution and need 6 repetitions; ± is its wider half, rounded up. With fewer "+
			"repetitions the report shows the observed range and gives no verdict.",
		"A ratio divides the two values shown. Subjects of one run take turns, so their repetitions are paired: the k-th of one subject over the k-th of the other is one observation. "+
			"The interval is that of the median observation by order statistics, widened to contain the ratio itself. Subjects of two runs are never paired: their interval is by ranks of all ratios between "+
			"them (Hodges-Lehmann), from 4 repetitions of each. p belongs to the interval: it is from a sign test (paired), or from a Mann-Whitney U test. “No difference shown” is not “equal”: more repetitions may show a difference. "+
			"No interval is corrected for the number of ratios: of 20 ratios of equal subjects, about one interval excludes 1. p_adjusted in summary.json corrects for all ratios of a cell (Benjamini-Hochberg).")
}

// shimWords describes the cost of measuring with the shim.
func (s *Summary) shimWords() []string {
	byBytes := map[int][]float64{}
	for _, one := range s.collected.series {
		for _, samples := range one.cells {
			for _, r := range samples.records {
				if r.Metric == raw.ShimCost {
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
			part += " to a call with " + Format(float64(size), "B")
		} else {
			part += " to a call"
		}
		parts = append(parts, part)
	}
	return []string{"A shim in front of iptables and nft measures their times. The shim adds " + joinWords(parts) +
		" (medians). The subject's CPU time excludes the shim's."}
}

func (c *collection) pooled(metric raw.Metric) []float64 {
	var out []float64
	for _, one := range c.series {
		for _, cell := range c.cells {
			out = append(out, one.of(cell, metric).Pooled()...)
		}
	}
	return out
}
