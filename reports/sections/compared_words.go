package sections

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"synclab/bench/raw"
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
	for _, side := range c.Compared() {
		if text := pairSentence(c, side.Series, c.Nearest(side)); text != "" {
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
		{processes, s.readingSentence()},
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

// readingSentence describes what readings of their metrics cost the subjects; empty if they had none.
func (s *Summary) readingSentence() string {
	var costs []string
	for _, one := range s.Collected.Series {
		var seconds []float64
		for _, samples := range one.Cells {
			for _, r := range samples.Records {
				if r.Metric == raw.ReadingCost {
					seconds = append(seconds, r.Value)
				}
			}
		}
		if len(seconds) > 0 {
			costs = append(costs, doc.Sentence(readingOf, readingWords{Subject: one.Subject, Cost: estimate.Median(seconds)}))
		}
	}
	if len(costs) == 0 {
		return ""
	}
	return doc.Sentence(readingAdds, costs)
}

type readingWords struct {
	Subject string
	Cost    float64 // in seconds
}

// Sentences about pairs of subjects, stopped subjects, and how the numbers of a comparison were measured.
var (
	evidence     = runTemplate(`{{.B}} against {{.A}}{{with .Interval}}, {{if $.Confident}}95 % CI {{end}}{{.}}{{end}}`)
	nextRatio    = runTemplate(`{{.Noun}} {{.Ratio}}{{with .Interval}} ({{.}}){{end}}`)
	pairCompared = runTemplate(`At {{.Size}}{{with .Settings}} ({{.}}){{end}}, {{.B}} ` +
		`{{with .First}}{{.Verb}} {{.Ratio}}{{with .Noun}} {{.}}{{end}} than {{$.A}} ({{.Evidence}})` +
		`{{else}}shows no difference to {{.A}} in {{join .Same}}{{end}}` +
		`{{with .More}}; {{join .}}{{end}}{{if and .First .Same}}; no difference shown in {{join .Same}}{{end}}{{with .Why}} ({{.}}){{end}}.`)

	shimCall = runTemplate(`{{seconds .Cost}} to a call{{if .Bytes}} with {{bytes .Bytes}}{{end}}`)
	shimAdds = runTemplate(`A shim in front of iptables and nft measures their times. The shim adds {{join .}} (medians). ` +
		`The subject's CPU time excludes the shim's.`)
	readingOf   = runTemplate(`{{seconds .Cost}} ({{.Subject}})`)
	readingAdds = runTemplate(`The subject's metrics tell syncs apart. One reading of them costs the subject's process {{join .}} of CPU ` +
		`(medians, measured while it is idle). The subject's CPU time excludes that of all readings.`)
	syncsLost = runTemplate(`{{plural . "sync"}} ended between two reads of the subject's metrics and cannot be separated. ` +
		`They have no durations.`)
	kubeProxyVersions = runTemplate(`kube-proxy is {{join .}}, unmodified.`)
)

// pairWords compare a subject B with its baseline A.
type pairWords struct {
	Size, Settings, A, B string
	First                *ratioWords // the most important figure that differs; nil: none does
	More                 []string    // the others that differ
	Same                 []string    // the figures that do not
	Why                  string      // some ratios have no interval
}

// ratioWords are the ratio of a figure: "2.3× faster". In evidence, A and B are the values divided.
type ratioWords struct {
	Verb, Noun, Ratio string
	Evidence          string
	A, B, Interval    string
	Confident         bool // the interval is a confidence interval
}

// shimWords are what the shim adds to a call with so many bytes of input.
type shimWords struct{ Cost, Bytes float64 }

// How the numbers of a comparison were measured, the paragraphs without values.
const (
	methodProcesses = "Every subject is a separate process in a separate network namespace. It gets its objects over HTTP from the lab's fake API server, " +
		"with the same events at the same due times. Reaction, cold start, network programming latency, restores, rules, CPU and memory are measured " +
		"from outside, in the same way for all subjects. Full and partial syncs are self-reported: by kube-proxy in its metrics, by Synclab's proxier " +
		"in a log of its syncs. A reaction is the latency of one change to an idle subject: it had converged, and then idled for longer than minSyncPeriod. " +
		"A change that was reverted before it was written has no network programming latency. It counts as reverted, and slow subjects have more reverted " +
		"changes. If only a read of the tables shows a change, the change counts as visible at the end of the read."
	methodSyncs    = "For all subjects, a full or partial sync counts if it wrote rules and did not fail."
	methodToolTime = "The kernel time of iptables and nft is the system time of their processes. Many kernels count it in ticks of some milliseconds. User and " +
		"system time of a run shorter than some 10 ms are then coarse, and often 0: only a median over many runs is meaningful. For subjects without tools, " +
		"kernel time is the wall time of their system calls."
	methodInformers = "Objects reached the subjects through client-go informers in the lab's process. " +
		"Peak RSS is that of this process, including the simulated cluster."
	methodMixedEnds = "Do not compare the network programming latencies of these runs. In some runs, the latency ends when the kernel has the change; " +
		"in older runs, when the subject's sync ends."
	methodSyncEnds  = "In this older run, network programming latency ends when the subject's sync ends, not when the kernel has the change."
	methodBaselines = "Baselines: a subject is compared with kube-proxy on the same backend, if the cell has it (synclab/iptables-nft-tree with " +
		"kube-proxy/iptables-nft). It is also compared with one baseline for all subjects: kube-proxy/iptables-legacy, else the first kube-proxy, " +
		"else the first subject."
	methodValues = "The repetition is the statistical unit, since the values of one repetition depend on one another. A value is the median of the repetitions' " +
		"medians (or 99th percentiles, or peaks). Its 95 % interval comes from order statistics, which assume no distribution and need 6 repetitions; " +
		"± is its wider half, rounded up. With fewer repetitions the report shows the observed range and gives no verdict."
	methodRatios = "A ratio divides the two values shown. Subjects of one run take turns, so their repetitions are paired: the k-th of one subject over the k-th of " +
		"the other is one observation. The interval is that of the median observation by order statistics, widened to contain the ratio itself. " +
		"Subjects of two runs are never paired: their interval is by ranks of all ratios between them (Hodges-Lehmann), from 4 repetitions of each. " +
		"p belongs to the interval: it is from a sign test (paired), or from a Mann-Whitney U test. “No difference shown” is not “equal”: more repetitions " +
		"may show a difference. Intervals are not corrected for the number of ratios: of 20 ratios of equal subjects, about one interval excludes 1. " +
		"So verdicts are about a few figures that were chosen beforehand (reaction, latency p99, cold start, first packet, CPU per change, peak memory), and by " +
		"their p-values corrected for their number (Benjamini-Hochberg; p_adjusted in summary.json). A ratio that these do not support is “observed”. " +
		"All other ratios are exploratory: they say where to look."
)
