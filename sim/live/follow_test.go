package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"synclab/sim"
)

func service(name, version, clusterIP string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: version, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}},
		Spec:       corev1.ServiceSpec{ClusterIP: clusterIP},
	}
}

// followed is a running Follow.
type followed struct {
	snapshot chan *sim.Objects
	changes  chan Change
	stop     func() (Summary, error)
}

func follow(t *testing.T, client *fake.Clientset) followed {
	t.Helper()
	f := followed{snapshot: make(chan *sim.Objects, 1), changes: make(chan Change, 100)}
	ctx, cancel := context.WithCancel(t.Context())
	type result struct {
		summary Summary
		err     error
	}
	done := make(chan result, 1)
	go func() {
		summary, err := Follow(ctx, client, Options{
			Snapshot: func(o *sim.Objects) error { f.snapshot <- o; return nil },
			Change:   func(c Change) error { f.changes <- c; return nil },
		})
		done <- result{summary, err}
	}()
	ended := sync.OnceValue(func() result { cancel(); return <-done })
	f.stop = func() (Summary, error) { r := ended(); return r.summary, r.err }
	t.Cleanup(func() { _, _ = f.stop() })
	return f
}

func (f *followed) next() string {
	c := <-f.changes
	return fmt.Sprintf("%s %T %s", c.Op, c.Object, c.Object.(metav1.Object).GetName())
}

