package sections

import (
	"text/template"

	"synclab/reports/doc"
)

// Warnings.
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
)

// runFuncs write the values that only sentences about runs and comparisons have.
var runFuncs = template.FuncMap{
	"bytes":     func(v float64) string { return doc.Format(v, "B") },
	"count":     func(v float64) string { return doc.Format(v, "count") },
	"exponents": LocalText,
	"signed":    signedPercent,
}

func runTemplate(text string) *template.Template {
	return template.Must(template.New("run").Funcs(doc.SentenceFuncs).Funcs(runFuncs).Parse(text))
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
