package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
)

// Cluster is the API side of the simulated cluster: client-go's fake clientset
// holds the state, real shared informers list and watch it. The list, watch and
// write of the three resources that proxies watch are its own, in front of the
// fake's: there, an object deleted between an informer's list and its watch
// never goes away, deletions have no version, and a watch panics when 100 events
// wait. Here each write has a version, a watch starts exactly where its list
// ended, and Apply waits while a watch is behind.
//
// What informers have taken from their watch may still wait in their own queues,
// which are unbounded: an Apply that has returned is not yet a handler that has
// run.
type Cluster struct {
	// Disturbance is of the cluster's own watches, not of those who observe it.
	Disturbance
	clock     clock.WithTicker
	client    *fake.Clientset
	informers informers.SharedInformerFactory
	ctx       context.Context // ends with Stop
	cancel    context.CancelFunc

	mu        sync.Mutex
	version   int64 // of the last write, of whatever resource
	journals  map[schema.GroupVersionResource]*journal
	observers []*func(Write)
	factories []*factory
	pumps     sync.WaitGroup
}

// ErrStopped is why a stopped Cluster refuses changes.
var ErrStopped = errors.New("the simulated cluster is stopped")

// NewCluster makes an empty cluster. Its clock is the one Play waits on.
func NewCluster(clk clock.WithTicker) *Cluster {
	c := &Cluster{
		clock: clk,
		// NewClientset keeps managed fields: an update costs 1.5 ms there, 6 µs
		// here (BenchmarkApply).
		client:   fake.NewSimpleClientset(),
		journals: map[schema.GroupVersionResource]*journal{},
		// Not 0: a watch from version 0 means from any version.
		version: 1,
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	for _, r := range []schema.GroupVersionResource{servicesResource, slicesResource, nodesResource} {
		c.journals[r] = newJournal(&c.mu, func() bool { return c.Holds(r) })
		c.client.PrependReactor("*", r.Resource, c.react)
		c.client.PrependWatchReactor(r.Resource, c.watch)
	}
	c.OnChange(c.wakeAll)
	c.informers = c.NewInformers()
	return c
}

// Client is the fake clientset. What is written through it reaches the
// informers too, without back-pressure, and the fake records each action: for
// tests and single changes.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// Informers is the cluster's shared informer factory: one for all that watch.
// Its informers end with the context they are started with, or with Stop.
func (c *Cluster) Informers() informers.SharedInformerFactory { return c.informers }

// NewInformers is a further factory with informers of its own, which list and
// watch anew: for a restarted proxier, or one of many nodes.
func (c *Cluster) NewInformers(options ...informers.SharedInformerOption) informers.SharedInformerFactory {
	f := &factory{
		SharedInformerFactory: informers.NewSharedInformerFactoryWithOptions(c.client, 0, options...),
		cluster:               c.ctx,
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.factories = append(c.factories, f)
	return f
}

// Load puts a first state into the cluster. It comes before the informers
// start: they find it with their initial list, which is several times as fast
// as events.
func (c *Cluster) Load(ctx context.Context, o *Objects) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.observers) > 0 {
		return errors.New("load: the cluster is observed already; apply changes instead")
	}
	for r, j := range c.journals {
		if j.listed {
			return fmt.Errorf("load: informers of %s have started; apply changes instead", r.Resource)
		}
	}
	if err := loadAll(ctx, c, o.Nodes); err != nil {
		return err
	}
	if err := loadAll(ctx, c, o.Services); err != nil {
		return err
	}
	return loadAll(ctx, c, o.Slices)
}

func loadAll[T interface {
	metav1.Object
	runtime.Object
}](ctx context.Context, c *Cluster, objects []T) error {
	for _, o := range objects {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("load: %w", err)
		}
		if err := c.client.Tracker().Add(o); err != nil {
			return fmt.Errorf("load %s: %w", kindAndName(o), err)
		}
		c.version = max(c.version, versionOf(o))
	}
	return nil
}

