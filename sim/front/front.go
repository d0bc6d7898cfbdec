package front

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"synclab/sim"
)

// Options of a Front. The zero value is good.
type Options struct {
	// History is how many past events of each resource are kept for watches that
	// are behind or start from an older version; 16384 if 0.
	History int
	// KeepEvents is how many Events that clients wrote are kept; 1000 if 0. Each has 16 KiB at most.
	KeepEvents int
	// Token that every request must bear; empty: none. With it, requests must name the host by its address.
	Token string
	// MaxWatches bounds how many are open at a time; 0: no bound.
	MaxWatches int
	// ServiceCIDRs are the ranges of the ServiceCIDR "kubernetes": by default
	// those of the simulated clusters, 10.96.0.0/12 and fd00:10:96::/108, for the
	// families that the Services have.
	ServiceCIDRs []string
	// BookmarkEvery is how often a watch that allows bookmarks gets one; a minute
	// if 0, as with the API server.
	BookmarkEvery time.Duration
	// WriteTimeout is how long the connection of a watch may take nothing before
	// it is closed; 30 s if 0.
	WriteTimeout time.Duration
	// GitVersion is the version of Kubernetes that /version names.
	GitVersion string
	// Clock is the real one if nil.
	Clock clock.WithTicker
	// Answered is called when a request has been answered, if set; a watch has
	// when it ends. It may be called by several goroutines.
	Answered func(Request)
}

func (o *Options) setDefaults() {
	if o.History <= 0 {
		o.History = 16384 // 3 s of 5,000 changes a second, and 4 MiB of events
	}
	if o.KeepEvents <= 0 {
		o.KeepEvents = 1000
	}
	if o.BookmarkEvery <= 0 {
		o.BookmarkEvery = time.Minute
	}
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = 30 * time.Second
	}
	if o.GitVersion == "" {
		o.GitVersion = "v1.36.3"
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
}

// Front is the Kubernetes API in front of a simulated cluster.
type Front struct {
	// Disturbance is of what the front's clients watch.
	sim.Disturbance
	options Options
	clock   clock.WithTicker
	unwatch func() // stops observing the cluster

	paused  atomic.Bool
	watches atomic.Int64 // open

	mu     sync.Mutex
	stores map[*resource]*store
	ended  context.Context // of the watches that are open; replaced by DropWatches
	end    context.CancelCauseFunc
	gap    chan struct{} // closed when the gap ends that watches wait for; nil: there is none
	closed bool
	sink   sink
}

// ErrClosed is why a closed Front serves nothing.
var ErrClosed = errors.New("the API front is closed")

// New makes a front for a cluster, which must have been loaded.
func New(cluster *sim.Cluster, o Options) (*Front, error) {
	o.setDefaults()
	f := &Front{options: o, clock: o.Clock, stores: map[*resource]*store{}}
	for _, r := range resources {
		history := o.History
		if r.writable { // what clients send must not fill the memory
			history = min(history, o.KeepEvents)
		}
		f.stores[r] = newStore(r, history)
	}
	f.ended, f.end = context.WithCancelCause(context.Background())
	f.OnChange(f.wake)
	var err error
	if f.unwatch, err = cluster.Observe(f.present, f.written); err != nil {
		return nil, fmt.Errorf("api front: %w", err)
	}
	return f, nil
}

// Close stops following the cluster and ends all watches.
func (f *Front) Close() {
	f.unwatch()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.end(nil)
}

// present takes over the first objects of the cluster.
func (f *Front) present(version int64, o *sim.Objects) {
	f.mu.Lock()
	defer f.mu.Unlock()
	load(f.stores[services], version, o.Services)
	load(f.stores[endpointSlices], version, o.Slices)
	load(f.stores[nodes], version, o.Nodes)
	load(f.stores[namespaces], version, namespacesOf(version, o))
	load(f.stores[serviceCIDRs], version, []*networkingv1.ServiceCIDR{serviceCIDR(version, f.options.ServiceCIDRs, o.Services)})
	for _, r := range []*resource{coreEvents, events} {
		f.stores[r].load(1, nil) // versions of their own
	}
}

func load[T runtime.Object](s *store, version int64, objects []T) {
	items := make([]*item, len(objects))
	for i, o := range objects {
		items[i] = newItem(s.resource.stamped(o))
	}
	s.load(version, items)
}

