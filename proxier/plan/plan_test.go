package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/internal/seedstest"
	"synclab/proxier/tracker"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// svc makes a Service with the given ports that is age seconds old at epoch+100 s.
func svc(name string, age int, ports ...string) *tracker.Service {
	s := &tracker.Service{
		Name: types.NamespacedName{Namespace: "ns", Name: name}, Created: epoch.Add(time.Duration(100-age) * time.Second),
	}
	for _, port := range ports {
		key := tracker.PortKey{Name: port, Protocol: corev1.ProtocolTCP}
		s.Ports = append(s.Ports, &tracker.ServicePort{Name: tracker.ServicePortName{NamespacedName: s.Name, PortKey: key}})
		s.Endpoints = append(s.Endpoints, tracker.PortEndpoints{PortKey: key, List: []*tracker.Endpoint{ep("a", nil), ep("b", unready)}})
	}
	return s
}

func change(name string, now *tracker.Service) tracker.Change {
	return tracker.Change{Name: types.NamespacedName{Namespace: "ns", Name: name}, New: now}
}

func namesOf(ports []*ServicePort) string {
	var names []string
	for _, p := range ports {
		names = append(names, strings.TrimPrefix(p.Name.String(), "ns/"))
	}
	return strings.Join(names, " ")
}

// The oldest Service comes first and so wins an address that two Services claim. Services of the same age are ordered
// by name.
func TestOldestFirst(t *testing.T) {
	p := New(here)
	p.Update([]tracker.Change{change("a", svc("a", 1, "p")), change("b", svc("b", 3, "p")), change("d", svc("d", 2, "p")), change("c", svc("c", 2, "q", "p"))})
	if got, want := namesOf(p.Ports()), "b:p c:p c:q d:p a:p"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// b is recreated and is now the youngest.
	p.Update([]tracker.Change{change("b", svc("b", 0, "p"))})
	if got, want := namesOf(p.Ports()), "c:p c:q d:p a:p b:p"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestDelta(t *testing.T) {
	p := New(here)
	p.Update([]tracker.Change{change("a", svc("a", 9, "p", "q")), change("b", svc("b", 8, "p"))})
	kept := p.Port(p.Ports()[2].Name)
	delta := p.Update([]tracker.Change{change("a", svc("a", 9, "q", "r"))})
	if got := namesOf(delta.Changed); got != "a:q a:r" {
		t.Errorf("changed: %s", got)
	}
	if len(delta.Removed) != 1 || delta.Removed[0].String() != "ns/a:p" {
		t.Errorf("removed: %v", delta.Removed)
	}
	if p.Ports()[2] != kept {
		t.Error("a Service that did not change was planned again")
	}
	if p.KnownEndpoints() != 6 {
		t.Errorf("%d endpoints, want 6", p.KnownEndpoints())
	}
	if delta := p.Update([]tracker.Change{change("a", nil), change("never there", nil)}); len(delta.Removed) != 2 || len(delta.Changed) != 0 {
		t.Errorf("after a deletion: %+v", delta)
	}
	if got := namesOf(p.Ports()); got != "b:p" || p.KnownEndpoints() != 2 || len(p.Services()) != 1 {
		t.Errorf("%s, %d endpoints, %d Services", got, p.KnownEndpoints(), len(p.Services()))
	}
}

func TestSetNode(t *testing.T) {
	s := svc("a", 1, "p")
	zoned := func(zone string) func(*tracker.Endpoint) {
		return func(e *tracker.Endpoint) { e.Hints = &tracker.Hints{Zones: []string{zone}} }
	}
	s.Endpoints[0].List = []*tracker.Endpoint{ep("a", zoned("east")), ep("b", zoned("west"))}
	p := New(here)
	p.Update([]tracker.Change{change("a", s)})
	if p.SetNode(here) {
		t.Error("the same node needs no new plan")
	}
	for zone, want := range map[string]string{"west": "b", "east": "a", "": "ab"} {
		if p.SetNode(Node{Name: "here", Zone: zone}); textsOf(p.Ports()[0].Cluster) != want {
			t.Errorf("zone %q: %s, want %s", zone, textsOf(p.Ports()[0].Cluster), want)
		}
	}
}

func TestNoLocalEndpoints(t *testing.T) {
	p := New(here)
	for i, c := range []struct {
		change             func(*tracker.ServicePort, []*tracker.Endpoint)
		internal, external int
	}{
		{func(*tracker.ServicePort, []*tracker.Endpoint) {}, 0, 0},
		{func(port *tracker.ServicePort, _ []*tracker.Endpoint) { port.InternalPolicyLocal = true }, 1, 0},
		{func(port *tracker.ServicePort, _ []*tracker.Endpoint) { port.ExternalPolicyLocal = true }, 0, 0}, // no external traffic
		{func(port *tracker.ServicePort, _ []*tracker.Endpoint) {
			port.ExternalPolicyLocal, port.NodePort = true, 1
		}, 0, 1},
		{func(port *tracker.ServicePort, endpoints []*tracker.Endpoint) {
			port.InternalPolicyLocal, port.ExternalPolicyLocal, port.NodePort = true, true, 1
			endpoints[0].Local = true
		}, 0, 0},
		{func(port *tracker.ServicePort, endpoints []*tracker.Endpoint) {
			port.InternalPolicyLocal = true
			unready(endpoints[0]) // nothing anywhere
		}, 0, 0},
	} {
		s := svc("a", 1, "p")
		c.change(s.Ports[0], s.Endpoints[0].List)
		p.Update([]tracker.Change{change("a", s)})
		if internal, external := p.NoLocalEndpoints(); internal != c.internal || external != c.external {
			t.Errorf("case %d: %d and %d, want %d and %d", i, internal, external, c.internal, c.external)
		}
	}
}

// After any changes, few or many at once, the plan equals a new plan of the final state, in the same order.
func TestUpdateEqualsNew(t *testing.T) {
	seed := seedstest.Of(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	node := here
	p := New(node)
	state := map[string]*tracker.Service{}
	for range 500 {
		if rng.IntN(10) == 0 {
			node.Zone = []string{"east", "west"}[rng.IntN(2)]
			p.SetNode(node)
		}
		count := 1 + rng.IntN(3)
		if rng.IntN(20) == 0 {
			count = 150
		}
		changed := map[string]*tracker.Service{}
		for range count {
			name := fmt.Sprintf("svc-%d", rng.IntN(100))
			changed[name] = nil
			if rng.IntN(3) > 0 {
				changed[name] = svc(name, rng.IntN(4), []string{"p", "q", "r"}[:1+rng.IntN(3)]...)
				for i, port := range changed[name].Ports {
					port.InternalPolicyLocal, port.ExternalPolicyLocal = rng.IntN(2) == 0, rng.IntN(2) == 0
					port.NodePort = uint16(rng.IntN(2))
					changed[name].Endpoints[i].List[0].Local = rng.IntN(2) == 0
				}
			}
		}
		var changes []tracker.Change
		for name, s := range changed {
			changes = append(changes, change(name, s))
			if delete(state, name); s != nil {
				state[name] = s
			}
		}
		slices.SortFunc(changes, func(a, b tracker.Change) int { return strings.Compare(a.Name.Name, b.Name.Name) })
		p.Update(changes)
		p.Update(changes) // repeated, as after a failed sync

		fresh := New(node)
		for name, s := range state {
			fresh.Update([]tracker.Change{change(name, s)})
		}
		if got, want := namesOf(p.Ports()), namesOf(fresh.Ports()); got != want {
			t.Fatalf("order\n%s, want\n%s", got, want)
		}
		for i, port := range p.Ports() {
			if p.Port(port.Name) != port || !port.Created.Equal(fresh.Ports()[i].Created) {
				t.Fatalf("%s: the order holds an old decision", port.Name)
			}
		}
		if p.tally != fresh.tally {
			t.Fatalf("sums %+v, want %+v", p.tally, fresh.tally)
		}
	}
}
