package front

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"synclab/scenarios"
	"synclab/sim"
)

// updated, added and removed are changes of Services of namespace one.
func updated(name string) sim.Change {
	return sim.Change{Op: sim.Update, Object: service("one", name, nil)}
}

func added(name string) sim.Change {
	return sim.Change{Op: sim.Add, Object: service("one", name, nil)}
}

func removed(name string) sim.Change {
	return sim.Change{Op: sim.Delete, Object: service("one", name, nil)}
}

func (l *lab) version(t *testing.T) string {
	t.Helper()
	return get[corev1.ServiceList](t, l, "/api/v1/services", 200).ResourceVersion
}

func TestRepeatedEvents(t *testing.T) {
	l := labOf(t, fewServices(), Options{})
	w := l.watchServices(t, fromNow)
	l.front.Repeat(3)
	l.change(t, added("new"), updated("a"), removed("b"), updated("c"))
	expect(t, tell(t, w, 7), "ADDED one/new, MODIFIED one/new, MODIFIED one/a, MODIFIED one/a, DELETED one/b, DELETED one/b, MODIFIED one/c")
}

func TestSwappedEvents(t *testing.T) {
	l := labOf(t, fewServices(), Options{})
	w := l.watchServices(t, fromNow)
	before := l.version(t)
	l.front.Swap(2)
	l.change(t, updated("a"), updated("a"), removed("b"), updated("c"), added("new"))
	expect(t, tell(t, w, 5), "DELETED one/b, MODIFIED one/a, MODIFIED one/a, ADDED one/new, MODIFIED one/c")
	// A client that got the deletion and nothing after it gets all the rest.
	deleted := number(t, before) + 3
	next := l.watchServices(t, metav1.ListOptions{ResourceVersion: strconv.FormatInt(deleted, 10)})
	expect(t, tell(t, next, 5), "DELETED one/b, MODIFIED one/a, MODIFIED one/a, ADDED one/new, MODIFIED one/c")

	l.front.Swap(1)
	l.change(t, updated("a"))
	if l.front.Waits() == 0 {
		t.Error("nothing waits")
	}
	l.front.Settle(l.front.Waits())
	expect(t, tell(t, w, 1), "MODIFIED one/a")
	l.front.Swap(1)
	l.change(t, updated("c"))
	l.front.Heal()
	expect(t, tell(t, w, 1), "MODIFIED one/c")
}

// A selection without an object gets the events that were swapped with that object's events.
func TestSwappedWithWhatIsNotSelected(t *testing.T) {
	l := labOf(t, fewServices(), Options{})
	o := fromNow
	o.FieldSelector = "metadata.name!=b"
	w := l.watchServices(t, o)
	l.front.Swap(1)
	l.change(t, updated("a"), updated("b"), updated("c"))
	expect(t, tell(t, w, 2), "MODIFIED one/a, MODIFIED one/c")
}

// TestStalledWatch: lists are answered. A watch gets nothing until the stall ends, and then all events in order.
func TestStalledWatch(t *testing.T) {
	for name, stall := range map[string]func(f *Front, on bool){
		"stall":        func(f *Front, on bool) { f.Stall(on) },
		"slices-first": func(f *Front, on bool) { f.HoldServices(on) },
	} {
		t.Run(name, func(t *testing.T) {
			l := labOf(t, fewServices(), Options{})
			w := l.watchServices(t, fromNow)
			ofSlices, err := l.client(t, runtime.ContentTypeJSON).DiscoveryV1().EndpointSlices("").Watch(t.Context(), fromNow)
			if err != nil {
				t.Fatal(err)
			}
			defer ofSlices.Stop()
			stall(l.front, true)
			var over atomic.Bool
			events := make(chan watch.Event, 10)
			go func() {
				for e := range w.ResultChan() {
					if !over.Load() {
						t.Errorf("%s while watches are held", inWords(t, e))
					}
					events <- e
				}
			}()
			l.change(t, added("new"), updated("a"), removed("new"))
			if name == "slices-first" {
				slice := fewServices().Slices[0]
				l.change(t, sim.Change{Op: sim.Update, Object: slice})
				expect(t, tell(t, ofSlices, 1), "MODIFIED three/a-1")
			}
			for range 20 { // round trips, in which the watch could get events
				get[corev1.Service](t, l, "/api/v1/namespaces/one/services/a", 200)
			}
			// Streaming lists are lists, too.
			initial := l.watchServices(t, metav1.ListOptions{SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true, FieldSelector: "metadata.name=a"})
			expect(t, tell(t, initial, 3), "ADDED one/a, ADDED two/a, BOOKMARK initial end")
			over.Store(true)
			stall(l.front, false)
			for _, want := range []string{"ADDED one/new", "MODIFIED one/a", "DELETED one/new"} {
				expect(t, inWords(t, <-events), want)
			}
		})
	}
}

