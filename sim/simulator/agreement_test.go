package simulator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"synclab/bench/seeds"
	"synclab/proxier"
	"synclab/proxier/config"
	"synclab/proxier/iptables"
	"synclab/proxier/runner"
	"synclab/sim"
	"synclab/sim/api"
)

// small is a cluster of Services with one EndpointSlice of a few endpoints each.
type small struct {
	services []*corev1.Service
	slices   []*discoveryv1.EndpointSlice
	pods     int // pods ever made
}

const endpointsEach = 4

func newSmall(services int) *small {
	s := &small{}
	for i := range services {
		meta := metav1.ObjectMeta{Namespace: "default", Name: "web-" + strconv.Itoa(i)}
		s.services = append(s.services, &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: fmt.Sprintf("10.96.%d.%d", i/250, 1+i%250),
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
		}})
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
			Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)}},
		}
		slice.Labels = map[string]string{discoveryv1.LabelServiceName: meta.Name}
		for range endpointsEach {
			slice.Endpoints = append(slice.Endpoints, s.pod())
		}
		s.slices = append(s.slices, slice)
	}
	return s
}

func (s *small) pod() discoveryv1.Endpoint {
	s.pods++
	return discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 128+s.pods>>16, s.pods>>8&255, s.pods&255)}}
}

// trace replaces, with each event, an endpoint of its Service by a new one. Simultaneous events are spread by one
// nanosecond each: otherwise it would be random which of them a sync that begins then takes.
func (s *small) trace(source Source, length time.Duration) sim.Trace {
	var t sim.Trace
	last := time.Duration(-1)
	for e, ok := source.Next(); ok && e.Due < length; e, ok = source.Next() {
		last = max(e.Due, last+1)
		slice := s.slices[e.Service].DeepCopy()
		slice.Endpoints = append(slice.Endpoints[1:], s.pod())
		s.slices[e.Service] = slice
		t = append(t, sim.Change{Due: last, Op: sim.Update, Object: slice})
	}
	return t
}

// paid are tables in memory. Their restores take, in virtual time, what a Cost draws for their input, and fail as
// often as in the simulator.
type paid struct {
	*iptables.Model
	settings Settings
	rng      *rand.Rand
	services int
	restores int
}

var errRestore = errors.New("restore failed as planned")

func (p *paid) Restore(ctx context.Context, payload *iptables.Payload) (iptables.Run, error) {
	p.restores++
	written := bytes.Count(payload.Text(), []byte("\n:KUBE-SVC-"))
	kind := Partial
	if written == p.services {
		kind = Full
	}
	time.Sleep(p.settings.Cost.Sync(kind, written, written, p.rng))
	if p.settings.FailProbability > 0 && p.rng.Float64() < p.settings.FailProbability {
		return iptables.Run{Tool: "paid", ExitCode: 1}, &iptables.RestoreError{Tool: "paid", ExitCode: 1, Err: errRestore}
	}
	return p.Model.Restore(ctx, payload)
}

