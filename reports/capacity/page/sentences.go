package page

import (
	"text/template"

	"synclab/reports/capacity"
	"synclab/reports/doc"
	"synclab/reports/model"
)

// The sentences of the plan's report.
var (
	// planSubtitle describes the cluster of today and the target, of a capacityReport.
	planSubtitle = planSentence("subtitle", `Today: {{cluster .Question.Today}}.{{with .Target}} To become: {{cluster .}}.{{end}}`)

	// planAnswerNote explains the table of the answer, of a capacityReport.
	planAnswerNote = planSentence("answer", `Largest cluster: {{.Unit}} up to which every SLO is met with the recommended setting, with the interval. `+
		`The rest of the cluster grows with it. “Perhaps”: the SLO lies within the interval. Today and target use the policy in use. `+
		`The memory limit is the upper bound plus a margin.`)

	// planCommandNote repeats the plan, of a capacityReport with a command.
	planCommandNote = planSentence("command", doc.Span("{{.Command}}")+", seed {{.Question.Seed}}, calibration {{.Run}}")

	// planFrontierNote is of the size at which the settings were evaluated.
	planFrontierNote = planSentence("frontier", `A short minSyncPeriod makes changes visible sooner and costs CPU. A long one combines changes and saves CPU. `+
		`Each curve shows the settings of one subject at {{.}}. For a setting off the lower left edge, another setting is better in both.`)

	// planCurvesNote is of a capacityReport.
	planCurvesNote = planSentence("curves", `All quantities versus {{.Unit}}, along the given growth of the whole cluster, with the policy in use today.`)

	// planGrowthCaption is of a growthCaption.
	planGrowthCaption = planSentence("growth caption", `The band is the interval.`+
		`{{if .Measured}} Filled marks are measured cells{{with .Other}}; small pale ones have other numbers of {{.}} than the curve{{end}}.`+
		`{{else}} There are no marks: the values come from the sync loop in virtual time, with sync durations from the cost model.{{end}}`+
		`{{if .SLO}} The dotted line is the SLO, with the largest size at which each subject meets it.{{end}}`)

	// planValidationNote is of an accuracy.
	planValidationNote = planSentence("validation", `As a test, the cost model was fitted to the small cells only and predicted the large ones. `+
		`Whole syncs: median absolute error {{printf "%.1f" .Error}} %, and {{printf "%.0f" .Coverage}} % of {{.Points}} points within their intervals `+
		`of {{printf "%.0f" .Confidence}} %. Targets: an error of at most 10 %, and at least 85 % within. The numbers of this page use a fit to all cells.`)

	// planSensitivityNote is of a []strongestInput.
	planSensitivityNote = planSentence("sensitivity", `Strongest influence on the largest cluster: `+
		`{{range $i, $one := .}}{{if $i}}; {{end}}{{with $one.Input}}{{input .}}{{else}}none of the tested inputs{{end}} for {{join $one.Subjects}}{{end}}.`)

	// planSensitivityTableNote is of a []largestSize.
	planSensitivityTableNote = planSentence("sensitivity table", `The largest cluster, with one input changed and all others as in the question. `+
		`Its basis is as for the answer above: {{range $i, $one := .}}{{if $i}}, {{end}}{{$one.Size}} {{$one.Basis}} ({{$one.Subject}}){{end}}.`)

	// planGrowthNote is of the quantities that are drawn elsewhere.
	planGrowthNote = planSentence("growth", `{{upper (join .)}}: see the curves of the SLOs above.`)

	// planSyncsCaption is of whether only partial syncs are drawn.
	planSyncsCaption = planSentence("syncs", `{{if .}}A{{else}}A full sync into empty tables, and a{{end}} partial sync of one changed Service. `+
		`The band is the interval. Filled marks are measured cells; small pale ones have other numbers of endpoints per Service.`)

	// planCrossoverNote is of the subject in use.
	planCrossoverNote = planSentence("crossover", `Along the given growth, with the policy in use. “Beyond doubt”: the size from which the whole interval `+
		`is below that of {{.}}. × is its value divided by that of {{.}}: below 1 is better.`)
)

func planSentence(name, text string) *template.Template {
	return template.Must(template.New(name).Funcs(doc.SentenceFuncs).Funcs(template.FuncMap{
		"cluster": clusterText,
		"input":   inputText,
		"upper":   doc.UpperFirst,
	}).Parse(text))
}

// growthCaption describes a plot of one quantity along the growth. Other is the size in which pale marks differ from
// the curve; empty: none.
type growthCaption struct {
	Measured, SLO bool
	Other         string
}

// otherSizes are the sizes of a cell that the axis does not show, by the unit of growth.
var otherSizes = map[capacity.Unit]string{capacity.InServices: "endpoints per Service", capacity.InEndpoints: "Services"}

// accuracy of predictions of whole syncs, in percent.
type accuracy struct {
	Error, Coverage, Confidence float64
	Points                      int
}

func accuracyOf(v *model.Validation) accuracy {
	missed, coverage, points := v.Overall("")
	return accuracy{Error: 100 * missed, Coverage: 100 * coverage, Confidence: 100 * v.Confidence, Points: points}
}

// largestSize is the largest cluster of a subject.
type largestSize struct{ Size, Basis, Subject string }
