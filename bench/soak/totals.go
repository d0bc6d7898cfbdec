package soak

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"synclab/bench"
	"synclab/bench/outfile"
	"synclab/scenarios"
)

// Totals are what a soak counted.
type Totals struct {
	Scenarios int            `json:"scenarios"`
	Events    int            `json:"events"` // changes made to the cluster after the first create
	Faults    map[string]int `json:"faults"` // by kind, as far as the runs came
	Syncs     int            `json:"syncs"`
	Failed    int            `json:"failedSyncs"`
	// Flows are packets of the stream: new flows, and packets of those that were held. Answered as they may be, failed while
	// a fault held that may lose them (Excused), and the two that must be 0.
	Flows     int `json:"flows"`
	Answered  int `json:"answered"`
	Excused   int `json:"excused"`
	Lost      int `json:"lost"`
	Misrouted int `json:"misrouted"`
	// Checks are check steps times invariants, Looked what they looked at.
	Checks     int `json:"checks"`
	Looked     int `json:"looked"`
	Violations int `json:"violations"`
}

// count adds what a record says. Faults are counted by their begin; a fault that tells of several is counted once a step.
func (o *Outcome) count(s *scenarios.Scenario, r bench.Record, windows []window) {
	t := &o.Totals
	switch r.Metric {
	case bench.Played:
		t.Events += int(r.Value)
	case bench.FaultBegun:
		step := stepIndex(r.Fault)
		if step < 0 {
			step = stepIndex(r.Step)
		}
		if step >= 0 && step < len(s.Steps) && s.Steps[step].Fault != nil {
			t.Faults[s.Steps[step].Fault.Kind]++
		}
	case bench.FullSync, bench.PartialSync:
		t.Syncs++
	case bench.SyncFailed:
		t.Failed++
	case bench.Checked:
		t.Checks++
		t.Looked += int(r.Value)
	case bench.Violation:
		t.Violations++
	case bench.Flow, bench.HeldFlow:
		t.Flows++
		switch kind := astray(r, windows); {
		case kind == Misrouted:
			t.Misrouted++
		case kind == Lost:
			t.Lost++
		case r.Outcome != "":
			t.Excused++
		default:
			t.Answered++
		}
	}
}

// Add adds other totals.
func (t *Totals) Add(other Totals) {
	t.Scenarios += other.Scenarios
	t.Events += other.Events
	if t.Faults == nil {
		t.Faults = map[string]int{}
	}
	for kind, n := range other.Faults {
		t.Faults[kind] += n
	}
	t.Syncs, t.Failed = t.Syncs+other.Syncs, t.Failed+other.Failed
	t.Flows, t.Answered, t.Excused = t.Flows+other.Flows, t.Answered+other.Answered, t.Excused+other.Excused
	t.Lost, t.Misrouted = t.Lost+other.Lost, t.Misrouted+other.Misrouted
	t.Checks, t.Looked, t.Violations = t.Checks+other.Checks, t.Looked+other.Looked, t.Violations+other.Violations
}

func (t Totals) faults() int {
	n := 0
	for _, of := range t.Faults {
		n += of
	}
	return n
}

// String is one line.
func (t Totals) String() string {
	return fmt.Sprintf("%d events, %d faults, %d syncs (%d failed), %d flows (%d answered, %d lost to faults, %d lost, %d misrouted), %d checks, %d violations",
		t.Events, t.faults(), t.Syncs, t.Failed, t.Flows, t.Answered, t.Excused, t.Lost, t.Misrouted, t.Checks, t.Violations)
}

// Failed is a seed that failed.
type Failed struct {
	Seed     uint64    `json:"seed"`
	Subject  string    `json:"subject"`
	Folder   string    `json:"folder"` // with the run's records
	Failures []Failure `json:"failures"`
	// Again are commands that show it again.
	Again []string `json:"again"`
	// Minimal is the file of the smallest scenario that still failed; empty: none was looked for.
	Minimal string `json:"minimal,omitempty"`
	// Came: how often the run failed again, and of how many, when a smaller scenario was looked for.
	Came string `json:"came,omitempty"`
}

// Summary is summary.json.
type Summary struct {
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished"`
	// FirstSeed and Seeds: seeds from the first on.
	FirstSeed uint64            `json:"firstSeed"`
	Seeds     int               `json:"seeds"`
	Subjects  []string          `json:"subjects"`
	Totals    Totals            `json:"totals"`
	BySubject map[string]Totals `json:"bySubject"`
	Failed    []Failed          `json:"failed"`
}

func (m *Summary) add(subject string, o Outcome) {
	m.Seeds++
	m.Totals.Add(o.Totals)
	own := m.BySubject[subject]
	own.Faults = maps.Clone(own.Faults)
	own.Add(o.Totals)
	m.BySubject[subject] = own
}

// Line is the summary in one line, for progress.
func (m Summary) Line(now time.Time) string {
	return fmt.Sprintf("%v: %d seeds from %d, %d failed: %s", now.Sub(m.Started).Round(time.Second), m.Seeds, m.FirstSeed, len(m.Failed), m.Totals)
}

// Text is the summary as people read it at the end.
func (m Summary) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", m.Line(m.Finished))
	for _, kind := range slices.Sorted(maps.Keys(m.Totals.Faults)) {
		fmt.Fprintf(&b, "  fault %-16s %4d\n", kind, m.Totals.Faults[kind])
	}
	for _, subject := range slices.Sorted(maps.Keys(m.BySubject)) {
		fmt.Fprintf(&b, "  %s: %d scenarios, %s\n", subject, m.BySubject[subject].Scenarios, m.BySubject[subject])
	}
	for _, f := range m.Failed {
		fmt.Fprintf(&b, "FAILED seed %d, %s\n", f.Seed, f.Subject)
		for _, failure := range f.Failures {
			fmt.Fprintf(&b, "  %s\n", failure)
		}
		for _, command := range f.Again {
			fmt.Fprintf(&b, "  again: %s\n", command)
		}
	}
	return b.String()
}

func (m Summary) write(dir string) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return outfile.Write(filepath.Join(dir, "summary.json"), append(text, '\n'), 0o644)
}
