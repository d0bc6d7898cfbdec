package iptables

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"synclab/internal/seedstest"
	"synclab/proxier/backend"
	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// testPlan is a Ruleset with the tracker and the plan for it.
type testPlan struct {
	tracker *tracker.Tracker
	plan    *plan.Plan
	rules   *Ruleset
}

func newTestPlan() *testPlan {
	settings := backend.Settings{Family: corev1.IPv4Protocol, MasqueradeBit: 14, LocalhostNodePorts: true, DropInvalid: true,
		NodeIP: netip.MustParseAddr("172.18.0.2"), Local: backend.Local{Source: netip.MustParsePrefix("10.128.0.0/9")}}
	return &testPlan{
		tracker: tracker.New(tracker.Options{Family: corev1.IPv4Protocol, NodeName: "node-0"}),
		plan:    plan.New(plan.Node{Name: "node-0"}),
		rules:   NewRuleset(settings, Classic),
	}
}

// service is the i-th Service; kind: 0 ClusterIP, 1 NodePort, 2 LoadBalancer with source ranges and an external IP.
func service(i, kind int) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("svc-%d", i), CreationTimestamp: metav1.Unix(int64(100-i), 0)},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: fmt.Sprintf("10.96.0.%d", i+1),
			Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
	if kind > 0 {
		svc.Spec.Type = corev1.ServiceTypeNodePort
		svc.Spec.Ports[0].NodePort = int32(30000 + i)
	}
	if kind > 1 {
		svc.Spec.Type = corev1.ServiceTypeLoadBalancer
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: fmt.Sprintf("198.18.0.%d", i+1)}}
		svc.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
		svc.Spec.ExternalIPs = []string{fmt.Sprintf("192.0.2.%d", i+1)}
	}
	return svc
}

// endpoints returns the slice of the i-th Service, with the given last octets of addresses.
func endpoints(i int, octets ...int) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("svc-%d-a", i),
			Labels: map[string]string{discoveryv1.LabelServiceName: fmt.Sprintf("svc-%d", i)}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)}},
	}
	for _, octet := range octets {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.128.%d.%d", i, octet)}})
	}
	return slice
}

func (p *testPlan) set(svc *corev1.Service, slice *discoveryv1.EndpointSlice) {
	if svc != nil {
		p.tracker.SetService(svc, time.Unix(0, 0))
	}
	if slice != nil {
		p.tracker.SetSlice(slice, time.Unix(0, 0))
	}
}

// replan brings the Ruleset to the current Services and endpoints.
func (p *testPlan) replan() {
	changes := p.tracker.Take()
	p.rules.Update(p.plan.Update(changes.Services))
	p.tracker.Commit(changes)
}

// payload returns the whole difference as one payload.
func (p *testPlan) payload() (*difference, *Payload) {
	d := p.rules.difference(p.plan.Ports(), 0)
	return d, d.payload(step{Filter, d.write[Filter], d.gone[Filter]}, step{NAT, d.write[NAT], d.gone[NAT]})
}

// full begins anew, with a chain of an earlier proxier in the kernel.
func (p *testPlan) full() (*difference, *Payload) {
	p.replan()
	p.rules.Forget(map[Table][]string{NAT: {"KUBE-SVC-LEFTOVER", "KUBE-POSTROUTING", "FOREIGN"}}, nil)
	return p.payload()
}

func (p *testPlan) partial() (*difference, *Payload) {
	p.replan()
	return p.payload()
}

// commit records that the kernel accepted the payload.
func commit(d *difference, p *Payload) {
	d.took(p, true)
	d.settle(nil)
}

// Every line of a payload has its owner: an error that names a line then names a Service.
func TestOwnerOf(t *testing.T) {
	p := newTestPlan()
	for i := range 5 {
		p.set(service(i, i%3), nil)
		if i != 3 {
			p.set(nil, endpoints(i, 1, 2, 3))
		}
	}
	_, payload := p.full()
	chains := map[string]string{} // of a Service, to its name
	for name, rendered := range p.rules.wanted {
		for _, c := range rendered.chains {
			chains[c.name] = name.String()
		}
	}
	table, deleted, commits := Table(""), 0, 0
	for i, line := range slices.Collect(strings.Lines(string(payload.Text()))) {
		line = strings.TrimSpace(line)
		words := strings.Fields(line)
		want := ""
		switch {
		case line[0] == '*':
			table = Table(line[1:])
		case words[0] == "-A":
			want = chains[words[1]]
			for n := range 5 {
				if name := fmt.Sprintf("ns/svc-%d", n); strings.Contains(line, name) {
					want = name
				}
			}
		}
		owner := payload.OwnerOf(i + 1)
		got := ""
		if owner.IsPort() {
			got = owner.Port.String()
		}
		if got != want || owner.Table != table || owner.Commit != (line == "COMMIT") {
			t.Errorf("line %d belongs to %q in %s (commit %v), want %q in %s: %s", i+1, got, owner.Table, owner.Commit, want, table, line)
		}
		if words[0] == "-X" != (owner.Deletes != "") || (owner.Deletes != "" && owner.Deletes != words[1]) {
			t.Errorf("line %d deletes %q: %s", i+1, owner.Deletes, line)
		}
		if owner.Deletes != "" {
			deleted++
		}
		if owner.Commit {
			commits++
		}
	}
	if deleted != 1 || payload.Deleted != 1 || commits != 2 {
		t.Errorf("%d deletions, %d counted, %d commits; want 1, 1, 2", deleted, payload.Deleted, commits)
	}
	for _, line := range []int{-1, 0, payload.lines + 1} {
		if owner := payload.OwnerOf(line); owner != (Owner{}) {
			t.Errorf("line %d belongs to %+v", line, owner)
		}
	}
	if n := bytes.Count(payload.Text(), []byte("\n")); n != payload.lines || len(payload.Text()) != payload.Size() {
		t.Errorf("%d lines and %d bytes; counted %d and %d", n, len(payload.Text()), payload.lines, payload.Size())
	}
}

