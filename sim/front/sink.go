package front

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

const (
	bodyLimit   = 16 << 10         // bytes of the largest Event that is accepted; real ones have 1 KiB
	bodyTimeout = 10 * time.Second // for its body to arrive
)

// sink keeps the Events that clients write, oldest first, under the Front's lock. Both API groups show them: fields
// with different names are converted when an Event is written.
type sink struct {
	keys    []string // in the order of arrival
	version int64
	made    int64 // names and UIDs made so far
}

// Events returns the Events that clients wrote and that are still kept, oldest first.
func (f *Front) Events() []*corev1.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.stores[coreEvents]
	var all []*corev1.Event
	for _, key := range f.sink.keys {
		if i, found := s.find(key); found {
			all = append(all, s.sorted[i].object.DeepCopyObject().(*corev1.Event))
		}
	}
	return all
}

// receive handles a write of an Event.
func (f *Front) receive(w http.ResponseWriter, r *http.Request, of *resource, namespace, name string) error {
	v, ok := negotiate(r, mayPlain)
	if !ok {
		return errNotAcceptable()
	}
	if err := checkMediaType(of, name, r); err != nil {
		return err
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyLimit))
	if err != nil { // the deadline stays: the server reads the rest of the body
		w.Header().Set("Connection", "close")
		return apierrors.NewRequestEntityTooLargeError(err.Error())
	}
	_ = control.SetReadDeadline(time.Time{})
	code := http.StatusOK
	var written runtime.Object
	switch {
	case r.Method == http.MethodPost && name == "" && namespace != "":
		code = http.StatusCreated
		written, err = f.create(of, namespace, data)
	case r.Method == http.MethodPut && name != "" && namespace != "":
		written, err = f.replace(of, namespace, name, data)
	case r.Method == http.MethodPatch && name != "" && namespace != "":
		written, err = f.patch(of, namespace, name, data, types.PatchType(r.Header.Get("Content-Type")))
	default:
		return apierrors.NewMethodNotSupported(of.GroupResource(), r.Method)
	}
	if err != nil {
		return err
	}
	write(w, r, v, code, written)
	return nil
}

// decode reads an Event of a resource's group.
func decode(of *resource, data []byte) (runtime.Object, error) {
	gvk := of.gvk()
	object, _, err := codecs.UniversalDeserializer().Decode(data, &gvk, of.empty())
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if got := object.GetObjectKind().GroupVersionKind(); got != gvk && !got.Empty() {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("got a %s, want a %s", got, gvk))
	}
	return object, nil
}

func (f *Front) create(of *resource, namespace string, data []byte) (runtime.Object, error) {
	object, err := decode(of, data)
	if err != nil {
		return nil, err
	}
	m := object.(metav1.Object)
	if m.GetNamespace() == "" {
		m.SetNamespace(namespace)
	}
	if m.GetNamespace() != namespace {
		return nil, apierrors.NewBadRequest("the namespace of the object does not match that of the request")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sink.made++
	if m.GetName() == "" {
		if m.GetGenerateName() == "" {
			return nil, apierrors.NewBadRequest("an Event needs a name or a generateName")
		}
		m.SetName(m.GetGenerateName() + strconv.FormatInt(f.sink.made, 36))
	}
	if _, found := f.stores[of].find(keyOf(m)); found {
		return nil, apierrors.NewAlreadyExists(of.GroupResource(), m.GetName())
	}
	m.SetUID(uidOf(fmt.Sprintf("event/%d", f.sink.made)))
	m.SetCreationTimestamp(metav1.NewTime(f.clock.Now()).Rfc3339Copy())
	return f.keep(of, object), nil
}

func (f *Front) replace(of *resource, namespace, name string, data []byte) (runtime.Object, error) {
	object, err := decode(of, data)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	before, err := f.kept(of, namespace, name)
	if err != nil {
		return nil, err
	}
	return f.keepAs(of, before, object)
}

func (f *Front) patch(of *resource, namespace, name string, data []byte, how types.PatchType) (runtime.Object, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, err := f.kept(of, namespace, name)
	if err != nil {
		return nil, err
	}
	old, err := before.encoded(formJSON)
	if err != nil {
		return nil, err
	}
	if how != types.StrategicMergePatchType { // what client-go's recorders send
		return nil, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch", of.GroupResource(), name,
			fmt.Sprintf("want %s", types.StrategicMergePatchType), 0, true)
	}
	next, err := strategicpatch.StrategicMergePatch(old, data, of.empty())
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if len(next) > bodyLimit {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the patched Event has %d bytes", len(next)))
	}
	object := of.empty()
	if err := json.Unmarshal(next, object); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return f.keepAs(of, before, object)
}

