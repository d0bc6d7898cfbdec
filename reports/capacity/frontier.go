package capacity

import (
	"cmp"
	"slices"
	"time"

	"synclab/proxier/runner"
)

// periods are the values of minSyncPeriod that are tried, beside the one in use.
var periods = []time.Duration{
	0, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
}

// alike is how near the CPU of two settings is to count as the same, as a factor, and littleCPU, in CPUs, what nobody would
// wait for: of settings that are as cheap, the faster one is recommended.
const (
	alike     = 1.05
	littleCPU = 0.02
)

// noPeriod says why no space between syncs is not recommended.
const noPeriod = "without space between syncs each change of a burst starts one, and nothing bounds the CPU that they use"

// frontier is what policies cost and give in a cluster, by policy and minSyncPeriod.
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
			s := Setting{Policy: p, Outlook: o, Holds: len(o.Holds) == len(a.q.Promise.Promised()), InUse: p == a.policy}
			if period == 0 {
				s.Discouraged = noPeriod
			}
			out = append(out, s)
		}
	}
	return out, nil
}

// recommend is the setting with the least CPU of those that hold what depends on it, for sure if there is one, else at the
// median, else the one that goes furthest, else the one with the lowest latency. Where no latency is promised there is
// nothing to trade CPU for, and what is in use stays.
func recommend(all []Setting, furthest Furthest, promise Promise) Setting {
	inUse := slices.IndexFunc(all, func(s Setting) bool { return s.InUse })
	if promise.ProgrammingP99 == 0 && inUse >= 0 {
		return all[inUse]
	}
	candidates := slices.DeleteFunc(slices.Clone(all), func(s Setting) bool { return s.Discouraged != "" })
	if len(candidates) == 0 {
		return all[inUse]
	}
	holding := func(of func(Estimate) float64) []Setting {
		return slices.DeleteFunc(slices.Clone(candidates), func(s Setting) bool {
			for _, name := range []string{ProgrammingP99, CPU} {
				if bound := promise.Bound(name); bound > 0 && of(s.Outlook.Promised[name]) > bound {
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
		used := func(s Setting) float64 { return s.Outlook.Promised[CPU].Median }
		least := used(slices.MinFunc(some, func(x, y Setting) int { return cmp.Compare(used(x), used(y)) }))
		some = slices.DeleteFunc(some, func(s Setting) bool { return used(s) > max(alike*least, least+littleCPU) })
		return slices.MinFunc(some, latency)
	}
	if i := slices.IndexFunc(candidates, func(s Setting) bool { return s.Policy == furthest.Policy }); i >= 0 && furthest.Reach > 0 {
		return candidates[i]
	}
	return slices.MinFunc(candidates, latency)
}

// furthest of the settings that are not discouraged; of those that go as far, that with the least CPU. What is in use is
// only given up for something that goes further by more than chance.
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
			f.Reach, f.Scale, start = a.reached(a.at(scale)), scale, scale
		}
		cpu := s.Outlook.Promised[CPU].Median
		further := found && (best.Reach == 0 || scale > best.Scale+2*a.span().tolerance)
		if i == 0 || further || found && scale >= best.Scale && cpu < used {
			best, used = f, cpu
		}
	}
	return best, nil
}
