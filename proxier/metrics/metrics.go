package metrics

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

const subsystem = "kubeproxy"

// SyncBuckets returns the upper bounds, in seconds, for sync durations: 1 ms to 16.384 s, each twice the previous one.
func SyncBuckets() []float64 { return prometheus.ExponentialBuckets(0.001, 2, 15) }

// NetworkProgrammingBuckets returns the upper bounds, in seconds, for network programming latency: 0.25, 0.5, 1 to 59
// by 1, 60 to 115 by 5, 120 to 300 by 30. SIG-Scalability's SLI is computed from these buckets.
func NetworkProgrammingBuckets() []float64 {
	return slices.Concat(
		[]float64{0.25, 0.5},
		prometheus.LinearBuckets(1, 1, 59),
		prometheus.LinearBuckets(60, 5, 12),
		prometheus.LinearBuckets(120, 30, 7),
	)
}

// Options configures New.
type Options struct {
	// Registerer takes the collectors. It must not contain any of the names: each proxier needs a separate registry.
	Registerer prometheus.Registerer
	// Families have series from the start; both families when empty.
	Families []corev1.IPFamily
	// InvalidDropped and LocalhostNodePorts are called at scrape time. They return the packets that the rule against
	// INVALID packets dropped, and the packets that reached a NodePort over loopback. They return false if the kernel
	// does not count them. A nil function omits its metric.
	InvalidDropped, LocalhostNodePorts func() (packets uint64, ok bool)
}

// Collectors are the metrics of one proxier with both families. It is safe for concurrent use.
type Collectors struct {
	// HealthzTotal and LivezTotal count answers by HTTP status code {code}.
	HealthzTotal, LivezTotal *prometheus.CounterVec

	syncSeconds, fullSeconds, partialSeconds *prometheus.HistogramVec
	lastSynced, lastQueued, refused          *prometheus.GaugeVec
	programming                              *prometheus.HistogramVec
	restoreFailures, partialFailures         *prometheus.CounterVec
	nftablesFailures, cleanupFailures        *prometheus.CounterVec
	rulesTotal, rulesLast, noLocal           *prometheus.GaugeVec
	conntrackSeconds                         *prometheus.HistogramVec
	conntrackDeleted                         *prometheus.CounterVec
	endpointChanges, serviceChanges          prometheus.Counter
	endpointsPending, servicesPending        prometheus.Gauge

	mu      sync.Mutex
	pending map[corev1.IPFamily]pendingChanges
}

type pendingChanges struct{ services, endpoints int }

