package live

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/world"
)

// sample returns a cluster with Services of all types, and its changes.
func sample(t *testing.T) (*sim.Objects, sim.Trace) {
	t.Helper()
	s, err := scenarios.Load("mixed-types", nil, scenarios.Sizes{Services: 40, Endpoints: 3})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := world.Generate(s.Shape, 5)
	if err != nil {
		t.Fatal(err)
	}
	world := world.WorldOf(objects, 5)
	trace, err := world.Churn(scenarios.Churn{Rate: 50, Events: 100, Kind: "mixed", Arrivals: "uniform"})
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range objects.Nodes[:1] {
		trace = append(trace, sim.Change{Due: time.Minute, Op: sim.Delete, Object: node})
	}
	trace = append(trace, sim.Change{Due: time.Hour, Op: sim.Add, Object: objects.Services[0]})
	return objects, trace
}

func TestCodecRoundTrip(t *testing.T) {
	objects, trace := sample(t)
	var text bytes.Buffer
	encoder := NewEncoder(&text)
	if err := encoder.Snapshot(objects); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC)
	for _, c := range trace {
		if err := encoder.Change(Change{Change: c, At: at.Add(c.Due)}); err != nil {
			t.Fatal(err)
		}
	}
	decoder := NewDecoder(&text)
	got, err := decoder.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if !equality.Semantic.DeepEqual(objects, got) {
		t.Error("the snapshot comes back different")
	}
	for _, want := range trace {
		c, err := decoder.Next()
		if err != nil {
			t.Fatal(err)
		}
		if c.Op != want.Op || c.Due != want.Due || !c.At.Equal(at.Add(want.Due)) || !equality.Semantic.DeepEqual(c.Object, want.Object) {
			t.Fatalf("a change comes back different:\n%+v\n%+v", want, c)
		}
	}
	if _, err := decoder.Next(); err != io.EOF {
		t.Errorf("after the last change: %v; want %v", err, io.EOF)
	}
}

func TestCodecRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "unexpected EOF"},
		{"half a snapshot", `{"op":"Have","kind":"Node","object":{}}` + "\n", "unexpected EOF"},
		{"half a line", `{"op":"Have","kind":"No`, "line 1: unexpected EOF"},
		{"a change too early", `{"op":"Add","kind":"Node","object":{}}` + "\n", "Add before the snapshot is complete"},
		{"another kind", `{"op":"Have","kind":"Pod","object":{}}` + "\n", `line 1: kind "Pod"`},
		{"another field", `{"op":"Have","kinds":"Pod"}` + "\n", `"kinds"`},
	} {
		if _, err := NewDecoder(strings.NewReader(c.text)).Snapshot(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q in it", c.name, err, c.want)
		}
	}
	if _, err := NewDecoder(strings.NewReader(`{"op":"Have","kind":"Node","object":{}}` + "\n")).Next(); err == nil {
		t.Error("an object of the snapshot passes for a change")
	}
	if err := NewEncoder(io.Discard).Change(Change{Change: sim.Change{Op: sim.Add, Object: &corev1.Pod{}}}); err == nil {
		t.Error("a pod was encoded")
	}
	broken := errors.New("broken pipe")
	if err := NewEncoder(failing{broken}).Snapshot(&sim.Objects{}); !errors.Is(err, broken) {
		t.Errorf("error %v; want %v", err, broken)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, fmt.Errorf("write: %w", f.err) }
