package sections

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"synclab/bench/raw"
	"synclab/reports/comparison"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

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
		{processes && len(lost) > 0, doc.Plural(int(comparison.Sum(lost)), "sync") +
			" ended between two reads of the subject's metrics and cannot be separated. They have no durations."},
		{processes, methodSyncs},
		{len(s.Collected.Pooled(raw.ToolSys)) > 0, methodToolTime},
		{feeds[raw.FeedInformers], methodInformers},
		{len(observed) > 1, methodMixedEnds},
		{len(observed) == 1 && observed["syncs"], methodSyncEnds},
		{len(kubeProxies) > 0, "kube-proxy is " + doc.JoinWords(records.Distinct(kubeProxies)) + ", unmodified."},
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
	for _, samples := range s.Collected.Each() {
		for _, r := range samples.Records {
			if r.Metric == raw.ShimCost {
				byBytes[r.Bytes] = append(byBytes[r.Bytes], r.Value)
			}
		}
	}
	if len(byBytes) == 0 {
		return ""
	}
	var calls []string
	for _, size := range slices.Sorted(maps.Keys(byBytes)) {
		call := doc.Format(estimate.Median(byBytes[size]), "s") + " to a call"
		if size > 0 {
			call += " with " + doc.Format(float64(size), "B")
		}
		calls = append(calls, call)
	}
	return fmt.Sprintf("A shim in front of iptables and nft measures their times. The shim adds %s (medians). The subject's CPU time excludes the shim's.", doc.JoinWords(calls))
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
			costs = append(costs, doc.Format(estimate.Median(seconds), "s")+" ("+one.Subject+")")
		}
	}
	if len(costs) == 0 {
		return ""
	}
	return fmt.Sprintf("The subject's metrics tell syncs apart. One reading of them costs the subject's process %s of CPU "+
		"(medians, measured while it is idle). The subject's CPU time excludes that of all readings.", doc.JoinWords(costs))
}

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
