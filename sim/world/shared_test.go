package world

import (
	"slices"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"synclab/scenarios"
	"synclab/sim"
)

// shared returns a shape with shared pods in two namespaces, of which a Service has 5.
func shared(services, pods int, shape scenarios.Shape) scenarios.Shape {
	shape.Services, shape.SharedPods, shape.Namespaces = services, pods, 2
	shape.Endpoints = scenarios.Endpoints{Count: 5}
	return shape
}

// A Service has the chosen number of the pods, and each pod about as many Services.
func TestSharedPods(t *testing.T) {
	o := generate(t, scenarios.Shape{Services: 100, SharedPods: 20, Endpoints: scenarios.Endpoints{Count: 5}}, 1)
	services := map[string]int{}
	for _, s := range o.Slices {
		if s.Namespace != "ns-00" || len(s.Endpoints) != 5 {
			t.Fatalf("slice %s/%s has %d endpoints", s.Namespace, s.Name, len(s.Endpoints))
		}
		for _, e := range s.Endpoints {
			services[e.TargetRef.Name+" "+e.Addresses[0]]++
		}
	}
	for pod, n := range services {
		if n != 25 {
			t.Errorf("%s is in %d Services, want 25", pod, n)
		}
	}
	if len(services) != 20 {
		t.Errorf("%d pods, want 20", len(services))
	}
}

// After any step, all Services agree on each pod, and have the pods of their places.
func TestServicesAgreeOnSharedPods(t *testing.T) {
	w := created(t, shared(40, 12, mixed(0, "IPv4", "IPv6")), 5)
	allSteps(t, w)
	for _, l := range w.live {
		if l.shared == nil {
			continue
		}
		want := map[string]discoveryv1.EndpointConditions{}
		for _, place := range l.places {
			for _, p := range l.shared.places[place] {
				want[p.name] = p.conditions
			}
		}
		for i := range l.size() {
			e := l.endpoint(i)
			if conditions, ok := want[w.podKey(e)]; !ok || *conditions.Ready != *e.Conditions.Ready {
				t.Fatalf("service %s: %s is there %v, and not as in other Services", l.service.Name, w.podKey(e), ok)
			}
		}
		if l.size() != len(want) {
			t.Errorf("service %s has %d of its %d pods", l.service.Name, l.size(), len(want))
		}
	}
}

// A pod's change is one write a Service, paced. Two changes of one pod are one write where the first still waits.
func TestSharedPodChangesAllSlices(t *testing.T) {
	const services = 50
	shape := scenarios.Shape{Services: services, SharedPods: 3, Endpoints: scenarios.Endpoints{Count: 3}, Nodes: 3}
	for rate, want := range map[float64]int{1: 2 * services, 100: services + 11} { // after 10 ms, 11 of 50 writes are made
		w := created(t, shape, 1)
		trace, err := w.Churn(scenarios.Churn{Rate: rate, Events: 2})
		if err != nil {
			t.Fatal(err)
		}
		if len(trace) != want {
			t.Errorf("%g a second: %d writes, want %d", rate, len(trace), want)
		}
		if first := trace[services-1].Due; first != (services-1)*endpointUpdateGap {
			t.Errorf("%g a second: the last write of the first change is due at %s", rate, first)
		}
	}
	w := created(t, shape, 1)
	trace, err := w.Rollout(scenarios.Rollout{Services: 10, Surge: 1, Interval: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if len(trace) != 3*services || slices.ContainsFunc(trace, func(c sim.Change) bool { return c.Op != sim.Update }) {
		t.Errorf("a rollout in one wave has %d writes, want one of each Service for new, draining and removed pods", len(trace))
	}
}