// written follows one write of the cluster.
func (f *Front) written(w sim.Write) {
	r := resourceOfObject(w.Object)
	if r == nil {
		return
	}
	it := newItem(r.stamped(w.Object))
	f.mu.Lock()
	defer f.mu.Unlock()
	// Versions are one sequence for all that the cluster has: a list of one
	// resource is as new as the last write to any.
	for _, other := range []*resource{services, endpointSlices, nodes, namespaces, serviceCIDRs} {
		f.stores[other].version = w.Version
	}
	f.stores[r].mark = f.MarkOf(r.GroupVersionResource, it.key, w.Version)
	if w.Op == sim.Delete {
		f.stores[r].remove(w.Version, it)
		return
	}
	if name := it.meta.GetNamespace(); name != "" {
		s := f.stores[namespaces]
		if _, found := s.find(name); !found {
			s.put(w.Version, newItem(s.resource.stamped(newNamespace(name, w.Version))))
		}
	}
	f.stores[r].put(w.Version, it)
}

func resourceOfObject(o runtime.Object) *resource {
	switch o.(type) {
	case *corev1.Service:
		return services
	case *discoveryv1.EndpointSlice:
		return endpointSlices
	case *corev1.Node:
		return nodes
	default:
		return nil
	}
}

// clusterBirth is the creation time of what only the front has.
var clusterBirth = metav1.NewTime(time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC))

// namespacesOf are the Namespaces that every cluster has, and those of the
// objects. The simulated cluster has none of its own.
func namespacesOf(version int64, o *sim.Objects) []*corev1.Namespace {
	names := map[string]bool{
		metav1.NamespaceDefault: true, metav1.NamespaceSystem: true, metav1.NamespacePublic: true, corev1.NamespaceNodeLease: true,
	}
	for _, s := range o.Services {
		names[s.Namespace] = true
	}
	for _, s := range o.Slices {
		names[s.Namespace] = true
	}
	var all []*corev1.Namespace
	for name := range names {
		all = append(all, newNamespace(name, version))
	}
	return all
}

func newNamespace(name string, version int64) *corev1.Namespace {
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, ResourceVersion: strconv.FormatInt(version, 10), CreationTimestamp: clusterBirth,
			UID: uidOf("namespace/" + name), Labels: map[string]string{corev1.LabelMetadataName: name},
		},
		Spec:   corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	}
}

// serviceCIDR is the one that the API server makes.
func serviceCIDR(version int64, ranges []string, all []*corev1.Service) *networkingv1.ServiceCIDR {
	if len(ranges) == 0 {
		families := map[corev1.IPFamily]bool{}
		for _, s := range all {
			for _, family := range s.Spec.IPFamilies {
				families[family] = true
			}
		}
		if families[corev1.IPv4Protocol] || len(families) == 0 {
			ranges = append(ranges, "10.96.0.0/12")
		}
		if families[corev1.IPv6Protocol] {
			ranges = append(ranges, "fd00:10:96::/108")
		}
	}
	return &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{
			Name: "kubernetes", ResourceVersion: strconv.FormatInt(version, 10), CreationTimestamp: clusterBirth, UID: uidOf("servicecidr/kubernetes"),
		},
		Spec: networkingv1.ServiceCIDRSpec{CIDRs: ranges},
		Status: networkingv1.ServiceCIDRStatus{Conditions: []metav1.Condition{{
			Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue, LastTransitionTime: clusterBirth,
			Message: "Kubernetes default Service CIDR is ready",
		}}},
	}
}

// Pause answers every request with 503 until it is lifted. Open watches go on;
// DropWatches ends them.
func (f *Front) Pause(on bool) { f.paused.Store(on) }

// Serve answers the connections of a listener until ctx ends; then it ends all
// watches, closes the listener, and returns nil.
func (f *Front) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler:           f,
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    64 << 10,
		IdleTimeout:       3 * time.Minute,
		// Requests end with the server: watches too.
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(grace) != nil {
			_ = server.Close()
		}
	})
	err := server.Serve(l)
	if !stop() {
		<-stopped
		return nil
	}
	return fmt.Errorf("api front: %w", err)
}
