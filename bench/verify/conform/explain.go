package conform

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat/combin"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"synclab/internal/inet"
	"synclab/proxier/iptables/rule"
	"synclab/sim"
)

// The entries of docs/differences.md that are visible in rules. An entry is no filter: it predicts the rules that
// kube-proxy writes for the objects. It explains a difference only if the prediction is right rule for rule.
const (
	// EntryMoved: if a slice's kubernetes.io/service-name label changes, kube-proxy keeps the slice for its old Service
	// too.
	EntryMoved = "moved-slice"
	// EntryTwice: if several slices of a Service have one address, the last slice in a random order counts. Minors before
	// readyFirst choose otherwise: see keptBefore.
	EntryTwice = "address-twice"
	// EntryLarge: endpoint rules have comments only in clusters of at most 1,000 endpoints. When a cluster crosses that
	// size, kube-proxy keeps the old endpoint rules until another change rewrites them.
	EntryLarge = "large-cluster"
	// EntryZone: kube-proxy received its node's zone before its handlers were registered, and does not know the zone.
	EntryZone = "lost-zone"
	// EntryHints: minors before hintsForNodes ignore hints for nodes. Minors before hintsAlways also ignore the hints of a
	// Service without an annotation. Only these minors.
	EntryHints = "older-hints"
	// EntryNode: kube-proxy exits when its node's podCIDRs or addresses change. It is started again, as a kubelet does.
	EntryNode = "node-changed"
)

// The first minors of kube-proxy with a reading of hints, by the defaults of PreferSameTrafficDistribution and
// ServiceTrafficDistribution.
const (
	hintsForNodes = 34
	hintsAlways   = 31
)

// readyFirst is the first minor that prefers, of several endpoints with one address, one that does not terminate.
const readyFirst = 36

// largeCluster is the largest number of endpoints with which endpoint rules have comments.
const largeCluster = 1000

// tell updates the slices as kube-proxy's cache stores them: by the Service named in the label at the time of an event.
// An event with another Service or no Service leaves the old Service's slices unchanged.
func (f *feed) tell(op sim.Op, old, slice *discoveryv1.EndpointSlice) {
	switch {
	case op == sim.Delete && watched(slice):
		delete(f.rememberedOf(slice), slice.Name)
	case op == sim.Delete:
	case watched(slice):
		f.rememberedOf(slice)[slice.Name] = slice
	case old != nil && watched(old): // the slice left the watch's selector: the event is a deletion with the old object
		delete(f.rememberedOf(old), old.Name)
	}
}

// watched reports whether a slice matches the selector of kube-proxy's watch.
func watched(s *discoveryv1.EndpointSlice) bool {
	_, headless := s.Labels[corev1.IsHeadlessService]
	return !headless
}

func (f *feed) rememberedOf(s *discoveryv1.EndpointSlice) map[string]*discoveryv1.EndpointSlice {
	if s.Labels[discoveryv1.LabelServiceName] == "" {
		return map[string]*discoveryv1.EndpointSlice{} // no Service: kube-proxy ignores the slice
	}
	// Each family's proxier has a separate cache and ignores slices of the other family.
	k := key{string(s.AddressType), s.Namespace, s.Labels[discoveryv1.LabelServiceName]}
	if f.remembered[k] == nil {
		f.remembered[k] = map[string]*discoveryv1.EndpointSlice{}
	}
	return f.remembered[k]
}

// explain returns the entry that predicts a difference, or "". theirs are kube-proxy's rules; ours renders predictions.
func explain(ctx context.Context, d *Difference, theirs Grouped, ours *rendered, f *feed) (string, error) {
	if d.Service == "" {
		return "", nil
	}
	o, remembered := f.objects(), sortedSlices(f.remembered)
	nodes := o.Nodes
	older := f.minor > 0 && f.minor < hintsForNodes
	if older {
		o.Slices, remembered = asReadBy(f.minor, o.Services, o.Slices), asReadBy(f.minor, o.Services, remembered)
	}
	holds := func(eps []*discoveryv1.EndpointSlice) (bool, error) {
		predicted, err := ours.renderObjects(ctx, o.Services, eps, nodes)
		if err != nil {
			return false, err
		}
		return len(diffService(theirs[d.Service], predicted[d.Family][d.Service])) == 0, nil
	}
	if f.large {
		predicted, err := ours.renderObjects(ctx, o.Services, o.Slices, o.Nodes)
		if err != nil {
			return "", err
		}
		if len(diffService(bare(theirs[d.Service]), bare(predicted[d.Family][d.Service]))) == 0 {
			return EntryLarge, nil
		}
	}
	if older {
		if yes, err := holds(o.Slices); yes || err != nil {
			return EntryHints, err
		}
	}
	if yes, err := holds(remembered); yes || err != nil {
		return EntryMoved, err
	}
	orders, drops := slices.Collect(Orders(remembered, d.Family, d.Service)), f.minor > 0 && f.minor < readyFirst
	if drops {
		orders = append(orders, remembered) // one slice may have an address twice
	}
	for _, order := range orders {
		if drops {
			order = keptBefore(order, d.Family, d.Service, ours.node.Name)
		}
		if yes, err := holds(order); yes || err != nil {
			return EntryTwice, err
		}
	}
	if f.zoneChanged {
		return "", nil // a change of the zone would have notified kube-proxy
	}
	nodes = WithoutZones(nodes)
	if yes, err := holds(remembered); yes || err != nil {
		return EntryZone, err
	}
	return "", nil
}

