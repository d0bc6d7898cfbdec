package conform

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	utilnet "k8s.io/utils/net"

	"synclab/bench/verify/shrink"
	"synclab/sim"
)

// Minimize returns a smaller pair of states for which fails still returns true. before may be nil. The returned before
// is nil if the state before does not matter. budget bounds the number of calls of fails.
func Minimize(ctx context.Context, before, after *sim.Objects, budget int, fails func(ctx context.Context, before, after *sim.Objects) (bool, error)) (*sim.Objects, *sim.Objects, error) {
	search := shrink.Search[states]{
		Tries: budget,
		Fails: func(ctx context.Context, s states) (bool, error) { return fails(ctx, s.Before, s.After) },
		Passes: []shrink.Pass[states]{
			shrink.Parts(states.befores, states.withoutBefore), shrink.Parts(states.services, states.withoutServices),
			shrink.Parts(states.slices, states.withoutSlices), shrink.Parts(states.endpoints, states.edited), shrink.Parts(states.fields, states.edited),
		},
	}
	small, err := search.Minimize(ctx, states{before, after}.edited([]edit{withoutSignal}))
	return small.Before, small.After, err
}

// states are a state and the next one. Before may be nil.
type states struct{ Before, After *sim.Objects }

// edit simplifies a copy of a state. It replaces objects, and does not write to them.
type edit func(*sim.Objects)

// edited copies both states and edits each copy.
func (s states) edited(edits []edit) states {
	copied := func(o *sim.Objects) *sim.Objects {
		if o == nil {
			return nil
		}
		c := *o
		c.Services, c.Slices = slices.Clone(o.Services), slices.Clone(o.Slices)
		for _, edit := range edits {
			edit(&c)
		}
		return &c
	}
	return states{copied(s.Before), copied(s.After)}
}

func (s states) befores() []*sim.Objects {
	if s.Before == nil {
		return nil
	}
	return []*sim.Objects{s.Before}
}

func (s states) withoutBefore([]*sim.Objects) states { return states{After: s.After} }

func servicesOf(o *sim.Objects) []*corev1.Service          { return o.Services }
func slicesOf(o *sim.Objects) []*discoveryv1.EndpointSlice { return o.Slices }

// keysOf returns the keys of the objects in either state, sorted.
func keysOf[T runtime.Object](s states, list func(*sim.Objects) []T) []key {
	var keys []key
	for _, o := range append(s.befores(), s.After) {
		for _, object := range list(o) {
			keys = append(keys, keyOf(object))
		}
	}
	slices.SortFunc(keys, compareKeys)
	return slices.Compact(keys)
}

func (s states) services() []key { return keysOf(s, servicesOf) }
func (s states) slices() []key   { return keysOf(s, slicesOf) }

func (s states) withoutServices(gone []key) states {
	all := sets.New(gone...)
	return s.edited([]edit{func(o *sim.Objects) {
		o.Services = slices.DeleteFunc(o.Services, func(s *corev1.Service) bool { return all.Has(keyOf(s)) })
		o.Slices = slices.DeleteFunc(o.Slices, func(s *discoveryv1.EndpointSlice) bool {
			return all.Has(key{"*v1.Service", s.Namespace, s.Labels[discoveryv1.LabelServiceName]})
		})
	}})
}

func (s states) withoutSlices(gone []key) states {
	all := sets.New(gone...)
	return s.edited([]edit{func(o *sim.Objects) {
		o.Slices = slices.DeleteFunc(o.Slices, func(s *discoveryv1.EndpointSlice) bool { return all.Has(keyOf(s)) })
	}})
}

// editOf makes the edit of a state of an edit of one object.
func editOf[T interface {
	runtime.Object
	DeepCopy() T
}](list func(*sim.Objects) []T, k key, f func(T)) edit {
	return func(o *sim.Objects) {
		all := list(o)
		for i, object := range all {
			if keyOf(object) == k {
				all[i] = object.DeepCopy()
				f(all[i])
			}
		}
	}
}

// endpoints returns an edit for each endpoint of each slice, the last one first, which removes it.
func (s states) endpoints() (edits []edit) {
	most := map[key]int{} // endpoints in either state
	for _, o := range append(s.befores(), s.After) {
		for _, slice := range o.Slices {
			most[keyOf(slice)] = max(most[keyOf(slice)], len(slice.Endpoints))
		}
	}
	for _, k := range s.slices() {
		for i := most[k] - 1; i >= 0; i-- {
			edits = append(edits, editOf(slicesOf, k, func(s *discoveryv1.EndpointSlice) {
				if i < len(s.Endpoints) {
					s.Endpoints = slices.Delete(s.Endpoints, i, i+1)
				}
			}))
		}
	}
	return edits
}

