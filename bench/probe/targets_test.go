package probe

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/subject"
)

// Each packet has another client of a range, until none is left.
func TestClients(t *testing.T) {
	within := netip.MustParsePrefix("192.0.2.0/30")
	fresh := &clients{addr: within.Addr(), fresh: true, within: within}
	same := &clients{addr: within.Addr(), within: within}
	var none *clients
	for i, want := range []string{"192.0.2.0", "192.0.2.1", "192.0.2.2", "192.0.2.3"} {
		for c, want := range map[*clients]netip.Addr{fresh: netip.MustParseAddr(want), same: within.Addr(), none: {}} {
			if got, err := c.take(); err != nil || got != want {
				t.Errorf("packet %d comes from %v, %v; want %v", i, got, err, want)
			}
		}
	}
	if got, err := fresh.take(); err == nil {
		t.Errorf("after the last of %v comes %v", within, got)
	}
}

// For each kind, the Service with the last dispatch position is used, and kinds without a Service are named. A load
// balancer's client is allowed by its source ranges.
func TestKindTargets(t *testing.T) {
	r := probed(t, subject.All()[0], shapeOfKinds)
	ports := r.ports(corev1.IPv4Protocol)
	at := map[netip.AddrPort]int{}
	for i, port := range ports {
		at[port.cluster] = i + 1
	}
	targets, lacking, err := r.kindTargets(corev1.IPv4Protocol, AllKinds, at)
	if err != nil || len(lacking) > 0 {
		t.Fatalf("lacking %v, %v", lacking, err)
	}
	for _, target := range targets {
		chosen := ports[target.Position-1]
		for _, later := range ports[target.Position:] {
			if _, ok := later.address(target.Kind, r.Node[0]); ok {
				t.Errorf("%s: %s comes later than %s", target.Kind, later.svc.Name, chosen.svc.Name)
			}
		}
		if target.Kind == kindLoadBalancer && !slices.ContainsFunc(chosen.sourceRanges(), func(p netip.Prefix) bool { return p.Contains(target.From.addr) }) {
			t.Errorf("%s sends from %s, which %v does not allow", target.Kind, target.From.addr, chosen.sourceRanges())
		}
		if (chosen.endpoints == 0) != (target.Kind == kindReject) {
			t.Errorf("%s has %d endpoints", target.Kind, chosen.endpoints)
		}
	}
	none := shapeOfKinds
	none.Types, none.Affinity, none.ExternalIPs = nil, 0, 0
	r = probed(t, r.About, none)
	targets, lacking, err = r.kindTargets(corev1.IPv4Protocol, AllKinds, nil)
	if err != nil || len(targets) != 1 || targets[0].Kind != kindReject || !slices.Equal(lacking, AllKinds[1:]) {
		t.Errorf("targets %v, lacking %v, %v; want only %s", targets, lacking, err, kindReject)
	}
	cilium, err := subject.Parse("cilium/lb")
	if err != nil {
		t.Fatal(err)
	}
	r = probed(t, cilium, shapeOfKinds)
	targets, lacking, err = r.kindTargets(corev1.IPv4Protocol, AllKinds, nil)
	if err != nil || len(targets) != 1 || targets[0].Kind != kindReject || len(lacking) > 0 {
		t.Errorf("%s: targets %v, lacking %v, %v; want only %s", cilium.Name, targets, lacking, err, kindReject)
	}
}
