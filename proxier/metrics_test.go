package proxier

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/conntrack"
	"synclab/proxier/iptables"
)

// total sums a counter over its labels, or counts a histogram's observations.
func total(t *testing.T, registry *prometheus.Registry, name string) (sum int) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "kubeproxy_"+name {
				sum += int(m.GetCounter().GetValue()) + int(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// Only a failed restore counts as a restore failure; a failed conntrack cleanup does not.
func TestMetricsOfFailedSyncs(t *testing.T) {
	flows, model := &conntrack.Memory{}, iptables.NewModel(corev1.IPv4Protocol)
	e := testEngine(t, corev1.IPv4Protocol, model, func(o *Options) {
		o.Conntrack = func(corev1.IPFamily) (conntrack.Table, error) { return flows, nil }
	})
	svc, slice := plainService("svc", "10.96.0.1", 0), plainSlice("svc", "10.128.0.1")
	udp(svc, slice)
	e.tracker.SetService(svc, time.Time{})
	e.tracker.SetSlice(slice, time.Time{})
	flows.Add(flowTo("10.96.0.1:80", "10.128.0.9:8080"))
	count := func(when string, want map[string]int) {
		t.Helper()
		for name, n := range want {
			if got := total(t, e.opts.Registry, name); got != n {
				t.Errorf("%s: %s = %d, want %d", when, name, got, n)
			}
		}
	}
	const (
		restores = "sync_proxy_rules_iptables_restore_failures_total"
		changes  = "sync_proxy_rules_service_changes_total"
		deleted  = "conntrack_reconciler_deleted_entries_total"
		cleaned  = "conntrack_reconciler_sync_duration_seconds"
	)
	sync := func(want bool) {
		t.Helper()
		if err := e.sync(t.Context()); (err == nil) != want {
			t.Fatalf("sync = %v", err)
		}
	}
	model.Fail = func(*iptables.Payload) error { return &iptables.RestoreError{ExitCode: -1, Err: errKilled} }
	sync(false)
	count("restore failed", map[string]int{restores: 1, changes: 0, deleted: 0, cleaned: 0})
	model.Fail = nil
	flows.Fail(errors.New("no memory"))
	sync(true)
	count("rules written, flows not cleaned", map[string]int{restores: 1, changes: 1, deleted: 0, cleaned: 1})
	flows.Fail(nil)
	e.demandFull("forced") // does not start the retry of the cleanup early
	sync(true)
	count("flows cleaned", map[string]int{restores: 1, changes: 1, deleted: 1, cleaned: 2})
	sync(true)
	count("nothing to clean", map[string]int{restores: 1, changes: 1, deleted: 1, cleaned: 2})
}

// slowFlows is a conntrack table that takes a while to read.
type slowFlows time.Duration

func (s slowFlows) DeleteUDP(context.Context, corev1.IPFamily, func(conntrack.Flow) bool) (conntrack.Pass, error) {
	time.Sleep(time.Duration(s))
	return conntrack.Pass{}, nil
}

// As in kube-proxy, a sync ends after health, metrics and the cleanup of stale flows. Changes are visible earlier: when
// the kernel has all rules.
func TestDurationOfASync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const restore, clean = 3 * time.Second, 5 * time.Second
		var last Sync
		model := iptables.NewModel(corev1.IPv4Protocol)
		model.Fail = func(*iptables.Payload) error { time.Sleep(restore); return nil }
		e := testEngine(t, corev1.IPv4Protocol, model, func(o *Options) {
			o.Conntrack = func(corev1.IPFamily) (conntrack.Table, error) { return slowFlows(clean), nil }
			o.OnSync = func(s Sync) { last = s }
		})
		due := time.Now()
		f := &faulty{engine: e, t: t, cluster: newRandomCluster(1, corev1.IPv4Protocol)}
		sums := map[string]time.Duration{}
		for _, name := range []string{"sync_full_proxy_rules_duration_seconds", "sync_partial_proxy_rules_duration_seconds"} {
			f.udpService(1, "10.128.1."+strconv.Itoa(1+len(sums)), 5353, due)
			if err := e.sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			if written, whole := last.Written.Sub(last.Started), last.Duration(); written != restore || whole != restore+clean {
				t.Errorf("%s sync: written after %v, over after %v, want %v and %v", last.Kind, written, whole, restore, restore+clean)
			}
			sums[name] = restore + clean
		}
		sums["sync_proxy_rules_duration_seconds"] = 2 * (restore + clean)
		sums["network_programming_duration_seconds"] = restore + (restore + clean + restore)
		for name, want := range sums {
			if got := observed(t, e.opts.Registry, name); got != want {
				t.Errorf("%s adds up to %v, want %v", name, got, want)
			}
		}
	})
}

// observed is the sum of a histogram of seconds.
func observed(t *testing.T, registry *prometheus.Registry, name string) (sum time.Duration) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "kubeproxy_"+name {
				sum += time.Duration(m.GetHistogram().GetSampleSum() * float64(time.Second))
			}
		}
	}
	return sum
}

// As in kube-proxy, a refused restore counts once, even if the same sync then writes everything or isolates a Service
// port. A refused restore of a partial sync also counts as partial.
func TestMetricsOfRefusedRestores(t *testing.T) {
	model := iptables.NewModel(corev1.IPv4Protocol)
	e := testEngine(t, corev1.IPv4Protocol, model, nil)
	f := &faulty{engine: e, t: t, cluster: newRandomCluster(1, corev1.IPv4Protocol)}
	refuseIf := func(refused func(p *iptables.Payload) int) {
		model.Fail = func(p *iptables.Payload) error {
			if line := refused(p); line > 0 {
				return &iptables.RestoreError{ExitCode: 1, Line: line, Owner: p.OwnerOf(line), Err: errors.New("refused")}
			}
			return nil
		}
	}
	once := func() func(*iptables.Payload) int {
		left := 1
		return func(*iptables.Payload) int { left--; return max(0, left+1) }
	}
	always := func(p *iptables.Payload) int {
		before, _, found := strings.Cut(string(p.Text()), ":6666\n")
		if !found {
			return 0
		}
		return strings.Count(before, "\n") + 1
	}
	for i, step := range []struct {
		what              string
		port              int32
		refused           func(*iptables.Payload) int
		restores, partial int
	}{
		{"first sync", 5353, nil, 0, 0},
		{"partial sync, healed", 5353, once(), 1, 1},
		{"partial sync, isolated", bad, always, 2, 2},
		{"partial sync, nothing refused", 5353, nil, 2, 2},
		{"full sync, isolated", bad, always, 3, 2},
	} {
		model.Fail = nil
		if step.refused != nil {
			refuseIf(step.refused)
		}
		f.udpService(1+i, fmt.Sprintf("10.128.1.%d", 1+i), step.port, time.Time{})
		if strings.HasPrefix(step.what, "full") {
			e.demandFull("forced")
		}
		if err := e.sync(t.Context()); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		for name, want := range map[string]int{
			"sync_proxy_rules_iptables_restore_failures_total":         step.restores,
			"sync_proxy_rules_iptables_partial_restore_failures_total": step.partial,
		} {
			if got := total(t, e.opts.Registry, name); got != want {
				t.Errorf("%s: %s = %d, want %d", step.what, name, got, want)
			}
		}
	}
}
