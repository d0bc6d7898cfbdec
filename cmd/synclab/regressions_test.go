package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"synclab/bench/raw"
	"synclab/bench/traffic"
	"synclab/scenarios"
)

// regressions are bugs that kube-proxy has or had, the longest first. Each has a scenario that reproduces it:
// docs/regressions.md.
var regressions = []struct {
	scenario string
	objects  string   // manifests of objects that no shape can describe
	looked   []string // invariants that must be checked in the lab's own proxier
	// sent: flows are sent, and none of them may fail.
	sent bool
	// shown is the invariant that unmodified kube-proxy violates, in the version that the lab builds. never: kube-proxy
	// does not come up, or does not repair the fault. Neither: it does not have the bug any more.
	shown string
	never bool
}{
	{scenario: "48107-lock-held", looked: []string{"I1", "I11"}},
	{scenario: "121362-lost-update", looked: []string{"I1"}},
	{scenario: "129982-foreign-flows", looked: []string{"I9"}, sent: true, shown: "I9"},
	{scenario: "126468-stale-at-start", looked: []string{"I9"}},
	{scenario: "135266-address-twice", objects: "135266.objects.yaml", looked: []string{"I2", "I10"}, sent: true},
	{scenario: "139628-scaled-to-zero", looked: []string{"I4", "I9"}, sent: true},
	{scenario: "141371-service-deleted", looked: []string{"I9"}, sent: true, shown: "I9"},
	{scenario: "112604-restore-fails-once", looked: []string{"I9"}, sent: true, shown: "I9"},
	{scenario: "69599-same-external-ip", objects: "69599.objects.yaml", looked: []string{"I2", "I13"}, shown: "I2"},
	{scenario: "129128-nat-flushed", looked: []string{"I1", "I6"}, never: true},
	{scenario: "142068-no-xt-nfacct", looked: []string{"I2", "I6"}, never: true},
}

// allRegressions also runs the bugs of kube-proxy that take longer than some seconds: a check waits until a violation
// could have disappeared.
const allRegressions = "SYNCLAB_ALL_REGRESSIONS"

const regressionsFolder = "../../scenarios/regressions"

// runRegression runs one regression's scenario with some subjects.
func runRegression(t *testing.T, scenario, objects string, subjects []string, more ...string) []raw.Record {
	t.Helper()
	args := append([]string{"run", filepath.Join(regressionsFolder, scenario+".yaml"), "--feed", "api", "--subjects", strings.Join(subjects, ",")}, more...)
	if objects != "" {
		args = append(args, "-f", filepath.Join(regressionsFolder, objects))
	}
	_, records := runScenario(t, args...)
	return records
}

// The lab's own proxier has none of these bugs, with any backend. The scenarios mostly wait, so they run in parallel.
func TestRegressions(t *testing.T) {
	measures(t)
	for _, c := range regressions {
		t.Run(c.scenario, func(t *testing.T) {
			subjects := available(t, "synclab/iptables-legacy-tree", "synclab/iptables-nft", "synclab/nftables")
			t.Parallel()
			s, err := scenarios.Load(filepath.Join(regressionsFolder, c.scenario+".yaml"), nil, scenarios.Sizes{})
			if err != nil {
				t.Fatal(err)
			}
			// The machine may be busy with other tests: a subject without the bug converges at last.
			var patient []string
			for i, step := range s.Steps {
				if step.Settle != nil {
					patient = append(patient, fmt.Sprintf("--set=steps.%d.settle.timeout=2m", i))
				}
			}
			records := runRegression(t, c.scenario, c.objects, subjects, patient...)
			for _, subject := range subjects {
				soundly(t, s, subject, records, c.sent)
				for _, invariant := range c.looked {
					if !checked(records, subject, invariant) {
						t.Errorf("%s: %s was not checked", subject, invariant)
					}
				}
			}
		})
	}
}

// soundly requires records without a sign of a bug.
func soundly(t *testing.T, s *scenarios.Scenario, subject string, records []raw.Record, sent bool) {
	t.Helper()
	flows := 0
	for _, r := range records {
		if r.Subject != subject {
			continue
		}
		switch {
		case r.Metric == raw.Violation, r.Metric == raw.Exceeded, r.Metric == raw.FaultRepaired && r.Error != "":
			t.Errorf("%s: %s %s %s %s %s: %s", subject, r.Step, r.Metric, r.Fault, r.Invariant, r.Service, r.Error)
		case r.Metric == raw.NewEndpointDelay: // perhaps no flow was sent to a short-lived endpoint
		case r.Outcome == traffic.Misrouted, sent && r.Outcome != "":
			t.Errorf("%s: %s: a flow to %s: %s %s", subject, r.Step, r.Service, r.Outcome, r.Error)
		case r.Metric == raw.Flow || r.Metric == raw.LongLivedFlow:
			flows++
		}
	}
	if sent && flows == 0 {
		t.Errorf("%s: no flow was answered", subject)
	}
	if !reached(records, subject, s) {
		t.Errorf("%s: did not reach the last check", subject)
	}
}

// reached reports whether the scenario's last check has a record.
func reached(records []raw.Record, subject string, s *scenarios.Scenario) bool {
	last := ""
	for i, step := range s.Steps {
		if step.Check != nil {
			last = fmt.Sprintf("%d:check", i+1)
		}
	}
	for _, r := range records {
		if r.Subject == subject && r.Step == last && r.Metric == raw.InvariantChecks {
			return true
		}
	}
	return false
}

func checked(records []raw.Record, subject, invariant string) bool {
	for _, r := range records {
		if r.Subject == subject && r.Metric == raw.InvariantChecks && r.Invariant == invariant && r.Value > 0 {
			return true
		}
	}
	return false
}

// Unmodified kube-proxy shows that the scenarios reproduce their bugs.
func TestRegressionsOfKubeProxy(t *testing.T) {
	measures(t)
	const subject = "kube-proxy/iptables-legacy"
	needKubeProxy(t)
	for _, c := range regressions {
		if c.shown == "" && !c.never {
			continue
		}
		t.Run(c.scenario, func(t *testing.T) {
			subjects := available(t, subject)
			switch {
			case len(subjects) == 0:
				t.Skip("no tools here")
			case c.shown != "" && os.Getenv(allRegressions) == "":
				t.Skipf("takes some 20 s; %s=1 or make regressions runs it", allRegressions)
			}
			t.Parallel()
			records := runRegression(t, c.scenario, c.objects, subjects)
			violated, never := 0, false
			for _, r := range records {
				if r.Metric == raw.Violation && r.Invariant == c.shown {
					violated++
				}
				never = never || r.Metric == raw.Exceeded || r.Metric == raw.FaultRepaired && r.Error != ""
			}
			if c.shown != "" && violated == 0 {
				t.Errorf("%s is not violated", c.shown)
			}
			if never != c.never {
				t.Errorf("never repaired: %v, want %v", never, c.never)
			}
		})
	}
}