func TestFollow(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a-1"}}
	client := cluster(node, slice, service("b", "1", ""), service("a", "2", ""))
	f := follow(t, client.Clientset)
	snapshot := <-f.snapshot
	if len(snapshot.Nodes) != 1 || len(snapshot.Slices) != 1 || len(snapshot.Services) != 2 || snapshot.Services[0].Name != "a" {
		t.Fatalf("the snapshot is %+v", snapshot)
	}
	if snapshot.Services[0].ManagedFields != nil {
		t.Error("managed fields were kept")
	}
	client.await("services", "endpointslices", "nodes")

	ctx := t.Context()
	services := client.CoreV1().Services("ns")
	begin := time.Now()
	// A node's heartbeat is not delivered as a change; its next change is.
	beat := node.DeepCopy()
	beat.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}}
	moved := beat.DeepCopy()
	moved.Labels = map[string]string{corev1.LabelTopologyZone: "z"}
	for _, step := range []func() error{
		func() error {
			_, err := services.Create(ctx, service("c", "3", ""), metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := services.Update(ctx, service("a", "4", ""), metav1.UpdateOptions{})
			return err
		},
		func() error { return services.Delete(ctx, "b", metav1.DeleteOptions{}) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"Add *v1.Service c", "Update *v1.Service a", "Delete *v1.Service b"} {
		if got := f.next(); got != want {
			t.Errorf("change %s; want %s", got, want)
		}
	}
	for _, n := range []*corev1.Node{beat, moved} {
		if _, err := client.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c := <-f.changes
	if node, ok := c.Object.(*corev1.Node); !ok || c.Op != sim.Update || node.Labels[corev1.LabelTopologyZone] != "z" {
		t.Errorf("after the node's changes: %+v", c)
	}
	if c.At.Before(begin.Round(0)) || c.Due <= 0 {
		t.Errorf("the change came at %v, %v after the snapshot", c.At, c.Due)
	}
	summary, err := f.stop()
	want := Summary{
		Services:       Kind{Objects: 2, Changes: 3, Watches: 1},
		EndpointSlices: Kind{Objects: 1, Watches: 1},
		Nodes:          Kind{Objects: 1, Changes: 1, Unchanged: 1, Watches: 1},
	}
	if err != nil || summary != want || summary.Lost() {
		t.Errorf("summary %+v, %v; want %+v", summary, err, want)
	}
}

// A client that follows a cluster in use must not be able to change it.
func TestFollowOnlyReads(t *testing.T) {
	client := cluster(service("a", "1", ""))
	f := follow(t, client.Clientset)
	<-f.snapshot
	client.await("services", "endpointslices", "nodes")
	if _, err := f.stop(); err != nil {
		t.Fatal(err)
	}
	for _, action := range client.Actions() {
		if verb := action.GetVerb(); verb != "list" && verb != "watch" {
			t.Errorf("%s %s", verb, action.GetResource().Resource)
		}
	}
}

// A watch that ends is resumed where it ended. If the server has forgotten that version, a list follows, and its
// differences are changes.
func TestFollowRelists(t *testing.T) {
	client := cluster(service("gone", "1", ""), service("same", "2", ""), service("changed", "3", "10.0.0.1"))
	f := follow(t, client.Clientset)
	<-f.snapshot
	services := client.await("services")[0]
	if _, err := client.CoreV1().Services("ns").Create(t.Context(), service("first", "4", ""), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.next()
	services.Stop() // an orderly end, as after some minutes; one without any event counts as a failure
	services = client.await("services")[0]

	// Writes made now reach no watch.
	resource := corev1.SchemeGroupVersion.WithResource("services")
	tracker := client.Tracker()
	client.mute("services")
	for _, err := range []error{
		tracker.Delete(resource, "ns", "gone"),
		tracker.Update(resource, service("changed", "5", "10.0.0.2"), "ns"),
		tracker.Create(resource, service("new", "6", ""), "ns"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	expired := apierrors.NewResourceExpired("too old").ErrStatus
	services.Error(&expired)
	var got []string
	for range 3 {
		got = append(got, f.next())
	}
	slices.Sort(got)
	if want := []string{"Add *v1.Service new", "Delete *v1.Service gone", "Update *v1.Service changed"}; !slices.Equal(got, want) {
		t.Errorf("changes %q; want %q", got, want)
	}
	client.await("services")
	summary, err := f.stop()
	s := summary.Services
	if err != nil || s.Relists != 1 || s.Found != 3 || s.Changes != 4 || s.Watches != 3 || s.Deaf <= 0 || !summary.Lost() {
		t.Errorf("summary %+v, %v", s, err)
	}
}

// An error of a callback ends Follow and is Follow's error.
func TestFollowEnds(t *testing.T) {
	broken := errors.New("the worker is gone")
	client := cluster(service("a", "1", ""))
	_, err := Follow(t.Context(), client.Clientset, Options{
		Snapshot: func(*sim.Objects) error { return broken },
		Change:   func(Change) error { return nil },
	})
	if !errors.Is(err, broken) {
		t.Errorf("error %v; want %v", err, broken)
	}
	client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no"))
	})
	_, err = Follow(t.Context(), client.Clientset, Options{
		Snapshot: func(*sim.Objects) error { return nil },
		Change:   func(Change) error { return nil },
	})
	if !apierrors.IsForbidden(err) {
		t.Errorf("error %v; want that listing is forbidden", err)
	}
	if _, err := Follow(t.Context(), client.Clientset, Options{}); err == nil {
		t.Error("Follow accepts options without callbacks")
	}
}

// testCluster is a fake clientset whose watches the test can end.
type testCluster struct {
	*fake.Clientset
	began map[string]chan *watch.RaceFreeFakeWatcher
	mu    sync.Mutex
	muted map[string]bool
}

func cluster(objects ...runtime.Object) *testCluster {
	c := &testCluster{Clientset: fake.NewClientset(objects...), began: map[string]chan *watch.RaceFreeFakeWatcher{}, muted: map[string]bool{}}
	for _, resource := range []string{"services", "endpointslices", "nodes"} {
		began := make(chan *watch.RaceFreeFakeWatcher, 10)
		c.began[resource] = began
		c.PrependWatchReactor(resource, func(action clienttesting.Action) (bool, watch.Interface, error) {
			outer := watch.NewRaceFreeFake()
			inner, err := c.Tracker().Watch(action.GetResource(), action.GetNamespace())
			if err != nil {
				return true, nil, err
			}
			go func() {
				for event := range inner.ResultChan() {
					c.mu.Lock()
					muted := c.muted[resource]
					c.mu.Unlock()
					if !muted && !outer.IsStopped() {
						outer.Action(event.Type, event.Object)
					}
				}
			}()
			began <- outer
			return true, outer, nil
		})
	}
	return c
}

// await returns the next watch of each resource.
func (c *testCluster) await(resources ...string) []*watch.RaceFreeFakeWatcher {
	var watches []*watch.RaceFreeFakeWatcher
	for _, resource := range resources {
		watches = append(watches, <-c.began[resource])
	}
	return watches
}

// mute makes events miss the watches.
func (c *testCluster) mute(resource string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.muted[resource] = true
}
