package api

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"synclab/scenarios"
	"synclab/sim"
)

// seen is the result of all handler calls, as objects: an informer that loses, duplicates or reorders an event leaves
// it different from the cluster.
type seen struct {
	mu     sync.Mutex
	errs   []string
	slices map[string]*discoveryv1.EndpointSlice
}

func (s *seen) handler() cache.ResourceEventHandler {
	key := func(o any) (string, *discoveryv1.EndpointSlice) {
		if d, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = d.Obj
		}
		x := o.(*discoveryv1.EndpointSlice)
		return x.Namespace + "/" + x.Name, x
	}
	note := func(op sim.Op, o any) {
		s.mu.Lock()
		defer s.mu.Unlock()
		k, x := key(o)
		if old, ok := s.slices[k]; ok == (op == sim.Add) {
			s.errs = append(s.errs, string(op)+" of "+k)
		} else if ok && sim.VersionOf(x) < sim.VersionOf(old) {
			s.errs = append(s.errs, k+" went back in version")
		}
		if op == sim.Delete {
			delete(s.slices, k)
		} else {
			s.slices[k] = x
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { note(sim.Add, o) },
		UpdateFunc: func(_, o any) { note(sim.Update, o) },
		DeleteFunc: func(o any) { note(sim.Delete, o) },
	}
}

func watchSlices(t *testing.T, c *Cluster) *seen {
	t.Helper()
	s := &seen{slices: map[string]*discoveryv1.EndpointSlice{}}
	if _, err := c.Informers().Discovery().V1().EndpointSlices().Informer().AddEventHandler(s.handler()); err != nil {
		t.Fatal(err)
	}
	return s
}

// check compares the result of the handlers with the state of the fake clientset.
func (s *seen) check(t *testing.T, c *Cluster) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.errs {
		t.Error("handler: ", e)
	}
	list, err := c.Client().DiscoveryV1().EndpointSlices(metav1.NamespaceAll).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]*discoveryv1.EndpointSlice{}
	for i, x := range list.Items {
		want[x.Namespace+"/"+x.Name] = &list.Items[i]
	}
	if diff := cmp.Diff(want, s.slices); diff != "" {
		t.Errorf("-in the cluster +seen by handlers:\n%s", diff)
	}
}

func newLoaded(t *testing.T, o *sim.Objects) *Cluster {
	t.Helper()
	c := NewCluster(clock.RealClock{})
	if err := c.Load(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestNothingIsLostWhileInformersStart applies changes, deletions among them,
// while the informers list and begin to watch.
func TestNothingIsLostWhileInformersStart(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			w := worldOf(t, scenarios.Shape{Services: 60}, seed)
			c := newLoaded(t, w.Objects())
			defer c.Stop()
			trace, err := w.Churn(scenarios.Churn{Rate: 1000, Events: 900, Kind: "services"})
			if err != nil {
				t.Fatal(err)
			}
			s := watchSlices(t, c)
			started := make(chan struct{})
			go func() {
				for i, ch := range trace {
					if i == len(trace)/3 {
						close(started)
					}
					if err := c.Apply(t.Context(), ch); err != nil {
						t.Error(err)
					}
				}
			}()
			<-started
			c.Informers().StartWithContext(t.Context())
			synctest.Wait()
			// If a watch began too late, the informer lists again after a pause.
			time.Sleep(time.Minute)
			synctest.Wait()
			s.check(t, c)
		})
	}
}

// TestWritesBetweenListAndWatch: the watch that starts from a list gets each kind of change after the list, once.
func TestWritesBetweenListAndWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := objectsOf(t, scenarios.Shape{Services: 3}, 1)
		c := newLoaded(t, o)
		defer c.Stop()
		client := c.Client().CoreV1().Services(metav1.NamespaceAll)
		apply(t, c, sim.Update, o.Services[0])
		list, err := client.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		apply(t, c, sim.Delete, o.Services[1])
		apply(t, c, sim.Update, o.Services[2])
		apply(t, c, sim.Add, o.Services[1])
		w, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		for i, want := range []struct {
			event watch.EventType
			name  string
		}{{watch.Deleted, o.Services[1].Name}, {watch.Modified, o.Services[2].Name}, {watch.Added, o.Services[1].Name}} {
			e := <-w.ResultChan()
			if name := e.Object.(*corev1.Service).Name; e.Type != want.event || name != want.name {
				t.Errorf("event %d: %s %s, want %s %s", i, e.Type, name, want.event, want.name)
			}
		}
		synctest.Wait()
		select {
		case e := <-w.ResultChan():
			t.Errorf("one event too many: %v", e.Type)
		default:
		}
	})
}

func apply(t *testing.T, c *Cluster, op sim.Op, s *corev1.Service) {
	t.Helper()
	if err := c.Apply(t.Context(), sim.Change{Op: op, Object: s}); err != nil {
		t.Fatal(err)
	}
}

