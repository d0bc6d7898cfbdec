package probe

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/machine"
	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/subject/host"
	"synclab/bench/traffic/flow"
	"synclab/internal/inet"
	"synclab/proxier/iptables"
	"synclab/scenarios"
	"synclab/sim"
)

// Purposes of random numbers: each has a separate stream.
const (
	purposeBaseline  = 1
	purposeTraversal = 2
)

// Probes are the probe steps of a repetition: what a first packet costs.
type Probes struct {
	*pass.Env
	Host       *host.Host
	Flows      *flow.Flows
	freeRanges map[corev1.IPFamily]netip.Prefix // of strangers
	// newClients are the clients for kindAffinityFirst, so far.
	newClients map[corev1.IPFamily]*clients
	// protocol of the first packets, the same in all of a repetition; empty: not chosen yet.
	protocol corev1.Protocol
}

// chooseProtocol chooses the protocol of the first packets: the one that has a Service with endpoints in the most
// families, UDP if both have.
func (r *Probes) chooseProtocol() {
	if r.protocol != "" {
		return
	}
	families := func(protocol corev1.Protocol) (n int) {
		for _, family := range r.Families {
			if pass.Served(r.World.Objects(), family, protocol) {
				n++
			}
		}
		return n
	}
	r.protocol = slices.MaxFunc(Protocols, func(a, b corev1.Protocol) int { return families(a) - families(b) })
}

