package sections

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
		"may show a difference. No interval is corrected for the number of ratios: of 20 ratios of equal subjects, about one interval excludes 1. " +
		"p_adjusted in summary.json corrects for all ratios of a cell (Benjamini-Hochberg)."
)
