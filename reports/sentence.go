package reports

import (
	"strings"
	"text/template"

	"synclab/reports/doc"
)

// sentenceFuncs write the values of sentences, which are templates.
var sentenceFuncs = template.FuncMap{
	"seconds": func(v float64) string { return doc.Format(v, "s") },
	"limit":   func(v float64) string { return doc.TrimTick(doc.Format(v, "s")) }, // "1 s", not "1.00 s"
	"number":  func(n int) string { return doc.Grouped(int64(n)) },
	"plural":  doc.Plural,
	"join":    doc.JoinWords,
	"list":    func(parts []string) string { return strings.Join(parts, "; ") }, // of parts with commas
}

// sentence fills a template. Only a mistake in this program can make it fail.
func sentence(t *template.Template, data any) string {
	var b strings.Builder
	if err := t.Execute(&b, data); err != nil {
		panic(err)
	}
	return b.String()
}