// Baseline measures first packets before there are any rules, if a later step measures them with rules. It has as many
// targets as that probe, all misses: a single address would be found in the CPU's caches, and the baseline would be too
// low. Targets of kinds differ only in their clients. See docs/design/first-packets.md.
func (r *Probes) Baseline(ctx context.Context) error {
	r.Host.Memory, _ = machine.ReadKernelMemory()
	i := slices.IndexFunc(r.Scenario.Steps, func(s scenarios.Step) bool {
		return s.Probe != nil && s.Probe.Method != "flow" && s.Probe.Kind != "verdicts"
	})
	if i < 0 {
		return nil
	}
	r.chooseProtocol()
	for _, family := range r.Families {
		probe := r.Scenario.Steps[i].Probe
		kinds, _, err := r.kindTargets(family, probe.Kinds, nil)
		if err != nil {
			return err
		}
		plain := probe.Positions + 1 // the probe also has a miss
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

// Traverse measures the first packet of a flow by position in the dispatch chain and by kind of destination. It counts
// the rules that each packet crosses.
func (r *Probes) Traverse(ctx context.Context, p *scenarios.Probe, name string) error {
	r.Messages.Stage(name, 0, 0)
	if p.Kind == "verdicts" {
		return r.verdicts(ctx)
	}
	if p.Method == "flow" {
		return r.traverseFlows(ctx, p)
	}
	r.chooseProtocol()
	for _, family := range r.Families {
		targets, err := r.targets(family, p)
		if err != nil {
			return err
		}
		if len(targets) == 0 {
			r.Messages.Send(pass.Message{Note: fmt.Sprintf("%s: first packets not measured, since no %s Service has endpoints", family, r.protocol)})
			continue
		}
		if err := r.measure(ctx, family, targets, p.Samples, purposeTraversal); err != nil {
			return err
		}
		if r.About.ClusterIPsOnly() { // its packets meet no rules
			continue
		}
		if err := r.rulesCrossed(ctx, family, targets); err != nil {
			return err
		}
	}
	return nil
}

func (r *Probes) measure(ctx context.Context, family corev1.IPFamily, targets []Target, samples int, purpose uint64) error {
	options := TraversalOptions{Targets: targets, Protocol: r.protocol, Samples: samples, Rand: r.Random(purpose)}
	method := ""
	if r.protocol == corev1.ProtocolTCP {
		method = raw.MethodConnect
	}
	return MeasureTraversal(ctx, options, func(target *Target, d time.Duration) {
		rec := target.record(family)
		rec.Method, rec.Protocol = method, string(r.protocol)
		r.RecordAs(rec, raw.FirstPacket, d.Seconds())
	})
}

// record returns the record fields of a target. A kind of destination has a position only on the empty ruleset.
func (t *Target) record(family corev1.IPFamily) raw.Record {
	rec := raw.Record{Family: string(family), Target: t.Kind}
	if position := t.Position; t.Kind == "" || position == 0 {
		rec.Position = &position
	}
	return rec
}

// targets picks the nearest Services of the protocol to positions at equal steps from first to last, a miss, and the kinds of
// destinations. A miss is an address that no rule has (see misses), so that a packet crosses the whole chain. Without a
// Service of the protocol there are no targets.
func (r *Probes) targets(family corev1.IPFamily, p *scenarios.Probe) ([]Target, error) {
	frontends, rules, err := r.Dispatch(family)
	if err != nil {
		return nil, err
	}
	at := map[netip.AddrPort]int{}
	for _, f := range frontends {
		if f.Protocol == r.protocol {
			at[f.Addr] = f.Position
		}
		rules = max(rules, f.Position) // with a map, positions exceed the number of rules
	}
	frontends = r.plainest(family, frontends)
	if len(frontends) == 0 {
		return nil, nil
	}
	var targets []Target
	for i := range p.Positions {
		wanted := 1
		if p.Positions > 1 {
			wanted += i * (rules - 1) / (p.Positions - 1)
		}
		near := pass.Nearest(frontends, wanted)
		if len(targets) == 0 || targets[len(targets)-1].Position != near.Position {
			targets = append(targets, Target{Position: near.Position, Addr: near.Addr})
		}
	}
	misses := r.misses(family, 1)
	if len(misses) == 0 {
		return nil, fmt.Errorf("no free %s address in %v for a miss", family, r.Scenario.Shape.PodCIDRs)
	}
	targets = append(targets, Target{Position: -1, Addr: misses[0]})
	kinds, lacking, err := r.kindTargets(family, p.Kinds, at)
	if len(lacking) > 0 && r.Rep == 1 {
		r.Messages.Send(pass.Message{Note: fmt.Sprintf("%s: not measured, since no %s Service is of that kind: %s", family, r.protocol, strings.Join(lacking, ", "))})
	}
	return append(targets, kinds...), err
}

// plainest returns the frontends of Services of the protocol. It omits Services with affinity or a local traffic policy, if there
// are others: their extra cost does not depend on the position.
func (r *Probes) plainest(family corev1.IPFamily, frontends []iptables.Frontend) []iptables.Frontend {
	all := slices.DeleteFunc(frontends, func(f iptables.Frontend) bool { return f.Protocol != r.protocol })
	special := map[netip.AddrPort]bool{}
	for _, port := range r.ports(family) {
		special[port.cluster] = port.sticky() || port.local()
	}
	var plain []iptables.Frontend
	for _, f := range all {
		if !special[f.Addr] {
			plain = append(plain, f)
		}
	}
	if len(plain) == 0 {
		return all
	}
	return plain
}

// missPort is no Service's port: generated Services use low ports.
const missPort = 65000

// misses returns n addresses of the pods' ranges that nothing in the cluster has, or fewer if there are not enough.
// They are not in the Service ranges: kube-proxy drops packets to a free address there in mode nftables, in OUTPUT, and a
// dropped packet ends before POSTROUTING and the device.
func (r *Probes) misses(family corev1.IPFamily, n int) []netip.AddrPort {
	var free []netip.AddrPort
	used := sim.AddressesOf(r.World.Objects())
	if r.Flows != nil {
		for _, client := range r.Flows.Clients {
			used[client] = true
		}
	}
	for _, cidr := range r.Scenario.Shape.PodCIDRs {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil || inet.FamilyOf(prefix.Addr()) != family {
			continue
		}
		for addr := sim.LastOf(prefix).Prev(); len(free) < n && prefix.Contains(addr); addr = addr.Prev() {
			if !used[addr] {
				free = append(free, netip.AddrPortFrom(addr, missPort))
			}
		}
	}
	return free
}
