package reports

import (
	"slices"
	"strings"
	"testing"

	"synclab/bench/raw"
	"synclab/reports/estimate"
	"synclab/reports/front"
	"synclab/reports/reportstest"
	"synclab/reports/sections"
	"synclab/scenarios"
)

// The verdict on a move follows from what was measured, and each cause alone changes it.
func TestMoveVerdict(t *testing.T) {
	took := estimate.Describe(estimate.Single(1.5))
	tcp := func(failed, misrouted int) []sections.MoveFlows {
		return []sections.MoveFlows{{Protocol: "TCP", Outcomes: sections.Outcomes{Flows: 100, Failed: failed, Misrouted: misrouted}, For: 0.2}}
	}
	longLived := []sections.MoveFlows{{Protocol: "UDP", LongLived: true, Outcomes: sections.Outcomes{Flows: 9, Failed: 2}, For: 0.1}}
	for _, test := range []struct {
		name   string
		change func(*sections.Move)
		want   string
		reason string
	}{
		{"nothing", func(*sections.Move) {}, sections.Go, ""},
		{"lost before", func(m *sections.Move) { m.Before = tcp(4, 4) }, sections.Go, ""},
		{"none during", func(m *sections.Move) { m.During = nil }, sections.GoWithCare, "no new flow was observed during the move: what it loses is not known"},
		{"not observed", func(m *sections.Move) { m.Unobserved = 6 }, sections.GoWithCare,
			"6 flows were not observed, since the machine was too busy, beside 100 new flows during the move: as many may have failed"},
		{"lost", func(m *sections.Move) { m.During = tcp(3, 0) }, sections.GoWithCare, "3 of 100 new flows were lost during the move: TCP 3 failed within 200 ms"},
		{"misrouted", func(m *sections.Move) { m.During = tcp(0, 1) }, sections.GoWithCare, "1 of 100 new flows were lost during the move: TCP 0 failed and 1 misrouted within 200 ms"},
		{"long-lived", func(m *sections.Move) { m.During = longLived }, sections.GoWithCare, "long-lived flows lost packets during the move: UDP 2 failed within 100 ms"},
		{"long-lived later", func(m *sections.Move) { m.Later = longLived }, sections.GoWithCare,
			"long-lived flows lost packets after kube-proxy/nftables had converged: UDP 2 failed within 100 ms"},
		{"later", func(m *sections.Move) { m.Later = tcp(5, 0) }, sections.GoWithCare, "5 new flows of 100 failed after kube-proxy/nftables had converged (before the moves: 0 of 0)"},
		{"left", func(m *sections.Move) {
			m.Left = map[string]int{"virtual servers of IPVS": 2, "tables of nf_tables": 0}
		},
			sections.GoWithCare, "kube-proxy/ipvs left things behind, virtual servers of IPVS: 2"},
		{"conntrack", func(m *sections.Move) { m.Left = map[string]int{"conntrack entries of TCP": 200} }, sections.Go, ""},
		{"differs", func(m *sections.Move) { m.Differs = map[string]int{"balancing": 4} }, sections.GoWithCare,
			"balancing, 4 Services: now endpoints take turns (scheduler rr); afterwards endpoints are drawn at random [https://kubernetes.io/docs/reference/networking/virtual-ips/]"},
		{"misrouted later", func(m *sections.Move) { m.Later = tcp(0, 1) }, sections.NoGo,
			"1 new flow of 100 reached a wrong endpoint after kube-proxy/nftables had converged (before the moves: 0)"},
		{"misrouted before and later", func(m *sections.Move) { m.Before, m.Later = tcp(0, 1), tcp(0, 1) }, sections.GoWithCare,
			"1 new flow of 100 reached a wrong endpoint after kube-proxy/nftables had converged (before the moves: 1)"},
		{"unreachable", func(m *sections.Move) { m.Unreachable = []string{"default/web IPv4 TCP"} }, sections.NoGo, "1 destination not reachable after the move: default/web IPv4 TCP"},
		{"never", func(m *sections.Move) { m.Settled = nil }, sections.NoGo,
			"kube-proxy/nftables did not take over: its tables never had every Service, or it did not converge in time"},
		{"not always", func(m *sections.Move) { m.Unfinished = 1 }, sections.NoGo,
			"kube-proxy/nftables did not take over: its tables never had every Service, or it did not converge in time"},
	} {
		m := sections.Move{From: "kube-proxy/ipvs", To: "kube-proxy/nftables", Took: &took, Settled: &took, During: tcp(0, 0), Unobserved: 5}
		test.change(&m)
		verdict, reasons := m.Verdict()
		if verdict != test.want || test.reason != "" && !slices.Contains(reasons, test.reason) || test.reason == "" && len(reasons) > 0 {
			t.Errorf("%s: %s because of %q, want %s because of %q", test.name, verdict, reasons, test.want, test.reason)
		}
	}
}