// keptBefore returns the slices without the endpoints that minors before readyFirst ignore. Of those of a Service with
// one address and port, the last one on the node counts, or else the first. Each slice has one port.
func keptBefore(all []*discoveryv1.EndpointSlice, family corev1.IPFamily, service, node string) (kept []*discoveryv1.EndpointSlice) {
	type place struct {
		name     string
		protocol corev1.Protocol
		address  netip.Addr
		port     int32
	}
	placeOf := func(p *discoveryv1.EndpointPort, ep *discoveryv1.Endpoint) place {
		address, _ := inet.ParseAddr(ep.Addresses[0]) // an address has several spellings
		return place{ptr.Deref(p.Name, ""), ptr.Deref(p.Protocol, corev1.ProtocolTCP), address, ptr.Deref(p.Port, 0)}
	}
	chosen := map[place]*discoveryv1.Endpoint{}
	var own []*discoveryv1.EndpointSlice
	for _, s := range all {
		if !belongs(s, family, service) {
			kept = append(kept, s)
			continue
		}
		own = append(own, s)
		for i := range s.Endpoints {
			ep := &s.Endpoints[i]
			for k := range s.Ports {
				at := placeOf(&s.Ports[k], ep)
				if chosen[at] == nil || ptr.Deref(ep.NodeName, "") == node {
					chosen[at] = ep
				}
			}
		}
	}
	for _, s := range own {
		for k := range s.Ports {
			one := s.DeepCopy()
			one.Name, one.Ports, one.Endpoints = fmt.Sprintf("%s-%d", s.Name, k), s.Ports[k:k+1], nil
			for i := range s.Endpoints {
				if ep := &s.Endpoints[i]; chosen[placeOf(&s.Ports[k], ep)] == ep {
					one.Endpoints = append(one.Endpoints, *ep)
				}
			}
			kept = append(kept, one)
		}
	}
	return kept
}

// belongs reports whether a slice is of a Service ("namespace/name") and family.
func belongs(s *discoveryv1.EndpointSlice, family corev1.IPFamily, service string) bool {
	return s.Namespace+"/"+s.Labels[discoveryv1.LabelServiceName] == service && string(s.AddressType) == string(family)
}

// asReadBy returns the slices with the hints that a minor of kube-proxy uses.
func asReadBy(minor int, services []*corev1.Service, all []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	asked := map[string]bool{} // Services whose hints count in every minor
	for _, svc := range services {
		mode, old := svc.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
		if !old {
			mode = svc.Annotations[corev1.AnnotationTopologyMode]
		}
		asked[svc.Namespace+"/"+svc.Name] = mode != "" && !strings.EqualFold(mode, "disabled")
	}
	var read []*discoveryv1.EndpointSlice
	for _, s := range all {
		s = s.DeepCopy()
		for i := range s.Endpoints {
			hints := &s.Endpoints[i].Hints
			switch {
			case *hints == nil:
			case minor < hintsAlways && !asked[s.Namespace+"/"+s.Labels[discoveryv1.LabelServiceName]]:
				*hints = nil
			default:
				(*hints).ForNodes = nil
			}
		}
		read = append(read, s)
	}
	return read
}

// WithoutZones returns copies of the nodes without their zone labels.
func WithoutZones(nodes []*corev1.Node) []*corev1.Node {
	var without []*corev1.Node
	for _, n := range nodes {
		n = n.DeepCopy()
		delete(n.Labels, corev1.LabelTopologyZone)
		without = append(without, n)
	}
	return without
}

// bare removes the comments of endpoint rules, which only clusters that are not large have.
func bare(rules map[place][]*rule.Rule) map[place][]*rule.Rule {
	without := map[place][]*rule.Rule{}
	for at, list := range rules {
		for _, r := range list {
			if Endpoint(at.chain) || Endpoint(r.Target.Chain) {
				r = r.WithoutComments()
			}
			without[at] = append(without[at], r)
		}
	}
	return without
}

// Endpoint reports whether a chain belongs to an endpoint.
func Endpoint(chain string) bool { return strings.HasPrefix(chain, "KUBE-SEP-") }

// mostSlices bounds the number of orders that are tried: 5!.
const mostSlices = 5

// Orders yields the slices in every order of the slices of one Service ("namespace/name") and family. It renames these
// slices, because Synclab's proxier processes slices by name.
func Orders(all []*discoveryv1.EndpointSlice, family corev1.IPFamily, service string) func(yield func([]*discoveryv1.EndpointSlice) bool) {
	var own, others []*discoveryv1.EndpointSlice
	for _, s := range all {
		if belongs(s, family, service) {
			own = append(own, s)
		} else {
			others = append(others, s)
		}
	}
	return func(yield func([]*discoveryv1.EndpointSlice) bool) {
		if len(own) < 2 || len(own) > mostSlices {
			return
		}
		for orders := combin.NewPermutationGenerator(len(own), len(own)); orders.Next(); {
			named := slices.Clone(others)
			for i, at := range orders.Permutation(nil) {
				s := own[at].DeepCopy()
				s.Name = fmt.Sprintf("%d-%s", i, s.Name)
				named = append(named, s)
			}
			if !yield(named) {
				return
			}
		}
	}
}
