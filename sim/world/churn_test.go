package world

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"synclab/scenarios"
	"synclab/sim"
)

// kindsOf counts Services by the traits that a shape has shares of.
func kindsOf(o *sim.Objects) map[string]int {
	endpoints := map[string]int{}
	for _, slice := range o.Slices {
		endpoints[slice.Namespace+"/"+slice.Labels["kubernetes.io/service-name"]] += len(slice.Endpoints)
	}
	kinds := map[string]int{}
	for _, s := range o.Services {
		protocols := map[corev1.Protocol]int{}
		for _, p := range s.Spec.Ports {
			protocols[p.Protocol]++
		}
		internal := ""
		if s.Spec.InternalTrafficPolicy != nil {
			internal = string(*s.Spec.InternalTrafficPolicy)
		}
		kinds[fmt.Sprintf("%s headless=%v %v affinity=%s internal=%s external=%s externalIPs=%v sourceRanges=%v endpoints=%d", s.Spec.Type,
			s.Spec.ClusterIP == corev1.ClusterIPNone, protocols, s.Spec.SessionAffinity, internal, s.Spec.ExternalTrafficPolicy,
			len(s.Spec.ExternalIPs) > 0, len(s.Spec.LoadBalancerSourceRanges) > 0, endpoints[s.Namespace+"/"+s.Name])]++
	}
	return kinds
}

// TestServicesAreReplacedByTheirLike: shares stay the same, however many Services come and go.
func TestServicesAreReplacedByTheirLike(t *testing.T) {
	shape := mixed(60)
	shape.Endpoints = scenarios.Endpoints{Distribution: "uniform", Count: 5, Min: 0, Max: 10}
	w := created(t, shape, 7)
	before, names := kindsOf(w.Objects()), map[string]bool{}
	for _, s := range w.Objects().Services {
		names[s.Name] = true
	}
	if _, err := w.Churn(scenarios.Churn{Rate: 1, Events: 600, Kind: "services"}); err != nil {
		t.Fatal(err)
	}
	o := w.Objects()
	if diff := cmp.Diff(before, kindsOf(o)); diff != "" {
		t.Errorf("300 Services were replaced; -before +after:\n%s", diff)
	}
	fresh := 0
	for _, s := range o.Services {
		if !names[s.Name] {
			fresh++
		}
	}
	if fresh < len(o.Services)/2 {
		t.Errorf("%d of %d Services are new", fresh, len(o.Services))
	}
}

// TestReactChangesOneEndpoint: in turn, a ready endpoint of a Service is removed and another is added to it.
func TestReactChangesOneEndpoint(t *testing.T) {
	ready := func(o *sim.Objects) map[string]int { // by Service
		n := map[string]int{}
		for _, slice := range o.Slices {
			for i := range slice.Endpoints {
				if holds(slice.Endpoints[i].Conditions.Ready, true) {
					n[slice.Namespace+"/"+slice.Labels["kubernetes.io/service-name"]]++
				}
			}
		}
		return n
	}
	shape := mixed(40)
	shape.Endpoints = scenarios.Endpoints{Distribution: "uniform", Count: 3, Min: 0, Max: 6}
	w := created(t, shape, 3)
	before := ready(w.Objects())
	if _, err := w.React(scenarios.React{Count: 1}); err != nil {
		t.Fatal(err)
	}
	short := ""
	after := ready(w.Objects())
	for name, n := range before {
		if after[name] == n-1 && short == "" {
			short = name
		} else if after[name] != n {
			t.Errorf("%s has %d ready endpoints, had %d", name, after[name], n)
		}
	}
	if short == "" || after[short] == 0 {
		t.Fatalf("no Service with several endpoints lost one: %q has %d", short, after[short])
	}
	traces, err := w.React(scenarios.React{Count: 6})
	if err != nil || len(traces) != 6 {
		t.Fatalf("%d traces: %v", len(traces), err)
	}
	for _, trace := range traces {
		for _, change := range trace {
			if change.Due != 0 {
				t.Errorf("a change is due at %v", change.Due)
			}
		}
	}
	if diff := cmp.Diff(after, ready(w.Objects())); diff != "" { // three pairs
		t.Errorf("-before +after:\n%s", diff)
	}
}

// Endpoints without TargetRef: all of a Service's, in the chosen share of Services. A change of one pod is known in both families.
func TestEndpointsWithoutTargetRef(t *testing.T) {
	shape := scenarios.Shape{Services: 40, Families: []string{"IPv4", "IPv6"}, Endpoints: scenarios.Endpoints{Count: 4}, WithoutTargetRef: 0.5}
	w := created(t, shape, 1)
	services, without := map[string]int{}, 0
	for _, s := range w.Objects().Slices {
		for _, e := range s.Endpoints {
			if e.TargetRef == nil {
				services[s.Labels[discoveryv1.LabelServiceName]]++
				without++
			}
		}
	}
	if len(services) < 18 || len(services) > 22 || without != len(services)*8 {
		t.Errorf("%d endpoints of %d Services have no TargetRef, want all 8 of about 20", without, len(services))
	}
	shape.WithoutTargetRef = 1
	trace, err := created(t, shape, 1).Churn(scenarios.Churn{Rate: 100, Events: 50, Kind: "readiness"})
	if err != nil {
		t.Fatal(err)
	}
	if len(trace) != 100 {
		t.Errorf("50 events are %d changes, want one in each family", len(trace))
	}
}
