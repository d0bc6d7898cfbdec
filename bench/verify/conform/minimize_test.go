package conform

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"synclab/sim"
	"synclab/sim/random"
)

// hasTerminatingNodePort stands in for a difference: it needs a Service with a NodePort and a terminating endpoint.
func hasTerminatingNodePort(o *sim.Objects) bool {
	return slices.ContainsFunc(o.Services, func(s *corev1.Service) bool {
		return slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort != 0 }) &&
			slices.ContainsFunc(o.Slices, func(e *discoveryv1.EndpointSlice) bool {
				return e.Namespace == s.Namespace && e.Labels[discoveryv1.LabelServiceName] == s.Name && len(e.Ports) > 0 &&
					slices.ContainsFunc(e.Endpoints, func(ep discoveryv1.Endpoint) bool {
						return ep.Conditions.Terminating != nil && *ep.Conditions.Terminating
					})
			})
	})
}

func TestMinimize(t *testing.T) {
	for seed := range uint64(20) {
		c := random.New(random.Options{Seed: seed})
		before := c.Objects()
		c.Next()
		after := c.Objects()
		if !hasTerminatingNodePort(after) {
			continue
		}
		tried := 0
		small, smaller, err := Minimize(t.Context(), before, after, 500, func(_ context.Context, _, after *sim.Objects) (bool, error) {
			tried++
			return hasTerminatingNodePort(after), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if small != nil {
			t.Errorf("seed %d: Minimize kept the state before, which does not matter", seed)
		}
		if !hasTerminatingNodePort(smaller) {
			t.Fatalf("seed %d: the smaller state does not differ", seed)
		}
		if len(smaller.Services) != 1 || len(smaller.Slices) != 1 || len(smaller.Slices[0].Endpoints) != 1 {
			t.Errorf("seed %d, %d tries: %d Services, %d slices", seed, tried, len(smaller.Services), len(smaller.Slices))
		}
		if svc := smaller.Services[0]; len(svc.Spec.ExternalIPs)+len(svc.Status.LoadBalancer.Ingress)+len(svc.Spec.LoadBalancerSourceRanges) > 0 || len(svc.Spec.Ports) != 1 {
			t.Errorf("seed %d: Minimize kept fields that do not matter: %+v", seed, svc.Spec)
		}
		if !hasTerminatingNodePort(after) || len(before.Nodes) == 0 {
			t.Errorf("seed %d: Minimize changed its input objects", seed)
		}
	}
}

// Minimize stops when its budget is used up.
func TestMinimizeKeepsItsBudget(t *testing.T) {
	o := random.New(random.Options{Seed: 1}).Objects()
	tried := 0
	if _, _, err := Minimize(t.Context(), nil, o, 7, func(context.Context, *sim.Objects, *sim.Objects) (bool, error) {
		tried++
		return false, nil
	}); err != nil || tried != 7 {
		t.Errorf("%d tries, %v; want 7", tried, err)
	}
}

// A comparison of files is on the chosen node, which is the first of the objects.
func TestObjectsBatchOnTheChosenNode(t *testing.T) {
	o := &sim.Objects{Nodes: []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "birch"}}, {ObjectMeta: metav1.ObjectMeta{Name: "alder"}}}}
	if b := ObjectsBatch("two", o, nil, Setting{}); b.Node != "birch" {
		t.Errorf("node %q", b.Node)
	}
	if b := ObjectsBatch("none", &sim.Objects{}, nil, Setting{}); b.Node != "" {
		t.Errorf("without nodes: %q", b.Node)
	}
}
