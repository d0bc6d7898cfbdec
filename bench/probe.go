package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/iptables"
	"synclab/scenarios"
)

// What randomness is for: each has a stream of its own.
const (
	purposeBaseline  = 1
	purposeTraversal = 2
)

// baseline measures what a packet pays in the namespace before there is any rule, if a later step measures what it pays
// with them. It has as many targets as the probe will have, each a miss: what one address alone finds in the CPU's caches
// would make the baseline too cheap.
func (r *repetition) baseline(ctx context.Context) error {
	r.memory, _ = ReadKernelMemory()
	i := slices.IndexFunc(r.Scenario.Steps, func(s scenarios.Step) bool { return s.Probe != nil })
	if i < 0 {
		return nil
	}
	for _, family := range r.families {
		probe := r.Scenario.Steps[i].Probe
		var targets []Target
		for _, addr := range r.misses(family, probe.Positions+1) { // the probe has a miss, too
			targets = append(targets, Target{Position: 0, Addr: addr})
		}
		if len(targets) == 0 {
			continue
		}
		if err := r.measure(ctx, family, targets, probe.Samples, purposeBaseline); err != nil {
			return err
		}
	}
	return nil
}

// traverse measures the first packet of a flow by the position of the Service's rule in the dispatch chain.
func (r *repetition) traverse(ctx context.Context, p *scenarios.Probe, name string) error {
	r.say.stage(name, 0, 0)
	if p.Method == "flow" {
		return r.traverseFlows(ctx, p, name)
	}
	for _, family := range r.families {
		targets, err := r.targets(family, p.Positions)
		if err != nil {
			return err
		}
		if err := r.measure(ctx, family, targets, p.Samples, purposeTraversal); err != nil {
			return err
		}
	}
	return nil
}

func (r *repetition) measure(ctx context.Context, family corev1.IPFamily, targets []Target, samples int, purpose uint64) error {
	options := TraversalOptions{Targets: targets, Samples: samples, Rand: r.random(purpose)}
	return MeasureTraversal(ctx, options, func(position int, d time.Duration) {
		r.record(Record{Metric: FirstPacket, Value: d.Seconds(), Unit: "s", Family: string(family), Position: &position})
	})
}

// targets picks UDP Services at positions first to last in equal steps, as near as there are some, and a miss: an
// address that no rule names, for which a packet crosses the whole chain.
func (r *repetition) targets(family corev1.IPFamily, positions int) ([]Target, error) {
	frontends, rules, err := r.subject.dispatch(family)
	if err != nil {
		return nil, err
	}
	frontends = slices.DeleteFunc(frontends, func(f iptables.Frontend) bool { return f.Protocol != corev1.ProtocolUDP })
	if len(frontends) == 0 {
		return nil, errors.New("no UDP Service with endpoints to send to: give the shape a share of them, --set shape.protocols.UDP=0.1")
	}
	var targets []Target
	for i := range positions {
		wanted := 1
		if positions > 1 {
			wanted += i * (rules - 1) / (positions - 1)
		}
		near := nearest(frontends, wanted)
		if len(targets) == 0 || targets[len(targets)-1].Position != near.Position {
			targets = append(targets, Target{Position: near.Position, Addr: near.Addr})
		}
	}
	misses := r.misses(family, 1)
	if len(misses) == 0 {
		return nil, fmt.Errorf("no free %s address in %v for a miss", family, r.Scenario.Shape.ServiceCIDRs)
	}
	return append(targets, Target{Position: -1, Addr: misses[0]}), nil
}

func nearest(frontends []iptables.Frontend, position int) iptables.Frontend {
	return slices.MinFunc(frontends, func(a, b iptables.Frontend) int {
		return abs(a.Position-position) - abs(b.Position-position)
	})
}

func abs(n int) int { return max(n, -n) }

// missPort is no Service's: generated ones use low ports, and a miss needs only an address or a port of its own.
const missPort = 65000

// misses are addresses in the Service ranges that no Service has: n, or as many as there are.
func (r *repetition) misses(family corev1.IPFamily, n int) []netip.AddrPort {
	var free []netip.AddrPort
	taken := map[netip.Addr]bool{}
	for _, svc := range r.world.Objects().Services {
		for _, ip := range append([]string{svc.Spec.ClusterIP}, svc.Spec.ClusterIPs...) {
			if addr, err := netip.ParseAddr(ip); err == nil {
				taken[addr] = true
			}
		}
	}
	for _, cidr := range r.Scenario.Shape.ServiceCIDRs {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil || familyOf(prefix.Addr()) != family {
			continue
		}
		for addr := lastOf(prefix).Prev(); len(free) < n && prefix.Contains(addr); addr = addr.Prev() {
			if !taken[addr] {
				free = append(free, netip.AddrPortFrom(addr, missPort))
			}
		}
	}
	return free
}

// lastOf is the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	addr, _ := netip.AddrFromSlice(bytes)
	return addr
}
