package comparison

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"synclab/reports/doc"
	"synclab/reports/records"
)

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
	text := fmt.Sprintf("%s at %s%s: %s", series, doc.Plural(cell.Services, "Service"), records.SettingsTail(records.ShortSettings(cell.Settings())), Together(records.Distinct(texts)))
	switch {
	case len(in) == 1 && repetitions > 1:
		text += fmt.Sprintf(", in repetition %s of %d", in[0], repetitions)
	case len(in) < repetitions:
		text += fmt.Sprintf(", in repetitions %s of %d", doc.JoinWords(in), repetitions)
	case repetitions > 1:
		text += ", in all " + doc.Plural(repetitions, "repetition")
	}
	return []string{text}
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
