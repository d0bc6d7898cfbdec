package api

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"synclab/scenarios"
	"synclab/sim"
)

// listener records the calls of the informers' handlers.
type listener struct {
	informers []cache.SharedIndexInformer
	mu        sync.Mutex
	heard     []string
}

// listen starts informers and waits until they have everything.
func listen(t *testing.T, c *Cluster) *listener {
	t.Helper()
	f := c.NewInformers()
	l := &listener{informers: []cache.SharedIndexInformer{
		f.Core().V1().Services().Informer(), f.Discovery().V1().EndpointSlices().Informer(), f.Core().V1().Nodes().Informer(),
	}}
	note := func(what string, o any) {
		if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			what, o = "tombstone", tombstone.Obj
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.heard = append(l.heard, what+" "+o.(metav1.Object).GetName())
	}
	for _, informer := range l.informers {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { note("add", o) },
			UpdateFunc: func(_, o any) { note("update", o) },
			DeleteFunc: func(o any) { note("delete", o) },
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	f.Start(t.Context().Done())
	synctest.Wait()
	l.take()
	return l
}

// take returns the calls since the last take.
func (l *listener) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.heard = nil }()
	return strings.Join(l.heard, ", ")
}

// check compares the objects of the informers with those of the cluster.
func (l *listener) check(t *testing.T, c *Cluster) {
	t.Helper()
	held := map[string]runtime.Object{}
	for _, informer := range l.informers {
		for _, o := range informer.GetStore().List() {
			held[sim.KindAndName(o.(runtime.Object))] = o.(runtime.Object)
		}
	}
	has := map[string]runtime.Object{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for resource := range c.journals {
		existing, err := c.existing(resource)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range existing {
			has[sim.KindAndName(o)] = o
		}
	}
	if diff := cmp.Diff(has, held); diff != "" {
		t.Errorf("-in the cluster +in the informers:\n%s", diff)
	}
}

// The changes of these tests are few and made by hand.
func aService(name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1"}}
}

func aSlice(name string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, AddressType: discoveryv1.AddressTypeIPv4}
}

// write makes changes of Services: "+a" adds, "=a" updates, "-a" deletes. A capital letter is a slice.
func write(t *testing.T, c *Cluster, words ...string) {
	t.Helper()
	ops := map[byte]sim.Op{'+': sim.Add, '=': sim.Update, '-': sim.Delete}
	for _, word := range words {
		ch := sim.Change{Op: ops[word[0]], Object: aService(word[1:])}
		if word[1:] != strings.ToLower(word[1:]) {
			ch.Object = aSlice(word[1:])
		}
		if err := c.Apply(context.Background(), ch); err != nil {
			t.Fatal(err)
		}
	}
}

// disturbed runs a test with a cluster that has the Services a and b and the slice S, and a listener.
func disturbed(t *testing.T, test func(t *testing.T, c *Cluster, hears func(want string))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newLoaded(t, &sim.Objects{Services: []*corev1.Service{aService("a"), aService("b")}, Slices: []*discoveryv1.EndpointSlice{aSlice("S")}})
		defer c.Stop()
		l := listen(t, c)
		test(t, c, func(want string) {
			t.Helper()
			synctest.Wait()
			if got := l.take(); got != want {
				t.Errorf("handlers were called with %q, want %q", got, want)
			}
		})
		c.Heal()
		time.Sleep(time.Minute) // of virtual time: reflectors back off
		synctest.Wait()
		l.check(t, c)
	})
}

func TestStalledWatchesTellAllAfterwards(t *testing.T) {
	disturbed(t, func(t *testing.T, c *Cluster, hears func(string)) {
		c.Stall(true)
		write(t, c, "=a", "+c", "-a")
		hears("")
		list, err := c.Client().CoreV1().Services("ns").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 2 {
			t.Errorf("a list during the stall: %d Services, %v; want b and c", len(list.Items), err)
		}
		c.Stall(false)
		synctest.Wait()
		write(t, c, "=c")
		hears("update a, add c, delete a, update c")
	})
}