// moving is a made-up run of two moves, there and back: SIGTERM at 10 s and at 30 s, converged 3 s later.
func moving(extra ...raw.Record) reportstest.Recorded {
	const a, b = "kube-proxy/iptables-nft", "kube-proxy/nftables"
	flow := func(at, value float64, service, protocol, outcome, step string) raw.Record {
		return raw.Record{Subject: a, At: at, Value: value, Unit: "s", Metric: raw.Flow, Service: service, Family: "IPv4", Protocol: protocol, Outcome: outcome, Step: step}
	}
	all := []raw.Record{
		flow(5, 0.01, "default/web", "TCP", "", "2:traffic"),
		flow(5, 0.01, "default/dns", "UDP", "", "2:traffic"),
		flow(9.9, 0.5, "default/web", "TCP", "timeout", "2:traffic"), // began before SIGTERM, and ended after it
		flow(11, 0.5, "default/web", "TCP", "timeout", "4:settle"),
		flow(12, 0.1, "default/dns", "UDP", "refused", "4:settle"),
		flow(12.5, 0.01, "default/web", "TCP", "misrouted", "4:settle"),
		flow(20, 0.01, "default/web", "TCP", "", "5:churn"),
		flow(20, 0.01, "default/dns", "UDP", "timeout", "5:churn"),
		flow(21, 0.01, "default/dns", "UDP", "timeout", "5:churn"),
		flow(22, 0.01, "default/dns", "UDP", "timeout", "5:churn"),
		flow(22, 0.01, "default/new", "UDP", "timeout", "5:churn"), // never answered before
		flow(40, 0.01, "default/dns", "UDP", "", "7:settle"),
		{Subject: a, At: 10, Value: 7, Unit: "count", Metric: raw.BehaviourDiffers, Table: "hairpin", Step: "3:migrate"},
		{Subject: a, At: 12, Value: 2, Unit: "s", Metric: raw.Move, Kind: b, Step: "4:settle"},
		{Subject: a, At: 13, Value: 3, Unit: "s", Metric: raw.MoveSettled, Kind: b, Step: "4:settle"},
		{Subject: a, At: 13, Value: 2, Unit: "count", Metric: raw.LeftBehind, Family: "IPv4", Table: "chains of iptables-nft nat", Step: "4:settle"},
		{Subject: a, At: 13, Value: 3, Unit: "count", Metric: raw.LeftBehind, Family: "IPv6", Table: "chains of iptables-nft nat", Step: "4:settle"},
		{Subject: b, At: 13, Value: 0.1, Unit: "s", Metric: raw.FullSync, Family: "IPv4", Step: "4:settle"}, // of the next subject's process
		{Subject: a, At: 32, Value: 2, Unit: "s", Metric: raw.Move, Kind: a, Step: "7:settle"},
		{Subject: a, At: 33, Value: 3, Unit: "s", Metric: raw.MoveSettled, Kind: a, Step: "7:settle"},
		{Subject: a, At: 30, Value: 7, Unit: "count", Metric: raw.BehaviourDiffers, Table: "hairpin", Step: "6:migrate"},
	}
	all = append(all, extra...)
	for i := range all {
		all[i].Services, all[i].Rep = 10, 1
	}
	return reportstest.Recorded{Scenario: scenarios.Scenario{Name: "migrate"}, Reps: 1, Records: all}
}