// A bookmark would give a stalled watch a version whose events it does not have.
func TestNoBookmarksWhileStalled(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	l := labOf(t, fewServices(), Options{Clock: clk, BookmarkEvery: time.Minute})
	o := fromNow
	o.AllowWatchBookmarks = true
	w := l.watchServices(t, o)
	for !clk.HasWaiters() {
		time.Sleep(time.Millisecond)
	}
	for _, hold := range []func(){func() { l.front.Stall(true) }, func() { l.front.Swap(1) }} {
		hold()
		l.change(t, updated("a"))
		now := number(t, l.version(t))
		for range 10 {
			clk.Step(time.Minute)
			get[corev1.Service](t, l, "/api/v1/namespaces/one/services/a", 200)
		}
		l.front.Heal()
		for { // bookmarks from before the stall may still come
			e := <-w.ResultChan()
			if e.Type != watch.Bookmark {
				break
			}
			if v := number(t, e.Object.(*corev1.Service).ResourceVersion); v >= now {
				t.Fatalf("a bookmark of version %d before the event of version %d", v, now)
			}
		}
	}
}

func TestCutWatch(t *testing.T) {
	l := labOf(t, fewServices(), Options{})
	for _, accept := range []string{runtime.ContentTypeJSON, "application/vnd.kubernetes.protobuf;stream=watch"} {
		request, err := http.NewRequestWithContext(t.Context(), "GET", l.url+"/api/v1/services?watch=1&fieldSelector=metadata.name%3Da", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Accept", accept)
		response, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		l.front.CutWatches()
		data, err := io.ReadAll(response.Body)
		response.Body.Close()
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: the stream ended with %v, want an unexpected end", accept, err)
		}
		if accept == runtime.ContentTypeJSON && (len(data) == 0 || strings.HasSuffix(string(data), "\n")) {
			t.Errorf("the stream did not end within an event: %q", data)
		}
	}
}

func TestGap(t *testing.T) {
	for _, forget := range []bool{true, false} {
		l := labOf(t, fewServices(), Options{})
		w := l.watchServices(t, fromNow)
		version := l.version(t)
		l.front.BeginGap()
		expect(t, tell(t, w, 1), "end")
		back := l.watchServices(t, metav1.ListOptions{ResourceVersion: version})
		l.change(t, removed("a"), updated("b"))
		now := l.version(t)
		recent := l.watchServices(t, metav1.ListOptions{ResourceVersion: now})
		l.front.EndGap(forget)
		if forget {
			expect(t, tell(t, back, 2), "ERROR 410 Expired, end")
		} else {
			expect(t, tell(t, back, 2), "DELETED one/a, MODIFIED one/b")
		}
		l.change(t, updated("c"))
		expect(t, tell(t, recent, 1), "MODIFIED one/c")
	}
}

// TestCloseWhileHeld: Close must not wait for held events.
func TestCloseWhileHeld(t *testing.T) {
	for _, hold := range []func(*Front){func(f *Front) { f.Stall(true) }, (*Front).BeginGap} {
		l := labOf(t, fewServices(), Options{})
		hold(l.front)
		w := l.watchServices(t, fromNow)
		l.change(t, updated("a"))
		l.front.Close()
		expect(t, tell(t, w, 1), "end")
	}
}

// serve makes the front answer at a listener that can be down, until the test ends.
func (l *lab) serve(t *testing.T) *Listener {
	t.Helper()
	listener, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- l.front.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	l.url = "http://" + listener.Addr().String()
	return listener
}

func TestListenerDown(t *testing.T) {
	l := labOf(t, fewServices(), Options{})
	listener := l.serve(t)
	w := l.watchServices(t, fromNow)
	for range 3 {
		if err := listener.Down(); err != nil {
			t.Fatal(err)
		}
		if err := listener.Down(); err != nil { // twice is once
			t.Fatal(err)
		}
		expect(t, tell(t, w, 1), "end")
		for range 100 {
			if c, err := net.Dial("tcp", listener.Addr().String()); err == nil {
				t.Fatalf("connected from %s while the listener is down", c.LocalAddr())
			}
		}
		if err := errors.Join(listener.Up(), listener.Up()); err != nil {
			t.Fatal(err)
		}
		w = l.watchServices(t, fromNow)
		l.change(t, updated("a"))
		expect(t, tell(t, w, 1), "MODIFIED one/a")
	}
	// A server can stop even if its listener is down: the test's end does that.
	if err := listener.Down(); err != nil {
		t.Fatal(err)
	}
}

