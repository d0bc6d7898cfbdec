package invariants

import (
	"context"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/walk"
)

// shareError is how far a share times the number of endpoints may be from 1, for each endpoint: probabilities are written
// with ten decimals, and those of later rules build on those of earlier ones.
const shareError = 1e-6

// checkShares: each endpoint of a Service port gets the same share of new flows, and the probabilities that say so rise
// from rule to rule.
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

// shares walks one packet to each Service port's cluster IP.
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
			What: serviceOf(p), Input: from.Input, Protocol: protocolOf(p.Name.Protocol),
			Source: netip.AddrPortFrom(from.Addr, clientPort), Destination: netip.AddrPortFrom(p.ClusterIP, p.Port),
		})
		if err != nil {
			return err
		}
		r.checked++
		n := float64(len(endpoints))
		if len(v.Outcomes) != len(endpoints) {
			r.violated(serviceOf(p), "%s: packets to %v may end in %d ways, not at one of %d endpoints", family, p.ClusterIP, len(v.Outcomes), len(endpoints))
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

// rising: of rules that draw lots one after the other, each takes a greater part of what is left.
func rising(family corev1.IPFamily, table, name string, c *Chain, r *report) {
	last := 0.0
	for _, rule := range c.Rules {
		_, after, found := strings.Cut(rule.Text, " --probability ")
		if !found {
			continue
		}
		text, _, _ := strings.Cut(after, " ")
		p, err := strconv.ParseFloat(text, 64)
		if err != nil || p < last {
			r.violated("", "%s table %s chain %s: probability %s comes after %.10f", family, table, name, text, last)
		}
		last = p
	}
}

const (
	// leastExpected flows of an endpoint, for chi-square to be close to its distribution.
	leastExpected = 5
	// mostDeviations of the standard normal distribution: once in some 10^9 looks, by chance.
	mostDeviations = 6
)

// even tests by chi-square whether real flows were shared evenly.
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
	// Wilson and Hilferty: the cube root of chi-square by its degrees of freedom is about normal.
	spread := 2 / (9 * float64(len(reached)-1))
	deviations := (math.Cbrt(sum/float64(len(reached)-1)) - (1 - spread)) / math.Sqrt(spread)
	if deviations > mostDeviations {
		r.violated(service, "%d flows were shared unevenly among %d endpoints: chi-square is %.1f, %.1f deviations off", total, len(reached), sum, deviations)
	}
}
