package sections

import (
	"fmt"
	"math"
	"text/template"

	"synclab/reports/doc"
	"synclab/reports/estimate"
)

// Warnings, and sentences about syncs, changes, packets, phases, periods, sizes and SLOs.
var (
	incompleteRun = runTemplate(`run {{.Label}}: its status is {{or .Status "unknown"}}, not complete{{with .Reason}} ({{.}}){{end}}; ` +
		`the report covers the records until then`)
	byPackets       = runTemplate(`{{.Series}}: Synclab knows no rules of this subject. New flows to the Services showed when a change was there; between two flows to a Service it is not known. Changes that clients with affinity cannot notice are left out`)
	failedDurations = runTemplate(`{{.Series}}: {{plural .Failed "sync"}} failed; their durations are left out`)
	rulesDiffer     = runTemplate(`{{.Series}} at {{number .Services}} Services: {{.Differ}} of {{.Compared}} rule counts differ from the expected numbers ` +
		`(table {{.Table}}: the kernel has {{count .Kernel}}, expected are {{count .Expected}})`)
	machinesDiffer = runTemplate(`run {{.Label}} differs from {{.First}} in {{join .What}}: compare with care`)
	fewRepetitions = runTemplate(`{{plural .Groups "group"}} of durations have fewer than {{.Enough}} repetitions: they show the observed range, ` +
		`without a 95 % interval; for intervals, use --reps {{.Enough}}`)
	fewSizes   = runTemplate(`growth of {{.Label}} ({{.Series}}) is fitted to 2 sizes only`)
	noPowerLaw = runTemplate(`growth of {{.Label}} ({{.Series}}) does not follow a power law: the fit is off by {{signed .Misfit}} ` +
		`at {{count .MisfitAt}} Services; the exponents between sizes are {{exponents .Power}}`)

	syncsFailed = runTemplate(`{{plural . "sync"}} failed during the measurement.`)
	syncTimes   = runTemplate(`With {{.Size}} each, {{range $i, $k := .Figures}}{{if $i}}; {{end}}{{.Series}} needs ` +
		`{{with .FullSync}}{{seconds .Median}} to write all rules (a full sync){{end}}{{if and .FullSync .PartialSync}} and {{end}}` +
		`{{with .PartialSync}}{{seconds .Median}} to write only what changed (a partial sync){{end}}{{end}}{{with .Settings}} ({{.}}){{end}}.`)
	changeTimes = runTemplate(`A change in the cluster reached the kernel {{range $i, $k := .}}{{among $i (len $) .Series}}` +
		`{{with .Programming}}within {{seconds .Median}} for half of {{plural .N "change"}} and within {{seconds .P99}} for 99 of 100{{end}}{{end}}.`)
	firstPackets = runTemplate(`The first packet of a new connection costs {{range $i, $p := .}}{{among $i (len $) .Series}}` +
		`{{seconds .First}} to the first Service and {{seconds .Last}} to the last` +
		`{{if .Slope}}, {{if .Observed}}observed {{end}}{{seconds .Slope}} for each Service in front{{end}}{{end}}.`)
	phaseShare   = runTemplate(`{{.Percent}} %{{if .First}} goes{{end}} to {{.To}}`)
	phasesOfSync = runTemplate(`Of the time of a full sync {{range $i, $p := .Phases}}{{among $i (len $.Phases) .Series}}{{.Shares}}{{end}}` +
		`{{if .Rest}}; the rest is {{if .Untold}}the proxier's own work where it reports none, {{end}}starting tools, waiting and bookkeeping{{end}}.`)
	bestPeriod = runTemplate(`Of the measured settings, {{.Settings}} has the lowest latency: 99 of 100 changes were visible within {{seconds .P99}}` +
		`{{with .Busy}}; syncs then ran {{percent .}} of the time{{end}}.`)
	doubledSizes = runTemplate(`Over the measured sizes, twice as many Services make a full sync take {{range $i, $g := .}}{{among $i (len $) .Series}}` +
		`{{if .Bends}}{{with .First}}{{doubled .Exponent}} times as long from {{count .From}} to {{count .To}}{{end}} and ` +
		`{{with .Last}}{{doubled .Exponent}} times from {{count .From}} to {{count .To}}{{end}}{{else}}{{doubled .Slope}} times as long{{end}}{{end}}.`)
	slosMet = runTemplate(`SLOs (full sync ≤ {{limit .SLOs.FullSync}}, network programming latency p99 ≤ {{limit .SLOs.ProgrammingP99}}, ` +
		`first packet p99 ≤ {{limit .SLOs.FirstPacketP99}}): {{range $i, $c := .Told}}{{if $i}}; {{end}}{{.Series}}: {{.Verdict}}{{end}}.`)
)

// runFuncs write the values that only sentences about runs and comparisons have.
var runFuncs = template.FuncMap{
	"among":     among,
	"bytes":     func(v float64) string { return doc.Format(v, "B") },
	"count":     func(v float64) string { return doc.Format(v, "count") },
	"doubled":   func(exponent float64) string { return fmt.Sprintf("%.1f", math.Pow(2, exponent)) }, // how much more at twice the size
	"exponents": LocalText,
	"percent":   func(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) },
	"signed":    signedPercent,
}

func runTemplate(text string) *template.Template {
	return template.Must(template.New("run").Funcs(doc.SentenceFuncs).Funcs(runFuncs).Parse(text))
}

// among leads to the i-th of n series in a list: "with kube-proxy/nftables ". A single series has no name, since the
// first sentence names it.
func among(i, n int, series string) string {
	switch {
	case n == 1:
		return ""
	case i == 0:
		return "with " + series + " "
	}
	return "; with " + series + " "
}

// warningWords are the values of a warning about a run or a series.
type warningWords struct {
	Label, Status, Reason string   // of a run
	First                 string   // label of the first run
	What                  []string // differs from the first run
	Series                string
	Failed                int // syncs
	Groups                int // of durations, with fewer than Enough repetitions
	Enough                int
}

// ruleWords are the rule counts of a series in a cell. The last difference is the example.
type ruleWords struct {
	Series           string
	Services         int
	Differ, Compared int
	Table            string
	Kernel, Expected float64
}

// syncWords are the values of a sentence about syncs. Each figure has a full or a partial sync.
type syncWords struct {
	Size, Settings string
	Figures        []KeyFigures
}

// firstPacketWords are the costs of first packets in one series.
type firstPacketWords struct {
	Series      string
	First, Last float64
	Slope       *float64 // nil: it may be zero
	Observed    bool     // the slope has no interval
}

// phaseWords divide full syncs. Rest: some of the time needs an explanation. Untold: this includes a proxier's own work.
type phaseWords struct {
	Phases       []seriesShares
	Rest, Untold bool
}

type seriesShares struct{ Series, Shares string }

// shareWords are one part of a sync.
type shareWords struct {
	Percent int
	To      string
	First   bool // of the list
}

// periodWords are the settings with the lowest latency.
type periodWords struct {
	Settings string
	P99      float64
	Busy     *float64 // share of the time; nil: unknown
}

// growthWords are a growth. If it bends: with its exponents between the smallest and between the largest sizes.
type growthWords struct {
	Growth
	First, Last estimate.Local
}

type sloWords struct {
	SLOs SLOs
	Told []Capacity
}
