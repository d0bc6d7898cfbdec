package conform

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	utilnet "k8s.io/utils/net"

	"synclab/bench/shrink"
	"synclab/sim"
)

// Minimize returns a smaller pair of states for which fails still returns true. before may be nil. The returned before
// is nil if the state before does not matter. budget bounds the number of calls of fails.
func Minimize(ctx context.Context, before, after *sim.Objects, budget int, fails func(ctx context.Context, before, after *sim.Objects) (bool, error)) (*sim.Objects, *sim.Objects, error) {
	m := &minimizer{before: withoutSignal(before), after: withoutSignal(after), budget: budget, fails: fails}
	if m.before != nil {
		if _, err := m.try(ctx, nil, m.after); err != nil {
			return m.before, m.after, err
		}
	}
	for again := true; again; {
		size := m.accepted
		for _, pass := range []func(context.Context) error{m.dropServices, m.dropSlices, m.dropEndpoints, m.dropFields} {
			if err := pass(ctx); err != nil {
				return m.before, m.after, err
			}
		}
		again = m.accepted > size && m.budget > 0
	}
	return m.before, m.after, nil
}

type minimizer struct {
	before, after *sim.Objects
	budget        int
	accepted      int
	fails         func(ctx context.Context, before, after *sim.Objects) (bool, error)
}

// try keeps a smaller pair if it still fails, and reports that.
func (m *minimizer) try(ctx context.Context, before, after *sim.Objects) (bool, error) {
	if m.budget <= 0 {
		return false, nil
	}
	m.budget--
	failed, err := m.fails(ctx, before, after)
	if err != nil || !failed {
		return false, err
	}
	m.before, m.after = before, after
	m.accepted++
	return true, nil
}

// edited copies both states and applies f to each copy.
func (m *minimizer) edited(f func(*sim.Objects)) (before, after *sim.Objects) {
	edit := func(o *sim.Objects) *sim.Objects {
		if o == nil {
			return nil
		}
		copied := *o
		copied.Services, copied.Slices = slices.Clone(o.Services), slices.Clone(o.Slices)
		f(&copied)
		return &copied
	}
	return edit(m.before), edit(m.after)
}

func (m *minimizer) dropServices(ctx context.Context) error {
	return m.halve(ctx, func() []key {
		return keysOf(m.before, m.after, func(o *sim.Objects) []*corev1.Service { return o.Services })
	},
		func(o *sim.Objects, gone map[key]bool) {
			o.Services = slices.DeleteFunc(o.Services, func(s *corev1.Service) bool { return gone[keyOf(s)] })
			o.Slices = slices.DeleteFunc(o.Slices, func(s *discoveryv1.EndpointSlice) bool {
				return gone[key{"*v1.Service", s.Namespace, s.Labels[discoveryv1.LabelServiceName]}]
			})
		})
}

func (m *minimizer) dropSlices(ctx context.Context) error {
	return m.halve(ctx, func() []key {
		return keysOf(m.before, m.after, func(o *sim.Objects) []*discoveryv1.EndpointSlice { return o.Slices })
	},
		func(o *sim.Objects, gone map[key]bool) {
			o.Slices = slices.DeleteFunc(o.Slices, func(s *discoveryv1.EndpointSlice) bool { return gone[keyOf(s)] })
		})
}

func keysOf[T interface {
	*corev1.Service | *discoveryv1.EndpointSlice
}](before, after *sim.Objects, list func(*sim.Objects) []T) []key {
	var keys []key
	for _, o := range []*sim.Objects{before, after} {
		if o == nil {
			continue
		}
		for _, object := range list(o) {
			switch object := any(object).(type) {
			case *corev1.Service:
				keys = append(keys, keyOf(object))
			case *discoveryv1.EndpointSlice:
				keys = append(keys, keyOf(object))
			}
		}
	}
	slices.SortFunc(keys, compareKeys)
	return slices.Compact(keys)
}