// Held watches do not block writes, however many events are held.
func TestStalledWatchesHoldNoWrites(t *testing.T) {
	disturbed(t, func(t *testing.T, c *Cluster, hears func(string)) {
		c.Stall(true)
		for range 3 * history {
			write(t, c, "=a")
		}
		hears("")
		c.Stall(false)
		hears(strings.TrimPrefix(strings.Repeat(", update a", 3*history), ", "))
	})
}

func TestSlicesFirst(t *testing.T) {
	disturbed(t, func(t *testing.T, c *Cluster, hears func(string)) {
		c.HoldServices(true)
		write(t, c, "+c", "+C", "=S", "-c")
		hears("add C, update S")
		c.HoldServices(false)
		hears("add c, delete c")
	})
}

func TestRepeatedEvents(t *testing.T) {
	disturbed(t, func(t *testing.T, c *Cluster, hears func(string)) {
		c.Repeat(3)
		write(t, c, "+c", "=a", "-b", "=c")
		hears("add c, update c, update a, update a, delete b, delete b, update c")
	})
}

func TestSwappedEvents(t *testing.T) {
	disturbed(t, func(t *testing.T, c *Cluster, hears func(string)) {
		c.Swap(2)
		write(t, c, "=a")
		hears("") // it waits for an event of another object
		write(t, c, "=a", "=S", "-b")
		hears("delete b, update a, update a")
		if c.Waits() == 0 {
			t.Error("nothing waits, want the second swap")
		}
		c.Settle(c.Waits())
		hears("update S")
		write(t, c, "=a", "+c")
		hears("update a, add c")
	})
}

func TestHealTellsWhatWaits(t *testing.T) {
	disturbed(t, func(t *testing.T, c *Cluster, hears func(string)) {
		c.Swap(5)
		c.Repeat(1)
		write(t, c, "=a", "=a")
		hears("")
		c.Heal()
		hears("update a, update a, update a")
		write(t, c, "=a", "=b")
		hears("update a, update b")
	})
}

// A watch that ends between two swapped events has a version that hides the older one.
func TestNothingIsLostBetweenSwappedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newLoaded(t, &sim.Objects{Services: []*corev1.Service{aService("a"), aService("b")}})
		defer c.Stop()
		services := c.Client().CoreV1().Services("ns")
		w, err := services.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
		if err != nil {
			t.Fatal(err)
		}
		c.Swap(1)
		write(t, c, "=b", "=b", "=a", "-b")
		first := (<-w.ResultChan()).Object.(*corev1.Service)
		w.Stop()
		if first.Name != "a" {
			t.Fatalf("first comes %s, want a", first.Name)
		}
		w, err = services.Watch(t.Context(), metav1.ListOptions{ResourceVersion: first.ResourceVersion})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		var got []string
		for range 4 {
			e := <-w.ResultChan()
			got = append(got, fmt.Sprint(e.Type, " ", e.Object.(*corev1.Service).Name))
		}
		if want := []string{"MODIFIED a", "MODIFIED b", "MODIFIED b", "DELETED b"}; !slices.Equal(got, want) {
			t.Errorf("the next watch delivers %v, want %v", got, want)
		}
	})
}

func TestDroppedWatchesGoOn(t *testing.T) {
	disturbed(t, func(t *testing.T, c *Cluster, hears func(string)) {
		time.Sleep(2 * time.Second) // a shorter watch lets reflectors list again
		c.DropWatches()
		write(t, c, "-a", "=b", "=S")
		synctest.Wait()
		write(t, c, "+a")
		synctest.Wait()
	})
}

