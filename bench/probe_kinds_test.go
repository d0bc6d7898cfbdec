package bench

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A probe of every kind of destination: each has its samples, as many packets stand for it before any rule, and the
// rules that it crosses are counted, by every subject, in both families.
func TestTraversalOfKinds(t *testing.T) {
	const samples = 12
	tr := newTrial(t, "traversal", 100, "shape.families=[IPv4,IPv6]", "steps.2.probe.positions=3", "steps.2.probe.samples=12")
	tr.options.Scenario.Targets = nil // every subject at the one size
	tr.options.Scenario.Shape.Endpoints.Count = 1
	tr.mustExecute()
	for _, subject := range tr.options.Subjects {
		crossed := map[place]int{}
		for _, r := range tr.of(subject, RulesCrossed) {
			crossed[placeOf(r)] += int(r.Value)
		}
		sent, before := map[place]int{}, map[string]int{} // of each place; by kind, of the empty ruleset
		for _, r := range tr.of(subject, FirstPacket) {
			if r.Position != nil && *r.Position == 0 {
				before[r.Family+r.Target]++
				continue
			}
			sent[placeOf(r)]++
		}
		for _, family := range []string{"IPv4", "IPv6"} {
			for _, kind := range append([]string{""}, allKinds...) {
				n := samples
				if kind == "" {
					n *= 4 // three positions and a miss
				}
				if got := before[family+kind]; got != n {
					t.Errorf("%s, %s: %d packets of kind %q before any rule, want %d", subject, family, got, kind, n)
				}
				if got := sent[place{family, kind, 0}]; kind != "" && got != n {
					t.Errorf("%s, %s: %d packets of kind %q, want %d", subject, family, got, kind, n)
				}
			}
			checkCrossed(t, subject, family, crossed)
		}
		for at, n := range sent {
			if n != samples || crossed[at] == 0 {
				t.Errorf("%s, %+v: %d packets that cross %d rules, want %d that cross some", subject, at, n, crossed[at], samples)
			}
		}
		if len(sent) != 2*(4+len(allKinds)) {
			t.Errorf("%s: %d destinations, want 4 positions and %d kinds in 2 families", subject, len(sent), len(allKinds))
		}
	}
}

// place is what a first packet was sent to.
type place struct {
	family, kind string
	position     int
}

func placeOf(r Record) place {
	at := place{family: r.Family, kind: r.Target}
	if r.Position != nil {
		at.position = *r.Position
	}
	return at
}

// checkCrossed: layout classic has a rule more for each position, and a kind that comes late crosses more than the first
// Service; layout tree and nftables do not depend on the position so.
func checkCrossed(t *testing.T, subject, family string, crossed map[place]int) {
	t.Helper()
	about, err := ParseSubject(subject)
	if err != nil {
		t.Fatal(err)
	}
	first, last := 1<<30, 0
	for at := range crossed {
		if at.family == family && at.position > 0 {
			first, last = min(first, at.position), max(last, at.position)
		}
	}
	added := crossed[place{family, "", last}] - crossed[place{family, "", first}]
	miss := crossed[place{family, "", -1}]
	switch {
	case about.Variant != "" && about.Layout == "":
		if added != last-first || miss < last {
			t.Errorf("%s, %s: the packet to position %d crosses %d rules more than that to %d, and a miss %d", subject, family, last, added, first, miss)
		}
	case miss > 60 || added > 40:
		t.Errorf("%s, %s: position %d crosses %d rules more than %d, and a miss %d: that depends on how many there are", subject, family, last, added, first, miss)
	}
	if crossed[place{family, kindAffinityAgain, 0}] == crossed[place{family, kindAffinityFirst, 0}] && about.Backend != "nftables" {
		t.Errorf("%s, %s: a client that is remembered crosses as many rules as one that is not", subject, family)
	}
}

// Clients of a range are another one for each packet until none is left.
func TestClients(t *testing.T) {
	within := netip.MustParsePrefix("192.0.2.0/30")
	fresh := &clients{addr: within.Addr(), fresh: true, within: within}
	same := &clients{addr: within.Addr(), within: within}
	var nobody *clients
	for i, want := range []string{"192.0.2.0", "192.0.2.1", "192.0.2.2", "192.0.2.3"} {
		for c, want := range map[*clients]netip.Addr{fresh: netip.MustParseAddr(want), same: within.Addr(), nobody: {}} {
			if got, err := c.take(); err != nil || got != want {
				t.Errorf("packet %d comes from %v, %v; want %v", i, got, err, want)
			}
		}
	}
	if got, err := fresh.take(); err == nil {
		t.Errorf("after the last of %v comes %v", within, got)
	}
}

// Of each kind the Service is taken that the dispatch finds last, and kinds without one are named. A client of a load
// balancer is one that its source ranges allow.
func TestKindTargets(t *testing.T) {
	r := probed(t, Subjects()[len(Subjects())-1], shapeOfKinds)
	ports := r.udpPorts(corev1.IPv4Protocol)
	at := map[netip.AddrPort]int{}
	for i, port := range ports {
		at[port.cluster] = i + 1
	}
	targets, lacking, err := r.kindTargets(corev1.IPv4Protocol, allKinds, at)
	if err != nil || len(lacking) > 0 {
		t.Fatalf("lacking %v, %v", lacking, err)
	}
	for _, target := range targets {
		chosen := ports[target.Position-1]
		for _, later := range ports[target.Position:] {
			if _, ok := later.address(target.Kind, r.node[0]); ok {
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
	r = probed(t, r.about, none)
	targets, lacking, err = r.kindTargets(corev1.IPv4Protocol, allKinds, nil)
	if err != nil || len(targets) != 1 || targets[0].Kind != kindReject || !slices.Equal(lacking, allKinds[1:]) {
		t.Errorf("targets %v, lacking %v, %v; want only %s", targets, lacking, err, kindReject)
	}
}
