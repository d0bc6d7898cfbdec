package walk

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
)

// Source is an origin of packets of a PacketSet.
type Source struct {
	What  string
	Input string // as in Packet
	Addr  netip.Addr
}

// PacketSet makes a set of packets for all that rules may distinguish: each address, port and protocol of each
// Service, from each kind of source, and packets close to them that must miss.
type PacketSet struct {
	Frontends []Frontend
	World     NodeAddresses
	// Sources to try everything from. nil: DefaultSources.
	Sources []Source
	// Least is the smallest number of packets; random ones fill up. Default 500.
	Least int
	// Seed of the random choices.
	Seed uint64
}

// DefaultSources returns pods of this node and of another, machines outside, the node and its loopback. The pods'
// addresses are those of sim's random clusters.
func DefaultSources(world NodeAddresses, ipv4 bool) []Source {
	addr := func(v4, v6 string) netip.Addr {
		if ipv4 {
			return netip.MustParseAddr(v4)
		}
		return netip.MustParseAddr(v6)
	}
	loopback := addr("127.0.0.1", "::1")
	return []Source{
		{"pod here", "veth7", addr("10.128.0.77", "fd00:10:128:0:1::77")},
		{"pod here, by the bridge", "cbr0", addr("10.128.0.78", "fd00:10:128:0:1::78")},
		{"pod of another node", "eth0", addr("10.128.2.9", "fd00:10:128:0:3::9")},
		{"outside", "eth0", addr("198.51.100.200", "2001:db8:1::200")},
		{"another node", "eth0", addr("192.0.2.11", "fd00:192:0:2::11")},
		{"outside by a device like a pod's", "vethx", addr("100.64.0.1", "2001:db8:64::1")},
		{"the node", "", world.main(loopback)},
		{"loopback", "", loopback},
	}
}

const (
	defaultLeast = 500
	mostClients  = 3 // of a Service's endpoints, as its clients
	mostSticky   = 6 // of a Service's endpoints, as remembered
)

// maker collects packets.
type maker struct {
	*PacketSet
	rng     *rand.Rand
	ipv4    bool
	packets []Packet
}

// Packets returns the packets of a family, which has to be the family of the frontends.
func (p *PacketSet) Packets(ipv4 bool) []Packet {
	m := &maker{PacketSet: p, rng: rand.New(rand.NewPCG(p.Seed, 0xa11)), ipv4: ipv4}
	if p.Sources == nil {
		q := *p
		q.Sources = DefaultSources(p.World, ipv4)
		m.PacketSet = &q
	}
	for i := range p.Frontends {
		m.frontend(&p.Frontends[i])
	}
	least := p.Least
	if least == 0 {
		least = defaultLeast
	}
	for len(m.packets) < least {
		m.random()
	}
	return m.packets
}

func (m *maker) add(what string, from Source, protocol Protocol, to netip.Addr, port uint16) *Packet {
	m.packets = append(m.packets, Packet{
		What: what + ", " + from.What, Input: from.Input, Protocol: protocol,
		// Rules match none of these client ports.
		Source: netip.AddrPortFrom(from.Addr, uint16(40000+m.rng.IntN(20000))), Destination: netip.AddrPortFrom(to, port),
	})
	return &m.packets[len(m.packets)-1]
}

func (m *maker) anySource() Source { return m.Sources[m.rng.IntN(len(m.Sources))] }

func (m *maker) frontend(f *Frontend) {
	for i, addr := range f.Addresses {
		what := fmt.Sprintf("%s %d/%s at address %d", f.Service, f.Port, f.Protocol, i)
		for _, from := range m.clients(f) {
			m.add(what, from, f.Protocol, addr, f.Port)
		}
		m.neighbours(what, f.Protocol, addr, f.Port)
		m.sticky(f, what, netip.AddrPortFrom(addr, f.Port))
		if f.NodePort != 0 {
			m.add(what+", the NodePort there", m.anySource(), f.Protocol, addr, f.NodePort)
		}
	}
	if f.NodePort != 0 {
		m.nodePort(f)
	}
	if f.HealthCheck != 0 {
		for _, to := range m.nodeAddresses() {
			m.add(f.Service+" health check", m.anySource(), TCP, to, f.HealthCheck)
		}
	}
	for _, to := range f.Endpoints {
		m.add(f.Service+" endpoint", m.anySource(), f.Protocol, to.Addr(), to.Port())
	}
}

