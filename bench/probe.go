package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/iptables"
	"synclab/scenarios"
	"synclab/sim"
)

// What randomness is for: each has a stream of its own.
const (
	purposeBaseline  = 1
	purposeTraversal = 2
)

// baseline measures what a packet pays in the namespace before there is any rule, if a later step measures what it pays
// with them. It has as many targets as the probe will have, each a miss: what one address alone finds in the CPU's caches
// would make the baseline too cheap. Those that stand for a kind of destination are misses too, though the kind's own
// address may be one of the node: with rules its packets end where all do, on the device to the pods. What they have of
// the kind are the clients that send them.
func (r *repetition) baseline(ctx context.Context) error {
	r.memory, _ = ReadKernelMemory()
	i := slices.IndexFunc(r.Scenario.Steps, func(s scenarios.Step) bool { return s.Probe != nil && s.Probe.Method != "flow" })
	if i < 0 {
		return nil
	}
	for _, family := range r.families {
		probe := r.Scenario.Steps[i].Probe
		kinds, _, err := r.kindTargets(family, probe.Kinds, nil)
		if err != nil {
			return err
		}
		plain := probe.Positions + 1 // the probe has a miss, too
		var targets []Target
		for i, addr := range r.misses(family, plain+len(kinds)) {
			target := Target{Position: 0, Addr: addr}
			if i >= plain {
				target.Kind, target.From = kinds[i-plain].Kind, kinds[i-plain].From
			}
			targets = append(targets, target)
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

// traverse measures the first packet of a flow by the position of the Service's rule in the dispatch chain, and by the
// kind of destination, and counts the rules that each crosses.
func (r *repetition) traverse(ctx context.Context, p *scenarios.Probe, name string) error {
	r.say.stage(name, 0, 0)
	if p.Method == "flow" {
		return r.traverseFlows(ctx, p, name)
	}
	for _, family := range r.families {
		targets, err := r.targets(family, p)
		if err != nil {
			return err
		}
		if err := r.measure(ctx, family, targets, p.Samples, purposeTraversal); err != nil {
			return err
		}
		if err := r.rulesCrossed(ctx, family, targets); err != nil {
			return err
		}
	}
	return nil
}

func (r *repetition) measure(ctx context.Context, family corev1.IPFamily, targets []Target, samples int, purpose uint64) error {
	options := TraversalOptions{Targets: targets, Samples: samples, Rand: r.random(purpose)}
	return MeasureTraversal(ctx, options, func(target *Target, d time.Duration) {
		rec := target.record(family)
		rec.Metric, rec.Value, rec.Unit = FirstPacket, d.Seconds(), "s"
		r.record(rec)
	})
}

// record says which target a value is of: a kind of destination has no position, but for the empty ruleset.
func (t *Target) record(family corev1.IPFamily) Record {
	rec := Record{Family: string(family), Target: t.Kind}
	if position := t.Position; t.Kind == "" || position == 0 {
		rec.Position = &position
	}
	return rec
}

// targets picks UDP Services at positions first to last in equal steps, as near as there are some, a miss, which is an
// address that no rule names, for which a packet crosses the whole chain, and the kinds of destinations that are wanted.
func (r *repetition) targets(family corev1.IPFamily, p *scenarios.Probe) ([]Target, error) {
	frontends, rules, err := r.dispatch(family)
	if err != nil {
		return nil, err
	}
	at := map[netip.AddrPort]int{}
	for _, f := range frontends {
		if f.Protocol == corev1.ProtocolUDP {
			at[f.Addr] = f.Position
		}
		rules = max(rules, f.Position) // a map's entries have places too, and its rules are few
	}
	frontends = r.plainest(family, frontends)
	if len(frontends) == 0 {
		return nil, errors.New("no UDP Service with endpoints to send to: give the shape a share of them, --set shape.protocols.UDP=0.1")
	}
	var targets []Target
	for i := range p.Positions {
		wanted := 1
		if p.Positions > 1 {
			wanted += i * (rules - 1) / (p.Positions - 1)
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
	targets = append(targets, Target{Position: -1, Addr: misses[0]})
	kinds, lacking, err := r.kindTargets(family, p.Kinds, at)
	if len(lacking) > 0 && r.Rep == 1 {
		r.say.message(message{Note: fmt.Sprintf("%s: not measured, since no UDP Service is one: %s", family, strings.Join(lacking, ", "))})
	}
	return append(targets, kinds...), err
}

// plainest are the frontends of UDP; without those of Services with affinity, or that leave endpoints out, if others
// are there: what these cost more is no matter of their position.
func (r *repetition) plainest(family corev1.IPFamily, frontends []iptables.Frontend) []iptables.Frontend {
	udp := slices.DeleteFunc(frontends, func(f iptables.Frontend) bool { return f.Protocol != corev1.ProtocolUDP })
	special := map[netip.AddrPort]bool{}
	for _, port := range r.udpPorts(family) {
		special[port.cluster] = port.sticky() || port.local()
	}
	var plain []iptables.Frontend
	for _, f := range udp {
		if !special[f.Addr] {
			plain = append(plain, f)
		}
	}
	if len(plain) == 0 {
		return udp
	}
	return plain
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
			if addr, ok := sim.ParseAddr(ip); ok {
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
