package planning

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"synclab/bench/outfile"
	"synclab/reports/doc"
	"synclab/sim"
	"synclab/sim/capture"
	"synclab/sim/live"
	"synclab/sim/simulator"
)

// census is the size of a cluster for a cost model.
type census struct {
	Services int // that a Service proxy handles
	Left     int // headless and external Services, which it does not handle
	Ports    int // of the Services: each has separate rules
	// Endpoints is the mean number of ready endpoints of a port, of the family that has more.
	Endpoints float64
	Most      int // endpoints of one Service
	Single    int // Services with at most one endpoint
	Nodes     int
	Dual      bool // there are endpoints of both families
}

// Uneven is a remark where the Services have different numbers of endpoints; empty: about the same. A cost model is of
// Services with equally many.
func (c census) Uneven() string {
	if float64(c.Most) <= 2*max(1, c.Endpoints) && (10*c.Single <= c.Services || c.Most <= 1) {
		return ""
	}
	return fmt.Sprintf("a Service has up to %s endpoints, and %.0f %% have at most one, while the cost model is of Services with equally many: "+
		"in such a cluster, kube-proxy/nftables needs less time for full syncs (a Service with one endpoint needs no map), and synclab/nftables more "+
		"(each number of endpoints is a chain of its own); 'synclab calibrate --hold-out' measures both",
		doc.Grouped(int64(c.Most)), 100*float64(c.Single)/float64(max(1, c.Services)))
}

func (c census) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s Services", doc.Grouped(int64(c.Services)))
	if c.Ports != c.Services {
		fmt.Fprintf(&text, " with %s ports, each counted as a Service here", doc.Grouped(int64(c.Ports)))
	}
	fmt.Fprintf(&text, ", %s endpoints each, %s nodes", PlainNumber(c.Endpoints), doc.Grouped(int64(c.Nodes)))
	if c.Left > 0 {
		fmt.Fprintf(&text, "; %s headless or external Services are not counted", doc.Grouped(int64(c.Left)))
	}
	if c.Dual {
		text.WriteString("; dual stack: the answer is for one family; the rules of the other cost as much again")
	}
	return text.String()
}

// proxied reports whether a Service proxy handles a Service.
func proxied(s *corev1.Service) bool {
	return s.Spec.Type != corev1.ServiceTypeExternalName && s.Spec.ClusterIP != "" && s.Spec.ClusterIP != corev1.ClusterIPNone
}

// CensusOf counts the cluster. Nodes are the listed nodes or the nodes of endpoints, whichever are more: many dumps have
// no Nodes.
func CensusOf(o *sim.Objects) census {
	var c census
	ports := map[types.NamespacedName]int{}
	for _, s := range o.Services {
		if !proxied(s) {
			c.Left++
			continue
		}
		c.Services++
		c.Ports += len(s.Spec.Ports)
		ports[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] = len(s.Spec.Ports)
	}
	byFamily := map[discoveryv1.AddressType]int{}
	byService := map[types.NamespacedName]map[discoveryv1.AddressType]int{}
	for name := range ports {
		byService[name] = map[discoveryv1.AddressType]int{}
	}
	on := map[string]bool{}
	for _, slice := range o.Slices {
		n, ofService := ports[serviceOfSlice(slice)], byService[serviceOfSlice(slice)]
		for _, e := range slice.Endpoints {
			if e.NodeName != nil {
				on[*e.NodeName] = true
			}
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				byFamily[slice.AddressType] += n
				if ofService != nil {
					ofService[slice.AddressType]++
				}
			}
		}
	}
	v4, v6 := byFamily[discoveryv1.AddressTypeIPv4], byFamily[discoveryv1.AddressTypeIPv6]
	if c.Ports > 0 {
		c.Endpoints = float64(max(v4, v6)) / float64(c.Ports)
	}
	for _, n := range byService {
		most := max(n[discoveryv1.AddressTypeIPv4], n[discoveryv1.AddressTypeIPv6])
		if c.Most = max(c.Most, most); most <= 1 {
			c.Single++
		}
	}
	c.Dual = v4 > 0 && v6 > 0
	c.Nodes = max(len(o.Nodes), len(on))
	return c
}

func serviceOfSlice(s *discoveryv1.EndpointSlice) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
}

