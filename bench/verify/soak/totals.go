package soak

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"synclab/bench/fault"
	"synclab/bench/outfile"
	"synclab/bench/raw"
	"synclab/scenarios"
)

// Totals are the counts of a soak.
type Totals struct {
	Scenarios int            `json:"scenarios"`
	Events    int            `json:"events"` // changes made to the cluster after the first create
	Faults    map[string]int `json:"faults"` // by kind, as far as the runs came
	Syncs     int            `json:"syncs"`
	Failed    int            `json:"failedSyncs"`
	// Flows are packets of the stream: new flows, and packets of long-lived flows. Answered flows reached a right
	// endpoint. Excused flows failed while an active fault may lose flows. Machine flows timed out together with a control
	// flow straight to an endpoint, without such a fault. Lost and Misrouted must be 0.
	Flows     int `json:"flows"`
	Answered  int `json:"answered"`
	Excused   int `json:"excused"`
	Machine   int `json:"machine"`
	Lost      int `json:"lost"`
	Misrouted int `json:"misrouted"`
	// Checks counts check steps times invariants; Looked counts single checks.
	Checks     int `json:"checks"`
	Looked     int `json:"looked"`
	Violations int `json:"violations"`
}

// count adds a record. It counts faults by their start; a fault with several records counts once a step.
func (o *Outcome) count(s *scenarios.Scenario, r raw.Record, windows []window) {
	t := &o.Totals
	switch r.Metric {
	case raw.ChangesApplied:
		t.Events += int(r.Value)
	case raw.FaultDuration:
		step := fault.StepIndex(r.Fault)
		if step < 0 {
			step = fault.StepIndex(r.Step)
		}
		if step >= 0 && step < len(s.Steps) && s.Steps[step].Fault != nil {
			t.Faults[s.Steps[step].Fault.Kind]++
		}
	case raw.FullSync, raw.PartialSync:
		t.Syncs++
	case raw.SyncFailed:
		t.Failed++
	case raw.InvariantChecks:
		t.Checks++
		t.Looked += int(r.Value)
	case raw.Violation:
		t.Violations += int(r.Value)
	case raw.ControlFailure:
		t.Flows++
		if slices.ContainsFunc(windows, func(w window) bool { return w.holds(r) }) {
			t.Excused++
		} else {
			t.Machine++
		}
	case raw.Flow, raw.LongLivedFlow:
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
	t.Machine += other.Machine
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

// String formats the totals as one line.
func (t Totals) String() string {
	return fmt.Sprintf("%d events, %d faults, %d syncs (%d failed), %d flows (%d answered, %d lost to faults, %d lost by the machine, %d lost, %d misrouted), %d checks, %d violations",
		t.Events, t.faults(), t.Syncs, t.Failed, t.Flows, t.Answered, t.Excused, t.Machine, t.Lost, t.Misrouted, t.Checks, t.Violations)
}

// Failed is a seed that failed.
type Failed struct {
	Seed     uint64    `json:"seed"`
	Subject  string    `json:"subject"`
	Folder   string    `json:"folder"` // with the run's records
	Failures []Failure `json:"failures"`
	// Again are commands that replay the failure.
	Again []string `json:"again"`
	// Minimal is the file of the smallest failing scenario; empty if there was no search.
	Minimal string `json:"minimal,omitempty"`
	// Came has the number of failures and the number of runs of the search.
	Came string `json:"came,omitempty"`
}

// Summary is the content of summary.json.
type Summary struct {
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished"`
	// FirstSeed and Seeds are the first seed and the number of seeds.
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

// Line formats the summary as one line, for progress.
func (m Summary) Line(now time.Time) string {
	return fmt.Sprintf("%v: %d seeds from %d, %d failed: %s", now.Sub(m.Started).Round(time.Second), m.Seeds, m.FirstSeed, len(m.Failed), m.Totals)
}

// Text formats the summary for the end.
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
			fmt.Fprintf(&b, "  replay: %s\n", command)
		}
	}
	return b.String()
}

func (m Summary) write(folder *outfile.Folder) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return folder.Write("summary.json", append(text, '\n'), 0o644)
}