// real plays a trace to a whole proxier, on real informers, in virtual time, with the Settings' runner options.
func (s *small) real(t *testing.T, first *sim.Objects, trace sim.Trace, set Settings, until time.Duration) (syncs []Sync, latencies map[time.Duration]time.Duration) {
	latencies = map[time.Duration]time.Duration{}
	synctest.Test(t, func(t *testing.T) {
		cluster := api.NewCluster(clock.RealClock{})
		defer cluster.Stop()
		if err := cluster.Load(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		tables := &paid{
			Model: iptables.NewModel(corev1.IPv4Protocol), settings: set, services: len(s.services),
			rng: rand.New(rand.NewPCG(set.Seed, forNode)),
		}
		cfg := config.New()
		cfg.ClusterCIDR = "10.128.0.0/9"
		cfg.IPTables.MinSyncPeriod.Duration = set.Runner.MinInterval
		began := time.Now()
		p, err := proxier.New(proxier.Options{
			Config: cfg, Policy: set.Runner.Policy, Burst: set.Runner.Burst, RetryInterval: set.Runner.RetryInterval,
			Tables: func(corev1.IPFamily) (iptables.Tables, error) { return tables, nil },
			OnSync: func(r proxier.Sync) {
				syncs = append(syncs, Sync{
					Kind: string(r.Kind), Start: r.Started.Sub(began), End: r.Finished.Sub(began),
					Services: r.Changes, Changes: r.Events, Failed: r.Err != nil,
				})
				if r.Err != nil {
					return
				}
				for _, due := range r.TriggerTimes {
					latencies[due.Sub(began)] = r.Finished.Sub(due)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if err := p.Watch(ctx, cluster.NewInformers()); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		if err := cluster.Play(ctx, trace, api.PlayOptions{Start: began}); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Until(began.Add(until)))
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if tables.restores != len(syncs) {
			t.Errorf("%d restores in %d syncs", tables.restores, len(syncs))
		}
	})
	return syncs, latencies
}

func (s *small) objects() *sim.Objects { return &sim.Objects{Services: s.services, Slices: s.slices} }

// agreements are scenarios for both the simulator and the proxier.
func agreements(t *testing.T) map[string]struct {
	settings Settings
	source   Source
	length   time.Duration
} {
	t.Helper()
	must := func(s Source, err error) Source {
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	const services = 60
	p := Population{Services: services}
	seed := seeds.Of(t)
	cost := Linear{Full: 1700 * time.Millisecond, Partial: 43 * time.Millisecond, PerService: 11 * time.Millisecond, Spread: 0.2}
	with := func(change func(*Settings)) Settings {
		s := Synclab(cost, true)
		s.Seed = seed
		change(&s)
		return s
	}
	return map[string]struct {
		settings Settings
		source   Source
		length   time.Duration
	}{
		"steady": {with(func(*Settings) {}), must(Poisson{Population: p, Rate: Rate{PerSecond: 5}}.Source(seed)), 4 * time.Minute},
		"steady, completion to start": {
			with(func(s *Settings) { s.Runner.Policy = runner.CompletionToStart }),
			must(Poisson{Population: p, Rate: Rate{PerSecond: 5}}.Source(seed)), 4 * time.Minute,
		},
		"bursts of syncs, tight": {
			with(func(s *Settings) { s.Runner.MinInterval, s.Runner.Burst = 200*time.Millisecond, 4 }),
			must(Bursts{Population: p, Causes: Causes{Rate: Rate{PerSecond: 0.3}}, Changes: 9, Within: 2 * time.Second}.Source(seed)), 4 * time.Minute,
		},
		"slow and failing": {
			with(func(s *Settings) {
				s.Cost = Linear{Full: 9 * time.Second, Partial: 2 * time.Second, PerService: 30 * time.Millisecond, Spread: 0.5}
				s.FailProbability, s.Runner.RetryInterval = 0.3, 10*time.Second
			}),
			must(Rollouts{Population: p, Causes: Causes{Rate: Rate{PerSecond: 0.05}}, Endpoints: 10}.Source(seed)), 10 * time.Minute,
		},
		"everything fails for long": {
			with(func(s *Settings) { s.FailProbability = 0.8 }),
			Merge(must(NodeLosses{Population: p, Causes: Causes{At: []time.Duration{time.Minute}}, Pods: 30, EvictAfter: time.Minute}.Source(seed)),
				must(Poisson{Population: p, Rate: Rate{PerSecond: 0.2}}.Source(seed))), 10 * time.Minute,
		},
		"hourly": {
			with(func(*Settings) {}), must(Poisson{Population: p, Rate: Rate{PerSecond: 0.02, Swing: 1, Period: 3 * time.Hour}}.Source(seed)), 8 * time.Hour,
		},
	}
}

// The simulator agrees with a whole proxier, on real informers, whose restores take what the simulator's Cost draws.
// Every sync has the same kind, starts and ends at the same nanosecond and takes as many changes. Every change has the
// same network programming latency.
func TestSimulatorIsTheProxier(t *testing.T) {
	const settle = 10 * time.Minute
	for name, a := range agreements(t) {
		t.Run(name, func(t *testing.T) {
			cluster := newSmall(60)
			first := cluster.objects()
			first.Slices = append([]*discoveryv1.EndpointSlice(nil), first.Slices...)
			trace := cluster.trace(a.source, a.length)
			want, wantLatencies := cluster.real(t, first, trace, a.settings, a.length+settle)

			events, _ := Recorded(trace)
			var got []Sync
			latencies := map[time.Duration]time.Duration{}
			r, err := Run(a.settings, List(events), Options{
				Span:     Span{Length: a.length, Settle: settle},
				OnSync:   func(s Sync) { got = append(got, s) },
				OnChange: func(due, latency time.Duration) { latencies[due] = latency },
			})
			if err != nil {
				t.Fatal(err)
			}
			compareSyncs(t, want, got)
			for due, latency := range wantLatencies {
				if latencies[due] != latency {
					t.Errorf("a change due at %v had a latency of %v, in the simulator %v", due, latency, latencies[due])
				}
			}
			if len(latencies) != len(wantLatencies) || len(latencies)+int(r.Waiting) != len(trace) {
				t.Errorf("%d changes, latencies of %d, in the simulator of %d, where %d wait", len(trace), len(wantLatencies), len(latencies), r.Waiting)
			}
			t.Logf("%d changes, %d syncs (%d full, %d failed), p50 %v, p99 %v", len(trace), len(got), r.FullSyncs, r.Failed,
				r.Latency.Quantile(0.5), r.Latency.Quantile(0.99))
		})
	}
}

// compareSyncs compares all but causes, which the proxier does not report. The first sync takes the first list, which
// is no change for the simulator; so do syncs that repeat a failed first one.
func compareSyncs(t *testing.T, want, got []Sync) {
	t.Helper()
	listed := false
	for i := range min(len(want), len(got)) {
		w, g := want[i], got[i]
		g.Cause = 0
		if !listed {
			w.Services, w.Changes = g.Services, g.Changes
			listed = !w.Failed
		}
		if w != g {
			t.Fatalf("sync %d is %+v, in the simulator %+v", i+1, w, g)
		}
	}
	if len(want) != len(got) {
		t.Fatalf("%d syncs, in the simulator %d", len(want), len(got))
	}
}
