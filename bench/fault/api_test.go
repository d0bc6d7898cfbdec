package fault

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"synclab/bench/internal/rigtest"
	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/proxier"
	"synclab/proxier/iptables"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/api"
	"synclab/sim/front"
	"synclab/sim/random"
)

// apiFaultKinds returns all faults of the API.
func apiFaultKinds() (names []string) {
	for _, kind := range Kinds {
		if kind.OfAPI() {
			names = append(names, kind.Name)
		}
	}
	return names
}

// apiFault injects a fault without following it.
func (r *Faults) apiFault(ctx context.Context, f *scenarios.Fault) error {
	d := newFault(f, "1:fault")
	err := r.disturb(ctx, d)
	if d.kind.lasts == forTime {
		r.hold(d)
	}
	return err
}

// following is a proxier over a model, which follows a cluster with faults.
type following struct {
	*Faults
	proxier *proxier.Proxier
	model   *iptables.Model
}

func newFollowing(t *testing.T, clk clock.WithTicker, feed string) *following {
	t.Helper()
	shape := scenarios.Shape{Services: 40, Types: map[string]float64{"NodePort": 0.2}}
	f := &following{Faults: newFaults(&pass.Env{Clock: clk, Messages: pass.NewMessageWriter(io.Discard)}), model: iptables.NewModel(corev1.IPv4Protocol)}
	f.Feed, f.Scenario.Shape, f.World = feed, shape, rigtest.World(t, shape)
	f.Fail = func(err error) { t.Error(err) }
	f.Play = func(ctx context.Context, _ string, plan func() (sim.Trace, error)) error {
		trace, err := plan()
		if err != nil {
			return err
		}
		return f.Cluster.Play(ctx, trace, api.PlayOptions{Start: clk.Now()})
	}
	name := "1:fault"
	f.Step.Store(&name)
	f.Cluster = api.NewCluster(clk)
	if err := f.Cluster.Load(t.Context(), f.World.Objects()); err != nil {
		t.Fatal(err)
	}
	var err error
	f.proxier, err = proxier.New(proxier.Options{Tables: func(corev1.IPFamily) (iptables.Tables, error) { return f.model, nil }})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// differs syncs, and returns how the model differs from a fresh proxier's on the world; empty: it does not.
func (f *following) differs(t *testing.T) string { return f.differsFrom(t, f.World.Objects()) }

func (f *following) differsFrom(t *testing.T, o *sim.Objects) string {
	t.Helper()
	if err := f.proxier.SyncNow(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	var node *corev1.Node
	for _, n := range o.Nodes {
		if n.Name == "node-0" { // the proxier's node
			node = n
		}
	}
	fresh, err := proxier.Render(t.Context(), proxier.Options{}, o.Services, o.Slices, node)
	if err != nil {
		t.Fatal(err)
	}
	var got, want bytes.Buffer
	if err := f.model.Save(&got); err != nil {
		t.Fatal(err)
	}
	if err := fresh[0].Save(&want); err != nil {
		t.Fatal(err)
	}
	return difference(got.String(), want.String())
}

// difference returns the first line in which two texts differ.
func difference(got, want string) string {
	g, w := bytes.Split([]byte(got), []byte("\n")), bytes.Split([]byte(want), []byte("\n"))
	for i := range min(len(g), len(w)) {
		if !bytes.Equal(g[i], w[i]) {
			return "got " + string(g[i]) + "\nwant " + string(w[i])
		}
	}
	if len(g) != len(w) {
		return "one has more lines"
	}
	return ""
}

// change applies changes of all kinds.
func (f *following) change(t *testing.T) {
	t.Helper()
	churn := scenarios.Churn{Rate: 100, Events: 60, Kind: "mixed"}
	if err := f.Play(t.Context(), "change", func() (sim.Trace, error) { return f.World.Churn(churn) }); err != nil {
		t.Fatal(err)
	}
}

// TestProxierConvergesAfterFaultsInProcess ends each fault by its time, and clears it earlier.
func TestProxierConvergesAfterFaultsInProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	for _, kind := range apiFaultKinds() {
		for _, early := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				f := newFollowing(t, clock.RealClock{}, "")
				defer f.Cluster.Stop()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if err := f.proxier.Watch(ctx, f.Cluster.NewInformers()); err != nil {
					t.Fatal(err)
				}
				f.change(t)
				if err := f.apiFault(ctx, &scenarios.Fault{Kind: kind, Times: 20, For: time.Minute}); err != nil {
					t.Fatal(err)
				}
				f.change(t)
				if early {
					if err := f.clear(); err != nil {
						t.Fatal(err)
					}
				} else {
					time.Sleep(2 * time.Minute) // of virtual time
				}
				time.Sleep(time.Minute) // reflectors back off
				synctest.Wait()
				if d := f.differs(t); d != "" {
					t.Errorf("%s, cleared early: %v: %s", kind, early, d)
				}
			})
		}
	}
}

