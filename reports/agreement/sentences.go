package agreement

import (
	"text/template"

	"synclab/reports/doc"
)

// The sentences of a comparison of the simulator with a run.
var (
	// agreementTitle is of an Agreement.
	agreementTitle = template.Must(template.New("title").Funcs(doc.SentenceFuncs).Parse(`Network programming latency of each change: ` +
		`{{.Seeds}} seeds from {{.Seed}}{{with .Model}}, cost model of {{.}}{{end}}`))

	// agreementNote explains the table. It is of the allowed error in percent.
	agreementNote = template.Must(template.New("note").Funcs(doc.SentenceFuncs).Parse(`measured: all repetitions together; ± the largest deviation of a repetition, ` +
		`if there are several. Simulator: median over seeds, ± the 5th and 95th percentile; × the ratio to the measured value. ` +
		`Agrees: all three within {{printf "%.0f" .}} %.`))

	// agreementResult is of an agreementSummary.
	agreementResult = template.Must(template.New("result").Funcs(doc.SentenceFuncs).Parse(
		`{{with .Model}}With the cost model of {{.}}, fitted without this run,{{else}}With the run's own sync times, which tests the sync loop alone,{{end}} ` +
			`{{.Inside}} of {{.All}} quantiles are within {{printf "%.0f" .Within}} %; the farthest is ×{{printf "%.2f" .Worst}}: {{.Where}}.`))
)