// clients returns the sources, some endpoints, and addresses at the edges of the source ranges, inside and outside.
func (m *maker) clients(f *Frontend) []Source {
	all := append([]Source(nil), m.Sources...)
	for _, i := range m.rng.Perm(len(f.Endpoints))[:min(mostClients, len(f.Endpoints))] {
		all = append(all, Source{"an endpoint", "veth9", f.Endpoints[i].Addr()})
	}
	for _, r := range f.Ranges {
		first, last := edges(r)
		for _, edge := range []Source{
			{"first of a source range", "eth0", first}, {"last of a source range", "eth0", last},
			{"before a source range", "eth0", first.Prev()}, {"behind a source range", "eth0", last.Next()},
		} {
			if edge.Addr.IsValid() && edge.Addr.Is4() == m.ipv4 {
				all = append(all, edge)
			}
		}
	}
	return all
}

// edges returns the first and the last address of a prefix.
func edges(p netip.Prefix) (first, last netip.Addr) {
	first = p.Masked().Addr()
	b := first.AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	last, _ = netip.AddrFromSlice(b)
	return first, last
}

// neighbours adds packets that must miss, unless they are for another Service.
func (m *maker) neighbours(what string, protocol Protocol, addr netip.Addr, port uint16) {
	m.add(what+", next port", m.anySource(), protocol, addr, port+1)
	m.add(what+", port before", m.anySource(), protocol, addr, port-1)
	for _, other := range []Protocol{TCP, UDP, SCTP} {
		if other != protocol {
			m.add(what+", as "+other.String(), m.anySource(), other, addr, port)
		}
	}
	for _, next := range []netip.Addr{addr.Next(), addr.Prev()} {
		if next.IsValid() {
			m.add(what+", address beside it", m.anySource(), protocol, next, port)
		}
	}
}

// sticky adds packets of clients that an endpoint remembers, by the same address or another one of the Service.
func (m *maker) sticky(f *Frontend, what string, to netip.AddrPort) {
	most := 1 // without session affinity
	if f.Sticky {
		most = mostSticky
	}
	for _, i := range m.rng.Perm(len(f.Endpoints))[:min(most, len(f.Endpoints))] {
		p := m.add(what+", again", m.anySource(), f.Protocol, to.Addr(), to.Port())
		p.After = &After{Endpoint: f.Endpoints[i]}
		if len(f.Addresses) == 0 { // a Service of the other family
			continue
		}
		p = m.add(what+", after another address", m.anySource(), f.Protocol, to.Addr(), to.Port())
		via := f.Addresses[m.rng.IntN(len(f.Addresses))]
		p.After = &After{Endpoint: f.Endpoints[i], Via: netip.AddrPortFrom(via, f.Port)}
	}
}

// nodeAddresses returns the node's addresses, some of its loopback, and one of another node.
func (m *maker) nodeAddresses() []netip.Addr {
	all := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.1.1"), netip.MustParseAddr("192.0.2.11")}
	if !m.ipv4 {
		all = []netip.Addr{netip.IPv6Loopback(), netip.MustParseAddr("fd00:192:0:2::11")}
	}
	for _, addr := range m.World.Local {
		if addr.Is4() == m.ipv4 {
			all = append(all, addr)
		}
	}
	return all
}

func (m *maker) nodePort(f *Frontend) {
	what := fmt.Sprintf("%s NodePort %d/%s", f.Service, f.NodePort, f.Protocol)
	for _, to := range m.nodeAddresses() {
		for _, from := range m.clients(f) {
			m.add(what, from, f.Protocol, to, f.NodePort)
		}
		m.neighbours(what, f.Protocol, to, f.NodePort)
		m.sticky(f, what, netip.AddrPortFrom(to, f.NodePort))
	}
}

// random adds a packet that mixes frontends: the address of one, the port of another.
func (m *maker) random() {
	to, port, protocol := m.nodeAddresses()[m.rng.IntN(len(m.nodeAddresses()))], uint16(1+m.rng.IntN(65535)), []Protocol{TCP, UDP, SCTP}[m.rng.IntN(3)]
	if n := len(m.Frontends); n > 0 {
		a, b := &m.Frontends[m.rng.IntN(n)], &m.Frontends[m.rng.IntN(n)]
		if len(a.Addresses) > 0 && m.rng.IntN(3) > 0 {
			to = a.Addresses[m.rng.IntN(len(a.Addresses))]
		}
		if port, protocol = b.Port, b.Protocol; b.NodePort != 0 && m.rng.IntN(2) == 0 {
			port = b.NodePort
		}
	}
	m.add("random", m.anySource(), protocol, to, port)
}
