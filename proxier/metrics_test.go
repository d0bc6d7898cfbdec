package proxier

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/conntrack"
	"synclab/proxier/iptables"
)

// total of a counter over its labels, or of a histogram's observations.
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

// What a sync did counts although a later part of it failed, and only a failed restore counts as one.
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
	sync(false)
	count("rules written, flows not cleaned", map[string]int{restores: 1, changes: 1, deleted: 0, cleaned: 1})
	flows.Fail(nil)
	sync(true)
	count("flows cleaned", map[string]int{restores: 1, changes: 1, deleted: 1, cleaned: 2})
	sync(true)
	count("nothing to clean", map[string]int{restores: 1, changes: 1, deleted: 1, cleaned: 2})
}
