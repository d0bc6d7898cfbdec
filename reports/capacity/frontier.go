package capacity

import (
	"cmp"
	"slices"
	"time"

	"synclab/proxier/runner"
)

// periods are the evaluated values of minSyncPeriod, besides the one in use.
var periods = []time.Duration{
	0, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
}

// Two settings count as equally cheap if their CPUs differ by less than the factor alike, or by less than littleCPU, in
// CPUs. Of equally cheap settings, the faster one is recommended.
const (
	alike     = 1.05
	littleCPU = 0.02
)

// noPeriod is the reason why a minSyncPeriod of 0 is not recommended.
const noPeriod = "without a time between syncs, each change of a burst starts a sync, and the CPU use has no bound"

// frontier evaluates the policies in a cluster, by policy and minSyncPeriod.
func (a *asker) frontier(scale float64, c Cluster) ([]Setting, error) {
	tried := append([]time.Duration{a.policy.MinSyncPeriod}, periods...)
	slices.Sort(tried)
	tried = slices.Compact(tried)
	var out []Setting
	for _, policy := range runner.Policies() {
		if !supports(a.subject.Name, policy) {
			continue
		}
		for _, period := range tried {
			p := Policy{Runner: policy, MinSyncPeriod: period}
			if policy == a.policy.Runner {
				p.Burst = a.policy.Burst
			}
			o, err := a.outlook(scale, c, p, true)
			if err != nil {
				return nil, err
			}
			s := Setting{Policy: p, Outlook: o, Met: len(o.Met) == len(a.q.SLOs.Given()), InUse: p == a.policy}
			if period == 0 {
				s.Discouraged = noPeriod
			}
			out = append(out, s)
		}
	}
	return out, nil
}

// recommend returns the cheapest setting that meets the SLOs for latency and CPU at the upper bound, else at the
// median. Else it returns the setting that reaches the largest size, else the one with the lowest latency. Without an
// SLO for latency, the setting in use stays: there is no reason to spend CPU.
func recommend(all []Setting, furthest Furthest, slos SLOs) Setting {
	inUse := slices.IndexFunc(all, func(s Setting) bool { return s.InUse })
	if slos.ProgrammingP99 == 0 && inUse >= 0 {
		return all[inUse]
	}
	candidates := slices.DeleteFunc(slices.Clone(all), func(s Setting) bool { return s.Discouraged != "" })
	if len(candidates) == 0 {
		return all[inUse]
	}
	holding := func(of func(Estimate) float64) []Setting {
		return slices.DeleteFunc(slices.Clone(candidates), func(s Setting) bool {
			for _, name := range []string{ProgrammingP99, CPU} {
				if bound := slos.Bound(name); bound > 0 && of(s.Outlook.Quantities[name]) > bound {
					return true
				}
			}
			return false
		})
	}
	latency := func(x, y Setting) int {
		return cmp.Or(cmp.Compare(x.Outlook.P99, y.Outlook.P99), cmp.Compare(x.Outlook.P50, y.Outlook.P50))
	}
	for _, of := range []func(Estimate) float64{func(e Estimate) float64 { return e.High }, func(e Estimate) float64 { return e.Median }} {
		some := holding(of)
		if len(some) == 0 {
			continue
		}
		used := func(s Setting) float64 { return s.Outlook.Quantities[CPU].Median }
		least := used(slices.MinFunc(some, func(x, y Setting) int { return cmp.Compare(used(x), used(y)) }))
		some = slices.DeleteFunc(some, func(s Setting) bool { return used(s) > max(alike*least, least+littleCPU) })
		return slices.MinFunc(some, latency)
	}
	if i := slices.IndexFunc(candidates, func(s Setting) bool { return s.Policy == furthest.Policy }); i >= 0 && furthest.Size > 0 {
		return candidates[i]
	}
	return slices.MinFunc(candidates, latency)
}

// furthest returns the setting that reaches the largest size, except discouraged ones. Of equal settings, the one with
// the least CPU wins. A setting only replaces the one in use by a larger size if the difference exceeds the tolerance
// of the search.
func (a *asker) furthest(all []Setting) (Furthest, error) {
	var best Furthest
	var used float64
	inUse := slices.IndexFunc(all, func(s Setting) bool { return s.InUse })
	order := slices.Clone(all)
	order[0], order[inUse] = order[inUse], order[0]
	start := 0.0
	for i, s := range order {
		if s.Discouraged != "" {
			continue
		}
		scale, found, unbounded, err := a.holding(s.Policy, start, median)
		if err != nil {
			return best, err
		}
		f := Furthest{Policy: s.Policy, Unbounded: unbounded}
		if found {
			f.Size, f.Scale, start = a.reached(a.at(scale)), scale, scale
		}
		cpu := s.Outlook.Quantities[CPU].Median
		further := found && (best.Size == 0 || scale > best.Scale+2*a.span().tolerance)
		if i == 0 || further || found && scale >= best.Scale && cpu < used {
			best, used = f, cpu
		}
	}
	return best, nil
}
