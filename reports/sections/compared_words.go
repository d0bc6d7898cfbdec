package sections

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/reports/comparison"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

// spokenFigures are the figures named in sentences, the most important first, each with its verb.
var spokenFigures = []struct{ name, verb, noun string }{
	{comparison.FigureReaction, "made an isolated change visible", "reaction"},
	{comparison.FigureCold, "finished its cold start", "cold start"},
	{comparison.FigureNPL99, "made 99 of 100 changes visible", "latency p99"},
	{comparison.FigureFirstPacket, "passed the first packet", "first packet"},
	{comparison.FigureFirstSYN, "passed the first packet (TCP)", "first packet, TCP"},
	{comparison.FigureFull, "completed a full sync (self-reported)", "self-reported full sync"},
	{comparison.FigurePartial, "completed a partial sync (self-reported)", "self-reported partial sync"},
	{comparison.FigureCPU, "used", "CPU per change"},
	{comparison.FigureTotalRSS, "used", "peak memory with tools"},
}

// maxSpokenPairs bounds the number of sentences about pairs. The tables have all pairs.
const maxSpokenPairs = 7

// comparisonSentences compares each subject with its baseline, at the largest compared size.
func comparisonSentences(s *Summary) []string {
	c := s.LargestComparison()
	if c == nil {
		return nil
	}
	var out []string
	others := slices.ContainsFunc(c.Sides, func(side comparison.Side) bool { return !subject.IsKubeProxy(side.Subject) })
	for _, side := range c.Sides {
		if others && strings.HasPrefix(side.Subject, subject.KubeProxy+"/") {
			continue // sentences cover the subjects that are compared with kube-proxy
		}
		baseline := c.Nearest(side)
		if text := pairSentence(c, side.Series, baseline); text != "" && baseline != "" {
			out = append(out, text)
		}
	}
	return out[:min(maxSpokenPairs, len(out))]
}

// LargestComparison returns the comparison with the most Services; of several settings the first.
func (s *Summary) LargestComparison() *comparison.CellComparison {
	var largest *comparison.CellComparison
	for i, c := range s.Comparisons {
		onHost := largest != nil && c.Cell.Services == largest.Cell.Services && c.Cell.Params["kernel"] == raw.HostKernel
		if largest == nil || c.Cell.Services > largest.Cell.Services || onHost {
			largest = &s.Comparisons[i]
		}
	}
	return largest
}

func pairSentence(c *comparison.CellComparison, b, a string) string {
	told := pairWords{Size: records.SizesText([]records.Cell{c.Cell}), Settings: records.ShortSettings(c.Cell.Settings()), A: a, B: b}
	var few []*comparison.Comparison // without an interval
	for _, spoken := range spokenFigures {
		ratio := c.Ratio(b, a, spoken.name)
		switch {
		case ratio == nil || ratio.Words == "unknown":
			continue
		case !ratio.Apart():
			told.Same = append(told.Same, spoken.noun)
		case told.First == nil:
			told.First = &ratioWords{Verb: spoken.verb, Ratio: ratio.Spoken(), Evidence: Bracket(c, ratio)}
			if spoken.verb == "used" {
				told.First.Noun = spoken.noun
			}
		default:
			told.More = append(told.More, doc.Sentence(nextRatio, ratioWords{Noun: spoken.noun, Ratio: ratio.Spoken(), Interval: ratio.IntervalText()}))
		}
		if ratio.Warning != "" && ratio.Low == nil {
			few = append(few, ratio)
		}
	}
	if told.First == nil && len(told.Same) == 0 {
		return ""
	}
	told.Why = WhyNoInterval(few)
	return doc.Sentence(pairCompared, told)
}

// WhyNoInterval gives one reason for several ratios without an interval. Subjects may have different numbers of
// repetitions.
func WhyNoInterval(ratios []*comparison.Comparison) string {
	if len(ratios) == 0 {
		return ""
	}
	byPairs := func(a, b *comparison.Comparison) int { return a.Repetitions() - b.Repetitions() }
	least, most := slices.MinFunc(ratios, byPairs), slices.MaxFunc(ratios, byPairs)
	var others []string
	for _, r := range ratios {
		if r.Warning != comparison.TooFew(r.Repetitions()) {
			others = append(others, r.Warning)
		}
	}
	switch {
	case len(others) > 0:
		return strings.Join(records.Distinct(others), "; ")
	case least.Repetitions() == most.Repetitions():
		return least.Warning
	}
	return strings.Replace(most.Warning, "in ", fmt.Sprintf("in %d to ", least.Repetitions()), 1)
}

// Bracket is the evidence for a ratio: "1.52 s against 47.1 s, 95 % CI 28–33×".
func Bracket(c *comparison.CellComparison, r *comparison.Comparison) string {
	value := func(series string) string {
		i := slices.IndexFunc(c.Sides, func(s comparison.Side) bool { return s.Series == series })
		return comparison.FigureValue(c.Sides[i].Figure(r.Metric), false)
	}
	return doc.Sentence(evidence, ratioWords{A: value(r.A), B: value(r.B), Interval: r.IntervalText(), Confident: r.Low != nil})
}

// method describes how the numbers of a comparison were measured.
func (s *Summary) method() []string {
	feeds, observed := map[string]bool{}, map[string]bool{}
	var kubeProxies []string
	for _, run := range s.Runs {
		feeds[cmp.Or(run.Feed, raw.FeedInformers)], observed[records.ObservedBy(run.Feed, run.Observed)] = true, true
		if v := run.Versions.KubeProxy; v != "" {
			kubeProxies = append(kubeProxies, v)
		}
	}
	processes, compared := feeds[raw.FeedAPI], len(s.Comparisons) > 0
	lost := s.Collected.Pooled(raw.SyncsNotSeparable)
	var out []string
	for _, paragraph := range []struct {
		when bool
		text string
	}{
		{processes, methodProcesses},
		{processes, s.shimSentence()},
		{processes && len(lost) > 0, doc.Sentence(syncsLost, int(comparison.Sum(lost)))},
		{processes, methodSyncs},
		{len(s.Collected.Pooled(raw.ToolSys)) > 0, methodToolTime},
		{feeds[raw.FeedInformers], methodInformers},
		{len(observed) > 1, methodMixedEnds},
		{len(observed) == 1 && observed["syncs"], methodSyncEnds},
		{len(kubeProxies) > 0, doc.Sentence(kubeProxyVersions, records.Distinct(kubeProxies))},
		{compared, methodBaselines},
		{compared, methodValues},
		{compared, methodRatios},
	} {
		if paragraph.when && paragraph.text != "" {
			out = append(out, paragraph.text)
		}
	}
	return out
}

// shimSentence describes the cost of measuring with the shim; empty if there was none.
func (s *Summary) shimSentence() string {
	byBytes := map[int][]float64{}
	for _, one := range s.Collected.Series {
		for _, samples := range one.Cells {
			for _, r := range samples.Records {
				if r.Metric == raw.ShimCost {
					byBytes[r.Bytes] = append(byBytes[r.Bytes], r.Value)
				}
			}
		}
	}
	if len(byBytes) == 0 {
		return ""
	}
	var calls []string
	for _, size := range slices.Sorted(maps.Keys(byBytes)) {
		calls = append(calls, doc.Sentence(shimCall, shimWords{Cost: estimate.Median(byBytes[size]), Bytes: float64(size)}))
	}
	return doc.Sentence(shimAdds, calls)
}
