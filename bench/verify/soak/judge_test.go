package soak

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"synclab/bench/raw"
	"synclab/scenarios"
)

// judged is a scenario in which flows may be lost from the flush (third step) to the end of the fifth step, and from
// the eighth step on.
var judged = &scenarios.Scenario{Name: "x", Steps: []scenarios.Step{
	{Create: &scenarios.Create{}},
	{Settle: &scenarios.Settle{}},
	{Fault: &scenarios.Fault{Kind: scenarios.FaultFlush, Table: "nat"}},
	{Churn: &scenarios.Churn{Rate: 1, Events: 1}},
	{Settle: &scenarios.Settle{}},
	{Fault: &scenarios.Fault{Kind: scenarios.FaultKilled}},
	{Settle: &scenarios.Settle{}},
	{Fault: &scenarios.Fault{Kind: scenarios.FaultAddresses, For: 1}},
	{Settle: &scenarios.Settle{}},
	{Check: &scenarios.Check{}},
}}

func TestJudge(t *testing.T) {
	records := []raw.Record{
		{At: 1, Step: "2:settle", Metric: raw.RulesKernel, Value: 100},
		{At: 5, Step: "3:fault", Fault: "3:fault flush nat", Metric: raw.FaultDuration},
		{At: 5.1, Step: "4:churn", Metric: raw.ChangesApplied, Value: 7},
		{At: 6, Step: "4:churn", Metric: raw.Flow, Value: 0.9, Outcome: "timeout"}, // lost to the flush
		{At: 7, Step: "4:churn", Metric: raw.Flow, Value: 0.001},
		{At: 9, Step: "5:settle", Metric: raw.RulesKernel, Value: 100},
		{At: 9.5, Step: "6:fault", Metric: raw.Flow, Value: 1, Outcome: "timeout"}, // began before the repair
		{At: 10, Step: "6:fault", Fault: "6:fault killed", Metric: raw.FaultDuration},
		{At: 12, Step: "7:settle", Metric: raw.Flow, Value: 1, Protocol: "TCP", Service: "a/b:c", Outcome: "timeout"},
		{At: 13, Step: "7:settle", Metric: raw.LongLivedFlow, Value: 1, Protocol: "UDP", Service: "a/b:c", Outcome: "reset"},
		{At: 14, Step: "7:settle", Metric: raw.RulesKernel, Value: 100},
		{At: 15, Step: "8:fault", Fault: "8:fault addresses", Metric: raw.FaultDuration, Value: 1},
		{At: 20, Step: "9:settle", Metric: raw.Flow, Value: 1, Outcome: "refused"}, // the fault is active and was not cleared
		{At: 21, Step: "9:settle", Metric: raw.Flow, Value: 0.1, Protocol: "UDP", Outcome: "misrouted"},
		{At: 22, Step: "10:check", Metric: raw.InvariantChecks, Invariant: "I1", Value: 400},
		{At: 22, Step: "10:check", Metric: raw.Violation, Value: 1, Invariant: "I1", Error: "a rule is missing"},
		{At: 22, Step: "10:check", Metric: raw.Violation, Value: 1, Invariant: "I7", Error: "a foreign rule is gone"},
		{At: 22, Step: "10:check", Metric: raw.Violation, Value: 1, Invariant: "I1", Error: "another one"},
		{At: 23, Step: "10:check", Metric: raw.FullSync, Value: 1},
		{At: 23, Step: "10:check", Metric: raw.SyncFailed, Value: 1},
	}
	got := Judge(judged, records, errors.New("it broke\nat line 5"))
	want := Outcome{
		Totals: Totals{
			Scenarios: 1, Events: 7, Faults: map[string]int{"flush": 1, "killed": 1, "addresses": 1}, Syncs: 1, Failed: 1,
			Flows: 7, Answered: 1, Excused: 3, Lost: 2, Misrouted: 1, Checks: 1, Looked: 400, Violations: 3,
		},
		Failures: []Failure{
			{Kind: Lost, Step: "7:settle", At: 12, Service: "a/b:c", Error: "tcp timeout after 1000 ms", Count: 2},
			{Kind: Misrouted, Step: "9:settle", At: 21, Error: "udp misrouted after 100 ms", Count: 1},
			{Kind: Violated, Invariant: "I1", Step: "10:check", At: 22, Error: "a rule is missing", Count: 2},
			{Kind: Violated, Invariant: "I7", Step: "10:check", At: 22, Error: "a foreign rule is gone", Count: 1},
			{Kind: Broken, Step: "10:check", Error: "it broke", Count: 1},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if text, want := got.Failures[2].String(), "violation I1 a rule is missing (step 10:check, after 22.0 s) and 1 more"; text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

// A subject that does not converge is a failure, even if the run is complete.
func TestJudgeOfASubjectThatDoesNotSettle(t *testing.T) {
	got := Judge(judged, []raw.Record{{At: 120, Step: "5:settle", Metric: raw.Exceeded, Value: 120, Error: "stopped after 2m0s"}}, nil)
	if len(got.Failures) != 1 || got.Failures[0].Kind != Unsettled {
		t.Errorf("%+v", got.Failures)
	}
	if got := Judge(judged, nil, nil); len(got.Failures) != 0 || got.Totals.Scenarios != 1 {
		t.Errorf("without records: %+v", got)
	}
}

// Two runs that broke off with the same error are alike, at whatever step.
func TestLike(t *testing.T) {
	of := func(text string) Failure { return Judge(judged, nil, errors.New(text)).Failures[0] }
	a := of("synclab/nftables, services=69, repetition 1: step 8:fault: flush table nat: exit status 4")
	if a.Step != "8:fault" {
		t.Errorf("at step %s", a.Step)
	}
	if b := of("synclab/nftables, services=9, repetition 1: step 3:fault: flush table nat: exit status 4"); !a.like(b) {
		t.Errorf("%v is not like %v", b, a)
	}
	if b := of("synclab/nftables, services=69, repetition 1: step 8:fault: watch: exit status 4"); a.like(b) {
		t.Errorf("%v is like %v", b, a)
	}
}

// While the conntrack table is full, a long-lived flow may keep its old endpoint. At other times it may not. A new flow
// never may.
func TestJudgeOfAFullTable(t *testing.T) {
	s := &scenarios.Scenario{Steps: []scenarios.Step{
		{Create: &scenarios.Create{}}, {Fault: &scenarios.Fault{Kind: scenarios.FaultConntrackFull, For: 1}}, {Fault: &scenarios.Fault{Kind: scenarios.FaultClear}}, {Settle: &scenarios.Settle{}},
	}}
	records := []raw.Record{
		{At: 1, Step: "1:create", Metric: raw.LongLivedFlow, Outcome: "misrouted"},
		{At: 2, Step: "2:fault", Fault: "2:fault conntrack-full", Metric: raw.FaultDuration},
		{At: 3, Step: "2:fault", Metric: raw.LongLivedFlow, Outcome: "misrouted"},
		{At: 3, Step: "2:fault", Metric: raw.Flow, Outcome: "misrouted"},
		{At: 4, Step: "4:settle", Metric: raw.RulesKernel},
	}
	if got := Judge(s, records, nil).Totals; got.Misrouted != 2 || got.Excused != 1 {
		t.Errorf("%d misrouted and %d excused, want 2 and 1", got.Misrouted, got.Excused)
	}
}
