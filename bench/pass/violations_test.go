package pass

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/utils/clock"

	"synclab/bench/raw"
	"synclab/bench/verify/invariants"
	"synclab/scenarios"
)

// Violations that differ only in their object are one line with a count. A line is short; the records have everything.
func TestViolationsAreLines(t *testing.T) {
	var out bytes.Buffer
	e := &Env{Assignment: Assignment{Scenario: scenarios.Scenario{Seed: 4}, Subject: "some/proxy", Command: "synclab run x"}, Messages: NewMessageWriter(&out), Clock: clock.RealClock{}}
	result := invariants.Result{Invariant: "I1", Checked: 90}
	long := strings.Repeat("rule\n", 3000)
	for i := range 30 {
		result.Findings = append(result.Findings, invariants.Finding{Invariant: "I1", Service: fmt.Sprintf("ns/a-%d:http", i),
			Text: fmt.Sprintf("IPv4: ns/a-%d:http goes to 10.0.0.%d through KUBE-SVC-ABCDEFGHIJKLMNOP: %s", i, i, long)})
	}
	result.Findings = append(result.Findings, invariants.Finding{Invariant: "I1", Text: "no evidence was checked"})
	e.RecordResults([]invariants.Result{result, {Invariant: "I2", Checked: 1}})

	var notes []string
	violations, longest := 0.0, 0
	for lines := json.NewDecoder(&out); lines.More(); {
		var m Message
		if err := lines.Decode(&m); err != nil {
			t.Fatal(err)
		}
		if m.Note != "" {
			notes = append(notes, m.Note)
		}
		if m.Record != nil && m.Record.Metric == raw.Violation {
			violations += m.Record.Value
			longest = max(longest, len(m.Record.Error))
		}
	}
	if violations != 31 || longest < len(long) {
		t.Errorf("records of %v violations, the longest with %d characters", violations, longest)
	}
	if len(notes) != 3 || !strings.HasSuffix(notes[0], " … (30 of this kind)") || notes[1] != "I1 violated by some/proxy: no evidence was checked" || notes[2] != "seed 4; reproduce with: synclab run x" {
		t.Errorf("%q", notes)
	}
	for _, note := range notes {
		if utf8.RuneCountInString(note) > raw.LineLength || strings.Contains(note, "\n") {
			t.Errorf("%d characters: %s", utf8.RuneCountInString(note), note)
		}
	}
}
