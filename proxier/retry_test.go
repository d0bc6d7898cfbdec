package proxier

import (
	"context"
	"errors"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/internal/seedstest"
	"synclab/proxier/config"
	"synclab/proxier/conntrack"
	"synclab/proxier/iptables"
	"synclab/proxier/plan"
)

var errKilled = errors.New("the tool was killed")

// retryInterval is well below fullSyncInterval, the hour after which a full sync runs anyway.
const retryInterval = 10 * time.Second

// runningModel is a proxier that runs in virtual time on tables in memory. Its next restores fail, failures times.
type runningModel struct {
	*Proxier
	model    *iptables.Model
	cluster  *randomCluster
	flows    *countedFlows
	failures int // number of restores that will fail
	syncs    []Sync
}

func runModel(t *testing.T, failures int) *runningModel {
	t.Helper()
	r := &runningModel{
		model: iptables.NewModel(corev1.IPv4Protocol), cluster: newRandomCluster(seedstest.Of(t), corev1.IPv4Protocol),
		flows: &countedFlows{}, failures: failures,
	}
	r.model.Fail = func(*iptables.Payload) error {
		if r.failures > 0 {
			r.failures--
			return errKilled
		}
		return nil
	}
	opts := Options{
		Config: config.New(), RetryInterval: retryInterval, Machine: Machine{RandomFully: true},
		Tables:    func(corev1.IPFamily) (iptables.Tables, error) { return r.model, nil },
		Conntrack: func(corev1.IPFamily) (conntrack.Table, error) { return r.flows, nil },
		OnSync:    func(s Sync) { r.syncs = append(r.syncs, s) },
	}
	opts.Config.ClusterCIDR = "10.128.0.0/9,fd00:128::/64"
	var err error
	if r.Proxier, err = New(opts); err != nil {
		t.Fatal(err)
	}
	r.engines[0].setNode(plan.Node{Name: "node-0", Zone: "zone-0"})
	for range 40 {
		r.cluster.step(r.engines[0])
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

// between calls do while no sync and no check runs.
func (r *runningModel) between(do func()) {
	r.engines[0].syncing.Lock()
	defer r.engines[0].syncing.Unlock()
	do()
}

// idle waits for the end of all retries, checks the syncs and returns them.
func (r *runningModel) idle(t *testing.T, failed int) []Sync {
	t.Helper()
	if err := r.WaitIdle(t.Context()); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	var syncs []Sync
	r.between(func() { syncs, r.syncs = r.syncs, nil })
	if len(syncs) != failed+1 {
		t.Fatalf("%d syncs, want %d that fail and one that does not", len(syncs), failed)
	}
	for i, s := range syncs {
		if (s.Err != nil) != (i < failed) {
			t.Errorf("sync %d of %d: %v", i+1, len(syncs), s.Err)
		}
		if i > 0 && s.Started.Sub(syncs[i-1].Finished) > retryInterval {
			t.Errorf("sync %d came %v after the failure", i+1, s.Started.Sub(syncs[i-1].Finished))
		}
	}
	if got, want := saved(t, r.model), fresh(t, r.cluster); got != want {
		t.Errorf("the tables hold\n%s\nwant\n%s", got, want)
	}
	return syncs
}

// A failed sync is retried without any event until it succeeds, whatever requested it.
func TestEveryFailureIsRetried(t *testing.T) {
	asks := map[string]func(r *runningModel, e *engine){
		"drift": func(r *runningModel, _ *engine) { r.between(func() { r.model.Flush(iptables.NAT) }) },
		"topology": func(r *runningModel, e *engine) {
			e.setNode(plan.Node{Name: "node-0", Zone: "zone-9"})
			e.setNode(plan.Node{Name: "node-0", Zone: "zone-0"})
		},
		"changes": func(r *runningModel, e *engine) {
			for range 20 {
				r.cluster.step(e)
			}
			e.trigger(true)
		},
		"forced": func(_ *runningModel, e *engine) { e.demandFull("forced") },
	}
	for reason, ask := range asks {
		t.Run(reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const failed = 3
				r := runModel(t, failed)
				if syncs := r.idle(t, failed); syncs[failed].Reason != "start" {
					t.Errorf("the first sync that succeeded: %s, want start", syncs[failed].Reason)
				}
				r.between(func() { r.failures = failed })
				ask(r, r.engines[0])
				// Drift is found within a sync period. All other causes start a sync at once. Nothing else happens in
				// that time.
				time.Sleep(r.opts.Config.IPTables.SyncPeriod.Duration)
				synctest.Wait()
				if syncs := r.idle(t, failed); syncs[failed].Reason != reason {
					t.Errorf("the sync that succeeded: %s, want %s", syncs[failed].Reason, reason)
				}
			})
		})
	}
}

