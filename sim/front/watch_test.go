package front

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"synclab/scenarios"
	"synclab/sim"
)

// watchServices opens a watch that ends with the test.
func (l *lab) watchServices(t *testing.T, options metav1.ListOptions) watch.Interface {
	t.Helper()
	w, err := l.client(t, runtime.ContentTypeProtobuf).CoreV1().Services("").Watch(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

// tell describes the next n events of a watch in words.
func tell(t *testing.T, w watch.Interface, n int) string {
	t.Helper()
	var all []string
	for range n {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				return strings.Join(append(all, "end"), ", ")
			}
			all = append(all, inWords(t, e))
		case <-time.After(20 * time.Second):
			t.Fatalf("after %q no event came", all)
		}
	}
	return strings.Join(all, ", ")
}

func inWords(t *testing.T, e watch.Event) string {
	t.Helper()
	if e.Type == watch.Error {
		status := e.Object.(*metav1.Status)
		return fmt.Sprintf("%s %d %s", e.Type, status.Code, status.Reason)
	}
	m, err := meta.Accessor(e.Object)
	if err != nil {
		t.Fatal(err)
	}
	words := fmt.Sprintf("%s %s", e.Type, strings.TrimPrefix(m.GetNamespace()+"/"+m.GetName(), "/"))
	if m.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
		words += "initial end"
	}
	return words
}

