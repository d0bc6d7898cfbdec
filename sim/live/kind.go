package live

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"synclab/sim"
	"synclab/sim/capture"
)

// kind follows the objects of one kind. It is the store that a reflector keeps up to date: the reflector's goroutine
// calls all of its methods.
type kind struct {
	example  runtime.Object
	source   *cache.ListWatch
	follower *follower
	// quiet kinds deliver only differences that a proxy can see: the status of a node changes by the minute.
	quiet bool

	// Guarded by the follower's lock:
	listed  bool
	known   map[string]runtime.Object // stripped
	summary Kind
	// ended is the end of the last watch that worked; zero before the first watch, and after a list.
	ended time.Time
}

func (k *kind) reflector(client kubernetes.Interface) *cache.Reflector {
	watched := cache.ListWatch{ListWithContextFunc: k.list, WatchFuncWithContext: k.watch}
	name := fmt.Sprintf("%T", k.example)
	return cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(&watched, client), k.example, k,
		cache.ReflectorOptions{Name: name, Clock: k.follower.opts.Clock})
}

func (k *kind) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := k.source.ListWithContextFunc(ctx, options)
	k.trouble(ctx, err)
	return list, err
}

// trouble reports a failed request. A forbidden one will never succeed: without a first list, it ends Follow.
func (k *kind) trouble(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	err = fmt.Errorf("live: %T: %w", k.example, err)
	k.follower.opts.Trouble(err)
	k.follower.mu.Lock()
	defer k.follower.mu.Unlock()
	if !k.listed && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)) {
		k.follower.fail(err)
	}
}

// watch records when watches begin and end.
func (k *kind) watch(ctx context.Context, list metav1.ListOptions) (watch.Interface, error) {
	inner, err := k.source.WatchFuncWithContext(ctx, list)
	if err != nil {
		k.trouble(ctx, err)
		return nil, err
	}
	k.follower.mu.Lock()
	k.summary.Watches++
	k.follower.mu.Unlock()
	w := &notedWatch{Interface: inner, events: make(chan watch.Event), stopped: make(chan struct{})}
	go w.run(k)
	return w, nil
}

// watchEnded records the end of a watch. A watch that returned only an error, because its version is forgotten, does
// not count: the time without events began before it.
func (k *kind) watchEnded(heard bool) {
	k.follower.mu.Lock()
	defer k.follower.mu.Unlock()
	if heard || k.ended.IsZero() {
		k.ended = k.follower.opts.Clock.Now()
	}
}

// Add implements cache.ReflectorStore.
func (k *kind) Add(object any) error { return k.set(object) }

// Update implements cache.ReflectorStore.
func (k *kind) Update(object any) error { return k.set(object) }

func (k *kind) set(object any) error {
	k.follower.mu.Lock()
	defer k.follower.mu.Unlock()
	return k.failed(k.put(capture.Strip(object.(runtime.Object))))
}

// Delete implements cache.ReflectorStore.
func (k *kind) Delete(object any) error {
	k.follower.mu.Lock()
	defer k.follower.mu.Unlock()
	return k.failed(k.remove(keyOf(object.(runtime.Object)), capture.Strip(object.(runtime.Object))))
}

// Replace implements cache.ReflectorStore: it is called with each list.
func (k *kind) Replace(list []any, _ string) error {
	k.follower.mu.Lock()
	defer k.follower.mu.Unlock()
	return k.failed(k.replace(list))
}

// Resync implements cache.ReflectorStore.
func (k *kind) Resync() error { return nil }

// Transformer implements cache.TransformingStore: it drops unused fields before a list is complete.
func (k *kind) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		if o, ok := object.(runtime.Object); ok {
			return capture.Strip(o), nil
		}
		return object, nil
	}
}

func (k *kind) replace(list []any) error {
	if !k.listed {
		k.listed = true
		for _, object := range list {
			stripped := capture.Strip(object.(runtime.Object))
			k.known[keyOf(stripped)] = stripped
		}
		return k.follower.listed()
	}
	k.summary.Relists++
	if !k.ended.IsZero() {
		k.summary.Deaf += k.follower.opts.Clock.Since(k.ended)
		k.ended = time.Time{}
	}
	before := k.summary.Changes
	present := map[string]bool{}
	for _, object := range list {
		stripped := capture.Strip(object.(runtime.Object))
		present[keyOf(stripped)] = true
		if old := k.known[keyOf(stripped)]; old != nil && versionOf(old) == versionOf(stripped) {
			continue
		}
		if err := k.put(stripped); err != nil {
			return err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(k.known)) {
		if !present[key] {
			if err := k.remove(key, k.known[key]); err != nil {
				return err
			}
		}
	}
	k.summary.Found += k.summary.Changes - before
	return nil
}

// put stores an object that is new or has changed.
func (k *kind) put(object runtime.Object) error {
	key := keyOf(object)
	old := k.known[key]
	k.known[key] = object
	switch {
	case old == nil:
		return k.emit(sim.Add, object)
	case k.quiet && sameButVersion(old, object):
		k.summary.Unchanged++
		return nil
	}
	return k.emit(sim.Update, object)
}

func (k *kind) remove(key string, last runtime.Object) error {
	if k.known[key] == nil {
		return nil
	}
	delete(k.known, key)
	return k.emit(sim.Delete, last)
}

// emit delivers a change. Before the snapshot it does nothing: the snapshot will contain the change.
func (k *kind) emit(op sim.Op, object runtime.Object) error {
	f := k.follower
	if f.since.IsZero() {
		return nil
	}
	k.summary.Changes++
	now := f.opts.Clock.Now()
	change := Change{Change: sim.Change{Due: now.Sub(f.since), Op: op, Object: object}, At: now.Round(0)}
	if err := f.opts.Change(change); err != nil {
		return fmt.Errorf("live: change: %w", err)
	}
	return nil
}

// failed ends Follow with an error of a callback. The reflector would only log it.
func (k *kind) failed(err error) error {
	if err != nil {
		k.follower.fail(err)
	}
	return err
}

func keyOf(object runtime.Object) string {
	m := object.(metav1.Object)
	return m.GetNamespace() + "/" + m.GetName()
}

func versionOf(object runtime.Object) string { return object.(metav1.Object).GetResourceVersion() }

func sameButVersion(a, b runtime.Object) bool {
	x, ok := a.(*corev1.Node)
	y, both := b.(*corev1.Node)
	if !ok || !both {
		return false
	}
	same := *x
	same.ResourceVersion = y.ResourceVersion
	return equality.Semantic.DeepEqual(&same, y)
}

// notedWatch forwards events and records the end of the watch.
type notedWatch struct {
	watch.Interface
	events  chan watch.Event
	stopped chan struct{}
	once    sync.Once
}

// ResultChan implements watch.Interface.
func (w *notedWatch) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface.
func (w *notedWatch) Stop() {
	w.once.Do(func() { close(w.stopped) })
	w.Interface.Stop()
}

func (w *notedWatch) run(k *kind) {
	defer close(w.events)
	events, failed := 0, false
	defer func() { k.watchEnded(events > 0 || !failed) }() // before the reflector sees the end, and lists again
	for event := range w.Interface.ResultChan() {
		if event.Type == watch.Error {
			failed = true
		} else {
			events++
		}
		select {
		case w.events <- event:
		case <-w.stopped:
			return
		}
	}
}