// TestApplyWaitsForSlowWatch: writes stop at the limit while nothing reads a watch, and continue as it is read.
// client-go's fake panics at 100.
func TestApplyWaitsForSlowWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := objectsOf(t, scenarios.Shape{Services: 1}, 1)
		c := newLoaded(t, o)
		defer c.Stop()
		w, err := c.Client().CoreV1().Services(metav1.NamespaceAll).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "999"})
		if err != nil {
			t.Fatal(err)
		}
		const writes = 3 * maxBehind
		done := make(chan int, writes)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for i := range writes {
				if err := c.Apply(ctx, sim.Change{Op: sim.Update, Object: o.Services[0]}); err != nil {
					if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "Update service ns-00/svc-00000") {
						t.Error(err)
					}
					close(done)
					return
				}
				done <- i
			}
		}()
		synctest.Wait()
		if len(done) != maxBehind {
			t.Errorf("%d writes passed a watch that nothing reads, want %d", len(done), maxBehind)
		}
		last := int64(0)
		for range maxBehind {
			v := sim.VersionOf((<-w.ResultChan()).Object.(*corev1.Service))
			if v <= last {
				t.Fatalf("version %d after %d", v, last)
			}
			last = v
		}
		synctest.Wait()
		if len(done) != 2*maxBehind {
			t.Errorf("%d writes after as many were read, want %d", len(done), 2*maxBehind)
		}
		cancel()
		synctest.Wait()
		for range done { // closed: the waiting write gave up
		}
		w.Stop()
		if err := c.Apply(t.Context(), sim.Change{Op: sim.Update, Object: o.Services[0]}); err != nil {
			t.Errorf("with the slow watch gone: %v", err)
		}
	})
}

func TestOldVersionsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := objectsOf(t, scenarios.Shape{Services: 1}, 1)
		c := newLoaded(t, o)
		defer c.Stop()
		for range 3 * history {
			apply(t, c, sim.Update, o.Services[0])
		}
		client := c.Client().CoreV1().Services(metav1.NamespaceAll)
		_, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "500"})
		if !apierrors.IsResourceExpired(err) {
			t.Errorf("watch from a forgotten version: %v", err)
		}
		// No version: first the existing objects, then the events.
		w, err := client.Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		apply(t, c, sim.Update, o.Services[0])
		for _, want := range []watch.EventType{watch.Added, watch.Modified} {
			if e := <-w.ResultChan(); e.Type != want {
				t.Errorf("%s, want %s", e.Type, want)
			}
		}
	})
}

// TestClientWritesReachInformers: the fake clientset shows the same cluster.
func TestClientWritesReachInformers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := objectsOf(t, scenarios.Shape{Services: 5, Namespaces: 1}, 1)
		c := newLoaded(t, o)
		defer c.Stop()
		s := watchSlices(t, c)
		c.Informers().Start(t.Context().Done())
		client := c.Client().DiscoveryV1().EndpointSlices("ns-00")
		synctest.Wait()
		next := o.Slices[0].DeepCopy()
		next.Name = "by-hand"
		created, err := client.Create(t.Context(), next, metav1.CreateOptions{})
		if err != nil || sim.VersionOf(created) != c.Version(created) {
			t.Fatalf("create: version %q of %d, error %v", created.ResourceVersion, c.Version(created), err)
		}
		next.Endpoints = nil
		if _, err := client.Update(t.Context(), next, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		patch := []byte(`{"metadata":{"labels":{"patched":"yes"}}}`)
		if _, err := client.Patch(t.Context(), o.Slices[1].Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := client.Delete(t.Context(), o.Slices[2].Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := client.Delete(t.Context(), "no-such", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("delete of nothing: %v", err)
		}
		synctest.Wait()
		s.check(t, c)
		lister := c.Informers().Discovery().V1().EndpointSlices().Lister()
		patched, err := lister.List(labels.SelectorFromSet(labels.Set{"patched": "yes"}))
		if err != nil || len(patched) != 1 || patched[0].Name != o.Slices[1].Name {
			t.Errorf("patched slices in the informer: %v, error %v", patched, err)
		}
	})
}

func TestClusterRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := objectsOf(t, scenarios.Shape{Services: 2}, 1)
		c := newLoaded(t, o)
		if err := c.Load(t.Context(), o); !apierrors.IsAlreadyExists(errors.Unwrap(err)) || !strings.Contains(err.Error(), "load node node-0") {
			t.Errorf("the same objects twice: %v", err)
		}
		if err := c.Apply(t.Context(), sim.Change{Op: sim.Add, Object: o.Services[0]}); err == nil || !strings.Contains(err.Error(), "Add service ns-00/svc-00000: ") {
			t.Errorf("add of what exists: %v", err)
		}
		if err := c.Apply(t.Context(), sim.Change{Op: sim.Add, Object: &corev1.Pod{}}); err == nil {
			t.Error("a pod was taken")
		}
		if err := c.Apply(t.Context(), sim.Change{Op: "Replace", Object: o.Services[0]}); err == nil {
			t.Error("an unknown operation was taken")
		}
		startHandlers(t, c, t.Context())
		if err := c.Load(t.Context(), &sim.Objects{}); err == nil || !strings.Contains(err.Error(), "have started") {
			t.Errorf("load after the start: %v", err)
		}
		c.Stop()
		if err := c.Apply(t.Context(), sim.Change{Op: sim.Update, Object: o.Services[0]}); !errors.Is(err, ErrStopped) {
			t.Errorf("after Stop: %v", err)
		}
	})
}

// TestStopLeavesNothing: synctest fails if a goroutine of the cluster remains after Stop, with waiting writers and
// watches, and with several factories.
func TestStopLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := objectsOf(t, scenarios.Shape{Services: 20}, 1)
		c := newLoaded(t, o)
		startHandlers(t, c, context.Background())
		second := c.NewInformers()
		second.Core().V1().Services().Informer()
		second.Start(make(chan struct{}))
		if _, err := c.Client().CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		refused := make(chan error)
		go func() {
			for {
				if err := c.Apply(context.Background(), sim.Change{Op: sim.Update, Object: o.Nodes[0]}); err != nil {
					refused <- err
					return
				}
			}
		}()
		synctest.Wait()
		c.Stop()
		if err := <-refused; !errors.Is(err, ErrStopped) {
			t.Errorf("a waiting write: %v", err)
		}
		c.Stop() // a second call does no harm
	})
}
