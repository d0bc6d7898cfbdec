package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// Family writes the metrics of one family.
type Family struct {
	c      *Collectors
	family corev1.IPFamily

	sync, full, partial, programming, conntrack prometheus.Observer
	lastSynced, lastQueued                      prometheus.Gauge
	refused                                     prometheus.Gauge
	restoreFailures, partialFailures            prometheus.Counter
	nftablesFailures, cleanupFailures           prometheus.Counter
	conntrackDeleted                            prometheus.Counter
}

// For returns the metrics of a family and creates its series.
func (c *Collectors) For(family corev1.IPFamily) *Family {
	label := string(family)
	return &Family{
		c:                c,
		family:           family,
		sync:             c.syncSeconds.WithLabelValues(label),
		full:             c.fullSeconds.WithLabelValues(label),
		partial:          c.partialSeconds.WithLabelValues(label),
		programming:      c.programming.WithLabelValues(label),
		conntrack:        c.conntrackSeconds.WithLabelValues(label),
		lastSynced:       c.lastSynced.WithLabelValues(label),
		lastQueued:       c.lastQueued.WithLabelValues(label),
		refused:          c.refused.WithLabelValues(label),
		restoreFailures:  c.restoreFailures.WithLabelValues(label),
		partialFailures:  c.partialFailures.WithLabelValues(label),
		nftablesFailures: c.nftablesFailures.WithLabelValues(label),
		cleanupFailures:  c.cleanupFailures.WithLabelValues(label),
		conntrackDeleted: c.conntrackDeleted.WithLabelValues(label),
	}
}

// Queued records when a sync was requested.
func (f *Family) Queued(at time.Time) { f.lastQueued.Set(seconds(at)) }

// Synced records the duration of a full or partial sync that ended. As in kube-proxy, failed syncs count too;
// LastSynced counts only successful ones.
func (f *Family) Synced(full bool, took time.Duration) {
	f.sync.Observe(took.Seconds())
	if full {
		f.full.Observe(took.Seconds())
		return
	}
	f.partial.Observe(took.Seconds())
}

// LastSynced records when a sync succeeded.
func (f *Family) LastSynced(at time.Time) { f.lastSynced.Set(seconds(at)) }

// Programmed records the latency from a change of an EndpointSlice in the cluster to its rules in the kernel.
func (f *Family) Programmed(latency time.Duration) { f.programming.Observe(latency.Seconds()) }

// Changed counts changes from the cluster.
func (f *Family) Changed(services, endpoints int) {
	f.c.serviceChanges.Add(float64(services))
	f.c.endpointChanges.Add(float64(endpoints))
}

// Pending sets the number of changes that no sync has taken yet.
func (f *Family) Pending(services, endpoints int) { f.c.setPending(f.family, services, endpoints) }

// RestoreFailed counts a failed restore. As in kube-proxy, a restore of a partial sync counts in both counters.
func (f *Family) RestoreFailed(full bool) {
	f.restoreFailures.Inc()
	if !full {
		f.partialFailures.Inc()
	}
}

// TransactionFailed counts a failed sync of backend nftables. With cleanup, only the deletion of the replaced table
// failed.
func (f *Family) TransactionFailed(cleanup bool) {
	if cleanup {
		f.cleanupFailures.Inc()
		return
	}
	f.nftablesFailures.Inc()
}

// Refused sets the number of Service ports whose rules the kernel refuses.
func (f *Family) Refused(ports int) { f.refused.Set(float64(ports)) }

// Rules sets the number of rules in a table ("filter", "nat") and how many of them the last sync wrote.
func (f *Family) Rules(table string, total, written int) {
	f.c.rulesTotal.WithLabelValues(table, string(f.family)).Set(float64(total))
	f.c.rulesLast.WithLabelValues(table, string(f.family)).Set(float64(written))
}

// NoLocalEndpoints sets the number of Service ports with a Local internal or external traffic policy and without
// endpoints on this node.
func (f *Family) NoLocalEndpoints(internal, external int) {
	f.c.noLocal.WithLabelValues("internal", string(f.family)).Set(float64(internal))
	f.c.noLocal.WithLabelValues("external", string(f.family)).Set(float64(external))
}

// ConntrackCleaned records one cleanup of the conntrack table.
func (f *Family) ConntrackCleaned(took time.Duration, deleted int) {
	f.conntrack.Observe(took.Seconds())
	f.conntrackDeleted.Add(float64(deleted))
}

// seconds returns the time since 1970 in seconds, with fractions.
func seconds(t time.Time) float64 { return float64(t.UnixNano()) / float64(time.Second) }
