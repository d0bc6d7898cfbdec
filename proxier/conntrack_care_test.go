package proxier

import (
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"synclab/proxier/conntrack"
	"synclab/proxier/iptables"
)

func udp(svc *corev1.Service, slice *discoveryv1.EndpointSlice) {
	svc.Spec.Ports[0].Protocol = corev1.ProtocolUDP
	slice.Ports[0].Protocol = ptr.To(corev1.ProtocolUDP)
}

func flowTo(frontend, endpoint string) conntrack.Flow {
	client := netip.MustParseAddrPort("10.128.9.9:4000")
	return conntrack.Flow{
		Src: client, Dst: netip.MustParseAddrPort(frontend), ReplySrc: netip.MustParseAddrPort(endpoint), ReplyDst: client,
	}
}

// An added endpoint leaves every flow valid, so the conntrack table is not read. A removed endpoint requires reading
// it.
func TestAddedEndpointReadsNoFlows(t *testing.T) {
	flows := &conntrack.Memory{}
	e := testEngine(t, corev1.IPv4Protocol, iptables.NewModel(corev1.IPv4Protocol), func(o *Options) {
		o.Conntrack = func(corev1.IPFamily) (conntrack.Table, error) { return flows, nil }
	})
	svc := plainService("svc", "10.96.0.1", 0)
	svc.Spec.ExternalIPs = []string{"192.0.2.1"}
	pending := func(addresses ...string) bool {
		t.Helper()
		slice := plainSlice("svc", addresses...)
		udp(svc, slice)
		e.tracker.SetService(svc, time.Time{})
		e.tracker.SetSlice(slice, time.Time{})
		changes := e.tracker.Take()
		e.plan.Update(changes.Services)
		e.tracker.Commit(changes)
		e.flows.update(changes, e.plan)
		defer func() {
			if _, err := e.flows.cleaner.Clean(t.Context()); err != nil {
				t.Fatal(err)
			}
		}()
		return e.flows.cleaner.Pending()
	}
	for _, step := range []struct {
		addresses []string
		want      bool
	}{
		{[]string{"10.128.0.1"}, true}, // new
		{[]string{"10.128.0.1", "10.128.0.2"}, false},
		{[]string{"10.128.0.2"}, true},
	} {
		if got := pending(step.addresses...); got != step.want {
			t.Errorf("endpoints %v: conntrack table read: %v, want %v", step.addresses, got, step.want)
		}
	}
}

// Flows of an address that two Services claim belong to the older Service, as its rule comes first, whatever the order
// of events. They belong to the younger Service when the older one is gone or has no endpoints.
func TestFlowsOfSharedFrontend(t *testing.T) {
	const frontend, oldEndpoint, youngEndpoint = "192.0.2.1:80", "10.128.0.1:8080", "10.128.0.2:8080"
	flows := &conntrack.Memory{}
	e := testEngine(t, corev1.IPv4Protocol, iptables.NewModel(corev1.IPv4Protocol), func(o *Options) {
		o.Conntrack = func(corev1.IPFamily) (conntrack.Table, error) { return flows, nil }
	})
	old, young := plainService("z", "10.96.0.1", 100), plainService("a", "10.96.0.2", 200)
	oldSlice, youngSlice := plainSlice("z", "10.128.0.1"), plainSlice("a", "10.128.0.2")
	udp(old, oldSlice)
	udp(young, youngSlice)
	old.Spec.ExternalIPs, young.Spec.ExternalIPs = []string{"192.0.2.1"}, []string{"192.0.2.1"}
	now := time.Time{}
	for _, step := range []struct {
		what  string
		do    func()
		stays string
	}{
		{"the older is made", func() { e.tracker.SetService(old, now); e.tracker.SetSlice(oldSlice, now) }, oldEndpoint},
		{"the younger too", func() { e.tracker.SetService(young, now); e.tracker.SetSlice(youngSlice, now) }, oldEndpoint},
		{"the older lost its endpoints", func() { e.tracker.DeleteSlice(oldSlice, now) }, youngEndpoint},
		{"and has them again", func() { e.tracker.SetSlice(oldSlice, now) }, oldEndpoint},
		{"the younger is gone", func() { e.tracker.DeleteService(young, now) }, oldEndpoint},
		{"and back", func() { e.tracker.SetService(young, now) }, oldEndpoint},
		{"the older is gone", func() { e.tracker.DeleteService(old, now) }, youngEndpoint},
	} {
		flows.Add(flowTo(frontend, oldEndpoint), flowTo(frontend, youngEndpoint))
		step.do()
		e.flows.cleaner.Force()
		if err := e.sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		left := flows.Flows()
		for _, flow := range left {
			if flow.ReplySrc.String() != step.stays {
				t.Errorf("%s: a flow to %s stays", step.what, flow.ReplySrc)
			}
		}
		if len(left) == 0 {
			t.Errorf("%s: no flow stays, want those to %s", step.what, step.stays)
		}
	}
}
