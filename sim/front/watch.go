package front

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"

	"synclab/sim/api"
)

const (
	// batch is how many events a watcher takes out of the ring at a time.
	batch = 256
	// writeFrom is the size in bytes from which encoded events are written before the batch is complete.
	writeFrom = 64 << 10
)

// watcher is one open watch. It reads the ring at its own position, and keeps nothing but the batch that it writes.
// Unread events wait in the ring, where they cost nothing and are overwritten in the end.
type watcher struct {
	*selection
	front    *Front
	ended    context.Context // done when the Front ends its watches
	store    *store
	view     view
	request  *http.Request
	position int64
	// after is the version after which the client wants events. It may be in the future.
	after    int64
	sent     int64 // the version up to which the client has everything
	order    api.Sequence[event]
	encoder  streaming.Encoder
	buffer   bytes.Buffer
	out      http.ResponseWriter
	control  *http.ResponseController
	columns  bool // of a Table have been sent
	embedded bytes.Buffer
}

// watch answers a watch request, until the client or the server ends the watch.
func (f *Front) watch(w http.ResponseWriter, r *http.Request, s *selection) error {
	v, ok := negotiate(r, mayConvert)
	if !ok || v.StreamSerializer == nil {
		return errNotAcceptable()
	}
	version, err := versionWanted(s.options.ResourceVersion)
	if err != nil {
		return err
	}
	c := &watcher{
		selection: s, front: f, store: f.stores[s.resource], view: v, request: r, after: version,
		order: api.NewSequence[event](&f.WatchFaults), out: w, control: http.NewResponseController(w),
	}
	c.encoder = streaming.NewEncoder(v.StreamSerializer.Framer.NewFrameWriter(&c.buffer), v.StreamSerializer.Serializer)
	ctx, ended, cancel := f.watchContext(r.Context())
	c.ended = ended
	defer cancel()
	if seconds := s.options.TimeoutSeconds; seconds != nil && *seconds > 0 {
		timer := f.clock.NewTimer(time.Duration(*seconds) * time.Second)
		defer timer.Stop()
		go func() {
			select {
			case <-timer.C():
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	defer func() { _ = c.control.SetWriteDeadline(time.Time{}) }() // the connection is kept alive
	if err := c.answer(ctx); err != nil {
		c.fail(err)
	}
	if context.Cause(ctx) == errCut {
		c.cut()
	}
	return nil
}

// answer begins the stream and fills it until ctx ends. Its error is for the client: like the API server, a watch
// reports a bad version in its stream.
func (c *watcher) answer(ctx context.Context) error {
	header := func() {
		c.out.Header().Set("Content-Type", c.view.contentType+streamParameter(c.view))
		c.out.Header().Set("Cache-Control", "no-cache, private")
		c.out.WriteHeader(http.StatusOK)
	}
	if gap := c.front.gapEnd(); gap != nil {
		header()
		_ = c.control.Flush()
		header = func() {}
		select {
		case <-gap:
		case <-ctx.Done():
			return nil
		}
	}
	initial, err := c.start() // before the header: a client that has it can rely on all later events
	header()
	if err != nil {
		return err
	}
	return c.run(ctx, initial)
}

// streamParameter marks protobuf responses as framed.
func streamParameter(v view) string {
	if v.MediaType == runtime.ContentTypeProtobuf {
		return ";stream=watch"
	}
	return ""
}

// initial is what a watch sends before the events.
type initial struct {
	items []*item
	// bookmark says that a bookmark marks the end of items.
	bookmark bool
}

// start determines where the watch begins.
func (c *watcher) start() (*initial, error) {
	f, s, o := c.front, c.store, c.options
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := o.SendInitialEvents
	// Unset means yes when no version is given, for clients older than the option.
	if asked != nil && *asked || asked == nil && c.after == 0 {
		if c.after > s.version {
			return nil, errTooLarge(c.after, s.version)
		}
		c.position, c.after, c.sent = s.next, s.version, s.version
		return &initial{items: s.snapshot(), bookmark: asked != nil && o.AllowWatchBookmarks}, nil
	}
	if c.after == 0 { // from now on
		c.after = s.version
	}
	if c.after = s.resume(c.after); c.after < s.forgotten {
		return nil, errTooOld(c.after, s.forgotten)
	}
	c.position, c.sent = s.positionAfter(c.after), c.after
	return nil, nil
}

// run sends the initial items and then events until ctx ends. Its error is for the client.
func (c *watcher) run(ctx context.Context, first *initial) error {
	if first != nil {
		for _, it := range within(first.items, c.namespace) {
			if ctx.Err() != nil {
				return nil
			}
			if c.matches(it) {
				if err := c.send(watch.Added, it); err != nil {
					return err
				}
			}
		}
		if first.bookmark {
			if err := c.bookmark(c.sent, true); err != nil {
				return err
			}
		}
	}
	if !c.flush() {
		return nil
	}
	var bookmarks <-chan time.Time
	if c.options.AllowWatchBookmarks {
		ticker := c.front.clock.NewTicker(c.front.options.BookmarkEvery)
		defer ticker.Stop()
		bookmarks = ticker.C()
	}
	events := make([]event, 0, batch)
	for {
		var changed <-chan struct{}
		var err error
		events, changed, err = c.next(events[:0])
		if err != nil {
			return err
		}
		if len(events) > 0 {
			if err := c.sendAll(events); err != nil || !c.flush() {
				return err
			}
			if ctx.Err() != nil {
				return nil
			}
			continue
		}
		select {
		case <-changed:
		case <-bookmarks:
			if err := c.bookmark(c.front.versionSeen(c), false); err != nil || !c.flush() {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// next takes the next events out of the ring, in the order of delivery. When there are none, the channel is closed
// when the watch should check again.
func (c *watcher) next(events []event) ([]event, <-chan struct{}, error) {
	f, s := c.front, c.store
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.ended.Err() != nil { // no event of an outage may be sent before the watch's own context is cancelled, too
		return nil, nil, nil
	}
	if !f.Holds(c.GroupVersionResource) {
		if c.position < s.first {
			return nil, nil, errTooOld(c.sent, s.forgotten)
		}
		events = c.order.AppendReleased(events)
		for c.position < s.next && len(events) < batch {
			events = c.order.Append(events, *s.at(c.position))
			c.position++
		}
	}
	if len(events) > 0 {
		return events, nil, nil
	}
	s.awaited = true
	return events, s.changed, nil
}

// versionSeen returns the version up to which a watcher with nothing left to read has everything. It returns 0 if the
// watcher has more to read, or if its watch is held.
func (f *Front) versionSeen(c *watcher) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.position != c.store.next || c.order.Waiting() || f.Holds(c.GroupVersionResource) {
		return 0
	}
	return max(c.store.version, c.after)
}

func (c *watcher) sendAll(events []event) error {
	for i := range events {
		e := &events[i]
		if e.version > c.after {
			if err := c.sendOne(e); err != nil {
				return err
			}
		}
		c.sent = e.version
	}
	return nil
}

// sendOne encodes an event if the selection includes it, twice if it is marked so.
func (c *watcher) sendOne(e *event) error {
	kind, it := c.translate(e)
	if kind == "" {
		return nil
	}
	if err := c.send(kind, it); err != nil || !e.mark.Twice {
		return err
	}
	if kind == watch.Added {
		kind = watch.Modified
	}
	return c.send(kind, it)
}

// translate returns what an event means within the selection: a modified object may enter or leave it.
func (c *watcher) translate(e *event) (watch.EventType, *item) {
	if c.all() && c.namespace == "" {
		return e.kind, e.object
	}
	was := e.before != nil && c.matches(e.before)
	is := e.kind != watch.Deleted && c.matches(e.object)
	switch {
	case was && is:
		return watch.Modified, e.object
	case is:
		return watch.Added, e.object
	case was && e.kind == watch.Deleted:
		return watch.Deleted, e.object
	case was: // its last visible state, with the version of the change
		last := c.resource.copy(e.before.object)
		last.(metav1.Object).SetResourceVersion(strconv.FormatInt(e.version, 10))
		return watch.Deleted, newItem(last)
	default:
		return "", nil
	}
}

// send encodes one event, and writes the buffer when it is large enough.
func (c *watcher) send(kind watch.EventType, it *item) error {
	raw, err := c.embed(it)
	if err != nil {
		return err
	}
	if err := c.encoder.Encode(&metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: raw}}); err != nil {
		return err
	}
	if c.buffer.Len() >= writeFrom && !c.flush() {
		return errGone
	}
	return nil
}

// embed encodes the object of an event. Without conversion all watchers share the bytes.
func (c *watcher) embed(it *item) ([]byte, error) {
	if c.view.as == "" {
		if c.view.MediaType == runtime.ContentTypeProtobuf {
			return it.encoded(formProtobuf)
		}
		return it.encoded(formJSON)
	}
	object, err := c.front.showOne(c.request, c.view, c.resource, it, !c.columns)
	if err != nil {
		return nil, err
	}
	c.columns = true
	return c.embedOther(object)
}

func (c *watcher) embedOther(object runtime.Object) ([]byte, error) {
	c.embedded.Reset()
	err := c.view.Serializer.Encode(object, &c.embedded)
	return c.embedded.Bytes(), err
}

// bookmark sends a version up to which the client has everything; for version 0 it sends nothing.
func (c *watcher) bookmark(version int64, initialEnd bool) error {
	if version == 0 {
		return nil
	}
	object := c.resource.stamped(c.empty())
	m, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	m.SetResourceVersion(strconv.FormatInt(version, 10))
	if initialEnd {
		m.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	c.sent = version
	return c.send(watch.Bookmark, newItem(object))
}

// flush writes the encoded events. It returns whether the connection still accepts data: a client that accepts none
// for WriteTimeout is dropped.
func (c *watcher) flush() bool {
	if c.buffer.Len() > 0 {
		_ = c.control.SetWriteDeadline(c.front.clock.Now().Add(c.front.options.WriteTimeout))
		_, err := c.out.Write(c.buffer.Bytes())
		c.buffer.Reset()
		if err != nil {
			return false
		}
	}
	return c.control.Flush() == nil
}

// errGone ends a watch whose client is gone. It is not reported.
var errGone = io.ErrClosedPipe

// fail ends the stream with an event that contains the error.
func (c *watcher) fail(err error) {
	if err == errGone {
		return
	}
	raw, err := c.embedOther(statusOf(err))
	if err != nil {
		return
	}
	if c.encoder.Encode(&metav1.WatchEvent{Type: string(watch.Error), Object: runtime.RawExtension{Raw: raw}}) == nil {
		c.flush()
	}
}

// cut breaks the connection after half an event, whatever the client would get next. The event is a bookmark, which
// exists for every watch.
func (c *watcher) cut() {
	c.buffer.Reset()
	if c.bookmark(max(c.sent, 1), false) == nil {
		c.buffer.Truncate(c.buffer.Len() / 2)
		c.flush()
	}
	panic(http.ErrAbortHandler) // makes net/http close the connection without an end
}
