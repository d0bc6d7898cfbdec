package diff

import (
	"text/template"

	"synclab/reports/doc"
)

// The sentences of a comparison of two runs.
var (
	// diffRun is of a RunHead.
	diffRun = template.Must(template.New("run").Funcs(doc.SentenceFuncs).Parse(`{{.Label}}: {{.Scenario}}, {{plural .Reps "repetition"}}, ` +
		`synclab {{or .Versions.Synclab "unknown"}}, {{.Started.UTC.Format "2006-01-02 15:04 UTC"}}`))

	// diffCounts is of a diffTotal.
	diffCounts = template.Must(template.New("counts").Funcs(doc.SentenceFuncs).Parse(
		`{{plural .Figures "figure"}}: {{join .Verdicts}}{{with .Beyond}}; {{.}} beyond thresholds{{end}}.`))

	// diffLeast is of a Diff.
	diffLeast = template.Must(template.New("least").Funcs(doc.SentenceFuncs).Parse(`Two runs, not measured in turn: differences below {{percent .Least}} mean nothing. ` +
		`To see smaller ones, measure both programs in turn in one run, as two subjects.`))

	// diffTooFew is of a Diff.
	diffTooFew = template.Must(template.New("too few").Funcs(doc.SentenceFuncs).Parse(`Too few repetitions: with so many figures, a verdict on one of them ` +
		`needs {{.RepetitionsNeeded}} repetitions{{if not .Pairs}} of each run{{end}} (--reps {{.RepetitionsNeeded}}).`))

	// diffBeyond is of a diffRow.
	diffBeyond = template.Must(template.New("beyond").Funcs(doc.SentenceFuncs).Parse(`{{.Subject}} at {{.Where}}: {{.Figure}} from {{.Before}} to {{.After}}` +
		`{{with .Ratio}}, {{.}}{{end}}{{with .Allowed}}; {{.}} more is allowed{{end}}`))

	// diffMethod explains the verdicts of a Diff.
	diffMethod = template.Must(template.New("method").Funcs(doc.SentenceFuncs).Parse(
		`Medians of the repetitions' medians (or 99th percentiles); n: repetitions with a value, before and after, the unit of tests and intervals. ` +
			`{{if .Pairs}}Both took turns in each repetition, which makes pairs. Ratio: after over before, with the 95 % interval of the pairs’ median, below 6 pairs by Student’s t on logarithms. ` +
			`p: twice the smaller one of Student’s t on logarithms and a sign test on the pairs; adjusted for the {{plural .Tests "test"}}, those of the main figures and the others apart ({{.Correction}}), and intervals are not: ` +
			`one may exclude 1 where no difference is shown; ` +
			`{{else}}Ratio: after over before, with its 95 % interval by ranks (Hodges-Lehmann; from 4 repetitions on), ` +
			`widened by the scatter of runs{{with .Scattered}} (that of the history for {{plural . "figure"}}, else {{percent $.Usual}}){{else}} ({{percent .Usual}}; ` +
			`--history takes that of earlier runs){{end}}. p: Mann-Whitney U, two-sided, ` +
			`or what the scatter of runs explains if that is more; adjusted for {{plural .Tests "test"}} ({{.Correction}}); {{end}}at most {{.Level}} is a difference. ` +
			`A row is beyond its threshold if the same test shows that it exceeds it. Counts that never vary within a run are compared exactly. ` +
			`“No difference shown” is not “same”: noise may hide a difference as large as the threshold. ` +
			`{{if not .Pairs}}A slower machine during one of the runs looks like a difference, too.{{end}}`))
)

// diffTotal counts the figures of a comparison. Verdicts has a text for each verdict that occurs: "3 the same".
type diffTotal struct {
	Figures, Beyond int
	Verdicts        []string
}

// diffRow is one figure of one subject in one cell, as texts. Ratio and Allowed are empty if there is none.
type diffRow struct {
	Subject, Where, Figure, Before, After, Ratio, Allowed string
}
