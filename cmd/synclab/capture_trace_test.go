package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"synclab/cmd/synclab/planning"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/world"
)

// watchedWriter calls the function of a word, once, when the word is written.
type watchedWriter struct {
	bytes.Buffer
	seen map[string]func()
}

func (w *watchedWriter) Write(b []byte) (int, error) {
	n, err := w.Buffer.Write(b)
	for word, call := range w.seen {
		if bytes.Contains(b, []byte(word)) {
			delete(w.seen, word)
			call()
		}
	}
	return n, err
}

// A trace has the first state, then the changes, and an interrupt ends it without an error.
func TestCaptureTrace(t *testing.T) {
	objects, err := world.Generate(scenarios.Shape{Services: 12, Endpoints: scenarios.Endpoints{Count: 3}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	cluster, kubeconfig := clusterOf(t, objects)
	changed := objects.Slices[0].DeepCopy()
	changed.Endpoints = changed.Endpoints[1:]
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	apply := func(change sim.Change) func() {
		return func() {
			go func() { // the follower waits for this writer
				if err := cluster.Apply(context.WithoutCancel(ctx), change); err != nil {
					t.Error(err)
				}
			}()
		}
	}
	// One after the other, because Services and EndpointSlices have separate watches, in any order.
	errs := &watchedWriter{seen: map[string]func(){"following them": apply(sim.Change{Op: sim.Update, Object: changed})}}
	out := &watchedWriter{seen: map[string]func(){
		`"Update"`: apply(sim.Change{Op: sim.Delete, Object: objects.Services[1]}), `"Delete"`: interrupt,
	}}
	err = run(ctx, streams{strings.NewReader(""), out, errs}, []string{"capture", "--kubeconfig", kubeconfig, "--for", "1h", "-o", "-"})
	if err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	recorded, err := planning.ReadTrace(t.Context(), path)
	if err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	if n := len(recorded.Snapshot.Services); n != 12 || recorded.Slices != 1 || recorded.Services != 1 {
		t.Errorf("%d Services, then %s", n, recorded)
	}
	if !strings.Contains(errs.String(), "services: 12 at first, 1 changes") {
		t.Errorf("it says %s", errs)
	}
}

func TestCaptureTraceRefuses(t *testing.T) {
	for _, args := range [][]string{{"--for", "0s"}, {"--for", "1m", "--anonymize"}} {
		if status, _, stderr := invoke(t, append([]string{"capture", "-o", "-"}, args...)...); status != exitUsage || !strings.Contains(stderr, "--for") {
			t.Errorf("%v: status %d, %s", args, status, stderr)
		}
	}
}
