package bench

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"synclab/proxier"
	"synclab/proxier/iptables"
	"synclab/scenarios"
)

// Every scenario of the library ends with the same rules, to the letter of iptables-legacy-save, whether they went
// through the tool or to the kernel directly.
func TestDirectEqualsToolInScenarios(t *testing.T) {
	if testing.Short() {
		t.Skip("plays the whole library")
	}
	for _, listed := range scenarios.List() {
		if listed.Name == "follow" { // needs a cluster
			continue
		}
		t.Run(listed.Name, func(t *testing.T) {
			var sets []string
			if slices.ContainsFunc(listed.Sweep, func(a scenarios.Axis) bool { return a.Field == "proxy.minSyncPeriod" }) { // to longer ones than a trial has
				sets = append(sets, "proxy.syncPeriod=30s")
			}
			tr := newTrial(t, listed.Name, 24, sets...)
			tr.options.Subjects = nil
			for _, subject := range Subjects() {
				if subject.Proxier == Synclab && subject.Variant == iptables.Legacy && subject.Layout != iptables.Tree && subject.Available() == nil {
					tr.options.Subjects = append(tr.options.Subjects, subject.Name)
				}
			}
			if len(tr.options.Subjects) != 2 {
				t.Skipf("no iptables-legacy: %v", tr.options.Subjects)
			}
			if feedFor(nil, tr.options.Scenario) == FeedAPI {
				t.Skip("measures from outside, and this binary is no proxier: cmd/synclab plays it")
			}
			shorten(tr.options.Scenario)
			rules := map[proxier.BackendKind][]string{}
			tr.options.Dump = func(subject, text string) {
				for line := range strings.Lines(text) {
					if !strings.HasPrefix(line, "#") { // the time, and packets counted
						line, _, _ = strings.Cut(line, " [")
						rules[tr.about(subject).Backend] = append(rules[tr.about(subject).Backend], line)
					}
				}
			}
			tr.mustExecute()
			if len(rules[proxier.Direct]) == 0 {
				t.Fatal("no rules")
			}
			if diff := cmp.Diff(rules[proxier.Iptables], rules[proxier.Direct]); diff != "" {
				t.Errorf("(-tool +direct):\n%s", diff)
			}
		})
	}
}

// shorten makes a scenario end in seconds, at one size.
func shorten(s *scenarios.Scenario) {
	s.Sweep, s.Targets = nil, nil
	for i := range s.Steps {
		switch step := &s.Steps[i]; {
		case step.Churn != nil:
			step.Churn.Rate, step.Churn.Events = 20, min(step.Churn.Events, 20)
		case step.Scale != nil:
			step.Scale.Rate = 2000
		case step.Rollout != nil:
			step.Rollout.Interval = 100 * time.Millisecond
		case step.Probe != nil:
			step.Probe.Samples, step.Probe.Positions = 10, 2
		}
	}
}
