package plan

import (
	"cmp"
	"slices"
	"time"

	"synclab/bench"
	"synclab/bench/subject"
	"synclab/proxier/runner"
)

// periods are the values of minSyncPeriod that are compared, besides the one in use. Not 0: each change of a burst would
// start a sync.
var periods = []time.Duration{
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
}

// Setting is when a proxier syncs, and what the loop makes of it at the largest measured size that meets the SLOs.
type Setting struct {
	bench.Setting
	Played
	// Met: the SLOs of latency and CPU.
	Met bool `json:"met"`
}

// Confirmed compares a setting with a run of it: the same seconds of changes, played and measured.
type Confirmed struct {
	PlayedP99, MeasuredP99 float64 // s
	PlayedCPU, MeasuredCPU float64 // CPUs
	// Outcome is that of the run: "meets every SLO", or what it violates.
	Outcome string
	// Run: a run with this setting was made. Otherwise it is the setting in use, with which the cells were measured.
	Run bool
}

// Two settings are equally cheap if their CPUs differ by less than the factor or the number. The faster one is recommended.
const (
	equallyCheap = 1.05
	littleCPU    = 0.02
)

// inUse reports whether it is the setting of today.
func (s *Setting) inUse(q *Question) bool { return s.Setting == q.today() }

func (q *Question) today() bench.Setting { return bench.Setting{MinSyncPeriod: q.MinSyncPeriod} }

// policiesOf returns the policies that a subject can have: that of its name, and synclab's proxier also the token bucket.
func policiesOf(name string) []runner.Policy {
	about, err := subject.Parse(name)
	if err == nil && about.Own && about.Policy != runner.TokenBucket {
		return []runner.Policy{"", runner.TokenBucket}
	}
	return []runner.Policy{""}
}

// settings plays all values of minSyncPeriod at a size, shortest first, under each policy.
func settings(q *Question, name string, c *Cluster, measured []costs) ([]Setting, error) {
	tried := append([]time.Duration{q.MinSyncPeriod}, periods...)
	slices.Sort(tried)
	var out []Setting
	for _, policy := range policiesOf(name) {
		for _, period := range slices.Compact(slices.Clone(tried)) {
			s := bench.Setting{MinSyncPeriod: period, Policy: policy}
			if period == 0 || period > q.syncPeriod() && period != q.MinSyncPeriod { // kube-proxy refuses more than syncPeriod
				continue
			}
			played, err := play(q, name, c, measured, s)
			if err != nil {
				return nil, err
			}
			met := (q.SLOs.Latency == 0 || played.P99 <= q.SLOs.Latency) && (q.SLOs.CPU == 0 || played.CPU <= q.SLOs.CPU)
			out = append(out, Setting{Setting: s, Played: played, Met: met})
		}
	}
	return out, nil
}

// recommend returns the cheapest setting that meets the SLOs; of equally cheap ones the fastest. If none meets them, it returns
// the one with the lowest latency. A setting whose syncs are beyond the measured ones is not recommended if another is there.
func recommend(all []Setting) Setting {
	known := slices.DeleteFunc(slices.Clone(all), func(s Setting) bool { return s.Beyond > 1 })
	if len(known) == 0 {
		known = all
	}
	faster := func(a, b Setting) int { return cmp.Or(cmp.Compare(a.P99, b.P99), cmp.Compare(a.P50, b.P50)) }
	met := slices.DeleteFunc(slices.Clone(known), func(s Setting) bool { return !s.Met })
	if len(met) == 0 {
		return slices.MinFunc(known, faster)
	}
	least := slices.MinFunc(met, func(a, b Setting) int { return cmp.Compare(a.CPU, b.CPU) }).CPU
	met = slices.DeleteFunc(met, func(s Setting) bool { return s.CPU > max(equallyCheap*least, least+littleCPU) })
	return slices.MinFunc(met, faster)
}
