package traffic

import (
	"context"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/bench/lab/netns"
	"synclab/proxier/iptables"
	"synclab/proxier/tracker"
)

const (
	v4 = corev1.IPv4Protocol
	v6 = corev1.IPv6Protocol
)

// newPods makes a node with pods in a fresh namespace, and the pods' process.
func newPods(t *testing.T) (*Process, []netip.Addr) {
	t.Helper()
	netns.Fresh(t)
	lab := &netns.Lab{}
	if err := lab.Connect(netns.Topology{Node: addrs("192.168.0.1", "fd00:192:168::1"), Sink: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd00:10:96::/108")}}); err != nil {
		t.Fatal(err)
	}
	clients := addrs("10.128.255.250", "10.128.255.251", "fd00:10:128::ff:1", "fd00:10:128::ff:2")
	pods, err := lab.ConnectPods(netns.PodTopology{
		Clients: clients, Ranges: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9"), netip.MustParsePrefix("fd00:10:128::/64")},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pods.Close)
	var ports []Port
	for _, family := range []corev1.IPFamily{v4, v6} {
		for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
			ports = append(ports, Port{family, protocol, 8080}, Port{family, protocol, 8081})
		}
	}
	p, err := Start(context.Background(), pods, ports)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p, clients
}

func addrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func to(family corev1.IPFamily, protocol corev1.Protocol, addr string) Target {
	name := tracker.ServicePortName{NamespacedName: types.NamespacedName{Namespace: "ns", Name: addr}}
	name.Protocol = protocol
	return Target{Service: name, Family: family, Protocol: protocol, Addr: netip.MustParseAddrPort(addr)}
}

// rules restores a payload unchanged.
func rules(t *testing.T, family corev1.IPFamily, payload string) {
	t.Helper()
	path, err := exec.LookPath(iptables.Binary(iptables.Legacy, family, "restore"))
	if err != nil {
		t.Skip(err)
	}
	cmd := exec.Command(path, "--noflush", "-w", "5")
	cmd.Stdin = strings.NewReader(payload)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\n%s", err, out, payload)
	}
}

// collect runs a stream until enough returns true, and ends it. enough is called on the test's goroutine. Flows that a
// busy machine lost together with control flows to a pod are left out.
func collect(t *testing.T, p *Process, s Stream, enough func([]Result) bool) []Result {
	t.Helper()
	s.Targets = slices.Clone(s.Targets)
	for i := range s.Targets {
		s.Targets[i].Direct = map[corev1.IPFamily]netip.AddrPort{v4: netip.MustParseAddrPort("10.130.1.1:8080"), v6: netip.MustParseAddrPort("[fd00:10:128::9]:8080")}[s.Targets[i].Family]
	}
	results := make(chan Result, 1<<16)
	if err := p.Begin(s, func(r Result) { results <- r }); err != nil {
		t.Fatal(err)
	}
	var all []Result
	var controls failedControls
	took := func(r Result) {
		if controls.add(&r, &s.Targets[r.Target]); !r.Control {
			all = append(all, r)
		}
	}
	for before := 0; len(all) == before || !enough(all); {
		before = len(all)
		select {
		case r := <-results:
			took(r)
		case <-p.done:
			t.Fatalf("the pods' process exited: %v", p.Close())
		}
	}
	if err := p.End(); err != nil {
		t.Fatal(err)
	}
	for len(results) > 0 {
		took(<-results)
	}
	sent := len(all)
	all = slices.DeleteFunc(all, func(r Result) bool { return r.Outcome == Unwatched || controls.explain(&r, &s.Targets[r.Target]) })
	if lost := sent - len(all); lost > 0 {
		t.Logf("%d of %d flows are not judged: the machine was too busy", lost, sent)
	}
	return all
}

// Pods answer on a new port as soon as Listen returns, also while a stream runs.
func TestPodsListenOnMorePorts(t *testing.T) {
	p, clients := newPods(t)
	s := Stream{Rate: 400, Clients: clients, Seed: 1, Targets: []Target{
		to(v4, corev1.ProtocolTCP, "10.128.0.1:9090"), to(v4, corev1.ProtocolUDP, "10.128.0.1:9090"),
	}}
	listened := false
	all := collect(t, p, s, func(all []Result) bool {
		if len(all) >= 20 && !listened {
			listened = true
			if err := p.Listen([]Port{{v4, corev1.ProtocolTCP, 9090}, {v4, corev1.ProtocolUDP, 9090}}); err != nil {
				t.Fatal(err)
			}
			all[0].End = p.clock.now()
		}
		return listened && len(all) >= 200
	})
	answered := 0
	for _, r := range all[1:] {
		switch {
		case r.Outcome == Answered:
			answered++
		case r.Due > all[0].End:
			t.Errorf("%v %s after Listen returned", s.Targets[r.Target].Protocol, r.Outcome)
		}
	}
	if all[1].Outcome != Refused || answered < 100 {
		t.Errorf("first %q, %d answered", all[1].Outcome, answered)
	}
}

// Every pod of every range answers with its address, over TCP and UDP, in both families, to any destination.
func TestPodsAnswer(t *testing.T) {
	p, clients := newPods(t)
	s := Stream{Rate: 400, Clients: clients, Seed: 1, Targets: []Target{
		to(v4, corev1.ProtocolTCP, "10.128.0.1:8080"), to(v4, corev1.ProtocolUDP, "10.255.255.254:8081"),
		to(v6, corev1.ProtocolTCP, "[fd00:10:128::1]:8080"), to(v6, corev1.ProtocolUDP, "[fd00:10:128::2]:8081"),
	}, LongLivedTCP: []int{0, 2}, LongLivedUDP: []int{1, 3}}
	held := map[int]int{}
	all := collect(t, p, s, func(all []Result) bool {
		if last := all[len(all)-1]; last.LongLived > 0 {
			held[last.LongLived]++
		}
		return len(all) >= 200 && held[1] > 2 && held[2] > 2 && held[3] > 2 && held[4] > 2
	})
	for _, r := range all {
		if target := s.Targets[r.Target]; r.Outcome != Answered || r.By != target.Addr {
			t.Errorf("%s %s (held %d): %q by %s", target.Protocol, target.Addr, r.LongLived, r.Outcome, r.By)
		}
		if r.Due > r.Sent || r.Sent > r.End {
			t.Errorf("due %d, sent %d, over %d", r.Due, r.Sent, r.End)
		}
	}
	due := map[int64]bool{}
	for _, r := range all {
		if r.LongLived == 0 {
			due[(r.Due-all[0].Due)/2_500_000] = true
		}
	}
	if len(due) < 100 {
		t.Errorf("%d different due times", len(due))
	}
}

// The results distinguish translated from untranslated packets, and refusals from timeouts.
func TestOutcomes(t *testing.T) {
	p, clients := newPods(t)
	rules(t, v4, `*nat
-A PREROUTING -d 10.96.0.1/32 -p tcp --dport 80 -j DNAT --to-destination 10.130.0.7:8080
-A PREROUTING -d 10.96.0.1/32 -p udp --dport 80 -j DNAT --to-destination 10.130.0.8:8081
COMMIT
*filter
-A FORWARD -d 10.96.0.2/32 -j REJECT
COMMIT
`)
	s := Stream{Rate: 200, Clients: clients, Seed: 1, Targets: []Target{
		to(v4, corev1.ProtocolTCP, "10.96.0.1:80"), to(v4, corev1.ProtocolUDP, "10.96.0.1:80"),
		to(v4, corev1.ProtocolTCP, "10.96.0.2:80"), to(v4, corev1.ProtocolUDP, "10.96.0.2:80"),
		to(v4, corev1.ProtocolTCP, "10.96.0.3:80"), to(v4, corev1.ProtocolUDP, "10.96.0.3:80"),
		to(v4, corev1.ProtocolTCP, "10.130.0.1:9"),
	}}
	type end struct{ outcome, by string }
	want := []end{{Answered, "10.130.0.7:8080"}, {Answered, "10.130.0.8:8081"}, {Refused, ""}, {Refused, ""}, {TimedOut, ""}, {TimedOut, ""}, {Refused, ""}}
	for _, r := range collect(t, p, s, func(all []Result) bool { return len(all) >= 300 }) {
		got := end{r.Outcome, ""}
		if r.By.IsValid() {
			got.by = r.By.String()
		}
		if got != want[r.Target] {
			t.Errorf("target %d: %v, want %v", r.Target, got, want[r.Target])
		}
	}
}

// Long-lived flows keep their endpoint when rules change, until conntrack forgets them.
func TestHeldFlowsStay(t *testing.T) {
	p, clients := newPods(t)
	rules(t, v4, "*nat\n-A PREROUTING -d 10.96.0.1/32 -p tcp --dport 80 -j DNAT --to-destination 10.130.0.7:8080\n"+
		"-A PREROUTING -d 10.96.0.1/32 -p udp --dport 80 -j DNAT --to-destination 10.130.0.7:8080\nCOMMIT\n")
	s := Stream{Rate: 20, Clients: clients, Seed: 1, Targets: []Target{
		to(v4, corev1.ProtocolTCP, "10.96.0.1:80"), to(v4, corev1.ProtocolUDP, "10.96.0.1:80"),
	}, LongLivedTCP: []int{0}, LongLivedUDP: []int{1}}
	changed := false
	elsewhere := 0
	all := collect(t, p, s, func(all []Result) bool {
		answered := 0
		for _, r := range all {
			if r.LongLived > 0 {
				answered++
			}
		}
		if answered > 4 && !changed {
			changed = true
			rules(t, v4, "*nat\n-D PREROUTING 1\n-D PREROUTING 1\n-A PREROUTING -d 10.96.0.1/32 -p tcp --dport 80 -j DNAT --to-destination 10.130.0.9:8080\n"+
				"-A PREROUTING -d 10.96.0.1/32 -p udp --dport 80 -j DNAT --to-destination 10.130.0.9:8080\nCOMMIT\n")
		}
		if last := all[len(all)-1]; last.LongLived == 0 && last.By.Addr().String() == "10.130.0.9" {
			elsewhere++
		}
		return elsewhere > 10 && answered > 12
	})
	for _, r := range all {
		if r.LongLived > 0 && (r.Outcome != Answered || r.By.String() != "10.130.0.7:8080" || r.Life != 1) {
			t.Errorf("long-lived flow %d: %+v", r.LongLived, r)
		}
	}
}

// A refusal belongs to the packet that it answers, not to earlier unanswered packets.
func TestHeldFlowIsRefusedLast(t *testing.T) {
	p, clients := newPods(t)
	rules(t, v4, "*filter\n-A FORWARD -d 10.96.0.1/32 -j DROP\nCOMMIT\n")
	s := Stream{Rate: 20, Clients: clients, Seed: 1, Targets: []Target{to(v4, corev1.ProtocolUDP, "10.96.0.1:80")}, LongLivedUDP: []int{0}}
	var refuses int64
	refused := 0
	for _, r := range collect(t, p, s, func(all []Result) bool {
		last := all[len(all)-1]
		switch {
		case refuses == 0 && last.LongLived > 0: // by now other packets are unanswered
			refuses = p.clock.now()
			rules(t, v4, "*filter\n-D FORWARD 1\n-A FORWARD -d 10.96.0.1/32 -j REJECT\nCOMMIT\n")
		case last.LongLived > 0 && last.Outcome == Refused:
			refused++
		}
		return refused > 4
	}) {
		if r.LongLived > 0 && r.Outcome == Refused && r.Sent < refuses {
			t.Errorf("refused %v after it was sent, before any rule refused: %+v", p.At(r.End).Sub(p.At(r.Sent)), r)
		}
	}
}

// Real packets reveal rules that DNAT to a pod that is no endpoint.
func TestWrongRulesAreFoundOut(t *testing.T) {
	p, clients := newPods(t)
	const rule = "PREROUTING -d 10.96.0.1/32 -p udp --dport 80 -j DNAT --to-destination 10.128.0."
	rules(t, v4, "*nat\n-A "+rule+"1:8080\nCOMMIT\n")
	s := newStory(t, "1")
	s.ledger.opts.At = p.At
	stream := Stream{Rate: 200, Clients: clients, Seed: 1, Targets: []Target{*s.ledger.targets[0]}}
	right, wrong := 0, 0
	for _, r := range collect(t, p, stream, func(all []Result) bool {
		switch last := all[len(all)-1]; {
		case last.By.Addr().String() == "10.128.0.1":
			right++
		case last.By.Addr().String() == "10.128.0.66":
			wrong++
		}
		if right == 20 && wrong == 0 {
			right++ // only once
			rules(t, v4, "*nat\n-I "+rule+"66:8080\nCOMMIT\n")
		}
		return wrong > 20
	}) {
		s.ledger.Take(r)
	}
	s.ledger.Finish()
	found := map[string]int{}
	for _, text := range s.found {
		found[text]++
	}
	if found["flow 10.128.0.1"] < 20 || found["flow misrouted 10.128.0.66"] < 20 || len(found) != 2 {
		t.Errorf("found %v", found)
	}
}

// Flows go to the targets that changed last: to more of them where a step asks for many flows to such targets.
func TestFocusIsOnTheLastTargets(t *testing.T) {
	for rate, want := range map[float64]int{0: focusMost, 100: focusMost, 2000: 20} {
		s := &stream{Stream: Stream{Focus: rate}}
		for target := range 30 {
			s.inbox.put(nil, []int{target}, nil)
			s.listen(int64(target))
		}
		if len(s.focus) != want || s.focus[len(s.focus)-1].target != 29 {
			t.Errorf("focus %g: %d targets, want the last %d", rate, len(s.focus), want)
		}
	}
}

// The longer a target's flows wait for an answer, the fewer it gets: at most some dozens are open. An answer in time ends that.
func TestSamplerWaitsForAnswers(t *testing.T) {
	p, err := newSampler(SamplerOptions{Rate: 1000, Result: func(Result) {}})
	if err != nil {
		t.Fatal(err)
	}
	s := p.stream
	defer s.close()
	defer unix.Close(s.wake)
	s.focus = []focused{{target: 0}, {target: 1}}
	const slow, quick = 0, 1
	var open []*flow
	var asked [2]int
	most := 0
	for now := int64(0); now < int64(time.Minute); now += int64(time.Millisecond) {
		for len(open) > 0 && now-open[0].result.Sent >= int64(tcpLimit) {
			open[0].over = true
			open = open[1:]
		}
		for range s.focus {
			target, ready := s.inFocus(now)
			if !ready {
				continue
			}
			asked[target]++
			f := &flow{result: Result{Target: target, Sent: now}, over: target == quick}
			s.unanswered[target] = append(s.unanswered[target], f)
			if target == slow {
				open = append(open, f)
			}
		}
		most = max(most, len(open))
	}
	if most > 50 || asked[slow] < 300 || asked[slow] > 1200 {
		t.Errorf("%d flows in a minute to a target that never answers, up to %d open", asked[slow], most)
	}
	if asked[quick] < 50_000 {
		t.Errorf("%d flows in a minute to a target that answers", asked[quick])
	}
	last := open[len(open)-1]
	last.fd = -1
	s.finish(last, Answered)
	if !s.ready(slow, int64(time.Minute)) || len(s.unanswered[slow]) > 0 {
		t.Error("no flow after an answer to the last one: those before it are lost")
	}
}