// fields returns the edits of each object. One without effect gives states that were tried before.
func (s states) fields() (edits []edit) {
	for _, k := range s.services() {
		for _, f := range plainer {
			edits = append(edits, editOf(servicesOf, k, f))
		}
	}
	for _, k := range s.slices() {
		for _, f := range plainerSlices {
			edits = append(edits, editOf(slicesOf, k, f))
		}
	}
	return edits
}

// plainAddresses writes addresses in the form of RFC 5952, because manifests.ReadObjects rejects older forms.
func plainAddresses(s *corev1.Service) {
	for i := range s.Spec.ClusterIPs {
		s.Spec.ClusterIPs[i] = plainAddress(s.Spec.ClusterIPs[i])
	}
	s.Spec.ClusterIP = plainAddress(s.Spec.ClusterIP)
	for i := range s.Spec.ExternalIPs {
		s.Spec.ExternalIPs[i] = plainAddress(s.Spec.ExternalIPs[i])
	}
	for i := range s.Status.LoadBalancer.Ingress {
		s.Status.LoadBalancer.Ingress[i].IP = plainAddress(s.Status.LoadBalancer.Ingress[i].IP)
	}
	for i, text := range s.Spec.LoadBalancerSourceRanges {
		if _, prefix, err := utilnet.ParseCIDRSloppy(strings.TrimSpace(text)); err == nil {
			s.Spec.LoadBalancerSourceRanges[i] = prefix.String()
		}
	}
}

func plainAddress(text string) string {
	if ip := utilnet.ParseIPSloppy(text); ip != nil {
		return ip.String()
	}
	return text
}

// plainer are edits that simplify a Service.
var plainer = []func(*corev1.Service){
	plainAddresses,
	func(s *corev1.Service) { s.Spec.ExternalIPs = nil },
	func(s *corev1.Service) { s.Status.LoadBalancer.Ingress = nil },
	func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = nil },
	func(s *corev1.Service) {
		s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
	},
	func(s *corev1.Service) { s.Spec.InternalTrafficPolicy = nil; sim.DefaultService(s) },
	func(s *corev1.Service) {
		s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = "", 0
		sim.DefaultService(s)
	},
	func(s *corev1.Service) { s.Annotations, s.Spec.TrafficDistribution = nil, nil },
	func(s *corev1.Service) {
		for i := range s.Spec.Ports {
			s.Spec.Ports[i].NodePort = 0
		}
	},
	func(s *corev1.Service) {
		if len(s.Spec.Ports) > 1 {
			s.Spec.Ports = s.Spec.Ports[1:]
		}
	},
	func(s *corev1.Service) { s.Spec.Ports = s.Spec.Ports[:min(1, len(s.Spec.Ports))] },
}

// plainerSlices are edits that simplify a slice.
var plainerSlices = []func(*discoveryv1.EndpointSlice){
	func(s *discoveryv1.EndpointSlice) {
		for i := range s.Endpoints {
			for j := range s.Endpoints[i].Addresses {
				s.Endpoints[i].Addresses[j] = plainAddress(s.Endpoints[i].Addresses[j])
			}
		}
	},
	func(s *discoveryv1.EndpointSlice) {
		for i := range s.Endpoints {
			s.Endpoints[i].Hints, s.Endpoints[i].Zone = nil, nil
		}
	},
	func(s *discoveryv1.EndpointSlice) {
		for i := range s.Endpoints {
			s.Endpoints[i].Conditions = discoveryv1.EndpointConditions{}
		}
	},
	func(s *discoveryv1.EndpointSlice) {
		for i := range s.Endpoints {
			s.Endpoints[i].NodeName = nil
		}
	},
	func(s *discoveryv1.EndpointSlice) { s.Ports = s.Ports[:min(1, len(s.Ports))] },
}

func withoutSignal(o *sim.Objects) {
	o.Services = slices.DeleteFunc(o.Services, func(s *corev1.Service) bool { return s.Namespace == signalNamespace })
	o.Slices = slices.DeleteFunc(o.Slices, func(s *discoveryv1.EndpointSlice) bool { return s.Namespace == signalNamespace })
}