// ChangedBetween counts the EndpointSlices and Services that a Service proxy would have to write again: changed, added
// and deleted ones. The order of endpoints within a slice does not count, nor do slices of Services that no proxy
// handles.
func ChangedBetween(before, now *sim.Objects) (endpointSlices, services int) {
	looked := map[types.NamespacedName]bool{}
	specs := map[types.NamespacedName]*corev1.Service{}
	for _, s := range before.Services {
		if name := (types.NamespacedName{Namespace: s.Namespace, Name: s.Name}); proxied(s) {
			looked[name], specs[name] = true, s
		}
	}
	for _, s := range now.Services {
		name := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
		if !proxied(s) {
			continue
		}
		looked[name] = true
		if old := specs[name]; old == nil || !sameService(old, s) {
			services++
		}
		delete(specs, name)
	}
	services += len(specs) // deleted, or not proxied any more

	old := map[types.NamespacedName]*discoveryv1.EndpointSlice{}
	for _, s := range before.Slices {
		if looked[serviceOfSlice(s)] {
			old[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] = s
		}
	}
	for _, s := range now.Slices {
		if !looked[serviceOfSlice(s)] {
			continue
		}
		name := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
		if was := old[name]; was == nil || !sameSlice(was, s) {
			endpointSlices++
		}
		delete(old, name)
	}
	return endpointSlices + len(old), services
}

func sameService(a, b *corev1.Service) bool {
	a, b = capture.Strip(a).(*corev1.Service), capture.Strip(b).(*corev1.Service)
	return equality.Semantic.DeepEqual(a.Spec, b.Spec) && equality.Semantic.DeepEqual(a.Status.LoadBalancer, b.Status.LoadBalancer)
}

func sameSlice(a, b *discoveryv1.EndpointSlice) bool {
	return serviceOfSlice(a) == serviceOfSlice(b) && a.AddressType == b.AddressType &&
		equality.Semantic.DeepEqual(a.Ports, b.Ports) && equality.Semantic.DeepEqual(byAddress(a), byAddress(b))
}

// byAddress returns the endpoints of a slice, with the fields that a proxy reads, sorted by address.
func byAddress(s *discoveryv1.EndpointSlice) []discoveryv1.Endpoint {
	endpoints := capture.Strip(s).(*discoveryv1.EndpointSlice).Endpoints
	slices.SortFunc(endpoints, func(a, b discoveryv1.Endpoint) int {
		return cmp.Compare(strings.Join(a.Addresses, ","), strings.Join(b.Addresses, ","))
	})
	return endpoints
}

// recordedChurn is a trace of a real cluster.
type recordedChurn struct {
	path             string
	Snapshot         *sim.Objects
	Events           []simulator.Event
	Slices, Services int // numbers of changes
	length           time.Duration
	cut              bool // the last line is incomplete
}

func (r *recordedChurn) Rate(n int) float64 { return float64(n) / r.length.Seconds() }

func (r *recordedChurn) String() string {
	text := fmt.Sprintf("from %s: %s changes of EndpointSlices and %s of Services in %v: %s a second, replayed in a loop",
		r.path, doc.Grouped(int64(r.Slices)), doc.Grouped(int64(r.Services)), r.length.Round(time.Millisecond), PlainNumber(r.Rate(len(r.Events))))
	if r.cut {
		text += "; its last line is incomplete and ignored"
	}
	return text
}

// ReadTrace reads a trace of `synclab capture --for`. It skips changes that no Service proxy handles.
func ReadTrace(ctx context.Context, path string) (*recordedChurn, error) {
	file, err := outfile.OpenInput(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("--churn-from: %w", err)
	}
	defer file.Close()
	decoder := live.NewDecoder(file)
	r := &recordedChurn{path: path}
	if r.Snapshot, err = decoder.Snapshot(); err != nil {
		return nil, fmt.Errorf("--churn-from %s: not a recorded trace: %w", path, err)
	}
	looked := map[types.NamespacedName]bool{}
	for _, s := range r.Snapshot.Services {
		looked[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] = proxied(s)
	}
	var trace []sim.Change
	for {
		change, err := decoder.Next()
		if errors.Is(err, io.ErrUnexpectedEOF) {
			r.cut = true
			break
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("--churn-from %s: %w", path, err)
		}
		switch o := change.Object.(type) {
		case *corev1.Service:
			name := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
			was := looked[name]
			looked[name] = proxied(o)
			if was || looked[name] {
				trace = append(trace, change.Change)
			}
		case *discoveryv1.EndpointSlice:
			if looked[serviceOfSlice(o)] {
				trace = append(trace, change.Change)
			}
		}
	}
	r.Events, _ = simulator.Recorded(trace)
	for _, e := range r.Events {
		if e.Kind == simulator.Services {
			r.Services++
		} else {
			r.Slices++
		}
	}
	if len(r.Events) > 0 {
		r.length = r.Events[len(r.Events)-1].Due
	}
	if len(r.Events) < 2 || r.length <= 0 {
		return nil, fmt.Errorf("--churn-from %s: %d changes are too few to compute a rate", path, len(r.Events))
	}
	return r, nil
}