// New registers the metrics of one proxier.
func New(opts Options) (*Collectors, error) {
	if opts.Registerer == nil {
		return nil, errors.New("metrics: Options.Registerer is nil")
	}
	if len(opts.Families) == 0 {
		opts.Families = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	}
	c := &Collectors{pending: map[corev1.IPFamily]pendingChanges{}}
	for _, collector := range c.collectors(opts) {
		err := opts.Registerer.Register(collector)
		if taken := (prometheus.AlreadyRegisteredError{}); errors.As(err, &taken) {
			err = fmt.Errorf("another proxier uses this registry: %w", err)
		}
		if err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	for _, family := range opts.Families {
		c.For(family)
	}
	return c, nil
}

// collectors makes all collectors in kube-proxy's order.
func (c *Collectors) collectors(opts Options) []prometheus.Collector {
	var list []prometheus.Collector
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: help}, labels)
		list = append(list, v)
		return v
	}
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: subsystem, Name: name, Help: help}, labels)
		list = append(list, v)
		return v
	}
	histograms := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Subsystem: subsystem, Name: name, Help: help, Buckets: buckets}, []string{"ip_family"})
		list = append(list, v)
		return v
	}

	c.syncSeconds = histograms("sync_proxy_rules_duration_seconds", "Duration of a sync, full or partial, in seconds.", SyncBuckets())
	c.fullSeconds = histograms("sync_full_proxy_rules_duration_seconds", "Duration of a full sync, in seconds.", SyncBuckets())
	c.partialSeconds = histograms("sync_partial_proxy_rules_duration_seconds", "Duration of a partial sync, in seconds.", SyncBuckets())
	c.lastSynced = gauges("sync_proxy_rules_last_timestamp_seconds", "When a sync last succeeded, in seconds since 1970.", "ip_family")
	c.lastQueued = gauges("sync_proxy_rules_last_queued_timestamp_seconds", "When a sync was last asked for, in seconds since 1970.", "ip_family")
	c.programming = histograms("network_programming_duration_seconds", "From the change of an EndpointSlice in the cluster to its rules in the kernel, in seconds.", NetworkProgrammingBuckets())
	c.endpointsPending = gauges("sync_proxy_rules_endpoint_changes_pending", "EndpointSlice changes that no sync has taken yet, over all families.").WithLabelValues()
	c.endpointChanges = counters("sync_proxy_rules_endpoint_changes_total", "EndpointSlice changes seen, over all families.").WithLabelValues()
	c.servicesPending = gauges("sync_proxy_rules_service_changes_pending", "Service changes that no sync has taken yet, over all families.").WithLabelValues()
	c.serviceChanges = counters("sync_proxy_rules_service_changes_total", "Service changes seen, over all families.").WithLabelValues()
	c.restoreFailures = counters("sync_proxy_rules_iptables_restore_failures_total", "Restores that failed, full and partial.", "ip_family")
	c.partialFailures = counters("sync_proxy_rules_iptables_partial_restore_failures_total", "Restores of a partial sync that failed.", "ip_family")
	c.nftablesFailures = counters("sync_proxy_rules_nftables_sync_failures_total", "Syncs of backend nftables with a transaction that failed.", "ip_family")
	c.cleanupFailures = counters("sync_proxy_rules_nftables_cleanup_failures_total", "Tables of backend nftables that were replaced and could not be deleted.", "ip_family")
	c.rulesTotal = gauges("sync_proxy_rules_iptables_total", "Rules of the proxier in the kernel, by table.", "table", "ip_family")
	c.rulesLast = gauges("sync_proxy_rules_iptables_last", "Rules that the last sync wrote, by table.", "table", "ip_family")
	c.noLocal = gauges("sync_proxy_rules_no_local_endpoints_total", "Service ports with a Local traffic policy and no endpoint on this node.", "traffic_policy", "ip_family")
	c.refused = gauges("sync_proxy_rules_refused_ports", "Service ports whose rules the kernel refuses; all others are served.", "ip_family")
	c.HealthzTotal = counters("proxy_healthz_total", "Answers of /healthz, by HTTP status code.", "code")
	c.LivezTotal = counters("proxy_livez_total", "Answers of /livez, by HTTP status code.", "code")
	c.conntrackSeconds = histograms("conntrack_reconciler_sync_duration_seconds", "Duration of one cleaning of the conntrack table, in seconds.", SyncBuckets())
	c.conntrackDeleted = counters("conntrack_reconciler_deleted_entries_total", "Conntrack entries deleted as stale.", "ip_family")

	for _, k := range []struct {
		name, help string
		read       func() (uint64, bool)
	}{
		{"iptables_ct_state_invalid_dropped_packets_total", "Packets dropped because conntrack calls them INVALID.", opts.InvalidDropped},
		{"iptables_localhost_nodeports_accepted_packets_total", "Packets that reached a nodePort over loopback.", opts.LocalhostNodePorts},
	} {
		if k.read != nil {
			desc := prometheus.NewDesc(prometheus.BuildFQName("", subsystem, k.name), k.help, nil, nil)
			list = append(list, kernelCounter{desc: desc, read: k.read})
		}
	}
	return list
}

// setPending stores one family's pending changes and sets the gauges to the sum over the families.
func (c *Collectors) setPending(family corev1.IPFamily, services, endpoints int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending[family] = pendingChanges{services, endpoints}
	var sum pendingChanges
	for _, p := range c.pending {
		sum.services += p.services
		sum.endpoints += p.endpoints
	}
	c.servicesPending.Set(float64(sum.services))
	c.endpointsPending.Set(float64(sum.endpoints))
}

// kernelCounter is a counter in the kernel. A scrape reads it, and omits it while the kernel does not count.
type kernelCounter struct {
	desc *prometheus.Desc
	read func() (uint64, bool)
}

func (k kernelCounter) Describe(descs chan<- *prometheus.Desc) { descs <- k.desc }

func (k kernelCounter) Collect(metrics chan<- prometheus.Metric) {
	if packets, ok := k.read(); ok {
		metrics <- prometheus.MustNewConstMetric(k.desc, prometheus.CounterValue, float64(packets))
	}
}