// A refused Service port is reported, and retried after a wait that doubles each time. All others are served, and the
// proxier is healthy.
func TestRefusedIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := runModel(t, 0)
		r.idle(t, 0)
		livez := func(reported bool) {
			t.Helper()
			w := httptest.NewRecorder()
			r.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/livez", nil))
			if w.Code != 200 || strings.Contains(w.Body.String(), `"refused":["ns/made-1:dns UDP: `) != reported {
				t.Errorf("/livez: %d, refusal reported: %v, want 200 and %v: %s", w.Code, !reported, reported, w.Body)
			}
		}
		e, works, period := r.engines[0], r.model.Fail, r.opts.Config.IPTables.SyncPeriod.Duration
		f := &faulty{engine: e, t: t, cluster: r.cluster}
		r.between(func() {
			r.model.Fail = func(p *iptables.Payload) error {
				before, _, found := strings.Cut(string(p.Text()), ":6666\n")
				if !found {
					return nil
				}
				line := strings.Count(before, "\n") + 1
				return &iptables.RestoreError{ExitCode: 1, Line: line, Owner: p.OwnerOf(line), Err: errors.New("refused")}
			}
		})
		livez(false)
		f.udpService(1, "10.128.1.1", bad, time.Time{})
		e.trigger(true)
		const tries = 5 // after 1, 2, 4, 8 and 16 periods; each may be one period late
		time.Sleep(1<<tries*period + tries*period)
		synctest.Wait()
		livez(true)
		retries := 0
		r.between(func() {
			for _, s := range r.syncs {
				if s.Err != nil || len(s.Refused) != 1 {
					t.Errorf("sync: %v, refused: %v", s.Err, s.Refused)
				}
				if s.Reason == "refused" {
					retries++
				}
			}
			r.syncs = nil
		})
		if retries != tries {
			t.Errorf("%d retries, want %d", retries, tries)
		}
		// A second Service port is refused: the wait starts again.
		f.udpService(2, "10.128.1.2", bad, time.Time{})
		e.trigger(true)
		time.Sleep(2*period + time.Second)
		synctest.Wait()
		r.between(func() {
			if last := r.syncs[len(r.syncs)-1]; last.Reason != "refused" || len(last.Refused) != 2 {
				t.Errorf("after a second one: %s, refused: %v", last.Reason, last.Refused)
			}
			r.syncs, r.model.Fail = nil, works
		})
		time.Sleep(fullSyncInterval)
		r.idle(t, 0)
		livez(false)
	})
}

// Addresses change without an event. The proxier reads those that take NodePorts once every sync period.
func TestAddressesChange(t *testing.T) {
	addrs := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.1")}
	model := iptables.NewModel(corev1.IPv4Protocol)
	e := testEngine(t, corev1.IPv4Protocol, model, func(o *Options) {
		o.Config.NodePortAddresses = []string{"192.0.2.0/24"}
		o.Addresses = func() ([]netip.Addr, error) { return addrs, nil }
	})
	for _, step := range []struct {
		addrs []string
		want  string
	}{
		{[]string{"192.0.2.1"}, ""}, // an address that takes no NodePorts is gone
		{[]string{"192.0.2.2", "192.0.2.1"}, "addresses"},
		{[]string{"192.0.2.1", "192.0.2.2"}, ""},
		{nil, "addresses"},
		{nil, ""},
	} {
		if err := e.sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		addrs = nil
		for _, a := range step.addrs {
			addrs = append(addrs, netip.MustParseAddr(a))
		}
		if e.check(t.Context()); e.full != step.want {
			t.Errorf("addresses %v: requested a full sync for %q, want %q", addrs, e.full, step.want)
		}
	}
}

