package process

import (
	"cmp"
	"maps"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// Kinds of syncs.
const (
	Full    = "full"
	Partial = "partial"
	Either  = "" // the subject does not report the kind
)

// Sync is one sync in a subject's metrics, or several of one kind between two readings.
type Sync struct {
	Kind   string
	Family string // IPv4 or IPv6; empty if the subject does not report it
	Count  int    // at least 1
	// Total is the total duration of the Count syncs.
	Total time.Duration
	// Failed is the number of the family's failed syncs between the readings, of both kinds, from the failure counters.
	Failed int
}

// The metrics are histograms; only sum and count matter. syncTotal includes the other two. Subjects that do not report
// kinds have only syncTotal.
const (
	syncTotal   = "kubeproxy_sync_proxy_rules_duration_seconds"
	syncFull    = "kubeproxy_sync_full_proxy_rules_duration_seconds"
	syncPartial = "kubeproxy_sync_partial_proxy_rules_duration_seconds"
	started     = "process_start_time_seconds"
	familyLabel = "ip_family"
)

// Counters of failed syncs. A failed partial sync with iptables increments both iptables counters.
const (
	failedIptables = "kubeproxy_sync_proxy_rules_iptables_restore_failures_total"
	failedPartial  = "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total"
	failedNftables = "kubeproxy_sync_proxy_rules_nftables_sync_failures_total"
)

// Syncs turns consecutive readings of a subject's metrics into the syncs between them. The first Next of the zero value
// returns all syncs since the subject started.
type Syncs struct {
	started float64
	seen    map[series]reading
	failed  map[string]int // by family, at the last reading with a sync of the family
}

type series struct{ kind, family string }

type reading struct {
	count   uint64
	seconds float64
}

// Next returns the syncs since the last reading. A restarted subject counts from 0 again: the syncs between the last
// reading and the restart are unknown.
func (s *Syncs) Next(samples Samples) []Sync {
	now := read(samples)
	begun, _ := samples.Value(started)
	again := begun != s.started
	for place, before := range s.seen {
		again = again || now[place].count < before.count
	}
	if again {
		s.seen, s.failed = nil, nil
	}
	if s.failed == nil {
		s.failed = map[string]int{}
	}
	failures := map[string]int{}
	var syncs []Sync
	for place, after := range now {
		before := s.seen[place]
		n := after.count - before.count
		if n == 0 {
			continue
		}
		failures[place.family] = failuresOf(samples, place.family)
		syncs = append(syncs, Sync{
			Kind: place.kind, Family: place.family, Count: int(n), Total: seconds(after.seconds - before.seconds),
			Failed: failures[place.family] - s.failed[place.family],
		})
	}
	maps.Copy(s.failed, failures)
	slices.SortFunc(syncs, func(a, b Sync) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Kind, b.Kind))
	})
	s.started, s.seen = begun, now
	return syncs
}

// seconds rounds to the precision of a difference between two growing float sums.
func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Microsecond)
}

// failuresOf returns the number of a family's failed syncs so far.
func failuresOf(samples Samples, family string) int {
	var labels []string
	if family != "" {
		labels = []string{familyLabel, family}
	}
	of := func(name string) int { n, _ := samples.Value(name, labels...); return int(n) }
	return max(of(failedIptables), of(failedPartial)) + of(failedNftables)
}

// read returns the readings by kind, or the total if the subject does not report kinds.
func read(samples Samples) map[series]reading {
	now := map[series]reading{}
	kinds := map[string]bool{} // families with reported kinds
	add := func(name, kind string) {
		for _, m := range samples[name].GetMetric() {
			count, sum := sumOf(m)
			if count == 0 {
				continue // some subjects expose metrics that they never update
			}
			family := label(m, familyLabel)
			if kind == Either && kinds[family] {
				continue
			}
			kinds[family] = kinds[family] || kind != Either
			now[series{kind, family}] = reading{count, sum}
		}
	}
	add(syncFull, Full)
	add(syncPartial, Partial)
	add(syncTotal, Either)
	return now
}

func sumOf(m *dto.Metric) (uint64, float64) {
	switch {
	case m.Histogram != nil:
		return m.Histogram.GetSampleCount(), m.Histogram.GetSampleSum()
	case m.Summary != nil:
		return m.Summary.GetSampleCount(), m.Summary.GetSampleSum()
	}
	return 0, 0
}