// A partial payload contains the changed chains and nothing else, and deletes chains that are no longer needed.
func TestPartialPayload(t *testing.T) {
	p := newTestPlan()
	for i := range 3 {
		p.set(service(i, 0), endpoints(i, 1, 2))
	}
	commit(p.full())
	if p.rules.Dirty() {
		t.Error("dirty after a full payload")
	}
	p.set(nil, endpoints(1, 2, 3))
	d, payload := p.partial()
	text := string(payload.Text())
	gone := prefixEndpoint + endpointHash("ns/svc-1", "tcp", "10.128.1.1:8080")
	for what, want := range map[string]int{
		":KUBE-SVC-": 1, ":KUBE-SEP-": 2, "-X " + gone + "\n": 1, "-A " + gone: 0, "-A KUBE-SERVICES ": 0, "-A KUBE-SEP-": 2,
		":KUBE-SVC-" + serviceHash(portName("ns", "svc-1", "", corev1.ProtocolTCP)): 1,
	} {
		if got := strings.Count(text, what); got != want {
			t.Errorf("%q occurs %d times, want %d:\n%s", what, got, want, text)
		}
	}
	if commit(d, payload); p.rules.Dirty() {
		t.Error("dirty after a partial payload")
	}
}

// The same state gives the same bytes, in a full and in a partial payload, whatever the order of events and of maps.
func TestSameBytes(t *testing.T) {
	build := func(order []int) []byte {
		p := newTestPlan()
		for _, i := range order {
			p.set(service(i, i%3), endpoints(i, 1+i%4, 2, 3))
		}
		d, full := p.full()
		commit(d, full)
		for _, i := range order {
			if i%2 == 0 {
				p.set(nil, endpoints(i, 5, 6))
			}
		}
		_, partial := p.partial()
		return append(full.Text(), partial.Text()...)
	}
	order := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	want := build(order)
	rng := rand.New(rand.NewPCG(1, 0))
	for range 20 {
		rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(build(order)), "\n")); diff != "" {
			t.Fatalf("order %v:\n%s", order, diff)
		}
	}
}

// recount computes Total only from the effective rules.
func recount(p *testPlan) map[Table]Count {
	fresh := NewRuleset(p.rules.Settings(), Classic)
	total := fresh.Total()
	for _, rendered := range p.rules.effectiveAll(p.plan.Ports()) {
		nat, filter := total[NAT], total[Filter]
		for d, l := range rendered.dispatch {
			if dispatch(d) <= natNodePorts {
				nat.Rules += len(l)
			} else {
				filter.Rules += len(l)
			}
		}
		for _, c := range rendered.chains {
			nat.Chains++
			nat.Rules += c.rules
		}
		total[NAT], total[Filter] = nat, filter
	}
	return total
}

