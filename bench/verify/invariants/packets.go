package invariants

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/verify/walk"
)

const (
	// mostPackets is the most packets that are sent through both rulesets of a family.
	mostPackets = 20_000
	// mostFrontends is the most frontends that get packets; from more, they are chosen at random (seeded).
	mostFrontends = 2_000
	// strayPackets is the number of packets to the address of one Service and the port of another.
	strayPackets = 300
)

// walked has the results of packets sent through the kernel's rules and through the rules of a full sync.
type walked struct {
	packets int
	differ  []disagreement
}

type disagreement struct {
	family     corev1.IPFamily
	packet     walk.Packet
	want, have walk.Result
}

// service returns the Service that a packet was made for.
func (d *disagreement) service() string {
	name, _, _ := strings.Cut(d.packet.What, " ")
	if !strings.Contains(name, "/") {
		return ""
	}
	return name
}

func (d *disagreement) String() string {
	return fmt.Sprintf("%s: %s, not %s", &d.packet, d.have, d.want)
}

// world returns the node's addresses, the main ones first.
func (e *Evidence) world() (walk.NodeAddresses, error) {
	w := walk.NodeAddresses{Local: slices.Clone(e.Options.NodeIPs)}
	if e.Options.Addresses == nil {
		return w, nil
	}
	all, err := e.Options.Addresses()
	for _, addr := range all {
		if !addr.IsLoopback() && !slices.Contains(w.Local, addr) {
			w.Local = append(w.Local, addr)
		}
	}
	return w, err
}

// walk sends the same packets through both rulesets, once.
func (e *Evidence) walk(ctx context.Context) (*walked, error) {
	if !e.walkable() {
		return &walked{}, nil
	}
	if e.walked != nil {
		return e.walked, nil
	}
	x, err := e.expect(ctx)
	if err != nil {
		return nil, err
	}
	world, err := e.world()
	if err != nil {
		return nil, err
	}
	w := &walked{}
	for _, family := range e.Families {
		wanted, there := walk.New(x.rules[family], world), walk.New(e.Rules[family], world)
		for _, p := range e.packets(family, world) {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			want, err := wanted.Walk(&p)
			if err != nil {
				return nil, fmt.Errorf("rules of a full sync: %w", err)
			}
			have, err := there.Walk(&p)
			if err != nil {
				return nil, fmt.Errorf("rules in the kernel: %w", err)
			}
			w.packets++
			if !have.Equal(want) {
				w.differ = append(w.differ, disagreement{family, p, want, have})
			}
		}
	}
	e.walked = w
	return w, nil
}

// packets returns packets to each frontend, and stray packets.
func (e *Evidence) packets(family corev1.IPFamily, world walk.NodeAddresses) []walk.Packet {
	rng := rand.New(rand.NewPCG(e.Seed, 0x1a57))
	frontends := walk.ObjectFrontends(family, e.Objects.Services, e.Objects.Slices)
	ipv4 := family == corev1.IPv4Protocol
	rng.Shuffle(len(frontends), func(i, j int) { frontends[i], frontends[j] = frontends[j], frontends[i] })
	frontends = frontends[:min(mostFrontends, len(frontends))]
	var packets []walk.Packet
	for i := range frontends {
		one := walk.PacketSet{Frontends: frontends[i : i+1], World: world, Seed: e.Seed + uint64(i), Least: 1}
		all := one.Packets(ipv4)
		share := max(1, (mostPackets-strayPackets)/len(frontends))
		if rest := all[1:]; len(all) > share { // the first packet goes from a client to the first address
			rng.Shuffle(len(rest), func(a, b int) { rest[a], rest[b] = rest[b], rest[a] })
			all = all[:share]
		}
		packets = append(packets, all...)
	}
	const few = 10
	mixed := walk.PacketSet{Frontends: frontends[:min(few, len(frontends))], World: world, Seed: e.Seed, Least: len(packets) + strayPackets}
	all := mixed.Packets(ipv4)
	return append(packets, all[max(0, len(all)-strayPackets):]...)
}

// endpoints returns the endpoints that a verdict may select.
func endpoints(v walk.Result) []netip.AddrPort {
	var to []netip.AddrPort
	for _, o := range v.Outcomes {
		if o.To.IsValid() && !slices.Contains(to, o.To) {
			to = append(to, o.To)
		}
	}
	return to
}

// fair reports whether a disagreement counts. kube-proxy's mode nftables differs for packets without an endpoint, and
// at NodePorts on addresses other than the node's main address. See docs/differences.md.
func (e *Evidence) fair(d *disagreement) bool {
	if e.Subject.Own || !e.Subject.Nftables() {
		return true
	}
	to := d.packet.Destination.Addr()
	world, err := e.world()
	return err == nil && (!world.IsLocal(to) || slices.Contains(e.Options.NodeIPs, to))
}

// checkReached: packets reach every endpoint that they should reach, and no packet is lost.
func checkReached(ctx context.Context, e *Evidence, r *report) error {
	w, err := e.walk(ctx)
	if err != nil {
		return err
	}
	r.checked = w.packets
	for i := range w.differ {
		d := &w.differ[i]
		want, have := endpoints(d.want), endpoints(d.have)
		lost := slices.ContainsFunc(want, func(to netip.AddrPort) bool { return !slices.Contains(have, to) })
		// Some packets reach no endpoint.
		refused := len(want) > 0 && slices.ContainsFunc(d.have.Outcomes, func(o walk.Outcome) bool { return !o.To.IsValid() })
		exact := e.Subject.Own && !astray(d) // for Synclab's proxier, the exact verdict is known
		if (lost || refused || exact) && e.fair(d) {
			r.violated(d.service(), "%s: %s", d.family, d)
		}
	}
	if t := e.Traffic; t != nil {
		r.checked += t.Flows
		if t.Streaming && t.Flows+t.LongLived == 0 {
			r.violated("", "a traffic stream runs, but it reported no flows")
		}
		if t.Failed > 0 {
			r.violated("", "%d of %d flows of the stream got no answer", t.Failed, t.Flows)
		}
	}
	return nil
}

// astray reports whether a packet may reach an endpoint that it must not reach.
func astray(d *disagreement) bool {
	want := endpoints(d.want)
	return slices.ContainsFunc(endpoints(d.have), func(to netip.AddrPort) bool { return !slices.Contains(want, to) })
}

// checkAstray: no packet reaches an endpoint that it must not reach.
func checkAstray(ctx context.Context, e *Evidence, r *report) error {
	w, err := e.walk(ctx)
	if err != nil {
		return err
	}
	r.checked = w.packets
	for i := range w.differ {
		if d := &w.differ[i]; astray(d) && e.fair(d) {
			r.violated(d.service(), "%s: %s", d.family, d)
		}
	}
	if t := e.Traffic; t != nil {
		r.checked += t.Flows
		if t.Misrouted > 0 {
			r.violated("", "%d of %d flows of the stream were answered by an endpoint that they must not reach", t.Misrouted, t.Flows)
		}
	}
	return nil
}
