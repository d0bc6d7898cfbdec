package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"

	"k8s.io/utils/clock"

	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/subject/host"
)

// A writer reports no change of its own rules, and reports a rule that another program deleted. It leaves none.
func TestWritersLookAfterTheirRules(t *testing.T) {
	for _, name := range brokenSubjects {
		t.Run(name, func(t *testing.T) {
			r := written(t, name)
			for tool, begin := range map[string]func(context.Context) (*writer, error){raw.MethodIptables: r.newIptablesWriter, raw.MethodNft: r.newNftWriter} {
				w, err := begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if lock := tool == raw.MethodIptables && r.About.Legacy(); w.tool != tool || (w.waits == raw.WaitsForLock) != lock {
					t.Errorf("%s waits for the %s", w.tool, w.waits)
				}
				if err := w.add(); err != nil {
					t.Fatal(err)
				}
				for added, want := range map[bool]bool{true: true, false: false} {
					if wrong, err := w.intact(added); (wrong == "") != want || err != nil {
						t.Errorf("%s, second rule %v: %q, %v", tool, added, wrong, err)
					}
				}
				if err := w.remove(); err != nil {
					t.Fatal(err)
				}
				if wrong, err := w.intact(false); wrong != "" || err != nil {
					t.Errorf("%s, after the rule was deleted again: %q, %v", tool, wrong, err)
				}
				if err := w.clear(); err != nil {
					t.Error(err)
				}
				if wrong, _ := w.intact(false); wrong == "" {
					t.Errorf("%s left its rules", tool)
				}
			}
		})
	}
}

// Each call is recorded with the step in which it began. A failed one is repeated, not reversed.
func TestKeepWriting(t *testing.T) {
	var out bytes.Buffer
	r := newFaults(&pass.Env{Clock: clock.RealClock{}, Messages: pass.NewMessageWriter(&out)})
	r.Host = &host.Host{Env: r.Env}
	name, calls, done := "3:churn", "", make(chan struct{})
	next := "4:settle"
	r.Step.Store(&name)
	stop := r.keepWriting(&activeFault{name: "1:fault writer"}, &writer{
		tool: raw.MethodNft, waits: raw.WaitsForCommit,
		add: func() error {
			if calls += "+"; len(calls) == 1 {
				r.Step.Store(&next)
				return errors.New("refused")
			}
			return nil
		},
		remove: func() error {
			if calls += "-"; calls == "++-" {
				close(done)
			}
			return nil
		},
		intact: func(added bool) (string, error) { return "changed", nil },
	})
	<-done
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	var steps, outcomes []string
	violations := 0
	for decoder := json.NewDecoder(&out); decoder.More(); {
		var m pass.Message
		if err := decoder.Decode(&m); err != nil {
			t.Fatal(err)
		}
		switch {
		case m.Record == nil:
		case m.Record.Metric == raw.Violation:
			violations++
		case m.Record.Metric == raw.WriterWait:
			steps, outcomes = append(steps, m.Record.Step), append(outcomes, m.Record.Outcome)
		}
	}
	if len(steps) < 3 || steps[0] != name || steps[1] != next || outcomes[0] != raw.WriteFailed || outcomes[1] != "" || violations != 1 {
		t.Errorf("calls %s, steps %q, outcomes %q, %d violations", calls, steps, outcomes, violations)
	}
}