// Flows that timed out together with flows past the rules count for the moves as flows whose end was not seen.
func TestMovesUnobserved(t *testing.T) {
	y := moving(raw.Record{Subject: "kube-proxy/iptables-nft", At: 12, Value: 0.9, Unit: "s", Metric: raw.ControlFailure, Outcome: "timeout", Step: "4:settle"},
		raw.Record{Subject: "kube-proxy/iptables-nft", At: 50, Value: 3, Unit: "count", Metric: raw.FlowsUnobserved, Step: "2:traffic"})
	for _, m := range buildOf(t, y, t.TempDir(), Options{NoPNG: true}).Moves {
		if m.Unobserved != 4 {
			t.Errorf("to %s: %d flows not observed, want 4", m.To, m.Unobserved)
		}
	}
}

// Flows belong to the part of a move in which they ended, by protocol, and Services that never answer again are found.
func TestMoves(t *testing.T) {
	s := buildOf(t, moving(), t.TempDir(), Options{NoPNG: true})
	if len(s.Moves) != 2 {
		t.Fatalf("%d moves, want 2: %+v", len(s.Moves), s.Moves)
	}
	there, back := s.Moves[0], s.Moves[1]
	if there.From != "kube-proxy/iptables-nft" || there.To != "kube-proxy/nftables" || back.From != there.To || back.To != there.From {
		t.Errorf("from %s to %s, and from %s to %s", there.From, there.To, back.From, back.To)
	}
	within := func(list []sections.MoveFlows, want ...sections.MoveFlows) {
		t.Helper()
		slices.SortFunc(list, func(a, b sections.MoveFlows) int { return strings.Compare(a.Protocol, b.Protocol) })
		for i := range list {
			list[i].For = float64(int(list[i].For*1e6+0.5)) / 1e6
		}
		if !slices.Equal(list, want) {
			t.Errorf("got %+v, want %+v", list, want)
		}
	}
	within(there.Before, sections.MoveFlows{Protocol: "TCP", Outcomes: sections.Outcomes{Flows: 1}}, sections.MoveFlows{Protocol: "UDP", Outcomes: sections.Outcomes{Flows: 1}})
	within(there.During, sections.MoveFlows{Protocol: "TCP", Outcomes: sections.Outcomes{Flows: 3, Failed: 2, Misrouted: 1}, For: 2.6}, sections.MoveFlows{Protocol: "UDP", Outcomes: sections.Outcomes{Flows: 1, Failed: 1}})
	within(there.Later, sections.MoveFlows{Protocol: "TCP", Outcomes: sections.Outcomes{Flows: 1}}, sections.MoveFlows{Protocol: "UDP", Outcomes: sections.Outcomes{Flows: 4, Failed: 4}, For: 2})
	within(back.During)
	within(back.Later, sections.MoveFlows{Protocol: "UDP", Outcomes: sections.Outcomes{Flows: 1}})
	if want := []string{"default/dns IPv4 UDP"}; !slices.Equal(there.Unreachable, want) || len(back.Unreachable) > 0 {
		t.Errorf("unreachable %q and %q, want %q and none", there.Unreachable, back.Unreachable, want)
	}
	if there.Left["chains of iptables-nft nat"] != 5 || there.Differs["hairpin"] != 7 {
		t.Errorf("left %v, differs %v", there.Left, there.Differs)
	}
	if there.Took.Median != 2 || there.Settled.Median != 3 || there.Unfinished != 0 {
		t.Errorf("%+v", there)
	}
	var out strings.Builder
	if err := front.Terminal(&out, s); err != nil {
		t.Fatal(err)
	}
	if text := strings.TrimSpace(out.String()); !strings.HasSuffix(text, "verdict: "+sections.GoWithCare) || !strings.Contains(text, "verdict: "+sections.NoGo) {
		t.Errorf("the summary does not end in the verdicts:\n%s", text)
	}
}

// A repetition whose next proxier never converged counts against the move.
func TestUnfinishedMove(t *testing.T) {
	y := moving()
	y.Records = slices.DeleteFunc(y.Records, func(r raw.Record) bool { return r.Step >= "6" || r.Metric == raw.MoveSettled || r.Metric == raw.Move })
	s := buildOf(t, y, t.TempDir(), Options{NoPNG: true})
	if len(s.Moves) != 1 || s.Moves[0].Unfinished != 1 {
		t.Fatalf("%+v", s.Moves)
	}
	if verdict, _ := s.Moves[0].Verdict(); verdict != sections.NoGo {
		t.Errorf("verdict %s", verdict)
	}
}
