package verdict

import (
	"strings"
	"testing"

	"synclab/reports/doc"
)

// Each rule says what it should, and nothing on facts that do not concern it.
func TestRules(t *testing.T) {
	for _, test := range []struct {
		name  string
		facts Facts
		want  []string // "level: text", in part
	}{
		{"nothing", Facts{}, []string{"info: Nothing to judge"}},
		{"saturated", Facts{Loads: []Load{{Series: "A", Size: "2,000 Services × 10 endpoints", Busy: 0.998, Sync: 1.18, Gap: 1, Fits: 1000}}},
			[]string{"bad: A is saturated at 2,000 Services × 10 endpoints: a sync takes 1.18 s, and changes come at 1 a second; syncs ran 100 % of the time. They would not run back to back below 0.85 changes a second, or at this rate with 1,000 Services."}},
		{"saturated with short syncs", Facts{Loads: []Load{{Series: "A", Size: "10 Services", Busy: 0.96, Sync: 0.5, Gap: 1}}},
			[]string{"bad: A is saturated at 10 Services: a sync takes 500 ms, and changes come at 1 a second; syncs ran 96 % of the time."}},
		{"busy", Facts{Loads: []Load{{Series: "A", Size: "10 Services", Busy: 0.8}, {Series: "B", Size: "10 Services", Busy: 0.2}}}, []string{"care: A is busy with syncs 80 % of the time"}},
		{"incomplete", Facts{Incomplete: []string{"run x: interrupted"}}, []string{"care: Incomplete: run x: interrupted."}},
		{"incomplete with an SLO", Facts{Incomplete: []string{"run x: changed"}, SLOs: []SLOResult{{Series: "A", Name: "full sync", Limit: "1 s", MetUpTo: 10}}},
			[]string{"care: Incomplete: run x: changed.", "info: As far as it was measured: SLOs (full sync ≤ 1 s) are met by A."}},
		{"violated", Facts{Violated: []Violated{{"A", []string{"I9", "I13"}, 1}}}, []string{"bad: With A, 1 check failed: I9 and I13."}},
		{"stalls", Facts{Stalls: []Stalls{{"A", "10,000 Services × 10 endpoints", []string{"soft lockup"}, []string{"nft"}, 5, 6, 26, Longest{}, Longest{}}, {"B", "10 Services", []string{"RCU stall", "hung task"}, nil, 1, 1, 0, Longest{}, Longest{}}}},
			[]string{"care: The kernel stalled during 5 of 6 repetitions of A at 10,000 Services × 10 endpoints: soft lockup, up to 26.0 s, in task nft.", "care: The kernel stalled during 1 of 1 repetition of B at 10 Services: RCU stall and hung task."}},
		{"waits of others", Facts{Stalls: []Stalls{{Series: "A", Of: 6, Gap: Longest{1.5, "10 Services", "churn"}, Wait: Longest{3, "10 Services", "restart"}}, {Series: "B", Of: 6, Gap: Longest{0.9, "10 Services", "churn"}}}},
			[]string{"care: With A at 10 Services, another process could not run on one CPU for 1.50 s (step churn).", "care: With A at 10 Services, another program waited to write its own rules for 3.00 s (step restart)."}},
		{"faults", Facts{Faults: []Faults{{Series: "A", Times: 19, Recovered: 19, Slowest: 12}, {Series: "B", Times: 19, Unrepaired: 3, Never: []string{"flush nat"}}, {Series: "C", Times: 3, Recovered: 2}, {Series: "D", Times: 4, Unrepaired: 4, Never: []string{"a", "b"}}}},
			[]string{"bad: B did not recover from 3 of 19 faults: flush nat.", "care: C: a recovery was observed from 2 of 3 faults.", "bad: D did not recover from any of 4 faults.", "good: Recovered from every fault: A (19 of 19, the slowest after 12.0 s)."}},
		{"flows", Facts{Flows: []Flows{{Series: "A", Flows: 400}, {Series: "B", Flows: 400, Failed: 114, Misrouted: 2}, {Series: "C", Flows: 300}}},
			[]string{"bad: B: 114 of 400 new flows failed and 2 new flows went to a wrong endpoint.", "good: No new flow failed or went to a wrong endpoint with A and C (300 flows or more"}},
		{"unobserved flows", Facts{Flows: []Flows{{Series: "A", Flows: 40, Unobserved: 360, Stream: 400}, {Series: "B", Flows: 380, Unobserved: 20, Stream: 400}, {Series: "C", Flows: 300, Failed: 1, Unobserved: 100, Stream: 400}, {Series: "D", Unobserved: 400, Stream: 400}}},
			[]string{"bad: C: 1 of 300 new flows failed.", "care: Flows that were not observed, since flows past the rules failed too, or the observer had no CPU: A 360 of 400, C 100 of 400, D 400 of 400.", "good: No new flow failed or went to a wrong endpoint with B (380 flows or more"}},
		{"flows around faults", Facts{Faults: []Faults{{Series: "A", Times: 1, Recovered: 1, Slowest: 1}}, Flows: []Flows{{Series: "A", Flows: 400, Failed: 7}, {Series: "B", Flows: 400, Failed: 8, Misrouted: 2}}},
			[]string{"good: Recovered", "bad: B: 2 new flows went to a wrong endpoint.", "care: New flows that failed between a fault and the recovery: A 7 (1.8 % of 400), B 8 (2 % of 400)."}},
		{"the control differs", Facts{Control: Control{22e-6, 48e-6}}, []string{"care: The control differs between the subjects: a packet of an established flow, which no rule concerns, takes 22.0 µs to 48.0 µs."}},
		{"the control agrees", Facts{Control: Control{22e-6, 23e-6}}, []string{"info: Nothing to judge"}},
		{"answers differ", Facts{Answers: Answers{Packets: 100, Unexplained: 3, Reference: "A"}}, []string{"bad: 3 of 100 packets ended otherwise than with A"}},
		{"packets loop", Facts{Answers: Answers{Looped: 2, Reference: "A"}}, []string{"bad: 2 packets to ports that no Service has looped"}},
		{"answers agree", Facts{Answers: Answers{Packets: 100, Reference: "A"}}, []string{"good: All subjects answer packets as A does"}},
		{"few packets are not observed", Facts{Answers: Answers{Packets: 100, Busy: 3, Reference: "A", Unseen: "3 packets not observed"}},
			[]string{"good: All subjects answer packets as A does, but for documented differences (100 packets compared). 3 packets not observed."}},
		{"many packets are not observed", Facts{Answers: Answers{Packets: 10, Busy: 90, Reference: "A", Unseen: "90 packets not observed"}},
			[]string{"care: Packets that were observed end as with A, but for documented differences (10 packets compared). 90 packets not observed."}},
		{"no packet is observed", Facts{Answers: Answers{Busy: 90, Unseen: "90 packets not observed"}}, []string{"care: Packets that were not compared: 90 packets not observed."}},
		{"a subject has no packets", Facts{Answers: Answers{Packets: 10, Missing: 1, Reference: "A", Unseen: "no packets of B to compare"}},
			[]string{"care: Packets that were observed end as with A, but for documented differences (10 packets compared). No packets of B to compare."}},
		{"SLOs of one size", Facts{SLOs: []SLOResult{{Series: "A", Name: "full sync", Limit: "1 s", MetUpTo: 10}, {Series: "B", Name: "full sync", Limit: "1 s", Value: "1.38 s", ViolatedAt: 10}}},
			[]string{"bad: B violates full sync ≤ 1 s (1.38 s).", "good: SLOs (full sync ≤ 1 s) are met by A."}},
		{"no subject meets the SLOs", Facts{SLOs: []SLOResult{{Series: "A", Name: "full sync", Limit: "1 s", Value: "2 s", ViolatedAt: 10}, {Series: "B", Name: "full sync", Limit: "1 s", Value: "3 s", ViolatedAt: 10}}},
			[]string{"bad: A violates full sync ≤ 1 s (2 s).", "bad: B violates full sync ≤ 1 s (3 s)."}},
		{"default SLOs", Facts{SLOSource: "Synclab's defaults", SLOs: []SLOResult{{Series: "A", Name: "full sync", Limit: "1 s", MetUpTo: 10}}}, []string{"good: SLOs (full sync ≤ 1 s) are met by A. The SLOs are Synclab's defaults."}},
		{"SLOs of a sweep", Facts{SLOs: []SLOResult{{Series: "A", Name: "full sync", Limit: "1 s", Value: "1.38 s", MetUpTo: 1600, ViolatedAt: 4000, Sweep: true}, {Series: "A", Name: "first packet", Limit: "20 µs", MetUpTo: 4000, Sweep: true}}},
			[]string{"bad: SLOs are met only up to a size: A up to 1,600 Services, at 4,000 it violates full sync ≤ 1 s (1.38 s)."}},
		{"SLOs of a sweep, none met", Facts{SLOs: []SLOResult{{Series: "A", Name: "full sync", Limit: "1 s", Value: "2 s", ViolatedAt: 100, Sweep: true}}}, []string{"bad: SLOs are met only up to a size: A at no measured size, at 100 Services it violates full sync ≤ 1 s (2 s)."}},
		{"some SLOs", Facts{SLOs: []SLOResult{{Series: "A", Name: "full sync", Limit: "1 s", MetUpTo: 10}, {Series: "A", Name: "first packet", Limit: "20 µs", MetUpTo: 10}, {Series: "B", Name: "full sync", Limit: "1 s", MetUpTo: 10}}},
			[]string{"good: SLOs (full sync ≤ 1 s, first packet ≤ 20 µs) are met by A and B (full sync)."}},
		{"unclear SLOs", Facts{SLOs: []SLOResult{{Series: "A", Name: "full sync", Limit: "1 s", Unclear: true}}}, []string{"care: Not clear: full sync ≤ 1 s with A. The interval contains the limit."}},
		{"pairs", Facts{Rankings: []Ranking{{"Reaction", []string{"A 1.02 ms", "B 18.2 ms"}}}, Pairs: []Pair{{"A", "B", "10 Services", []string{"reaction 18× faster"}, []string{"first packet"}, false}, {"C", "B", "10 Services", []string{"reaction 2× faster"}, []string{"latency p99"}, true}, {"D", "B", "10 Services", nil, []string{"reaction"}, false}}},
			[]string{"info: Reaction: A 1.02 ms, B 18.2 ms.", "info: At 10 Services, A against B: reaction 18× faster; no difference shown in first packet.", "info: C against B: reaction 2× faster (observed in too few repetitions for intervals); no difference shown in latency p99.", "info: D against B: no difference shown in reaction."}},
		{"best", Facts{Best: Best{Size: "10 Services", Series: []string{"A", "B"}, Figures: [][]string{{"reaction", "cold start"}, {"peak memory"}}}}, []string{"info: Best at 10 Services: A in reaction and cold start; B in peak memory."}},
		{"growth", Facts{Growth: []Growth{{"A", "full sync", 1000, 3.14}, {"B", "full sync", 10, 2.5}}}, []string{"care: Full sync grows faster than the number of Services: A from 1,000 on (twice the Services: 3.1 times as long); B from 10 on (twice the Services: 2.5 times as long)."}},
		{"a move", Facts{Moves: []Move{{"A", "B", "go with care", doc.Care, []string{"3 new flows were lost", "more"}}}}, []string{"care: Go with care: from A to B. 3 new flows were lost; and 1 further reason below."}},
		{"many stopped", Facts{Stopped: []string{"a", "b", "c", "d", "e", "f"}}, []string{"bad: a.", "bad: b.", "bad: c.", "bad: d. And 2 more: see below."}},
	} {
		t.Run(test.name, func(t *testing.T) {
			lines := Of(test.facts)
			if len(lines) != len(test.want) {
				t.Fatalf("%d lines, want %d: %q", len(lines), len(test.want), lines)
			}
			for i, line := range lines {
				if got := string(line.Level) + ": " + line.Text; !strings.HasPrefix(got, test.want[i]) {
					t.Errorf("line %d:\n%s\nwant\n%s", i, got, test.want[i])
				}
			}
		})
	}
}