func (m *minimizer) halve(ctx context.Context, all func() []key, drop func(*sim.Objects, map[key]bool)) error {
	return shrink.Drop(all, func(part []key) (bool, error) {
		gone := map[key]bool{}
		for _, k := range part {
			gone[k] = true
		}
		before, after := m.edited(func(o *sim.Objects) { drop(o, gone) })
		return m.try(ctx, before, after)
	})
}

// dropEndpoints tries to remove one endpoint after the other.
func (m *minimizer) dropEndpoints(ctx context.Context) error {
	for _, k := range keysOf(m.before, m.after, func(o *sim.Objects) []*discoveryv1.EndpointSlice { return o.Slices }) {
		for i := mostEndpoints(m, k) - 1; i >= 0; i-- {
			before, after := m.edited(func(o *sim.Objects) {
				editSlice(o, k, func(s *discoveryv1.EndpointSlice) {
					if i < len(s.Endpoints) {
						s.Endpoints = slices.Delete(s.Endpoints, i, i+1)
					}
				})
			})
			if _, err := m.try(ctx, before, after); err != nil {
				return err
			}
		}
	}
	return nil
}

func mostEndpoints(m *minimizer, k key) int {
	most := 0
	for _, o := range []*sim.Objects{m.before, m.after} {
		if o != nil {
			for _, s := range o.Slices {
				if keyOf(s) == k {
					most = max(most, len(s.Endpoints))
				}
			}
		}
	}
	return most
}

func editSlice(o *sim.Objects, k key, f func(*discoveryv1.EndpointSlice)) {
	for i, s := range o.Slices {
		if keyOf(s) == k {
			o.Slices[i] = s.DeepCopy()
			f(o.Slices[i])
		}
	}
}

func editService(o *sim.Objects, k key, f func(*corev1.Service)) {
	for i, s := range o.Services {
		if keyOf(s) == k {
			o.Services[i] = s.DeepCopy()
			f(o.Services[i])
		}
	}
}

// plainAddresses writes addresses in the form of RFC 5952, because sim.ReadObjects rejects older forms.
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

func (m *minimizer) dropFields(ctx context.Context) error {
	for _, k := range keysOf(m.before, m.after, func(o *sim.Objects) []*corev1.Service { return o.Services }) {
		for _, f := range plainer {
			before, after := m.edited(func(o *sim.Objects) { editService(o, k, f) })
			if err := m.tryOther(ctx, before, after); err != nil {
				return err
			}
		}
	}
	for _, k := range keysOf(m.before, m.after, func(o *sim.Objects) []*discoveryv1.EndpointSlice { return o.Slices }) {
		for _, f := range plainerSlices {
			before, after := m.edited(func(o *sim.Objects) { editSlice(o, k, f) })
			if err := m.tryOther(ctx, before, after); err != nil {
				return err
			}
		}
	}
	return nil
}

// tryOther tries a pair, unless the edit changed nothing.
func (m *minimizer) tryOther(ctx context.Context, before, after *sim.Objects) error {
	if sameObjects(m.before, before) && sameObjects(m.after, after) {
		return nil
	}
	_, err := m.try(ctx, before, after)
	return err
}

func sameObjects(a, b *sim.Objects) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.EqualFunc(a.Services, b.Services, func(x, y *corev1.Service) bool { return alike(x, y) }) &&
		slices.EqualFunc(a.Slices, b.Slices, func(x, y *discoveryv1.EndpointSlice) bool { return alike(x, y) })
}

func withoutSignal(o *sim.Objects) *sim.Objects {
	if o == nil {
		return nil
	}
	copied := *o
	copied.Services = slices.DeleteFunc(slices.Clone(o.Services), func(s *corev1.Service) bool { return s.Namespace == signalNamespace })
	copied.Slices = slices.DeleteFunc(slices.Clone(o.Slices), func(s *discoveryv1.EndpointSlice) bool { return s.Namespace == signalNamespace })
	return &copied
}