// The Ruleset keeps sums and dispatch chains from sync to sync. They equal those of a new Ruleset, whatever was added,
// changed, refused, accepted again and committed.
func TestDerivedState(t *testing.T) {
	seed := seedstest.Of(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	p := newTestPlan()
	created := map[int]*corev1.Service{}
	for step := range 2000 {
		i := rng.IntN(8)
		name := portName("ns", fmt.Sprintf("svc-%d", i), "", corev1.ProtocolTCP)
		switch op := rng.IntN(10); {
		case op < 3:
			p.set(nil, endpoints(i, rng.Perm(4)[:rng.IntN(4)]...))
		case op < 5:
			created[i] = service(i, rng.IntN(3))
			created[i].CreationTimestamp = metav1.Unix(rng.Int64N(5), 0) // made again: another position in the order
			p.set(created[i], nil)
		case op == 5 && created[i] != nil:
			p.tracker.DeleteService(created[i], time.Unix(0, 0))
			delete(created, i)
		case op == 6 && p.rules.wanted[name] != nil:
			p.rules.Refuse(name)
		case op == 7 && p.rules.wanted[name] != nil:
			p.rules.Accept(name)
		case op == 8:
			p.rules.Reset()
			p.rules.Rerender(p.rules.Settings(), p.plan.Ports())
			commit(p.full())
		default:
			d, payload := p.partial()
			switch rng.IntN(3) {
			case 0:
				commit(d, payload)
			case 1:
				d.failed(payload, true, errors.New("killed"))
			}
		}
		p.replan()
		if diff := cmp.Diff(recount(p), p.rules.Total()); diff != "" {
			t.Fatalf("step %d, total (-counted +kept):\n%s", step, diff)
		}
		_, kept := p.partial()
		p.rules.layout.(*classic).reorder()
		_, anew := p.partial()
		if diff := cmp.Diff(string(anew.Text()), string(kept.Text())); diff != "" {
			t.Fatalf("step %d, payload (-put together anew +kept):\n%s", step, diff)
		}
	}
}

// Settings that did not change render nothing again; settings that did reach every Service.
func TestRerender(t *testing.T) {
	p := newTestPlan()
	for i := range 3 {
		p.set(service(i, 0), endpoints(i, 1))
	}
	commit(p.full())
	before := maps.Clone(p.rules.wanted)
	settings := p.rules.Settings()
	settings.NodePortAddresses = slices.Clone(settings.NodePortAddresses)
	p.rules.Rerender(settings, p.plan.Ports())
	if !maps.Equal(before, p.rules.wanted) {
		t.Error("rendered again, although the settings did not change")
	}
	had := p.rules.Total()[NAT].Rules
	settings.Local = backend.Local{} // no masquerade rule
	p.rules.Rerender(settings, p.plan.Ports())
	if now := p.rules.Total()[NAT].Rules; now != had-3 {
		t.Errorf("%d rules without a detector, %d with one; want 3 fewer", now, had)
	}
}

// A refused Service port keeps its installed rules. If these are refused too, it is left out. A change or a reset makes
// the next sync try it again.
func TestRefuse(t *testing.T) {
	p := newTestPlan()
	for i := range 2 {
		p.set(service(i, 0), endpoints(i, 1))
	}
	commit(p.full())
	name := portName("ns", "svc-0", "", corev1.ProtocolTCP)
	state := func() string {
		_, payload := p.full()
		text := string(payload.Text())
		if !strings.Contains(text, "10.128.1.1:8080") {
			t.Error("the other Service is gone")
		}
		switch old, now := strings.Contains(text, "10.128.0.1:8080"), strings.Contains(text, "10.128.0.2:8080"); {
		case old && now:
			return "both"
		case old:
			return "old"
		case now:
			return "new"
		}
		return "none"
	}
	p.set(nil, endpoints(0, 2))
	for i, step := range []struct {
		do   func()
		want string
	}{
		{func() {}, "new"},
		{func() { p.rules.Refuse(name) }, "old"},
		{func() { commit(p.partial()) }, "old"},
		{func() { p.rules.Refuse(name) }, "none"},
		{func() { commit(p.partial()) }, "none"},
		{func() { p.rules.Reset() }, "new"},
		{func() { p.rules.Refuse(name) }, "none"},
		{func() { p.set(service(0, 1), nil); p.replan() }, "new"},
	} {
		if step.do(); state() != step.want {
			t.Errorf("step %d: %s, want %s", i, state(), step.want)
		}
	}
}

// A refused Service port's installed rules are written with the current settings, not with those of their first write.
// After a refusal match bpf is doubted, and without it each endpoint has a chain again.
func TestRefusedWithOtherSettings(t *testing.T) {
	p := newTestPlan()
	settings := p.rules.Settings()
	settings.BPF = true
	p.rules = NewRuleset(settings, Tree)
	p.set(service(0, 0), endpoints(0, 1, 3, 4))
	commit(p.full())
	p.set(nil, endpoints(0, 2))
	p.replan()
	p.rules.Refuse(portName("ns", "svc-0", "", corev1.ProtocolTCP))
	settings.BPF = false
	p.rules.Rerender(settings, p.plan.Ports())
	_, payload := p.full()
	text := string(payload.Text())
	if !strings.Contains(text, "-s 10.128.0.1 -j KUBE-MARK-MASQ") || strings.Contains(text, "10.128.0.2:") {
		t.Errorf("want a chain of the endpoint that is installed, got:\n%s", text)
	}
	// Every chain with a jump to it is written.
	for line := range strings.Lines(text) {
		if _, to, jumps := strings.Cut(strings.TrimSpace(line), " -j KUBE-S"); jumps && !strings.Contains(text, ":KUBE-S"+to+" ") {
			t.Errorf("no line declares the chain of the jump in %s", line)
		}
	}
}