// TestRelist: an informer that missed a deletion gets a tombstone.
func TestRelist(t *testing.T) {
	for _, early := range []bool{true, false} {
		t.Run(fmt.Sprintf("early=%v", early), func(t *testing.T) {
			disturbed(t, func(t *testing.T, c *Cluster, hears func(string)) {
				if !early { // else the watch that ends was so short that the reflector lists at once
					time.Sleep(2 * time.Second)
				}
				c.BeginGap()
				write(t, c, "-a", "=b", "+c", "-S")
				hears("")
				if early {
					time.Sleep(time.Minute)
				}
				c.EndGap(true)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		c := newLoaded(t, &sim.Objects{Services: []*corev1.Service{aService("a"), aService("b")}, Slices: []*discoveryv1.EndpointSlice{aSlice("S")}})
		defer c.Stop()
		l := listen(t, c)
		time.Sleep(2 * time.Second)
		c.BeginGap()
		write(t, c, "-a", "=b", "+c", "-S")
		c.EndGap(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		heard := strings.Split(l.take(), ", ")
		for _, want := range []string{"tombstone a", "update b", "add c", "tombstone S"} {
			if !slices.Contains(heard, want) {
				t.Errorf("handlers were called with %v, want %q among it", heard, want)
			}
		}
		if slices.Contains(heard, "delete a") {
			t.Error("the deletion was not missed")
		}
		l.check(t, c)
	})
}

// Watches miss nothing in an outage whose events are not forgotten.
func TestGapWithoutForgetting(t *testing.T) {
	disturbed(t, func(t *testing.T, c *Cluster, hears func(string)) {
		time.Sleep(2 * time.Second)
		c.BeginGap()
		write(t, c, "-a", "=b", "+c")
		hears("")
		c.EndGap(false)
		time.Sleep(time.Minute)
		hears("delete a, update b, add c")
	})
}

func TestForgottenWhileStalled(t *testing.T) {
	disturbed(t, func(t *testing.T, c *Cluster, hears func(string)) {
		time.Sleep(2 * time.Second)
		c.Stall(true)
		write(t, c, "-a", "+c")
		hears("")
		c.Forget()
		hears("")
		c.Stall(false)
		time.Sleep(time.Minute)
		synctest.Wait()
	})
}

// TestStopWhileHeld: Stop must not wait for held events.
func TestStopWhileHeld(t *testing.T) {
	for _, hold := range []func(*Cluster){func(c *Cluster) { c.Stall(true) }, (*Cluster).BeginGap} {
		synctest.Test(t, func(t *testing.T) {
			c := newLoaded(t, &sim.Objects{Services: []*corev1.Service{aService("a")}})
			listen(t, c)
			hold(c)
			write(t, c, "=a", "=a")
			synctest.Wait()
			c.Stop()
		})
	}
}

// TestInformersEndRightWhateverHappens begins and ends disturbances at random while the cluster changes.
func TestInformersEndRightWhateverHappens(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			w := worldOf(t, scenarios.Shape{Services: 30}, seed)
			c := newLoaded(t, w.Objects())
			defer c.Stop()
			early := listen(t, c)
			random := rand.New(rand.NewPCG(seed, 1))
			begin := []func(){
				func() { c.Stall(true) }, func() { c.Stall(false) }, func() { c.HoldServices(true) }, func() { c.HoldServices(false) },
				func() { c.Repeat(5) }, func() { c.Swap(5) }, func() { c.Settle(c.Waits()) }, c.DropWatches, c.Forget,
				c.BeginGap, func() { c.EndGap(true) }, func() { c.EndGap(false) }, c.Heal,
			}
			var playing sync.WaitGroup
			playing.Go(func() {
				for range 200 {
					begin[random.IntN(len(begin))]()
					time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
				}
			})
			trace, err := w.Churn(scenarios.Churn{Rate: 10, Events: 2000, Kind: "mixed"})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Play(t.Context(), trace, PlayOptions{}); err != nil {
				t.Fatal(err)
			}
			playing.Wait()
			c.Heal()
			late := listen(t, c)
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			early.check(t, c)
			late.check(t, c)
		})
	}
}
