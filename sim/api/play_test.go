package api

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/world"
)

func churned(t *testing.T, events int, rate float64) (*Cluster, sim.Trace) {
	t.Helper()
	w := worldOf(t, scenarios.Shape{Services: 10}, 1)
	c := newLoaded(t, w.Objects())
	trace, err := w.Churn(scenarios.Churn{Rate: rate, Events: events})
	if err != nil {
		t.Fatal(err)
	}
	return c, trace
}

func watchedSlices(t *testing.T, c *Cluster) watch.Interface {
	t.Helper()
	w, err := c.Client().DiscoveryV1().EndpointSlices(metav1.NamespaceAll).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "9999"})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func trigger(t *testing.T, e watch.Event) time.Time {
	t.Helper()
	stamp := e.Object.(*discoveryv1.EndpointSlice).Annotations[corev1.EndpointsLastChangeTriggerTime]
	at, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestPlayKeepsDueTimes: while the watch is read, each change comes at its due time. While it is not read, changes
// wait; afterwards all of them come at once, with their due times.
func TestPlayKeepsDueTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const events = 1000
		c, trace := churned(t, events, 100) // every 10 ms
		defer c.Stop()
		w := watchedSlices(t, c)
		start := time.Now().Add(3 * time.Second)
		progress := 0
		played := make(chan error, 1)
		go func() {
			played <- c.Play(t.Context(), trace, PlayOptions{Start: start, Progress: func(done, total int) {
				if progress++; done != progress || total != events {
					t.Errorf("progress %d of %d, want %d of %d", done, total, progress, events)
				}
			}})
		}()
		for i := range 100 {
			at := trigger(t, <-w.ResultChan())
			if due := start.Add(trace[i].Due); !at.Equal(due) || !time.Now().Equal(due) {
				t.Fatalf("change %d due %s: stamped %s, came at %s", i, due, at, time.Now())
			}
		}
		time.Sleep(time.Minute) // nothing reads
		late := time.Now()
		for i := 100; i < events; i++ {
			if at, due := trigger(t, <-w.ResultChan()), start.Add(trace[i].Due); !at.Equal(due) {
				t.Fatalf("change %d due %s: stamped %s", i, due, at)
			}
		}
		if err := <-played; err != nil {
			t.Fatal(err)
		}
		if !time.Now().Equal(late) {
			t.Errorf("changes that were overdue took %s more", time.Since(late))
		}
		if o := trace[0].Object.(*discoveryv1.EndpointSlice); o.Annotations != nil {
			t.Error("Play wrote to an object of the trace")
		}
	})
}

func TestPlayEndsEarly(t *testing.T) {
	for name, end := range map[string]func(c *Cluster, cancel func()) error{
		"context": func(_ *Cluster, cancel func()) error { cancel(); return context.Canceled },
		"stop":    func(c *Cluster, _ func()) error { c.Stop(); return ErrStopped },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, trace := churned(t, 100, 1)
				defer c.Stop()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				played := make(chan error)
				go func() { played <- c.Play(ctx, trace, PlayOptions{}) }()
				time.Sleep(9500 * time.Millisecond)
				want := end(c, cancel)
				if err := <-played; !errors.Is(err, want) || !strings.Contains(err.Error(), "after 10 of 100 changes") {
					t.Errorf("error %v, want %v after 10 of 100", err, want)
				}
			})
		})
	}
}

// TestPlayNodes: changes of Nodes and Services are played too, without a timestamp.
func TestPlayNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := worldOf(t, scenarios.Shape{Services: 10, Nodes: 4}, 1)
		c := newLoaded(t, w.Objects())
		defer c.Stop()
		startHandlers(t, c, t.Context())
		trace, err := w.NodeLoss(scenarios.NodeLoss{Nodes: 2})
		if err != nil {
			t.Fatal(err)
		}
		more, err := w.Create(scenarios.Create{Services: 3, Rate: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, tr := range []sim.Trace{trace, more} {
			if err := c.Play(t.Context(), tr, PlayOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		f := c.Informers()
		nodes, services := f.Core().V1().Nodes().Informer().GetStore().List(), f.Core().V1().Services().Informer().GetStore().List()
		if len(nodes) != 2 || len(services) != 13 {
			t.Errorf("%d nodes and %d services in the informers, want 2 and 13", len(nodes), len(services))
		}
		for _, n := range nodes {
			if len(n.(*corev1.Node).Annotations) > 0 {
				t.Error("a node was stamped")
			}
		}
	})
}

// BenchmarkApply measures one EndpointSlice update, through the clientset's state to an informer's watch.
func BenchmarkApply(b *testing.B) {
	w, err := world.NewWorld(scenarios.Shape{Services: 1000}, 1)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := w.Create(scenarios.Create{}); err != nil {
		b.Fatal(err)
	}
	c := NewCluster(clock.RealClock{})
	defer c.Stop()
	if err := c.Load(b.Context(), w.Objects()); err != nil {
		b.Fatal(err)
	}
	startHandlers(b, c, b.Context())
	trace, err := w.Churn(scenarios.Churn{Rate: 1e6, Events: 1000})
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		if err := c.Apply(b.Context(), trace[i%len(trace)]); err != nil {
			b.Fatal(err)
		}
	}
}