// A first sync that keeps failing shows in /livez until a sync succeeds.
func TestLivezTellsOfFailingStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 1000
		r := runModel(t, many)
		status := func() int {
			w := httptest.NewRecorder()
			r.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/livez", nil))
			return w.Code
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := status(); got != 503 {
			t.Errorf("/livez of a proxier that never succeeded: %d, want 503", got)
		}
		if n := many - r.failures; n < 10*60/int(retryInterval/time.Second) {
			t.Errorf("%d tries in 10 minutes", n)
		}
		r.between(func() { r.failures = 0 })
		if err := r.WaitIdle(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := status(); got != 200 {
			t.Errorf("/livez after the first success: %d, want 200", got)
		}
	})
}

// countedFlows counts the attempts to clean a table.
type countedFlows struct {
	conntrack.Memory
	tries int
}

func (c *countedFlows) DeleteUDP(ctx context.Context, family corev1.IPFamily, stale func(conntrack.Flow) bool) (conntrack.Pass, error) {
	c.tries++
	return c.Memory.DeleteUDP(ctx, family, stale)
}

// A failing conntrack cleanup, as on a kernel without nf_conntrack_netlink, fails no sync and no health check: the
// rules are in the kernel. The cleanup is retried without events, and deletes the flows as soon as it works.
func TestConntrackFailureFailsNoSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := runModel(t, 0)
		r.idle(t, 0)
		e := r.engines[0]
		f := &faulty{engine: e, t: t, cluster: r.cluster}
		r.postSync.health.SyncNode(&corev1.Node{})
		r.flows.Fail(errors.New("protocol not supported"))
		due := time.Now().Add(time.Second)
		frontend := f.udpService(1, "10.128.1.1", 5353, due)
		r.flows.Add(flowTo(frontend+":53", "10.128.1.9:5353"))
		before := r.flows.tries
		e.trigger(true)
		const dead = 10 * time.Minute
		time.Sleep(dead)
		synctest.Wait()
		if len(r.syncs) == 0 || r.syncs[0].Err != nil {
			t.Fatalf("syncs: %v, want one that succeeds", r.syncs)
		}
		syncs := r.idle(t, 0)
		if times := syncs[0].TriggerTimes; len(times) != 1 || !times[0].Equal(due) {
			t.Errorf("trigger times %v, want %v", times, due)
		}
		for _, path := range []string{"/healthz", "/livez"} {
			w := httptest.NewRecorder()
			if r.Handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil)); w.Code != 200 {
				t.Errorf("%s: %d, want 200: %s", path, w.Code, w.Body)
			}
		}
		const least = int(dead / retryInterval)
		if tries := r.flows.tries - before; tries < least || tries > least+10 {
			t.Errorf("%d tries to clean in %v, want one each %v after the first ones", tries, dead, retryInterval)
		}

		// New work is tried at once and does not move the retry.
		before = r.flows.tries
		for i := range 5 {
			f.udpService(2+i, "10.128.1.2", 5353, due)
			e.trigger(true)
			time.Sleep(retryInterval / 5)
		}
		synctest.Wait()
		if tries := r.flows.tries - before; tries != 5+1 {
			t.Errorf("%d tries to clean during %v with five changes, want six", tries, retryInterval)
		}
		r.between(func() { r.syncs = nil })

		r.flows.Fail(nil)
		time.Sleep(retryInterval)
		synctest.Wait()
		if left := r.flows.Flows(); len(left) > 0 {
			t.Errorf("stale flows remain: %v", left)
		}
		before = r.flows.tries
		time.Sleep(dead)
		if tries := r.flows.tries - before; tries != 0 || len(r.syncs) != 0 {
			t.Errorf("%d tries to clean and %d syncs after flows were cleaned", tries, len(r.syncs))
		}
	})
}
