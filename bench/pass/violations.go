package pass

import (
	"fmt"
	"strings"

	"synclab/bench/raw"
	"synclab/bench/verify/invariants"
)

// mostViolations is the number of violations per invariant that are recorded in full.
const mostViolations = 20

// RecordResults records the number of checks, and every violation with the command that reproduces it. It reports each
// kind of violation in one line.
func (e *Env) RecordResults(results []invariants.Result) {
	again := fmt.Sprintf("seed %d", e.Scenario.Seed)
	if e.Command != "" {
		again += "; reproduce with: " + e.Command
	}
	violated := false
	for _, result := range results {
		e.RecordAs(raw.Record{Invariant: result.Invariant}, raw.InvariantChecks, float64(result.Checked))
		for i, f := range result.Findings {
			rec := raw.Record{Invariant: f.Invariant, Service: f.Service, Error: f.Text + "; " + again}
			if i == mostViolations {
				left := len(result.Findings) - i
				rec.Service, rec.Error = "", fmt.Sprintf("and %d more; %s", left, again)
				e.RecordAs(rec, raw.Violation, float64(left))
				break
			}
			e.RecordAs(rec, raw.Violation, 1)
		}
		for _, line := range kinds(result.Findings) {
			violated = true
			e.Messages.Send(Message{Note: line.text(e.Subject)})
		}
	}
	if violated {
		e.Messages.Send(Message{Note: again})
	}
}

// kind are the findings that differ only in their objects.
type kind struct {
	first invariants.Finding
	count int
}

// kinds groups findings, in the order of the first ones.
func kinds(findings []invariants.Finding) (all []*kind) {
	known := map[string]*kind{}
	for _, f := range findings {
		key := f.Invariant + " " + withoutObjects(f.Text)
		if known[key] == nil {
			known[key] = &kind{first: f}
			all = append(all, known[key])
		}
		known[key].count++
	}
	return all
}

// withoutObjects replaces the words that name objects, addresses, chains and amounts.
func withoutObjects(text string) string {
	words := strings.Fields(text)
	for i, word := range words {
		if strings.ContainsAny(word, "/0123456789") || strings.Contains(word, "KUBE-") {
			words[i] = "#"
		}
	}
	return strings.Join(words, " ")
}

// text returns the line of a kind, with its count.
func (k *kind) text(subject string) string {
	more := ""
	if k.count > 1 {
		more = fmt.Sprintf(" (%d of this kind)", k.count)
	}
	text := fmt.Sprintf("%s violated by %s: %s %s", k.first.Invariant, subject, k.first.Service, k.first.Text)
	return raw.Brief(text, raw.LineLength-len(more)) + more
}
