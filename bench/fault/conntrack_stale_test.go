package fault

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/bench/verify/invariants"
	"synclab/proxier/plan"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/world"
)

// The chosen endpoints are ready, each of another Service with a UDP port, and none is the last of its Service. Once they are
// removed, no Service has them.
func TestChooseLeaving(t *testing.T) {
	for _, families := range [][]string{{"IPv4"}, {"IPv6"}, {"IPv6", "IPv4"}} {
		w, err := world.NewWorld(scenarios.Shape{
			Services: 60, Nodes: 5, Families: families, NotReady: 0.2, Endpoints: scenarios.Endpoints{Distribution: "uniform", Min: 1, Max: 3},
			Protocols: map[string]float64{"UDP": 0.5}, Types: map[string]float64{"Headless": 0.2},
		}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Create(scenarios.Create{}); err != nil {
			t.Fatal(err)
		}
		var of []corev1.IPFamily
		for _, family := range families {
			of = append(of, corev1.IPFamily(family))
		}
		to, leaving := chooseLeaving(w.Objects(), plan.Node{Name: w.Objects().Nodes[0].Name}, of, 5, rand.New(rand.NewPCG(1, 1)))
		if len(to) != 5 || len(leaving) != 5 {
			t.Fatalf("%v: %d connections to %d endpoints, want 5", families, len(to), len(leaving))
		}
		owners := map[netip.Addr]*corev1.Service{}
		for _, s := range w.Objects().Services {
			if sim.Proxied(s) && s.Spec.Ports[0].Protocol == corev1.ProtocolUDP {
				for _, ip := range s.Spec.ClusterIPs {
					owners[netip.MustParseAddr(ip)] = s
				}
			}
		}
		used := map[*corev1.Service]bool{}
		for _, f := range to {
			s := owners[f.to.Addr()]
			if s == nil || used[s] || f.to.Port() != 80 || f.by.Port() != 8080 || !leaving[f.by.Addr().String()] {
				t.Errorf("%v: %v is answered by %v", families, f.to, f.by)
			}
			used[s] = true
		}
		if trace := w.Remove(leaving); len(trace) < 5 {
			t.Errorf("%v: %d changes remove 5 endpoints", families, len(trace))
		}
		for _, slice := range w.Objects().Slices {
			for _, e := range slice.Endpoints {
				if leaving[e.Addresses[0]] {
					t.Errorf("%v: %s still has %s", families, slice.Name, e.Addresses[0])
				}
			}
		}
	}
}

// Entries of both families lead to the endpoints, and are counted until the last one is gone.
func TestStaleEntries(t *testing.T) {
	netns.Fresh(t)
	to := []translated{
		{netip.MustParseAddrPort("10.96.0.10:80"), netip.MustParseAddrPort("10.128.0.7:8080")},
		{netip.MustParseAddrPort("[fd00:10:96::10]:80"), netip.MustParseAddrPort("[fd00:10:128::7]:8080")},
	}
	stale, err := newStale(t.Context(), to, 200, staleMark)
	if err != nil {
		t.Skip(err) // conntrack entries cannot be made here
	}
	made := 0
	for i, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		flows, err := invariants.Flows(t.Context(), family)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range flows {
			if f.Dst != to[i].to || f.ReplySrc != to[i].by {
				t.Fatalf("entry %v → %v, answered by %v", f.Src, f.Dst, f.ReplySrc)
			}
		}
		made += len(flows)
	}
	if made != stale.made || made < 200 {
		t.Fatalf("the table has %d of %d entries", made, stale.made)
	}
	now := time.Now()
	if left, err := stale.look(now); err != nil || !strings.Contains(left, "of 256") {
		t.Fatalf("all are there: %q %v", left, err)
	}
	deleteOne := func(f translated, number uint32) {
		t.Helper()
		filler, err := newFiller()
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(filler.fd)
		filler.to, filler.next, filler.mark = []translated{f}, number-1, staleMark
		request := filler.appendFlow(nil, unix.NLM_F_ACK)
		request[4] = ctDelete // the same tuples, of a request to delete
		if err := unix.Sendto(filler.fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			t.Fatal(err)
		}
		if _, err := filler.answers(filler.next); err != nil {
			t.Fatal(err)
		}
	}
	for n := uint32(1); n < uint32(stale.made); n++ {
		deleteOne(to[n%2], n)
	}
	for i := 0; stale.left != 1; i++ {
		now = now.Add(listAgain)
		if left, err := stale.look(now); err != nil || i > 100 {
			t.Fatalf("one is left: %q %v", left, err)
		}
	}
	deleteOne(to[0], uint32(stale.made))
	if left, err := stale.look(now.Add(time.Second)); err != nil || left != "" {
		t.Errorf("none is left: %q %v", left, err)
	}
}
