package bench

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

	"synclab/proxier"
	"synclab/proxier/iptables"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/front"
)

// apiFaultKinds are all that break how changes reach the subject.
var apiFaultKinds = []string{
	scenarios.FaultWatchDropped, scenarios.FaultWatchStalled, scenarios.FaultRelist, scenarios.FaultEventsRepeated,
	scenarios.FaultEventsSwapped, scenarios.FaultSlicesFirst, scenarios.FaultAPIDown,
}

// following is a proxier over a model that follows a repetition's cluster.
type following struct {
	*repetition
	proxier *proxier.Proxier
	model   *iptables.Model
}

func newFollowing(t *testing.T, clk clock.WithTicker, feed string) *following {
	t.Helper()
	shape := scenarios.Shape{Services: 40, Types: map[string]float64{"NodePort": 0.2}}
	f := &following{repetition: &repetition{clock: clk, say: newSpeaker(io.Discard)}, model: iptables.NewModel(corev1.IPv4Protocol)}
	f.Feed, f.Scenario.Shape, f.world = feed, shape, benchWorld(t, shape)
	f.fail = func(err error) { t.Error(err) }
	name := "1:fault"
	f.step.Store(&name)
	f.cluster = sim.NewCluster(clk)
	if err := f.cluster.Load(t.Context(), f.world.Objects()); err != nil {
		t.Fatal(err)
	}
	var err error
	f.proxier, err = proxier.New(proxier.Options{Tables: func(corev1.IPFamily) (iptables.Tables, error) { return f.model, nil }})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// differs syncs, and says how the model differs from what a fresh proxier makes of the world; empty: it does not.
func (f *following) differs(t *testing.T) string { return f.differsFrom(t, f.world.Objects()) }

func (f *following) differsFrom(t *testing.T, o *sim.Objects) string {
	t.Helper()
	if err := f.proxier.SyncNow(t.Context()); err != nil {
		t.Fatal(err)
	}
	var node *corev1.Node
	for _, n := range o.Nodes {
		if n.Name == "node-0" { // the proxier's
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

// difference is the first line in which two texts differ.
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

// change plays some changes of all kinds.
func (f *following) change(t *testing.T) {
	t.Helper()
	churn := scenarios.Churn{Rate: 100, Events: 60, Kind: "mixed"}
	if err := f.play(t.Context(), "change", func() (sim.Trace, error) { return f.world.Churn(churn) }); err != nil {
		t.Fatal(err)
	}
}

// TestProxierConvergesAfterFaultsInProcess: each fault, ended by its time and healed before.
func TestProxierConvergesAfterFaultsInProcess(t *testing.T) {
	for _, kind := range apiFaultKinds {
		for _, early := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				f := newFollowing(t, clock.RealClock{}, "")
				defer f.cluster.Stop()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if err := f.proxier.Watch(ctx, f.cluster.NewInformers()); err != nil {
					t.Fatal(err)
				}
				f.change(t)
				if err := f.apiFault(ctx, &scenarios.Fault{Kind: kind, Times: 20, For: time.Minute}); err != nil {
					t.Fatal(err)
				}
				f.change(t)
				if early {
					if err := f.healAPI(); err != nil {
						t.Fatal(err)
					}
				} else {
					time.Sleep(2 * time.Minute) // of virtual time
				}
				time.Sleep(time.Minute) // reflectors back off
				synctest.Wait()
				if d := f.differs(t); d != "" {
					t.Errorf("%s, healed early: %v: %s", kind, early, d)
				}
			})
		}
	}
}

// TestProxierConvergesAfterFaultsOverHTTP: the same with a proxier that asks the API front.
func TestProxierConvergesAfterFaultsOverHTTP(t *testing.T) {
	for i, kind := range apiFaultKinds {
		for _, early := range []bool{false, true} {
			t.Run(kind+map[bool]string{true: "/healed"}[early], func(t *testing.T) {
				clk := testclock.NewFakeClock(time.Now())
				f := newFollowing(t, clk, FeedAPI)
				defer f.cluster.Stop()
				f.Scenario.Seed = uint64(i)
				fault := &scenarios.Fault{Kind: kind, Times: 20, For: time.Minute}
				before := kind == scenarios.FaultEventsSwapped // comes before there is an API
				if before {
					if err := f.breakAPI(t.Context(), fault, "1:fault"); err != nil {
						t.Fatal(err)
					}
				}
				client := f.serveAPI(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer func() {
					if err := f.endFaults(ctx); err != nil {
						t.Error(err)
					}
				}()
				factory := informers.NewSharedInformerFactory(client, 0)
				defer factory.Shutdown()
				defer cancel()
				if err := f.beginAPIFaults(t.Context()); err != nil {
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
					if err := f.healAPI(); err != nil {
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

// serveAPI puts a front before the cluster, and gives its client.
func (f *following) serveAPI(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	api, err := front.New(f.cluster, front.Options{})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := front.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.api.serve(api, listener)
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

// withTime moves the clock while something waits for it.
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

// TestAnotherFaultOfItsKindBeginsAnew: the end of the first is not the end of the second.
func TestAnotherFaultOfItsKindBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollowing(t, clock.RealClock{}, "")
		defer f.cluster.Stop()
		stall := &scenarios.Fault{Kind: scenarios.FaultWatchStalled, For: 10 * time.Second}
		held := func() bool {
			synctest.Wait()
			return f.cluster.Holds(corev1.SchemeGroupVersion.WithResource("services"))
		}
		for range 3 {
			if err := f.apiFault(t.Context(), stall); err != nil {
				t.Fatal(err)
			}
			time.Sleep(9 * time.Second)
			if !held() {
				t.Error("not held any more after 9 s of 10")
			}
		}
		time.Sleep(2 * time.Second)
		if held() {
			t.Error("still held after 11 s of 10")
		}
		if err := f.apiFault(t.Context(), stall); err != nil {
			t.Fatal(err)
		}
		if err := f.healAPI(); err != nil {
			t.Fatal(err)
		}
		if held() {
			t.Error("still held when healed")
		}
	})
}

// TestProxierConvergesWhateverWatchesDo: Services and EndpointSlices of all forms go, come back under the same names, move
// and change, while watches stall, end, miss changes, repeat and swap them.
func TestProxierConvergesWhateverWatchesDo(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			objects := sim.NewRandomCluster(sim.RandomOptions{Seed: seed, Families: []corev1.IPFamily{corev1.IPv4Protocol}, Services: 20})
			cluster, model := sim.NewCluster(clock.RealClock{}), iptables.NewModel(corev1.IPv4Protocol)
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
			f := &following{repetition: &repetition{cluster: cluster}, proxier: p, model: model}
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
