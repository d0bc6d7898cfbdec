package bench

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/invariants"
	"synclab/bench/traffic"
	"synclab/proxier/tracker"
	"synclab/scenarios"
)

// What flows met reaches the checkers of I2, I9 and I10: flows that failed, connections that ended, and shares that are not even.
func TestFlowsCountForInvariants(t *testing.T) {
	s := newSlow(t)
	s.flows.packets = map[int]int{}
	s.Scenario.Steps = []scenarios.Step{
		{Settle: &scenarios.Settle{}}, {Fault: &scenarios.Fault{Kind: scenarios.FaultFlush}}, {Settle: &scenarios.Settle{}}, {Check: &scenarios.Check{}},
	}
	for i, name := range []string{"1:settle", "2:fault", "3:settle", "4:check"} {
		s.flows.stepBegins(name, s.started.Add(time.Duration(i)*time.Minute))
	}
	a, b := &tracker.Endpoint{Addr: netip.MustParseAddrPort("10.0.0.1:80")}, &tracker.Endpoint{Addr: netip.MustParseAddrPort("10.0.0.2:80")}
	target := &traffic.Target{Family: corev1.IPv4Protocol, Protocol: corev1.ProtocolTCP}
	target.Service.Namespace, target.Service.NamespacedName.Name = "ns", "web"
	at := func(minute float64) time.Time { return s.started.Add(time.Duration(minute * float64(time.Minute))) }
	flow := func(minute float64, by *tracker.Endpoint, among ...*tracker.Endpoint) {
		s.observed(traffic.Observed{Target: target, At: at(minute), By: by.Addr, Among: among})
	}
	packet := func(minute float64, number int, outcome string) {
		s.observed(traffic.Observed{Finding: traffic.HeldPacket, Target: target, At: at(minute), Held: true, Number: number, Outcome: outcome})
	}
	flow(0.1, a, a) // of another state of the Service
	fails := func(minute float64) {
		s.observed(traffic.Observed{Target: target, At: at(minute), Outcome: traffic.TimedOut})
	}
	fails(0.3)
	fails(1.4) // by the fault
	for range 400 {
		flow(0.2, a, a, b)
		flow(1.5, b, a, b) // while a fault may send everybody there
	}
	packet(0.1, 1, traffic.Answered)
	packet(0.2, 1, traffic.Reset)
	packet(0.2, 2, traffic.Answered)
	packet(1.2, 2, traffic.Reset) // by the fault
	packet(2.5, 2, traffic.TimedOut)
	packet(3.5, 3, traffic.Answered)

	met := s.checking.met.traffic(false)
	if met == nil || met.Flows != 803 || met.Failed != 1 || met.Held != 3 || met.HeldLost != 1 {
		t.Fatalf("%+v", met)
	}
	results, err := invariants.Check(t.Context(), &invariants.Evidence{Traffic: met}, []string{"I2", "I9", "I10"})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, result := range results {
		for _, f := range result.Findings {
			found[f.Invariant] += f.Service + ": " + f.Text
		}
	}
	if !strings.Contains(found["I2"], "1 of 803 flows") || !strings.Contains(found["I9"], "1 of 3 flows") || !strings.Contains(found["I10"], "ns/web") || !strings.Contains(found["I10"], "400 flows") {
		t.Errorf("findings %v", found)
	}
	s.checking.met.forget()
	if met := s.checking.met.traffic(false); met != nil {
		t.Errorf("after a check, from before it: %+v", met)
	}
	if met := s.checking.met.traffic(true); met == nil || !met.Streaming {
		t.Errorf("while a stream runs: %+v", met)
	}
}

// A fault that may lose flows excuses them until the settle step after it, and what it holds until it is healed.
func TestMayFail(t *testing.T) {
	fault := func(kind string) scenarios.Step { return scenarios.Step{Fault: &scenarios.Fault{Kind: kind}} }
	settle := scenarios.Step{Settle: &scenarios.Settle{}}
	steps := []scenarios.Step{
		settle, fault(scenarios.FaultRestoreFails), settle, fault(scenarios.FaultConntrackFull), settle, fault(scenarios.FaultHeal), settle, settle,
	}
	for _, c := range []struct {
		from, to string
		want     bool
	}{
		{"1:settle", "3:settle", false}, {"3:settle", "4:fault", true}, {"5:settle", "5:settle", true}, {"7:settle", "8:settle", true},
		{"8:settle", "8:settle", false}, {"", "", false},
	} {
		if got := mayFail(steps, c.from, c.to); got != c.want {
			t.Errorf("from %q to %q: %v", c.from, c.to, got)
		}
	}
}
