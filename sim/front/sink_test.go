package front

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"

	"synclab/sim"
)

// TestRecordersWrite takes what client-go's two recorders send, also for a repeated event.
func TestRecordersWrite(t *testing.T) {
	l := labOf(t, fewServices(), Options{})
	client := l.client(t, runtime.ContentTypeProtobuf)
	w, err := client.CoreV1().Events("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	object := &corev1.ObjectReference{Kind: "Service", Namespace: "one", Name: "a", APIVersion: "v1"}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	old := record.NewBroadcaster()
	defer old.Shutdown()
	old.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	recorder := old.NewRecorder(clientscheme.Scheme, corev1.EventSource{Component: "old"})
	recorder.Event(object, corev1.EventTypeNormal, "Once", "said")
	expect(t, tell(t, w, 1)[:len("ADDED one/a.")], "ADDED one/a.")
	recorder.Event(object, corev1.EventTypeNormal, "Once", "said")
	expect(t, tell(t, w, 1)[:len("MODIFIED one/a.")], "MODIFIED one/a.")

	broadcaster := clientevents.NewBroadcaster(&clientevents.EventSinkImpl{Interface: client.EventsV1()})
	defer broadcaster.Shutdown()
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		t.Fatal(err)
	}
	broadcaster.NewRecorder(clientscheme.Scheme, "new").Eventf(object, nil, corev1.EventTypeWarning, "Again", "Doing", "note %d", 1)
	expect(t, tell(t, w, 1)[:len("ADDED one/a.")], "ADDED one/a.")

	kept := l.front.Events()
	if len(kept) != 2 || kept[0].Reason != "Once" || kept[0].Count != 2 || kept[1].Message != "note 1" || kept[1].InvolvedObject.Name != "a" || kept[1].ReportingController != "new" {
		t.Errorf("kept %+v", kept)
	}
	inGroup, err := client.EventsV1().Events("one").List(ctx, metav1.ListOptions{})
	if err != nil || len(inGroup.Items) != 2 {
		t.Fatalf("in events.k8s.io: %d Events, %v", len(inGroup.Items), err)
	}
	selected, err := client.CoreV1().Events("one").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=a,type=Warning"})
	if err != nil || len(selected.Items) != 1 || selected.Items[0].Reason != "Again" {
		t.Errorf("selected %+v, %v", selected.Items, err)
	}
}

func TestEventsAreBounded(t *testing.T) {
	l := labOf(t, fewServices(), Options{KeepEvents: 3})
	client := l.client(t, runtime.ContentTypeJSON)
	ctx := context.Background()
	for i := range 10 {
		e := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("e%d", i)}, EventTime: metav1.NewMicroTime(time.Now()), Note: fmt.Sprint(i)}
		if _, err := client.EventsV1().Events("one").Create(ctx, e, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var notes []string
	for _, e := range l.front.Events() {
		notes = append(notes, e.Message)
	}
	expect(t, strings.Join(notes, " "), "7 8 9")
	if list, err := client.CoreV1().Events("").List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) != 3 {
		t.Errorf("listed %d, %v", len(list.Items), err)
	}
	// Events have separate versions from the cluster's.
	l.change(t, labelled("a", "x"), sim.Change{Op: sim.Delete, Object: service("one", "a", nil)})
}

func TestEventRefusals(t *testing.T) {
	l := labOf(t, fewServices(), Options{})
	client := l.client(t, runtime.ContentTypeJSON).EventsV1().Events("one")
	ctx := context.Background()
	made, err := client.Create(ctx, &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}, metav1.CreateOptions{})
	if err != nil || !strings.HasPrefix(made.Name, "x-") || made.UID == "" || made.Namespace != "one" {
		t.Fatalf("%+v, %v", made, err)
	}
	made.Note = "changed"
	if next, err := client.Update(ctx, made, metav1.UpdateOptions{}); err != nil || next.Note != "changed" || next.UID != made.UID || next.ResourceVersion == made.ResourceVersion {
		t.Errorf("updated: %+v, %v", next, err)
	}
	_, err = client.Create(ctx, made, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		t.Errorf("twice: %v", err)
	}
	if _, err = client.Patch(ctx, "none", types.StrategicMergePatchType, []byte(`{}`), metav1.PatchOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("patch of none: %v", err)
	}
	if _, err = client.Patch(ctx, made.Name, types.JSONPatchType, []byte(`[]`), metav1.PatchOptions{}); !apierrors.IsUnsupportedMediaType(err) {
		t.Errorf("JSON patch: %v", err)
	}
	for body, code := range map[string]int{
		`{`: 400, `{"kind":"Service","apiVersion":"v1","metadata":{"name":"a"}}`: 400, `{}`: 400,
		`{"metadata":{"name":"a","namespace":"two"}}`: 400, strings.Repeat(" ", bodyLimit+1): 413,
	} {
		if a := l.ask(t, "POST", "/api/v1/namespaces/one/events", strings.NewReader(body), "Content-Type", "application/json"); a.StatusCode != code {
			t.Errorf("POST %.60s: %s %s, want %d", body, a.Status, a.body, code)
		}
	}
}
