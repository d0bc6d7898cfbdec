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
)

// census is the size of a cluster.
type census struct {
	Services int // that a Service proxy handles
	Left     int // headless and external Services, which it does not handle
	Ports    int // of the Services
	// Endpoints is the mean number of ready endpoints of a Service, of both families together.
	Endpoints float64
	Most      int // endpoints of one Service
	Nodes     int
	Dual      bool // there are endpoints of both families
}

func (c census) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s Services with %s ports, %s endpoints each in the mean, at most %s; %s nodes", doc.Grouped(int64(c.Services)), doc.Grouped(int64(c.Ports)),
		PlainNumber(c.Endpoints), doc.Grouped(int64(c.Most)), doc.Grouped(int64(c.Nodes)))
	if c.Dual {
		text.WriteString("; dual stack")
	}
	if c.Left > 0 {
		fmt.Fprintf(&text, "; %s headless or external Services are left out", doc.Grouped(int64(c.Left)))
	}
	return text.String()
}

// CensusOf counts the cluster. Nodes are the listed nodes or the nodes of endpoints, whichever are more: many dumps have
// no Nodes.
func CensusOf(o *sim.Objects) census {
	var c census
	of := map[types.NamespacedName]int{}
	for _, s := range o.Services {
		if !sim.Proxied(s) {
			c.Left++
			continue
		}
		c.Services++
		c.Ports += len(s.Spec.Ports)
		of[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] = 0
	}
	on, families, all := map[string]bool{}, map[discoveryv1.AddressType]bool{}, 0
	for _, slice := range o.Slices {
		name := serviceOfSlice(slice)
		for _, e := range slice.Endpoints {
			if e.NodeName != nil {
				on[*e.NodeName] = true
			}
			n, ours := of[name]
			if ready := e.Conditions.Ready; !ours || ready != nil && !*ready {
				continue
			}
			of[name], families[slice.AddressType] = n+1, true
			all++
			c.Most = max(c.Most, n+1)
		}
	}
	c.Endpoints = float64(all) / float64(max(1, c.Services))
	c.Dual = families[discoveryv1.AddressTypeIPv4] && families[discoveryv1.AddressTypeIPv6]
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
		if name := (types.NamespacedName{Namespace: s.Namespace, Name: s.Name}); sim.Proxied(s) {
			looked[name], specs[name] = true, s
		}
	}
	for _, s := range now.Services {
		name := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
		if !sim.Proxied(s) {
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
	Due              []float64 // s, of each change
	Slices, Services int       // numbers of changes
	length           time.Duration
	cut              bool // the last line is incomplete
}

func (r *recordedChurn) Rate(n int) float64 { return float64(n) / r.length.Seconds() }

func (r *recordedChurn) String() string {
	text := fmt.Sprintf("from %s: %s changes of EndpointSlices and %s of Services in %v: %s a second, replayed in a loop",
		r.path, doc.Grouped(int64(r.Slices)), doc.Grouped(int64(r.Services)), r.length.Round(time.Millisecond), PlainNumber(r.Rate(len(r.Due))))
	text += " (what came after its last change is unknown, and not counted)"
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
		looked[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] = sim.Proxied(s)
	}
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
			looked[name] = sim.Proxied(o)
			if was || looked[name] {
				r.Services++
				r.Due = append(r.Due, change.Due.Seconds())
			}
		case *discoveryv1.EndpointSlice:
			if looked[serviceOfSlice(o)] {
				r.Slices++
				r.Due = append(r.Due, change.Due.Seconds())
			}
		}
	}
	if len(r.Due) > 0 {
		r.length = time.Duration(r.Due[len(r.Due)-1] * float64(time.Second))
	}
	if len(r.Due) < 2 || r.length <= 0 {
		return nil, fmt.Errorf("--churn-from %s: %d changes are too few to compute a rate", path, len(r.Due))
	}
	return r, nil
}
