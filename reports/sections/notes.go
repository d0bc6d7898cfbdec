package sections

// Notes in tables and sections of flows and invariants.
var (
	// In tables:
	shareBound  = runTemplate(`of {{number .Flows}}; the share is at most {{share .AtMost}}, with 95 % confidence, if flows fail independently`)
	fewRecorded = runTemplate(`of {{plural .Flows "recorded packet"}}; only some of the answered packets are recorded`)
	notYet      = runTemplate(`{{number .AddedNotYet}} not yet by the end, after {{seconds .AddedNotYetFor}} at most`)

	// In the section:
	firstViolation = runTemplate(`{{.Invariant}}, {{.Series}}: {{.First}}`)
	violationNote  = runTemplate(`{{.Invariant}}, {{.Series}}: the first of {{plural .Violations "violation"}}`)
)

// eventWords are the values of a note about flows.
type eventWords struct {
	Flows  int
	AtMost float64 // bound of a share
}
