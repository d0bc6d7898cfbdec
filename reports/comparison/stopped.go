package comparison

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/template"

	"synclab/reports/doc"
	"synclab/reports/records"
)

var subjectStopped = template.Must(template.New("stopped").Funcs(doc.SentenceFuncs).Parse(`{{.Series}} at {{plural .Services "Service"}}{{with .Settings}} ({{.}}){{end}}: {{.Reached}}` +
	`{{if lt (len .In) .Of}}, in repetition{{if gt (len .In) 1}}s{{end}} {{join .In}} of {{.Of}}` +
	`{{else if and (eq (len .In) .Of) (gt .Of 1)}}, in all {{plural .Of "repetition"}}{{end}}`))

// stoppedWords are the stopped repetitions (In) of all repetitions (Of) of a cell.
type stoppedWords struct {
	Series   string
	Services int
	Settings string
	Reached  string
	In       []string
	Of       int
}

// Stopped returns a line for each series and cell that exceeded a budget, with how far the subject had come.
func Stopped(c *records.Collection) []string {
	var out []string
	for one, samples := range c.Each() {
		out = append(out, StoppedNotes(one.Name, samples.Cell, ExceededOf(samples), samples.RepetitionCount())...)
	}
	return out
}

// StoppedNotes is one line for the stopped repetitions of a cell: "… stopped after 10m0s: 4,120, 4,133 and 4,098 of
// 10,000 Services visible". It is empty if none was stopped.
func StoppedNotes(series string, cell records.Cell, exceeded []Exceeded, repetitions int) []string {
	if len(exceeded) == 0 {
		return nil
	}
	var texts, in []string
	for _, e := range exceeded {
		texts = append(texts, cmp.Or(e.Reached, "stopped: more than "+strings.TrimPrefix(LimitText(e.Used, e.Unit), "> ")))
		in = append(in, fmt.Sprint(e.Repetition))
	}
	return []string{doc.Sentence(subjectStopped, stoppedWords{Series: series, Services: cell.Services, Settings: records.ShortSettings(cell.Settings()),
		Reached: Together(records.Distinct(texts)), In: in, Of: repetitions})}
}

// Together joins several texts, with their common first and last words only once.
func Together(texts []string) string {
	first := strings.Fields(texts[0])
	head, tail := len(first), len(first)
	for _, text := range texts[1:] {
		words := strings.Fields(text)
		n := min(len(first), len(words))
		i, j := 0, 0
		for i < min(n, head) && words[i] == first[i] {
			i++
		}
		for j < min(n-i, tail) && words[len(words)-1-j] == first[len(first)-1-j] {
			j++
		}
		head, tail = i, j
	}
	if len(texts) == 1 {
		return texts[0]
	}
	var parts []string
	for _, text := range texts {
		words := strings.Fields(text)
		part := strings.Join(words[head:max(head, len(words)-tail)], " ")
		if part == "" {
			return doc.JoinWords(texts)
		}
		parts = append(parts, part)
	}
	return strings.Join(slices.DeleteFunc([]string{strings.Join(first[:head], " "), doc.JoinWords(parts), strings.Join(first[len(first)-tail:], " ")},
		func(s string) bool { return s == "" }), " ")
}
