package check

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/traffic"
	"synclab/bench/traffic/flow"
	"synclab/bench/verify/invariants"
	"synclab/proxier/tracker"
	"synclab/scenarios"
)

// Flows reach the checkers of I2, I9 and I10: flows that failed, connections that ended, and uneven shares.
func TestFlowsCountForInvariants(t *testing.T) {
	e := &pass.Env{Clock: clock.RealClock{}, Started: time.Now(), Messages: pass.NewMessageWriter(io.Discard)}
	c := &Checks{Env: e, Flows: &flow.Flows{Env: e, Packets: map[int]int{}}}
	c.Flows.Met = c.Count
	e.Scenario.Steps = []scenarios.Step{
		{Settle: &scenarios.Settle{}}, {Fault: &scenarios.Fault{Kind: scenarios.FaultFlush}}, {Settle: &scenarios.Settle{}}, {Check: &scenarios.Check{}},
	}
	for i, name := range []string{"1:settle", "2:fault", "3:settle", "4:check"} {
		c.Flows.Stepping(name, e.Started.Add(time.Duration(i)*time.Minute))
	}
	a, b := &tracker.Endpoint{Addr: netip.MustParseAddrPort("10.0.0.1:80")}, &tracker.Endpoint{Addr: netip.MustParseAddrPort("10.0.0.2:80")}
	target := &traffic.Target{Family: corev1.IPv4Protocol, Protocol: corev1.ProtocolTCP}
	target.Service.Namespace, target.Service.NamespacedName.Name = "ns", "web"
	at := func(minute float64) time.Time { return e.Started.Add(time.Duration(minute * float64(time.Minute))) }
	flow := func(minute float64, by *tracker.Endpoint, among ...*tracker.Endpoint) {
		c.Flows.Observed(traffic.Observed{Target: target, At: at(minute), By: by.Addr, Among: among})
	}
	packet := func(minute float64, number int, outcome string) {
		c.Flows.Observed(traffic.Observed{Finding: traffic.LongLivedPacket, Target: target, At: at(minute), LongLived: true, Number: number, Outcome: outcome})
	}
	flow(0.1, a, a) // in another state of the Service
	fails := func(minute float64) {
		c.Flows.Observed(traffic.Observed{Target: target, At: at(minute), Outcome: traffic.TimedOut})
	}
	fails(0.3)
	fails(1.4) // caused by the fault
	for range 400 {
		flow(0.2, a, a, b)
		flow(1.5, b, a, b) // while a fault may send all flows there
	}
	packet(0.1, 1, traffic.Answered)
	packet(0.2, 1, traffic.Reset)
	packet(0.2, 2, traffic.Answered)
	packet(1.2, 2, traffic.Reset) // caused by the fault
	packet(2.5, 2, traffic.TimedOut)
	packet(3.5, 3, traffic.Answered)

	met := c.met.traffic(false)
	if met == nil || met.Flows != 803 || met.Failed != 1 || met.LongLived != 3 || met.LongLivedLost != 1 {
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
	if !strings.Contains(found["I2"], "1 of 803 flows") || !strings.Contains(found["I9"], "1 of 3 long-lived flows") || !strings.Contains(found["I10"], "ns/web") || !strings.Contains(found["I10"], "400 flows") {
		t.Errorf("findings %v", found)
	}
	c.met.forget()
	if met := c.met.traffic(false); met != nil {
		t.Errorf("kept from before the check: %+v", met)
	}
	if met := c.met.traffic(true); met == nil || !met.Streaming {
		t.Errorf("while a stream runs: %+v", met)
	}
}

// Flows that a busy machine loses together with control flows are no violation. While a fault may lose flows, they are
// lost to the fault.
func TestBusyMachineIsNoViolation(t *testing.T) {
	var said bytes.Buffer
	e := &pass.Env{Clock: clock.RealClock{}, Started: time.Now(), Messages: pass.NewMessageWriter(&said)}
	c := &Checks{Env: e, Flows: &flow.Flows{Env: e, Packets: map[int]int{}}}
	c.Flows.Met = c.Count
	e.Scenario.Steps = []scenarios.Step{{Settle: &scenarios.Settle{}}, {Fault: &scenarios.Fault{Kind: scenarios.FaultFlush}}}
	for i, name := range []string{"1:settle", "2:fault"} {
		c.Flows.Stepping(name, e.Started.Add(time.Duration(i)*time.Minute))
	}
	target := &traffic.Target{Family: corev1.IPv4Protocol, Protocol: corev1.ProtocolTCP}
	for _, longLived := range []bool{false, true} {
		for _, at := range []time.Duration{20 * time.Second, 80 * time.Second} {
			c.Flows.Observed(traffic.Observed{
				Finding: traffic.ControlFailure, Target: target, At: e.Started.Add(at), Took: time.Second, Outcome: traffic.TimedOut, LongLived: longLived,
			})
		}
	}
	if met := c.met.traffic(false); met == nil || met.Flows != 1 || met.Failed != 0 || met.LongLivedLost != 0 {
		t.Errorf("%+v", met)
	}
	for metric, want := range map[raw.Metric]int{raw.ControlFailure: 2, raw.Flow: 1, raw.LongLivedFlow: 1} {
		if n := strings.Count(said.String(), fmt.Sprintf("%q:%q", "metric", metric)); n != want {
			t.Errorf("%d records %s, want %d: %s", n, metric, want, &said)
		}
	}
}
