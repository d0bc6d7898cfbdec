package process

import (
	"cmp"
	"maps"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// Kinds of a sync.
const (
	Full    = "full"
	Partial = "partial"
	Either  = "" // the subject does not say
)

// Sync is a sync that a subject's own metrics tell of, or several of one kind between two readings.
type Sync struct {
	Kind   string
	Family string // IPv4 or IPv6; empty when the subject does not say
	Count  int    // at least 1
	// Total duration of the Count syncs.
	Total time.Duration
	// Failed is how many of the family's syncs failed between the readings, of either kind, as the failure counters say.
	Failed int
}

// The metrics are histograms, of which only sum and count matter. The total holds the other two; subjects that tell
// no kinds have only that.
const (
	syncTotal   = "kubeproxy_sync_proxy_rules_duration_seconds"
	syncFull    = "kubeproxy_sync_full_proxy_rules_duration_seconds"
	syncPartial = "kubeproxy_sync_partial_proxy_rules_duration_seconds"
	started     = "process_start_time_seconds"
	familyLabel = "ip_family"
)

// Counters of syncs that failed. A partial sync with iptables that failed counts in both of iptables' own.
const (
	failedIptables = "kubeproxy_sync_proxy_rules_iptables_restore_failures_total"
	failedPartial  = "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total"
	failedNftables = "kubeproxy_sync_proxy_rules_nftables_sync_failures_total"
)

// Syncs turns consecutive readings of a subject's metrics into the syncs between them. The zero value has seen nothing:
// its first Next tells of all syncs since the subject started.
type Syncs struct {
	started float64
	seen    map[series]reading
	failed  map[string]int // by family, as of the last reading with a sync of it
}

type series struct{ kind, family string }

type reading struct {
	count   uint64
	seconds float64
}

// Next gives the syncs since the last reading. A subject that started again meanwhile counts from 0 again: what it did
// before the restart and after the last reading is unknown.
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

// seconds rounds to what the difference of two sums, floats that grow, can tell.
func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Microsecond)
}

// failuresOf is how many syncs of a family failed so far.
func failuresOf(samples Samples, family string) int {
	var labels []string
	if family != "" {
		labels = []string{familyLabel, family}
	}
	of := func(name string) int { n, _ := samples.Value(name, labels...); return int(n) }
	return max(of(failedIptables), of(failedPartial)) + of(failedNftables)
}

// read takes the kinds where the subject tells them, and the total where it does not.
func read(samples Samples) map[series]reading {
	now := map[series]reading{}
	kinds := map[string]bool{} // families whose kinds are told
	add := func(name, kind string) {
		for _, m := range samples[name].GetMetric() {
			count, sum := sumOf(m)
			if count == 0 {
				continue // some subjects expose metrics that they never use
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