// kept returns the Event of that name.
func (f *Front) kept(of *resource, namespace, name string) (*item, error) {
	s := f.stores[of]
	i, found := s.find(objectKey(namespace, name))
	if !found {
		return nil, apierrors.NewNotFound(of.GroupResource(), name)
	}
	return s.sorted[i], nil
}

// keepAs replaces an Event and keeps its identity.
func (f *Front) keepAs(of *resource, before *item, object runtime.Object) (runtime.Object, error) {
	m := object.(metav1.Object)
	if keyOf(m) != before.key {
		return nil, apierrors.NewBadRequest("the name of an Event cannot change")
	}
	m.SetUID(before.meta.GetUID())
	m.SetCreationTimestamp(before.meta.GetCreationTimestamp())
	return f.keep(of, object), nil
}

// keep stores an Event in both groups, drops the oldest one when there are too many, and returns the stored Event. It
// takes ownership of the object.
func (f *Front) keep(of *resource, object runtime.Object) runtime.Object {
	f.sink.version++
	version := f.sink.version + 1 // load has used version 1
	m := object.(metav1.Object)
	m.SetResourceVersion(strconv.FormatInt(version, 10))
	m.SetManagedFields(nil) // lists of small objects take many times their text in memory
	m.SetOwnerReferences(nil)
	both := map[*resource]runtime.Object{of: object}
	switch o := object.(type) {
	case *corev1.Event:
		both[events] = groupEvent(o)
	case *eventsv1.Event:
		both[coreEvents] = coreEvent(o)
	}
	key := keyOf(m)
	if _, found := f.stores[of].find(key); !found {
		f.sink.keys = append(f.sink.keys, key)
	}
	var stored runtime.Object
	for r, o := range both {
		it := newItem(r.stamped(o))
		f.stores[r].put(version, it)
		if r == of {
			stored = it.object
		}
	}
	if len(f.sink.keys) > f.options.KeepEvents {
		f.dropOldest()
	}
	return stored
}

func (f *Front) dropOldest() {
	f.sink.version++
	version := f.sink.version + 1
	for _, r := range []*resource{coreEvents, events} {
		if i, found := f.stores[r].find(f.sink.keys[0]); found {
			last := r.copy(f.stores[r].sorted[i].object)
			last.(metav1.Object).SetResourceVersion(strconv.FormatInt(version, 10))
			f.stores[r].remove(version, newItem(last))
		}
	}
	f.sink.keys = slices.Delete(f.sink.keys, 0, 1)
}

// coreEvent converts from events.k8s.io/v1, like the API server, which stores both.
func coreEvent(e *eventsv1.Event) *corev1.Event {
	c := &corev1.Event{
		ObjectMeta: e.ObjectMeta, InvolvedObject: e.Regarding, Related: e.Related, Reason: e.Reason, Message: e.Note, Type: e.Type,
		Action: e.Action, EventTime: e.EventTime, ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
		Source: e.DeprecatedSource, FirstTimestamp: e.DeprecatedFirstTimestamp, LastTimestamp: e.DeprecatedLastTimestamp, Count: e.DeprecatedCount,
	}
	if e.Series != nil {
		c.Series = &corev1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return c
}

// groupEvent converts to events.k8s.io/v1.
func groupEvent(c *corev1.Event) *eventsv1.Event {
	e := &eventsv1.Event{
		ObjectMeta: c.ObjectMeta, Regarding: c.InvolvedObject, Related: c.Related, Reason: c.Reason, Note: c.Message, Type: c.Type,
		Action: c.Action, EventTime: c.EventTime, ReportingController: c.ReportingController, ReportingInstance: c.ReportingInstance,
		DeprecatedSource: c.Source, DeprecatedFirstTimestamp: c.FirstTimestamp, DeprecatedLastTimestamp: c.LastTimestamp, DeprecatedCount: c.Count,
	}
	if c.Series != nil {
		e.Series = &eventsv1.EventSeries{Count: c.Series.Count, LastObservedTime: c.Series.LastObservedTime}
	}
	return e
}

// uidOf derives a UID of the form that clients expect from a name.
func uidOf(name string) types.UID {
	h := fnv.New128a()
	h.Write([]byte(name))
	b := h.Sum(nil)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // version 4
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]))
}
