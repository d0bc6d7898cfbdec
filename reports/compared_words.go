package reports

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
		if text := pairSentence(c, side.Series, baseline); text != "" && baseline != "" {
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

func pairSentence(c *CellComparison, b, a string) string {
	told := pairWords{Size: sizesText([]records.Cell{c.Cell}), Settings: shortSettings(c.Cell.Settings()), A: a, B: b}
	var few []*Comparison // without an interval
	for _, spoken := range spokenFigures {
		ratio := c.ratio(b, a, spoken.name)
		switch {
		case ratio == nil || ratio.Words == "unknown":
			continue
		case !ratio.apart():
			told.Same = append(told.Same, spoken.noun)
		case told.First == nil:
			told.First = &ratioWords{Verb: spoken.verb, Ratio: ratio.spoken(), Evidence: bracket(c, ratio)}
			if spoken.verb == "used" {
				told.First.Noun = spoken.noun
			}
		default:
			told.More = append(told.More, sentence(nextRatio, ratioWords{Noun: spoken.noun, Ratio: ratio.spoken(), Interval: ratio.intervalText()}))
		}
		if ratio.Warning != "" && ratio.Low == nil {
			few = append(few, ratio)
		}
	}
	if told.First == nil && len(told.Same) == 0 {
		return ""
	}
	told.Why = whyNoInterval(few)
	return sentence(pairCompared, told)
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
		return strings.Join(records.Distinct(others), "; ")
	case least.repetitions() == most.repetitions():
		return least.Warning
	}
	return strings.Replace(most.Warning, "in ", fmt.Sprintf("in %d to ", least.repetitions()), 1)
}

// bracket is the evidence for a ratio: "1.52 s against 47.1 s, 95 % CI 28–33×".
func bracket(c *CellComparison, r *Comparison) string {
	value := func(series string) string {
		i := slices.IndexFunc(c.Sides, func(s Side) bool { return s.Series == series })
		return figureValue(c.Sides[i].figure(r.Metric), false)
	}
	return sentence(evidence, ratioWords{A: value(r.A), B: value(r.B), Interval: r.intervalText(), Confident: r.Low != nil})
}

// stopped returns a line for each series and cell that exceeded a budget, with how far the subject had come.
func stopped(c *records.Collection) []string {
	var out []string
	for _, cell := range c.Cells {
		for _, one := range c.Series {
			if samples := one.Cells[cell.ID()]; samples != nil {
				out = append(out, stoppedNotes(one.Name, cell, exceededOf(samples), samples.RepetitionCount())...)
			}
		}
	}
	return out
}

// stoppedNotes is one line for the stopped repetitions of a cell: "… stopped after 10m0s: 4,120, 4,133 and 4,098 of
// 10,000 Services visible". It is empty if none was stopped.
func stoppedNotes(series string, cell records.Cell, exceeded []Exceeded, repetitions int) []string {
	if len(exceeded) == 0 {
		return nil
	}
	var texts, in []string
	for _, e := range exceeded {
		texts = append(texts, cmp.Or(e.Reached, "stopped: more than "+strings.TrimPrefix(limitText(e.Used, e.Unit), "> ")))
		in = append(in, fmt.Sprint(e.Repetition))
	}
	return []string{sentence(subjectStopped, stoppedWords{Series: series, Services: cell.Services, Settings: shortSettings(cell.Settings()),
		Reached: together(records.Distinct(texts)), In: in, Of: repetitions})}
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
			return doc.JoinWords(texts)
		}
		parts = append(parts, part)
	}
	return strings.Join(slices.DeleteFunc([]string{strings.Join(first[:head], " "), doc.JoinWords(parts), strings.Join(first[len(first)-tail:], " ")},
		func(s string) bool { return s == "" }), " ")
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
	lost := s.collected.Pooled(raw.SyncsNotSeparable)
	var out []string
	for _, paragraph := range []struct {
		when bool
		text string
	}{
		{processes, methodProcesses},
		{processes, s.shimSentence()},
		{processes && len(lost) > 0, sentence(syncsLost, int(sum(lost)))},
		{processes, methodSyncs},
		{len(s.collected.Pooled(raw.ToolSys)) > 0, methodToolTime},
		{feeds[raw.FeedInformers], methodInformers},
		{len(observed) > 1, methodMixedEnds},
		{len(observed) == 1 && observed["syncs"], methodSyncEnds},
		{len(kubeProxies) > 0, sentence(kubeProxyVersions, records.Distinct(kubeProxies))},
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
	for _, one := range s.collected.Series {
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
		calls = append(calls, sentence(shimCall, shimWords{Cost: estimate.Median(byBytes[size]), Bytes: float64(size)}))
	}
	return sentence(shimAdds, calls)
}
