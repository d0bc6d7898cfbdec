package doc

import (
	"fmt"
	"strings"
	"text/template"
)

// SentenceFuncs write the values of sentences, which are templates.
var SentenceFuncs = template.FuncMap{
	"seconds": func(v float64) string { return Format(v, "s") },
	"limit":   func(v float64) string { return TrimTick(Format(v, "s")) }, // "1 s", not "1.00 s"
	"percent": func(share float64) string { return fmt.Sprintf("%.2g %%", 100*share) },
	"number":  func(n int) string { return Grouped(int64(n)) },
	"plural":  Plural,
	"join":    JoinWords,
	"list":    func(parts []string) string { return strings.Join(parts, "; ") }, // of parts with commas
}

// Sentence fills a template. Only a mistake in this program can make it fail.
func Sentence(t *template.Template, data any) string {
	var b strings.Builder
	if err := t.Execute(&b, data); err != nil {
		panic(err)
	}
	return b.String()
}
