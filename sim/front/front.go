package front

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"synclab/sim"
	"synclab/sim/api"
)

// KubernetesVersion is the default of Options.GitVersion: that of the kube-proxy which Synclab builds.
const KubernetesVersion = "v1.37.2"

// Options are the options of a Front. The zero value is good.
type Options struct {
	// History is the number of past events that each resource keeps, for watches that are behind or start from an
	// older version; 16384 if 0.
	History int
	// KeepEvents is the number of Events written by clients that are kept; 1000 if 0. Each has 16 KiB at most.
	KeepEvents int
	// Token is what every request must bear; empty: none. With it, requests must name the host by its address.
	Token string
	// MaxWatches limits the number of open watches; 0: no limit.
	MaxWatches int
	// ServiceCIDRs are the ranges of the ServiceCIDR "kubernetes": by default
	// those of the simulated clusters, 10.96.0.0/12 and fd00:10:96::/108, for the
	// families that the Services have.
	ServiceCIDRs []string
	// BookmarkEvery is how often a watch that allows bookmarks gets one; a minute
	// if 0, as with the API server.
	BookmarkEvery time.Duration
	// WriteTimeout is how long the connection of a watch may accept no data before it is closed; 30 s if 0.
	WriteTimeout time.Duration
	// GitVersion is the version of Kubernetes that /version names.
	GitVersion string
	// Shift is added to the creation times of all objects, so that a cluster generated now is not as old as its epoch.
	Shift time.Duration
	// Clock is the real one if nil.
	Clock clock.WithTicker
	// Answered, if set, is called when a request has been answered, for a watch when it ends. Several goroutines may
	// call it.
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
		o.GitVersion = KubernetesVersion
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
}

// Front is the Kubernetes API of a simulated cluster: a fake API server.
type Front struct {
	// WatchFaults applies to the watches of the front's clients.
	api.WatchFaults
	options Options
	clock   clock.WithTicker
	unwatch func() // stops observing the cluster

	paused  atomic.Bool
	watches atomic.Int64 // open

	mu     sync.Mutex
	stores map[*resource]*store
	ended  context.Context // of the open watches; replaced by DropWatches
	end    context.CancelCauseFunc
	gap    chan struct{} // closed when the outage ends that watches wait for; nil: no outage
	closed bool
	sink   sink
}

// ErrClosed is the error of a closed Front.
var ErrClosed = errors.New("the fake API server is closed")

// New returns a front for a cluster. Load the cluster before.
func New(cluster *api.Cluster, o Options) (*Front, error) {
	o.setDefaults()
	f := &Front{options: o, clock: o.Clock, stores: map[*resource]*store{}}
	for _, r := range resources {
		history := o.History
		if r.writable { // clients must not fill the memory
			history = min(history, o.KeepEvents)
		}
		f.stores[r] = newStore(r, history)
	}
	f.ended, f.end = context.WithCancelCause(context.Background())
	f.OnChange(f.wake)
	var err error
	if f.unwatch, err = cluster.Observe(f.present, f.written); err != nil {
		return nil, fmt.Errorf("fake API server: %w", err)
	}
	return f, nil
}

// Encode encodes the present objects as watches send them. Otherwise the first watch does, and its client waits for that.
func (f *Front) Encode() error {
	f.mu.Lock()
	var all []*item
	for _, s := range f.stores {
		all = append(all, s.sorted...)
	}
	f.mu.Unlock()
	for _, it := range all {
		if _, err := it.encoded(formProtobuf); err != nil {
			return fmt.Errorf("fake API server: %s: %w", it.key, err)
		}
	}
	return nil
}

// Close stops following the cluster and ends all watches.
func (f *Front) Close() {
	f.unwatch()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.end(nil)
}

// present stores the initial objects of the cluster.
func (f *Front) present(version int64, o *sim.Objects) {
	f.mu.Lock()
	defer f.mu.Unlock()
	load(f, services, version, o.Services)
	load(f, endpointSlices, version, o.Slices)
	load(f, nodes, version, o.Nodes)
	load(f, namespaces, version, namespacesOf(version, o))
	load(f, serviceCIDRs, version, []*networkingv1.ServiceCIDR{serviceCIDR(version, f.options.ServiceCIDRs, o)})
	for _, r := range []*resource{coreEvents, events} {
		f.stores[r].load(1, nil) // Events have their own versions
	}
}

func load[T runtime.Object](f *Front, r *resource, version int64, objects []T) {
	items := make([]*item, len(objects))
	for i, o := range objects {
		items[i] = f.item(r, o)
	}
	f.stores[r].load(version, items)
}

// item returns an object of the cluster as clients see it.
func (f *Front) item(r *resource, o runtime.Object) *item {
	it := newItem(r.stamped(o))
	if created := it.meta.GetCreationTimestamp(); f.options.Shift != 0 && !created.IsZero() {
		it.meta.SetCreationTimestamp(metav1.NewTime(created.Add(f.options.Shift)))
	}
	return it
}

// written stores one write of the cluster.
func (f *Front) written(w api.Write) {
	r := resourceOf(sim.ResourceOf(w.Object))
	if r == nil {
		return
	}
	it := f.item(r, w.Object)
	f.mu.Lock()
	defer f.mu.Unlock()
	// All objects of the cluster share one sequence of versions: a list of one resource is as new as the last write to
	// any.
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
			s.put(w.Version, f.item(s.resource, newNamespace(name, w.Version)))
		}
	}
	f.stores[r].put(w.Version, it)
}

// clusterBirth is the creation time of objects that only the front has.
var clusterBirth = metav1.NewTime(time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC))

// namespacesOf returns the Namespaces that every cluster has, and those of the objects. The simulated cluster has no
// Namespace objects.
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

// serviceCIDR returns the ServiceCIDR that the API server makes.
func serviceCIDR(version int64, ranges []string, o *sim.Objects) *networkingv1.ServiceCIDR {
	if len(ranges) == 0 {
		for _, family := range sim.FamiliesOf(o) {
			ranges = append(ranges, sim.ServiceRange(o, family).String())
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

// Pause answers every request with 503 until it is ended. Open watches go on; DropWatches ends them.
func (f *Front) Pause(on bool) { f.paused.Store(on) }

// Serve answers the connections of a listener until ctx ends. Then it ends all watches, closes the listener, and
// returns nil.
func (f *Front) Serve(ctx context.Context, l net.Listener) error {
	if err := Serve(ctx, l, f, DefaultLimits); err != nil {
		return fmt.Errorf("fake API server: %w", err)
	}
	return nil
}

// Serve answers the connections of a listener with a handler, as Front.Serve does.
func Serve(ctx context.Context, l net.Listener, handler http.Handler, limits Limits) error {
	clients := connections{most: limits.Connections}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: limits.Headers,
		MaxHeaderBytes:    64 << 10,
		IdleTimeout:       limits.Idle,
		ConnState:         clients.changed,
		ErrorLog:          log.New(klogged{}, "", 0),
		// Requests, watches included, end with the server.
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
	return err
}
