package invariants

import (
	"context"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/verify/walk"
	"synclab/proxier/iptables/rule"
)

// shareError bounds, per endpoint, the error of a share times the number of endpoints. Probabilities are written with
// ten decimals, and the share of a later rule depends on the rules before it.
const shareError = 1e-6

// checkShares: each endpoint of a Service port gets the same share of new flows. The probabilities rise from rule to
// rule.
func checkShares(ctx context.Context, e *Evidence, r *report) error {
	for _, family := range e.Families {
		if err := e.shares(ctx, family, r); err != nil {
			return err
		}
		for _, table := range slices.Sorted(maps.Keys(e.Saved[family])) {
			for _, name := range slices.Sorted(maps.Keys(e.Saved[family][table])) {
				if ownChain(name) {
					rising(family, table, name, e.Saved[family][table][name], r)
				}
			}
		}
	}
	if e.Traffic != nil {
		for _, service := range slices.Sorted(maps.Keys(e.Traffic.Reached)) {
			even(service, e.Traffic.Reached[service], r)
		}
	}
	return nil
}

// shares sends one packet to each Service port's cluster IP through the rules.
func (e *Evidence) shares(ctx context.Context, family corev1.IPFamily, r *report) error {
	if !e.walkable() {
		return nil
	}
	world, err := e.world()
	if err != nil {
		return err
	}
	ports := slices.Clone(e.plan(family).Ports())
	claims := claimed(ports)
	rng := rand.New(rand.NewPCG(e.Seed, 0x5a4e))
	rng.Shuffle(len(ports), func(i, j int) { ports[i], ports[j] = ports[j], ports[i] })
	from := walk.DefaultSources(world, family == corev1.IPv4Protocol)[2]
	w := walk.New(e.Rules[family], world)
	for _, p := range ports[:min(mostFrontends, len(ports))] {
		endpoints := p.Cluster
		if p.InternalPolicyLocal {
			endpoints = p.Local
		}
		if len(endpoints) == 0 || claims[claim{p.ClusterIP, p.Port, p.Name.Protocol}] > 1 {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		v, err := w.Walk(&walk.Packet{
			What: serviceOf(p), Input: from.Input, Protocol: walk.ProtocolOf(p.Name.Protocol),
			Source: netip.AddrPortFrom(from.Addr, clientPort), Destination: netip.AddrPortFrom(p.ClusterIP, p.Port),
		})
		if err != nil {
			return err
		}
		r.checked++
		n := float64(len(endpoints))
		if len(v.Outcomes) != len(endpoints) {
			r.violated(serviceOf(p), "%s: packets to %v have %d possible outcomes, not %d endpoints", family, p.ClusterIP, len(v.Outcomes), len(endpoints))
			continue
		}
		for _, o := range v.Outcomes {
			if math.Abs(o.Probability*n-1) > shareError*n {
				r.violated(serviceOf(p), "%s: endpoint %v gets %.10f of the flows, not 1/%d", family, o.To, o.Probability, len(endpoints))
			}
		}
	}
	return nil
}

// rising: in a chain of random matches, each rule takes a larger part of the remaining flows.
func rising(family corev1.IPFamily, table, name string, c *rule.Chain, r *report) {
	last := 0.0
	for i := range c.Rules {
		for _, m := range c.Rules[i].Matches {
			if m.Kind != rule.MatchRandom {
				continue
			}
			p := float64(m.Bits) / rule.ProbabilityUnit
			if p < last {
				r.violated("", "%s table %s chain %s: probability %.10f comes after %.10f", family, table, name, p, last)
			}
			last = p
		}
	}
}

const (
	// leastExpected is the fewest expected flows of an endpoint for which chi-square is close to its distribution.
	leastExpected = 5
	// mostDeviations bounds the standard normal deviation: exceeded by chance in about 1 of 10^9 checks.
	mostDeviations = 6
)

// even tests with chi-square whether real flows were shared evenly.
func even(service string, reached map[netip.AddrPort]int, r *report) {
	total := 0
	for _, n := range reached {
		total += n
	}
	if len(reached) < 2 || total < leastExpected*len(reached) {
		return
	}
	r.checked++
	expected, sum := float64(total)/float64(len(reached)), 0.0
	for _, n := range reached {
		sum += (float64(n) - expected) * (float64(n) - expected) / expected
	}
	// Wilson and Hilferty: the cube root of chi-square divided by its degrees of freedom is about normal.
	spread := 2 / (9 * float64(len(reached)-1))
	deviations := (math.Cbrt(sum/float64(len(reached)-1)) - (1 - spread)) / math.Sqrt(spread)
	if deviations > mostDeviations {
		r.violated(service, "%d flows were shared unevenly among %d endpoints: chi-square is %.1f, %.1f deviations off", total, len(reached), sum, deviations)
	}
}
