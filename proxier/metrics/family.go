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

// For returns the metrics of a family; its counters then exist.
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

// Queued says that a sync was asked for at the given time.
func (f *Family) Queued(at time.Time) { f.lastQueued.Set(seconds(at)) }

// Synced says that a full or partial sync ended, having taken so long. As in
// kube-proxy its duration counts whether it succeeded or not; LastSynced is for
// the ones that did.
func (f *Family) Synced(full bool, took time.Duration) {
	f.sync.Observe(took.Seconds())
	if full {
		f.full.Observe(took.Seconds())
		return
	}
	f.partial.Observe(took.Seconds())
}

// LastSynced says that a sync succeeded at the given time.
func (f *Family) LastSynced(at time.Time) { f.lastSynced.Set(seconds(at)) }

// Programmed says that a change of an EndpointSlice was in the kernel so long
// after it was made in the cluster.
func (f *Family) Programmed(latency time.Duration) { f.programming.Observe(latency.Seconds()) }

// Changed counts changes that came from the cluster.
func (f *Family) Changed(services, endpoints int) {
	f.c.serviceChanges.Add(float64(services))
	f.c.endpointChanges.Add(float64(endpoints))
}

// Pending says how many changes no sync has taken yet.
func (f *Family) Pending(services, endpoints int) { f.c.setPending(f.family, services, endpoints) }

// RestoreFailed counts a failed restore. As in kube-proxy, one of a partial
// sync counts in both counters.
func (f *Family) RestoreFailed(full bool) {
	f.restoreFailures.Inc()
	if !full {
		f.partialFailures.Inc()
	}
}

// TransactionFailed counts a sync of backend nftables that failed, or only at deleting the table that it replaced.
func (f *Family) TransactionFailed(cleanup bool) {
	if cleanup {
		f.cleanupFailures.Inc()
		return
	}
	f.nftablesFailures.Inc()
}

// Refused says how many Service ports have rules that the kernel does not take.
func (f *Family) Refused(ports int) { f.refused.Set(float64(ports)) }

// Rules says how many rules a table ("filter", "nat") holds and how many of
// them the last sync wrote.
func (f *Family) Rules(table string, total, written int) {
	f.c.rulesTotal.WithLabelValues(table, string(f.family)).Set(float64(total))
	f.c.rulesLast.WithLabelValues(table, string(f.family)).Set(float64(written))
}

// NoLocalEndpoints says how many service ports have a Local internal or
// external traffic policy and no endpoint on this node.
func (f *Family) NoLocalEndpoints(internal, external int) {
	f.c.noLocal.WithLabelValues("internal", string(f.family)).Set(float64(internal))
	f.c.noLocal.WithLabelValues("external", string(f.family)).Set(float64(external))
}

// ConntrackCleaned says that the conntrack table was cleaned.
func (f *Family) ConntrackCleaned(took time.Duration, deleted int) {
	f.conntrack.Observe(took.Seconds())
	f.conntrackDeleted.Add(float64(deleted))
}

// seconds since 1970, with fractions.
func seconds(t time.Time) float64 { return float64(t.UnixNano()) / float64(time.Second) }