// TestProxierConvergesAfterFaultsOverHTTP does the same with a proxier that uses the fake API server.
func TestProxierConvergesAfterFaultsOverHTTP(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	for i, kind := range apiFaultKinds() {
		for _, early := range []bool{false, true} {
			t.Run(kind+map[bool]string{true: "/healed"}[early], func(t *testing.T) {
				clk := testclock.NewFakeClock(time.Now())
				f := newFollowing(t, clk, raw.FeedAPI)
				defer f.Cluster.Stop()
				f.Scenario.Seed = uint64(i)
				fault := &scenarios.Fault{Kind: kind, Times: 20, For: time.Minute}
				before := kind == scenarios.FaultEventsReordered // comes before there is an API
				if before {
					if err := f.inject(t.Context(), newFault(fault, "1:fault")); err != nil {
						t.Fatal(err)
					}
				}
				client := f.serveAPI(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer func() {
					if err := f.End(); err != nil {
						t.Error(err)
					}
				}()
				factory := informers.NewSharedInformerFactory(client, 0)
				defer factory.Shutdown()
				defer cancel()
				if err := f.Opened(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := f.proxier.Watch(ctx, factory); err != nil {
					t.Fatal(err)
				}
				f.changeAtOnce(t, clk)
				if !before {
					f.faultAtOnce(t, clk, fault)
				}
				f.changeAtOnce(t, clk)
				if early {
					if err := f.clear(); err != nil {
						t.Fatal(err)
					}
				}
				deadline := time.After(40 * time.Second)
				for {
					d := f.differs(t)
					if d == "" {
						return
					}
					select {
					case <-time.After(10 * time.Millisecond):
						clk.Step(10 * time.Second)
					case <-deadline:
						t.Fatal(d)
					}
				}
			})
		}
	}
}

// serveAPI serves the cluster with a fake API server, and returns its client.
func (f *following) serveAPI(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	api, err := front.New(f.Cluster, front.Options{})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := front.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.Host.Front, f.Host.Listener = api, listener
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- api.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	data, err := front.Kubeconfig("http://"+listener.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// withTime advances the clock while do waits for it.
func withTime(clk *testclock.FakeClock, do func()) {
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	for {
		select {
		case <-done:
			return
		case <-time.After(time.Millisecond):
			clk.Step(50 * time.Millisecond)
		}
	}
}

func (f *following) changeAtOnce(t *testing.T, clk *testclock.FakeClock) {
	withTime(clk, func() { f.change(t) })
}

func (f *following) faultAtOnce(t *testing.T, clk *testclock.FakeClock, fault *scenarios.Fault) {
	t.Helper()
	var err error
	withTime(clk, func() { err = f.apiFault(t.Context(), fault) })
	if err != nil {
		t.Fatal(err)
	}
}

// TestAnotherFaultOfItsKindBeginsAnew: the end of the first fault does not end the second.
func TestAnotherFaultOfItsKindBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollowing(t, clock.RealClock{}, "")
		defer f.Cluster.Stop()
		stall := &scenarios.Fault{Kind: scenarios.FaultWatchStalled, For: 10 * time.Second}
		held := func() bool {
			synctest.Wait()
			return f.Cluster.Holds(corev1.SchemeGroupVersion.WithResource("services"))
		}
		for range 3 {
			if err := f.apiFault(t.Context(), stall); err != nil {
				t.Fatal(err)
			}
			time.Sleep(9 * time.Second)
			if !held() {
				t.Error("the fault ended before 9 s of 10")
			}
		}
		time.Sleep(2 * time.Second)
		if held() {
			t.Error("the fault is active after 11 s of 10")
		}
		if err := f.apiFault(t.Context(), stall); err != nil {
			t.Fatal(err)
		}
		if err := f.clear(); err != nil {
			t.Fatal(err)
		}
		if held() {
			t.Error("the fault is active after it was cleared")
		}
	})
}

// TestProxierConvergesWhateverWatchesDo deletes, recreates, moves and changes Services and EndpointSlices of all forms.
// Meanwhile watches stall, end, miss, repeat and reorder changes.
func TestProxierConvergesWhateverWatchesDo(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			objects := random.New(random.Options{Seed: seed, Families: []corev1.IPFamily{corev1.IPv4Protocol}, Services: 20})
			cluster, model := api.NewCluster(clock.RealClock{}), iptables.NewModel(corev1.IPv4Protocol)
			defer cluster.Stop()
			first := objects.Objects()
			if err := cluster.Load(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			p, err := proxier.New(proxier.Options{Tables: func(corev1.IPFamily) (iptables.Tables, error) { return model, nil }})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Watch(t.Context(), cluster.NewInformers()); err != nil {
				t.Fatal(err)
			}
			f := &following{Faults: newFaults(&pass.Env{Cluster: cluster}), proxier: p, model: model}
			lot := rand.New(rand.NewPCG(seed, 1))
			disturb := []func(){
				func() { cluster.Stall(true) }, func() { cluster.HoldServices(true) }, func() { cluster.Repeat(5) }, func() { cluster.Swap(5) },
				cluster.DropWatches, cluster.BeginGap, func() { cluster.EndGap(true) }, cluster.Heal, cluster.Forget,
			}
			for i := range 150 {
				for _, ch := range objects.Next() {
					if err := cluster.Apply(t.Context(), ch); err != nil {
						t.Fatal(err)
					}
				}
				disturb[lot.IntN(len(disturb))]()
				time.Sleep(time.Duration(lot.IntN(5000)) * time.Millisecond)
				if i%10 > 0 {
					continue
				}
				cluster.Heal()
				time.Sleep(time.Minute)
				synctest.Wait()
				if d := f.differsFrom(t, objects.Objects()); d != "" {
					t.Fatalf("seed %d, step %d: %s", seed, i, d)
				}
			}
		})
	}
}