// Apply makes one change. It waits while an informer is more than some hundred
// events behind, until ctx ends. The change's object is not written to: what
// the cluster stores has a resourceVersion of its own.
func (c *Cluster) Apply(ctx context.Context, ch Change) error {
	object, err := shallowCopy(ch.Object)
	if err != nil {
		return fmt.Errorf("%s: %w", ch.Op, err)
	}
	return c.apply(ctx, ch.Op, object)
}

// apply takes over the object.
func (c *Cluster) apply(ctx context.Context, op Op, object runtime.Object) error {
	j := c.journals[resourceOf(object)]
	wakeUp := context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		j.wake.Broadcast()
	})
	defer wakeUp()
	c.mu.Lock()
	defer c.mu.Unlock()
	for ctx.Err() == nil && c.ctx.Err() == nil && j.full() {
		j.wake.Wait()
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s: %w", op, kindAndName(object), err)
	}
	if err := c.write(op, object); err != nil {
		return fmt.Errorf("%s %s: %w", op, kindAndName(object), err)
	}
	return nil
}

// write changes the state and tells the watches. It takes over the object.
func (c *Cluster) write(op Op, object runtime.Object) error {
	if c.ctx.Err() != nil {
		return ErrStopped
	}
	m := object.(metav1.Object)
	resource := resourceOf(object)
	next := c.version + 1
	m.SetResourceVersion(strconv.FormatInt(next, 10))
	event := watch.Event{Object: object}
	tracker := c.client.Tracker()
	before, err := relabelled(tracker, resource, op, m)
	if err != nil {
		return err
	}
	switch op {
	case Add:
		event.Type = watch.Added
		err = tracker.Create(resource, object, m.GetNamespace())
	case Update:
		event.Type = watch.Modified
		err = tracker.Update(resource, object, m.GetNamespace())
	case Delete:
		event.Type = watch.Deleted
		err = tracker.Delete(resource, m.GetNamespace(), m.GetName())
	default:
		err = fmt.Errorf("unknown operation; %s, %s and %s exist", Add, Update, Delete)
	}
	if err != nil {
		return err
	}
	c.version = next
	key := m.GetNamespace() + "/" + m.GetName()
	c.journals[resource].append(entry{next, event, key, c.MarkOf(resource, key, next), before})
	c.tell(Write{Version: next, Op: op, Object: object})
	return nil
}

// relabelled gives the object that a write replaces or deletes, with the write's
// version, if its labels differ; nil if they do not.
func relabelled(tracker clienttesting.ObjectTracker, resource schema.GroupVersionResource, op Op, m metav1.Object) (runtime.Object, error) {
	if op != Update && op != Delete {
		return nil, nil
	}
	before, err := tracker.Get(resource, m.GetNamespace(), m.GetName())
	if err != nil {
		return nil, err
	}
	old := before.(metav1.Object)
	if maps.Equal(old.GetLabels(), m.GetLabels()) {
		return nil, nil
	}
	old.SetResourceVersion(m.GetResourceVersion())
	return before, nil
}

// Version is the resourceVersion of the last write to the kind of an object: a
// handler that has seen it has seen everything of that kind. 0 before the first
// write after Load.
func (c *Cluster) Version(kind runtime.Object) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if j := c.journals[resourceOf(kind)]; j != nil {
		return j.last
	}
	return 0
}

// Stop ends the cluster's informers and watches and waits until they are gone.
// Changes afterwards fail with ErrStopped.
func (c *Cluster) Stop() {
	c.cancel()
	c.mu.Lock()
	for _, j := range c.journals {
		j.wake.Broadcast() // writes that wait
	}
	factories := c.factories
	c.mu.Unlock()
	// Informers first: one whose watch ends before it is stopped complains.
	for _, f := range factories {
		f.Shutdown()
	}
	c.DropWatches()
	c.pumps.Wait()
}

// wakeAll has everybody look again who waits for events, or with a write.
func (c *Cluster) wakeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range c.journals {
		j.wake.Broadcast()
	}
}

