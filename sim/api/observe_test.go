package api

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/world"
)

func TestObserveTellsPresentThenEachWrite(t *testing.T) {
	world, err := world.NewWorld(scenarios.Shape{Services: 3, Nodes: 2}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := world.Create(scenarios.Create{}); err != nil {
		t.Fatal(err)
	}
	objects := world.Objects()
	objects.Services[0] = objects.Services[0].DeepCopy()
	objects.Services[0].ResourceVersion = "" // as in a manifest
	c := NewCluster(clock.RealClock{})
	defer c.Stop()
	ctx := context.Background()
	if err := c.Load(ctx, objects); err != nil {
		t.Fatal(err)
	}
	var present *sim.Objects
	var at int64
	var writes []Write
	stop, err := c.Observe(
		func(version int64, o *sim.Objects) { at, present = version, o },
		func(w Write) { writes = append(writes, w) },
	)
	if err != nil {
		t.Fatal(err)
	}
	if len(present.Services) != 3 || len(present.Slices) != 3 || len(present.Nodes) != 2 {
		t.Errorf("present: %d services, %d slices, %d nodes; want 3, 3, 2", len(present.Services), len(present.Slices), len(present.Nodes))
	}
	if got, want := present.Services[0].ResourceVersion, strconv.FormatInt(at, 10); got != want {
		t.Errorf("a Service without a version has %q, want the cluster's %q", got, want)
	}
	if err := c.Load(ctx, objects); err == nil || !strings.Contains(err.Error(), "observed") {
		t.Errorf("Load of an observed cluster: %v, want a refusal", err)
	}

	trace, err := world.Churn(scenarios.Churn{Rate: 1, Events: 10, Kind: "mixed"})
	if err != nil {
		t.Fatal(err)
	}
	for _, ch := range trace {
		if err := c.Apply(ctx, ch); err != nil {
			t.Fatal(err)
		}
	}
	// Writes through the clientset count too; failed writes do not.
	extra := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "extra"}}
	if _, err := c.Client().CoreV1().Nodes().Create(ctx, extra, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(ctx, sim.Change{Op: sim.Delete, Object: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "no", Name: "such"}}}); err == nil {
		t.Fatal("a Service that does not exist was deleted")
	}
	if len(writes) != len(trace)+1 {
		t.Fatalf("%d writes observed, want %d", len(writes), len(trace)+1)
	}
	for i, w := range writes {
		if w.Version != at+int64(i)+1 || w.Object.(metav1.Object).GetResourceVersion() != strconv.FormatInt(w.Version, 10) {
			t.Errorf("write %d has version %d, its object %s, want %d", i, w.Version, w.Object.(metav1.Object).GetResourceVersion(), at+int64(i)+1)
		}
		if i < len(trace) && (w.Op != trace[i].Op || sim.KindAndName(w.Object) != sim.KindAndName(trace[i].Object)) {
			t.Errorf("write %d is %s %s, want %s %s", i, w.Op, sim.KindAndName(w.Object), trace[i].Op, sim.KindAndName(trace[i].Object))
		}
	}

	before := slices.Clone(writes)
	stop()
	if err := c.Apply(ctx, sim.Change{Op: sim.Delete, Object: extra}); err != nil {
		t.Fatal(err)
	}
	if len(writes) != len(before) {
		t.Error("observed a write after stop")
	}
}
