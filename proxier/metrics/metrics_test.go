package metrics

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
)

// gather returns every sample of a registry as "name{labels}" → value. For a histogram, the values are the number and
// the sum of its observations.
func gather(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	samples := map[string]float64{}
	for _, mf := range families {
		for _, m := range mf.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			key := mf.GetName() + "{" + strings.Join(labels, ",") + "}"
			switch mf.GetType() {
			case dto.MetricType_HISTOGRAM:
				samples[key+" count"] = float64(m.GetHistogram().GetSampleCount())
				samples[key+" sum"] = m.GetHistogram().GetSampleSum()
			case dto.MetricType_GAUGE:
				samples[key] = m.GetGauge().GetValue()
			default:
				samples[key] = m.GetCounter().GetValue()
			}
		}
	}
	return samples
}

func TestEveryMetric(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	counting := false
	c, err := New(Options{
		Registerer:         reg,
		Families:           []corev1.IPFamily{corev1.IPv4Protocol},
		InvalidDropped:     func() (uint64, bool) { return 12, true },
		LocalhostNodePorts: func() (uint64, bool) { return 13, counting },
	})
	if err != nil {
		t.Fatal(err)
	}
	f := c.For(corev1.IPv4Protocol)
	f.Queued(time.UnixMilli(1500))
	f.Synced(true, 2*time.Second)
	f.Synced(false, time.Second)
	f.LastSynced(time.Unix(3, 0))
	f.Programmed(4 * time.Second)
	f.Changed(5, 6)
	f.RestoreFailed(true)
	f.RestoreFailed(false)
	f.TransactionFailed(false)
	f.TransactionFailed(false)
	f.TransactionFailed(true)
	f.Rules("nat", 70, 7)
	f.Refused(6)
	f.NoLocalEndpoints(8, 9)
	f.ConntrackCleaned(time.Second, 10)
	c.HealthzTotal.WithLabelValues("200").Inc()
	c.LivezTotal.WithLabelValues("503").Inc()

	want := map[string]float64{
		"kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family=IPv4}":                    1.5,
		"kubeproxy_sync_proxy_rules_duration_seconds{ip_family=IPv4} count":                           2,
		"kubeproxy_sync_proxy_rules_duration_seconds{ip_family=IPv4} sum":                             3,
		"kubeproxy_sync_full_proxy_rules_duration_seconds{ip_family=IPv4} count":                      1,
		"kubeproxy_sync_full_proxy_rules_duration_seconds{ip_family=IPv4} sum":                        2,
		"kubeproxy_sync_partial_proxy_rules_duration_seconds{ip_family=IPv4} count":                   1,
		"kubeproxy_sync_partial_proxy_rules_duration_seconds{ip_family=IPv4} sum":                     1,
		"kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=IPv4}":                           3,
		"kubeproxy_network_programming_duration_seconds{ip_family=IPv4} count":                        1,
		"kubeproxy_network_programming_duration_seconds{ip_family=IPv4} sum":                          4,
		"kubeproxy_sync_proxy_rules_service_changes_total{}":                                          5,
		"kubeproxy_sync_proxy_rules_endpoint_changes_total{}":                                         6,
		"kubeproxy_sync_proxy_rules_service_changes_pending{}":                                        0,
		"kubeproxy_sync_proxy_rules_endpoint_changes_pending{}":                                       0,
		"kubeproxy_sync_proxy_rules_iptables_restore_failures_total{ip_family=IPv4}":                  2,
		"kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total{ip_family=IPv4}":          1,
		"kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family=IPv4}":                     2,
		"kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total{ip_family=IPv4}":                  1,
		"kubeproxy_sync_proxy_rules_iptables_total{ip_family=IPv4,table=nat}":                         70,
		"kubeproxy_sync_proxy_rules_iptables_last{ip_family=IPv4,table=nat}":                          7,
		"kubeproxy_sync_proxy_rules_refused_ports{ip_family=IPv4}":                                    6,
		"kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family=IPv4,traffic_policy=internal}": 8,
		"kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family=IPv4,traffic_policy=external}": 9,
		"kubeproxy_conntrack_reconciler_sync_duration_seconds{ip_family=IPv4} count":                  1,
		"kubeproxy_conntrack_reconciler_sync_duration_seconds{ip_family=IPv4} sum":                    1,
		"kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family=IPv4}":                        10,
		"kubeproxy_proxy_healthz_total{code=200}":                                                     1,
		"kubeproxy_proxy_livez_total{code=503}":                                                       1,
		"kubeproxy_iptables_ct_state_invalid_dropped_packets_total{}":                                 12,
	}
	if diff := cmp.Diff(want, gather(t, reg)); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
	counting = true
	if got := gather(t, reg)["kubeproxy_iptables_localhost_nodeports_accepted_packets_total{}"]; got != 13 {
		t.Errorf("packets over loopback: %v, want 13 once the kernel counts", got)
	}
}

func TestPendingIsTheSumOfTheFamilies(t *testing.T) {
	reg := prometheus.NewRegistry()
	c, err := New(Options{Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	v4, v6 := c.For(corev1.IPv4Protocol), c.For(corev1.IPv6Protocol)
	v4.Pending(3, 4)
	v6.Pending(10, 20)
	v6.Pending(0, 0)
	got := gather(t, reg)
	if s, e := got["kubeproxy_sync_proxy_rules_service_changes_pending{}"], got["kubeproxy_sync_proxy_rules_endpoint_changes_pending{}"]; s != 3 || e != 4 {
		t.Errorf("pending %v and %v after IPv6 synced, want IPv4's 3 and 4", s, e)
	}
}

func TestManyNodesInOneProcess(t *testing.T) {
	shared := prometheus.NewRegistry()
	for _, node := range []string{"node-1", "node-2"} {
		reg := prometheus.WrapRegistererWith(prometheus.Labels{"node": node}, shared)
		if _, err := New(Options{Registerer: reg}); err != nil {
			t.Fatal(err)
		}
	}
	own := prometheus.NewRegistry()
	if _, err := New(Options{Registerer: own}); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Registerer: own}); err == nil || !strings.Contains(err.Error(), "another proxier") {
		t.Errorf("a second proxier in one registry: %v", err)
	}
	if _, err := New(Options{}); err == nil {
		t.Error("accepted without a registry")
	}
}

func TestCountersExistBeforeTheFirstFailure(t *testing.T) {
	reg := prometheus.NewRegistry()
	if _, err := New(Options{Registerer: reg}); err != nil {
		t.Fatal(err)
	}
	names := slices.Collect(maps.Keys(gather(t, reg)))
	for _, family := range []string{"IPv4", "IPv6"} {
		if name := "kubeproxy_sync_proxy_rules_iptables_restore_failures_total{ip_family=" + family + "}"; !slices.Contains(names, name) {
			t.Errorf("%s is missing before the first failure", name)
		}
	}
}

func TestBuckets(t *testing.T) {
	sync := SyncBuckets()
	if len(sync) != 15 || sync[0] != 0.001 || sync[14] != 16.384 {
		t.Errorf("sync buckets %v", sync)
	}
	programming := NetworkProgrammingBuckets()
	if len(programming) != 80 || !slices.IsSorted(programming) || programming[1] != 0.5 || programming[60] != 59 || programming[72] != 115 || programming[79] != 300 {
		t.Errorf("network programming buckets %v", programming)
	}
}