// react answers the clientset's lists and writes. The fake's lock is held, so it
// must not wait for watches.
func (c *Cluster) react(action clienttesting.Action) (bool, runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer := clienttesting.ObjectReaction(c.client.Tracker())
	resource := action.GetResource()
	switch action := action.(type) {
	case clienttesting.ListActionImpl:
		_, list, err := answer(action)
		if err != nil {
			return true, nil, err
		}
		c.journals[resource].listed = true
		m, err := meta.ListAccessor(list)
		if err != nil {
			return true, nil, err
		}
		m.SetResourceVersion(strconv.FormatInt(c.version, 10))
		return true, list, nil
	case clienttesting.CreateActionImpl:
		return c.reactWrite(Add, action.GetObject())
	case clienttesting.UpdateActionImpl:
		return c.reactWrite(Update, action.GetObject())
	case clienttesting.PatchActionImpl:
		_, object, err := answer(action)
		if err != nil {
			return true, nil, err
		}
		return c.reactWrite(Update, object)
	case clienttesting.DeleteActionImpl:
		object, err := c.client.Tracker().Get(resource, action.GetNamespace(), action.GetName())
		if err != nil {
			return true, nil, err
		}
		return c.reactWrite(Delete, object)
	default: // get: the fake's own
		return false, nil, nil
	}
}

func (c *Cluster) reactWrite(op Op, object runtime.Object) (bool, runtime.Object, error) {
	written := object.DeepCopyObject()
	if err := c.write(op, written); err != nil {
		return true, nil, err
	}
	return true, written.DeepCopyObject(), nil
}

// watch answers the clientset's watches, from the version they ask for.
func (c *Cluster) watch(action clienttesting.Action) (bool, watch.Interface, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return true, nil, ErrStopped
	}
	resource := action.GetResource()
	j := c.journals[resource]
	r := &reader{
		journal: j, namespace: action.GetNamespace(), results: make(chan watch.Event), quit: make(chan struct{}),
		order: NewSequence[entry](&c.Disturbance), came: j.away, since: c.version,
	}
	var options metav1.ListOptions
	if a, ok := action.(clienttesting.WatchActionImpl); ok {
		options = a.ListOptions
		r.labels = a.WatchRestrictions.Labels
	}
	switch options.ResourceVersion {
	case "", "0": // from now, with what exists
		objects, err := c.existing(resource)
		if err != nil {
			return true, nil, err
		}
		r.initial, r.position = objects, j.end()
	default:
		version, err := strconv.ParseInt(options.ResourceVersion, 10, 64)
		if err != nil {
			return true, nil, apierrors.NewBadRequest(fmt.Sprintf("watch %s: resourceVersion: %v", resource.Resource, err))
		}
		if version = j.resume(version); version < j.forgotten {
			return true, nil, apierrors.NewResourceExpired(fmt.Sprintf("watch %s: version %d is older than the oldest kept, %d", resource.Resource, version, j.forgotten))
		}
		r.position, r.since = j.positionAfter(version), version
	}
	j.listed = true
	j.readers[r] = struct{}{}
	c.pumps.Go(r.run)
	return true, r, nil
}

// existing are the objects of a resource.
func (c *Cluster) existing(resource schema.GroupVersionResource) ([]runtime.Object, error) {
	kinds := map[schema.GroupVersionResource]schema.GroupVersionKind{
		servicesResource: corev1.SchemeGroupVersion.WithKind("Service"),
		slicesResource:   discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"),
		nodesResource:    corev1.SchemeGroupVersion.WithKind("Node"),
	}
	list, err := c.client.Tracker().List(resource, kinds[resource], metav1.NamespaceAll)
	if err != nil {
		return nil, err
	}
	return meta.ExtractList(list)
}

// factory is a shared informer factory whose informers end with the cluster too.
type factory struct {
	informers.SharedInformerFactory
	cluster context.Context
}

// Start starts the informers that have not started yet.
func (f *factory) Start(stop <-chan struct{}) {
	ctx, cancel := context.WithCancel(f.cluster)
	go func() {
		defer cancel()
		select {
		case <-stop:
		case <-f.cluster.Done():
		}
	}()
	f.SharedInformerFactory.StartWithContext(ctx)
}

// StartWithContext starts the informers that have not started yet.
func (f *factory) StartWithContext(ctx context.Context) {
	merged, cancel := context.WithCancel(ctx)
	context.AfterFunc(f.cluster, cancel)
	f.SharedInformerFactory.StartWithContext(merged)
}
