package conform

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"synclab/sim"
)

// The entries of docs/differences.md that show in rules. An entry is no filter: it predicts what kube-proxy makes of the
// objects, and explains a difference only where the prediction holds rule for rule.
const (
	// EntryMoved: a slice whose kubernetes.io/service-name label changes stays with the Service it was of.
	EntryMoved = "moved-slice"
	// EntryTwice: of one address in several slices of a Service, the last in an order of chance counts.
	EntryTwice = "address-twice"
	// EntryLarge: rules of endpoints written before a cluster grew beyond 1,000 endpoints, or shrank below, keep or lack
	// their comments until something else rewrites them.
	EntryLarge = "large-cluster"
	// EntryZone: the node's zone, told once at the start, came before kube-proxy listened, and is not known.
	EntryZone = "lost-zone"
)

// largeCluster is how many endpoints a cluster has at most whose rules of endpoints have comments.
const largeCluster = 1000

// Entries of the list of known differences.
func Entries() []string { return []string{EntryMoved, EntryTwice, EntryLarge, EntryZone} }

// tell keeps the slices as kube-proxy's cache has them: by the Service that their label names at the time of an event. An
// event that names another Service, or none, changes nothing of what the first one was told.
func (f *feed) tell(op sim.Op, old, slice *discoveryv1.EndpointSlice) {
	switch {
	case op == sim.Delete && watched(slice):
		delete(f.toldOf(slice), slice.Name)
	case op == sim.Delete:
	case watched(slice):
		f.toldOf(slice)[slice.Name] = slice
	case old != nil && watched(old): // out of the watch's selector: it says deleted, and shows what was there before
		delete(f.toldOf(old), old.Name)
	}
}

// watched says whether a slice is in the selector of kube-proxy's watch.
func watched(s *discoveryv1.EndpointSlice) bool {
	_, headless := s.Labels[corev1.IsHeadlessService]
	return !headless
}

func (f *feed) toldOf(s *discoveryv1.EndpointSlice) map[string]*discoveryv1.EndpointSlice {
	if s.Labels[discoveryv1.LabelServiceName] == "" {
		return map[string]*discoveryv1.EndpointSlice{} // nobody's: kube-proxy does not look at it
	}
	// Each family's proxier has a cache of its own, and does not look at slices of the other.
	k := key{string(s.AddressType), s.Namespace, s.Labels[discoveryv1.LabelServiceName]}
	if f.told[k] == nil {
		f.told[k] = map[string]*discoveryv1.EndpointSlice{}
	}
	return f.told[k]
}

// explain looks for the entry of a difference. theirs is what kube-proxy has; ours renders.
func explain(ctx context.Context, d *Difference, theirs Grouped, ours *rendered, f *feed) (string, error) {
	if d.Service == "" {
		return "", nil
	}
	o, told := f.objects(), sortedSlices(f.told)
	nodes := o.Nodes
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
	if yes, err := holds(told); yes || err != nil {
		return EntryMoved, err
	}
	for order := range Orders(told, d.Family, d.Service) {
		if yes, err := holds(order); yes || err != nil {
			return EntryTwice, err
		}
	}
	if f.zoneChanged {
		return "", nil // that would have told kube-proxy
	}
	nodes = WithoutZones(nodes)
	if yes, err := holds(told); yes || err != nil {
		return EntryZone, err
	}
	return "", nil
}

// WithoutZones gives the nodes as one sees them who knows no zone.
func WithoutZones(nodes []*corev1.Node) []*corev1.Node {
	var without []*corev1.Node
	for _, n := range nodes {
		n = n.DeepCopy()
		delete(n.Labels, corev1.LabelTopologyZone)
		without = append(without, n)
	}
	return without
}

// bare leaves out the comments that rules of endpoints have only in clusters that are not large.
func bare(rules map[place][]string) map[place][]string {
	without := map[place][]string{}
	for at, list := range rules {
		for _, rule := range list {
			endpoints := strings.HasPrefix(at.chain, "KUBE-SEP-") || strings.HasPrefix(targetOf(rule), "KUBE-SEP-")
			if comment := commentOf(rule); comment != "" && endpoints {
				rule = strings.Replace(rule, ` -m comment --comment "`+comment+`"`, "", 1)
			}
			without[at] = append(without[at], rule)
		}
	}
	return without
}

// mostSlices bounds the orders that are tried: 5! of them.
const mostSlices = 5

// Orders gives the slices with those of one Service, "namespace/name", and family in every order. Ours takes slices by
// name.
func Orders(all []*discoveryv1.EndpointSlice, family corev1.IPFamily, service string) func(yield func([]*discoveryv1.EndpointSlice) bool) {
	var own, others []*discoveryv1.EndpointSlice
	for _, s := range all {
		if s.Namespace+"/"+s.Labels[discoveryv1.LabelServiceName] == service && string(s.AddressType) == string(family) {
			own = append(own, s)
		} else {
			others = append(others, s)
		}
	}
	return func(yield func([]*discoveryv1.EndpointSlice) bool) {
		if len(own) < 2 || len(own) > mostSlices {
			return
		}
		permute(own, func(order []*discoveryv1.EndpointSlice) bool {
			named := slices.Clone(others)
			for i, s := range order {
				s = s.DeepCopy()
				s.Name = fmt.Sprintf("%d-%s", i, s.Name)
				named = append(named, s)
			}
			return yield(named)
		})
	}
}

// permute calls f with every order of a list, until it returns false.
func permute[T any](list []T, f func([]T) bool) bool {
	var rec func(done int) bool
	rec = func(done int) bool {
		if done == len(list) {
			return f(list)
		}
		for i := done; i < len(list); i++ {
			list[done], list[i] = list[i], list[done]
			ok := rec(done + 1)
			list[done], list[i] = list[i], list[done]
			if !ok {
				return false
			}
		}
		return true
	}
	return rec(0)
}