func expect(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// labelled is a change that gives a Service of namespace one a label app.
func labelled(name, app string) sim.Change {
	return sim.Change{Op: sim.Update, Object: service("one", name, map[string]string{"app": app})}
}

func TestWatchBeginsWhereItIsAskedTo(t *testing.T) {
	l := labOf(t, fewServices(), Options{})
	before := get[corev1.ServiceList](t, l, "/api/v1/services", 200).ResourceVersion
	l.change(t, labelled("a", "x"), sim.Change{Op: sim.Delete, Object: service("one", "b", nil)})
	now := get[corev1.ServiceList](t, l, "/api/v1/services", 200).ResourceVersion
	const present = "ADDED one/a, ADDED one/c, ADDED two/a, ADDED two/b, ADDED two/c"
	for _, c := range []struct {
		options metav1.ListOptions
		want    string
	}{
		{metav1.ListOptions{ResourceVersion: before}, "MODIFIED one/a, DELETED one/b, ADDED one/new"},
		{metav1.ListOptions{ResourceVersion: now}, "ADDED one/new"},
		{metav1.ListOptions{ResourceVersion: "0"}, present + ", ADDED one/new"},
		{metav1.ListOptions{}, present + ", ADDED one/new"},
		{
			metav1.ListOptions{SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true},
			present + ", BOOKMARK initial end, ADDED one/new",
		},
		{
			metav1.ListOptions{SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, ResourceVersion: before, AllowWatchBookmarks: true},
			present + ", BOOKMARK initial end, ADDED one/new",
		},
		{metav1.ListOptions{SendInitialEvents: ptr.To(false), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}, "ADDED one/new"},
	} {
		w := l.watchServices(t, c.options)
		// The watch from now on has begun, because its header has come.
		l.change(t, sim.Change{Op: sim.Add, Object: service("one", "new", nil)})
		expect(t, tell(t, w, strings.Count(c.want, ",")+1), c.want)
		w.Stop()
		l.change(t, sim.Change{Op: sim.Delete, Object: service("one", "new", nil)})
	}
}

// TestWatchFromAVersionToCome: events up to that version are not delivered.
func TestWatchFromAVersionToCome(t *testing.T) {
	l := labOf(t, fewServices(), Options{})
	now := number(t, get[corev1.ServiceList](t, l, "/api/v1/services", 200).ResourceVersion)
	w := l.watchServices(t, metav1.ListOptions{ResourceVersion: strconv.FormatInt(now+2, 10)})
	l.change(t, labelled("a", "1"), labelled("b", "2"), labelled("c", "3"))
	expect(t, tell(t, w, 1), "MODIFIED one/c")
}

func TestWatchOfASelection(t *testing.T) {
	l := labOf(t, fewServices(), Options{})
	one, err := l.client(t, runtime.ContentTypeJSON).CoreV1().Services("one").Watch(t.Context(), metav1.ListOptions{LabelSelector: "app in (x,y)"})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Stop()
	inTwo, err := l.client(t, runtime.ContentTypeProtobuf).CoreV1().Services("two").Watch(t.Context(), fromNow)
	if err != nil {
		t.Fatal(err)
	}
	defer inTwo.Stop()
	byField := l.watchServices(t, metav1.ListOptions{FieldSelector: "metadata.name=b,metadata.namespace=one", ResourceVersion: get[corev1.ServiceList](t, l, "/api/v1/services", 200).ResourceVersion})
	l.change(t,
		labelled("a", "z"), // outside before and after
		labelled("a", "x"), // enters
		labelled("b", "b"),
		sim.Change{Op: sim.Update, Object: service("two", "a", map[string]string{"app": "x"})}, // another namespace
		labelled("a", "y"), // stays
		labelled("a", "z"), // leaves
		labelled("b", "x"),
		sim.Change{Op: sim.Delete, Object: service("one", "b", nil)}, // its last state counts
		sim.Change{Op: sim.Delete, Object: service("one", "a", map[string]string{"app": "x"})},
		sim.Change{Op: sim.Add, Object: service("one", "d", map[string]string{"app": "x"})},
	)
	expect(t, tell(t, one, 6), "ADDED one/a, MODIFIED one/a, DELETED one/a, ADDED one/b, DELETED one/b, ADDED one/d")
	l.change(t, sim.Change{Op: sim.Delete, Object: service("two", "b", nil)})
	expect(t, tell(t, inTwo, 2), "MODIFIED two/a, DELETED two/b")
	expect(t, tell(t, byField, 3), "MODIFIED one/b, MODIFIED one/b, DELETED one/b")
}

// TestLeavingObjectKeepsWhatWasSeen: an object that leaves the selection is deleted with its last visible state, and
// the version of the change.
func TestLeavingObjectKeepsWhatWasSeen(t *testing.T) {
	l := labOf(t, fewServices(), Options{})
	w := l.watchServices(t, metav1.ListOptions{LabelSelector: "app=a", FieldSelector: "metadata.namespace=one"})
	l.change(t, labelled("a", "z"))
	now := get[corev1.Service](t, l, "/api/v1/namespaces/one/services/a", 200).ResourceVersion
	tell(t, w, 1)
	left := (<-w.ResultChan()).Object.(*corev1.Service)
	if left.Labels["app"] != "a" || left.ResourceVersion != now {
		t.Errorf("left with labels %v and version %s, want those that were seen and version %s", left.Labels, left.ResourceVersion, now)
	}
}

func TestVersionsThatAWatchCannotBeginAt(t *testing.T) {
	l := labOf(t, fewServices(), Options{History: 2})
	start := get[corev1.ServiceList](t, l, "/api/v1/services", 200).ResourceVersion
	l.change(t, labelled("a", "1"), labelled("a", "2"), labelled("a", "3"))
	expect(t, tell(t, l.watchServices(t, metav1.ListOptions{ResourceVersion: start}), 2), "ERROR 410 Expired, end")
	now := get[corev1.ServiceList](t, l, "/api/v1/services", 200).ResourceVersion
	future := metav1.ListOptions{SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, ResourceVersion: "999999"}
	expect(t, tell(t, l.watchServices(t, future), 2), "ERROR 504 Timeout, end")
	l.front.Forget()
	open := l.watchServices(t, metav1.ListOptions{ResourceVersion: now})
	l.change(t, labelled("a", "4"))
	l.front.Forget()
	expect(t, tell(t, l.watchServices(t, metav1.ListOptions{ResourceVersion: now}), 2), "ERROR 410 Expired, end")
	select { // it may have read the event before it was forgotten
	case e := <-open.ResultChan():
		if got := inWords(t, e); got != "MODIFIED one/a" && got != "ERROR 410 Expired" {
			t.Errorf("the open watch got %s", got)
		}
	case <-time.After(20 * time.Second):
		t.Error("the open watch got nothing")
	}
}

func TestBookmarksTellTheVersion(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	l := labOf(t, fewServices(), Options{Clock: clk, BookmarkEvery: time.Minute})
	w := l.watchServices(t, metav1.ListOptions{AllowWatchBookmarks: true, FieldSelector: "metadata.name=b", SendInitialEvents: ptr.To(false), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	for !clk.HasWaiters() { // the watch makes its ticker once the answer has begun
		time.Sleep(time.Millisecond)
	}
	// A change that the watch does not show moves its bookmark anyway.
	l.change(t, labelled("a", "x"))
	l.change(t, sim.Change{Op: sim.Add, Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}})
	now := get[corev1.ServiceList](t, l, "/api/v1/services", 200).ResourceVersion
	for {
		clk.Step(time.Minute)
		select {
		case e := <-w.ResultChan():
			s := e.Object.(*corev1.Service)
			if e.Type != watch.Bookmark || s.ResourceVersion != now || s.Name != "" {
				t.Fatalf("%s of version %s, want a BOOKMARK of %s", e.Type, s.ResourceVersion, now)
			}
			return
		case <-time.After(10 * time.Millisecond): // its tick came before it had read the change
		}
	}
}

func TestWatchEndsAfterItsTimeout(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	l := labOf(t, fewServices(), Options{Clock: clk})
	w := l.watchServices(t, metav1.ListOptions{TimeoutSeconds: ptr.To(int64(10)), FieldSelector: "metadata.name=none"})
	clk.Step(10 * time.Second)
	expect(t, tell(t, w, 1), "end")
}

func TestDropWatchesAndClose(t *testing.T) {
	l := labOf(t, fewServices(), Options{})
	none := metav1.ListOptions{FieldSelector: "metadata.name=none"}
	w := l.watchServices(t, none)
	l.front.DropWatches()
	expect(t, tell(t, w, 1), "end")
	w = l.watchServices(t, none)
	l.front.Close()
	expect(t, tell(t, w, 1), "end")
}

func TestWatchInAllEncodings(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	l := labOf(t, fewServices(), Options{})
	const query = "/api/v1/services?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Da"
	a := l.ask(t, "GET", query, nil)
	lines := strings.Split(strings.TrimSpace(string(a.body)), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], `{"type":"ADDED","object":{"kind":"Service","apiVersion":"v1","metadata":{"name":"a"`) {
		t.Errorf("%s: %s", a.Header.Get("Content-Type"), a.body)
	}
	a = l.ask(t, "GET", query, nil, "Accept", "application/vnd.kubernetes.protobuf;stream=watch, application/json")
	if got := a.Header.Get("Content-Type"); got != "application/vnd.kubernetes.protobuf;stream=watch" {
		t.Errorf("Content-Type %s", got)
	}
	a = l.ask(t, "GET", query, nil, "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	lines = strings.Split(strings.TrimSpace(string(a.body)), "\n")
	for i, line := range lines {
		var e struct {
			Type   string
			Object metav1.Table
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if len(e.Object.Rows) != 1 || (len(e.Object.ColumnDefinitions) > 0) != (i == 0) {
			t.Errorf("event %d: %s; want one row, and columns in the first event only", i, line)
		}
	}
	if a = l.ask(t, "GET", query, nil, "Accept", "application/yaml"); a.StatusCode != 406 {
		t.Errorf("a watch in YAML: %s", a.Status)
	}
}

// TestSlowWatcherIsDroppedWithoutHoldingOthers: each watcher that reads gets every event. The ring overtakes the one
// that does not read; that one gets 410 when it reads again. Writes never wait for it.
func TestSlowWatcherIsDroppedWithoutHoldingOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	const fast, changes, history = 3, 4000, 1000
	l := newLab(t, scenarios.Shape{Services: 20, Endpoints: scenarios.Endpoints{Count: 10}}, Options{History: history, WriteTimeout: time.Hour})
	l.narrow(t)
	slow := l.openRaw(t)
	var read sync.WaitGroup
	counts := make([]int, fast)
	watches := make([]watch.Interface, fast)
	for i := range fast {
		w, err := l.client(t, runtime.ContentTypeProtobuf).DiscoveryV1().EndpointSlices("").Watch(t.Context(), fromNow)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		watches[i] = w
	}
	var versions [fast]string
	arrived := make(chan struct{}, fast*changes)
	for i, w := range watches {
		read.Go(func() {
			for counts[i] < changes {
				e, ok := <-w.ResultChan()
				if !ok || e.Type == watch.Error {
					t.Errorf("watcher %d ended after %d events: %v", i, counts[i], e)
					arrived <- struct{}{}
					return
				}
				counts[i]++
				versions[i] = e.Object.(*discoveryv1.EndpointSlice).ResourceVersion
				arrived <- struct{}{}
			}
		})
	}
	for done := 0; done < changes; done += history / 2 {
		if n := l.churn(t, history/2); n != history/2 {
			t.Fatalf("%d changes of %d planned", n, history/2)
		}
		for range fast * history / 2 { // so that only the slow one falls behind
			<-arrived
		}
	}
	read.Wait()
	want := get[discoveryv1.EndpointSliceList](t, l, "/apis/discovery.k8s.io/v1/endpointslices", 200).ResourceVersion
	for i := range fast {
		if counts[i] != changes || versions[i] != want {
			t.Errorf("watcher %d got %d events up to version %s, want %d up to %s", i, counts[i], versions[i], changes, want)
		}
	}
	// The slow one wakes up: some events, then 410, then the end.
	events := 0
	decoder := json.NewDecoder(slow)
	for {
		var e struct {
			Type   string
			Object struct{ Code int }
		}
		if err := decoder.Decode(&e); err != nil {
			t.Fatalf("after %d events: %v, want 410", events, err)
		}
		if e.Type == string(watch.Error) {
			if e.Object.Code != http.StatusGone || events >= changes {
				t.Errorf("after %d of %d events: code %d, want 410", events, changes, e.Object.Code)
			}
			break
		}
		events++
	}
	if err := decoder.Decode(&struct{}{}); err != io.EOF {
		t.Errorf("after 410: %v, want the end", err)
	}
}

// TestBlockedConnectionIsClosed: a client that reads nothing at all is disconnected.
func TestBlockedConnectionIsClosed(t *testing.T) {
	ended := make(chan Request, 10)
	l := newLab(t, scenarios.Shape{Services: 20, Endpoints: scenarios.Endpoints{Count: 10}}, Options{
		WriteTimeout: time.Millisecond,
		Answered:     func(r Request) { ended <- r },
	})
	l.narrow(t)
	l.openRaw(t)
	for {
		l.churn(t, 100)
		select {
		case r := <-ended:
			if !strings.Contains(r.URI, "watch=1") || r.Code != 200 {
				t.Errorf("ended %+v", r)
			}
			return
		default:
		}
	}
}

var fromNow = metav1.ListOptions{SendInitialEvents: ptr.To(false), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}

// narrow serves the front again, over connections with small buffers.
func (l *lab) narrow(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- l.front.Serve(ctx, narrowListener{listener}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	l.url = "http://" + listener.Addr().String()
}

type narrowListener struct{ net.Listener }

func (l narrowListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(4 << 10)
	}
	return c, err
}

// openRaw watches the slices from now on, in JSON, and reads only the header.
func (l *lab) openRaw(t *testing.T) io.Reader {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err == nil {
			err = c.(*net.TCPConn).SetReadBuffer(4 << 10)
		}
		return c, err
	}}}
	response, err := client.Get(l.url + "/apis/discovery.k8s.io/v1/endpointslices?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response.Body
}

func TestServeEndsWithItsContext(t *testing.T) {
	l := labOf(t, fewServices(), Options{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- l.front.Serve(ctx, listener) }()
	l.url = "http://" + listener.Addr().String()
	w := l.watchServices(t, metav1.ListOptions{FieldSelector: "metadata.name=none"})
	cancel()
	expect(t, tell(t, w, 1), "end")
	if err := <-served; err != nil {
		t.Error(err)
	}
	listener, err = net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	if err := l.front.Serve(context.Background(), listener); err == nil {
		t.Error("serving a closed listener succeeded")
	}
}
