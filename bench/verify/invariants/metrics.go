package invariants

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// The metrics that are compared with the kernel. The gauge of rules written by the last sync is not among them: a sync
// in several steps writes some rules more than once.
const (
	rulesTotal      = "kubeproxy_sync_proxy_rules_iptables_total"
	restoreFailures = "kubeproxy_sync_proxy_rules_iptables_restore_failures_total"
	nftFailures     = "kubeproxy_sync_proxy_rules_nftables_sync_failures_total"
	servicesPending = "kubeproxy_sync_proxy_rules_service_changes_pending"
	slicesPending   = "kubeproxy_sync_proxy_rules_endpoint_changes_pending"
)

// checkMetrics: the gauges of rules match the kernel. Every restore that a fault made fail was counted. No changes are
// pending.
func checkMetrics(_ context.Context, e *Evidence, r *report) error {
	for _, name := range []string{servicesPending, slicesPending} {
		pending, reported := e.Metrics.Value(name)
		switch {
		case !reported && e.Subject.Serves:
			r.violated("", "/metrics has no %s", name)
		case reported:
			r.checked++
			if pending != 0 && e.Settled == nil {
				r.violated("", "%s is %v, although the subject has converged", name, pending)
			}
		}
	}
	failures := restoreFailures
	if e.Subject.Nftables() {
		failures = nftFailures
	}
	for _, family := range slices.Sorted(maps.Keys(e.Injected)) {
		counted, _ := e.Metrics.Value(failures, "ip_family", string(family))
		r.checked++
		if int(counted) < e.Injected[family] {
			r.violated("", "%s: %s is %v after %d injected restore failures", family, failures, counted, e.Injected[family])
		}
	}
	if !e.Subject.Iptables() || e.Saved == nil {
		return nil
	}
	for _, family := range e.Families {
		for _, table := range []string{"nat", "filter"} {
			e.checkRulesGauges(family, table, r)
		}
	}
	return nil
}

func (e *Evidence) checkRulesGauges(family corev1.IPFamily, table string, r *report) {
	rules := 0
	for name, c := range e.Saved[family][table] {
		if ownChain(name) {
			rules += len(c.Rules)
		}
	}
	total, reported := e.Metrics.Value(rulesTotal, "table", table, "ip_family", string(family))
	if !reported {
		if e.Subject.Serves {
			r.violated("", "%s: /metrics has no %s of table %s", family, rulesTotal, table)
		}
		return
	}
	r.checked++
	if int(total) != rules {
		r.violated("", "%s: %s of table %s is %v, but the kernel has %d rules of the subject in this table", family, rulesTotal, table, total, rules)
	}
}
