package sections

import (
	"text/template"

	"synclab/reports/doc"
)

// Notes in tables and sections of flows and invariants.
var (
	// In tables:
	shareBound  = eventTemplate(`of {{number .Flows}}; the share is at most {{share .AtMost}}, with 95 % confidence, if flows fail independently`)
	fewRecorded = eventTemplate(`of {{plural .Flows "recorded packet"}}; only some of the answered packets are recorded`)
	notYet      = eventTemplate(`{{number .AddedNotYet}} not yet by the end, after {{seconds .AddedNotYetFor}} at most`)

	// In the section:
	firstViolation = eventTemplate(`{{.Invariant}}, {{.Series}}: {{.First}}`)
	violationNote  = eventTemplate(`{{.Invariant}}, {{.Series}}: the first of {{plural .Violations "violation"}}`)
)

func eventTemplate(text string) *template.Template {
	return template.Must(template.New("event").Funcs(doc.SentenceFuncs).Funcs(template.FuncMap{"share": shareText}).Parse(text))
}

// eventWords are the values of a note about flows.
type eventWords struct {
	Flows  int
	AtMost float64 // bound of a share
}