// heard records the calls of an informer's handlers.
type heard struct {
	mu    sync.Mutex
	words []string
	more  chan struct{}
}

func (h *heard) note(what string, o any) {
	if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		what, o = "tombstone", tombstone.Obj
	}
	m := o.(metav1.Object)
	h.mu.Lock()
	h.words = append(h.words, what+" "+m.GetNamespace()+"/"+m.GetName())
	h.mu.Unlock()
	select {
	case h.more <- struct{}{}:
	default:
	}
}

// await waits until a call was recorded.
func (h *heard) await(t *testing.T, word string) {
	t.Helper()
	for {
		h.mu.Lock()
		found := slices.Contains(h.words, word)
		words := strings.Join(h.words, ", ")
		h.mu.Unlock()
		if found {
			return
		}
		select {
		case <-h.more:
		case <-time.After(20 * time.Second):
			t.Fatalf("handlers were never called with %q, but with %s", word, words)
		}
	}
}

// follow starts an informer of Services.
func (l *lab) follow(t *testing.T, contentType string) (cache.SharedIndexInformer, *heard) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactory(l.client(t, contentType), 0)
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	informer := factory.Core().V1().Services().Informer()
	h := &heard{more: make(chan struct{}, 1)}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { h.note("add", o) }, UpdateFunc: func(_, o any) { h.note("update", o) }, DeleteFunc: func(o any) { h.note("delete", o) },
	}); err != nil {
		t.Fatal(err)
	}
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("never synced")
	}
	return informer, h
}

// TestInformersHearOfDeletionsByRelisting: for all ways to list.
func TestInformersHearOfDeletionsByRelisting(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	for _, streaming := range []bool{true, false} {
		clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, streaming)
		l := labOf(t, fewServices(), Options{})
		_, h := l.follow(t, runtime.ContentTypeProtobuf)
		l.change(t, updated("c"))
		h.await(t, "update one/c") // a watch that got events is resumed where it was
		l.front.BeginGap()
		l.change(t, removed("a"), updated("b"), added("new"))
		l.front.EndGap(true)
		for _, want := range []string{"tombstone one/a", "update one/b", "add one/new"} {
			h.await(t, want)
		}
	}
}

// TestInformersThroughDisturbances: each informer ends with exactly the cluster's objects, for all ways to list and
// encode.
func TestInformersThroughDisturbances(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		for _, streaming := range []bool{true, false} {
			t.Run(strings.TrimPrefix(contentType, "application/")+map[bool]string{true: "/watchList", false: "/list"}[streaming], func(t *testing.T) {
				clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, streaming)
				l := newLab(t, scenarios.Shape{Services: 40}, Options{BookmarkEvery: time.Millisecond})
				listener := l.serve(t)
				informer, h := l.follow(t, contentType)
				f := l.front
				for _, disturb := range []func(){
					f.DropWatches, f.CutWatches, func() { f.Stall(true) }, func() { f.Stall(false) },
					func() { f.Repeat(20); f.Swap(20) }, f.CutWatches, f.DropWatches, func() { f.HoldServices(true) }, f.CutWatches,
					func() { f.Swap(50) }, f.Heal, f.BeginGap, func() { f.EndGap(true) }, func() { f.Swap(30) }, f.BeginGap, func() { f.EndGap(false) },
					func() { must(t, listener.Down()) }, func() { must(t, listener.Up()) }, f.Forget, f.CutWatches, f.Heal,
				} {
					disturb()
					trace, err := l.world.Churn(scenarios.Churn{Rate: 1e6, Events: 20, Kind: "services"})
					if err != nil {
						t.Fatal(err)
					}
					l.change(t, trace...)
				}
				want := contents(t, l.world.Objects().Services)
				deadline := time.After(40 * time.Second)
				for {
					got := contents(t, objectsOf(informer))
					if cmp.Equal(got, want) {
						return
					}
					select {
					case <-h.more:
					case <-deadline:
						t.Fatal(cmp.Diff(want, got))
					}
				}
			})
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
