package walk

import (
	"net/netip"
	"slices"
	"testing"
)

// The same seed gives the same packets. They are many enough, of one family, and include the required ones.
func TestPopulation(t *testing.T) {
	addr := netip.MustParseAddr
	f := Frontend{
		Service: "ns/svc", Protocol: TCP, Port: 80, Addresses: []netip.Addr{addr("10.96.0.1"), addr("203.0.113.1")}, NodePort: 30080,
		HealthCheck: 32000, Ranges: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/25")}, Sticky: true,
		Endpoints: []netip.AddrPort{netip.MustParseAddrPort("10.128.0.1:8080"), netip.MustParseAddrPort("10.128.1.1:8080")},
	}
	p := PacketSet{Frontends: []Frontend{f}, World: world4, Seed: 7}
	packets := p.Packets(true)
	if len(packets) < defaultLeast {
		t.Errorf("%d packets", len(packets))
	}
	for i, again := range p.Packets(true) {
		if again.String() != packets[i].String() {
			t.Fatalf("packet %d: %s, then %s", i, &packets[i], &again)
		}
	}
	for what, is := range map[string]func(*Packet) bool{
		"hairpin": func(p *Packet) bool {
			return p.Source.Addr() == addr("10.128.0.1") && p.Destination.Addr() == addr("10.96.0.1")
		},
		"last of the range": func(p *Packet) bool { return p.Source.Addr() == addr("198.51.100.127") && p.Destination.Port() == 80 },
		"behind the range":  func(p *Packet) bool { return p.Source.Addr() == addr("198.51.100.128") && p.Destination.Port() == 80 },
		"NodePort on loopback": func(p *Packet) bool {
			return p.Destination == netip.MustParseAddrPort("127.0.0.1:30080") && p.Input == ""
		},
		"NodePort of a neighbour": func(p *Packet) bool { return p.Destination == netip.MustParseAddrPort("192.0.2.11:30080") },
		"next address":            func(p *Packet) bool { return p.Destination == netip.MustParseAddrPort("10.96.0.2:80") },
		"next port":               func(p *Packet) bool { return p.Destination == netip.MustParseAddrPort("10.96.0.1:81") },
		"other protocol": func(p *Packet) bool {
			return p.Protocol == SCTP && p.Destination == netip.MustParseAddrPort("10.96.0.1:80")
		},
		"health check": func(p *Packet) bool { return p.Destination == netip.MustParseAddrPort("192.0.2.10:32000") },
		"remembered": func(p *Packet) bool {
			return p.After != nil && p.After.Endpoint == f.Endpoints[1] && p.After.Via == netip.MustParseAddrPort("203.0.113.1:80")
		},
	} {
		if !slices.ContainsFunc(packets, func(p Packet) bool { return is(&p) }) {
			t.Errorf("no packet: %s", what)
		}
	}
	for i := range packets {
		if !packets[i].Source.Addr().Is4() || !packets[i].Destination.Addr().Is4() {
			t.Errorf("%s", &packets[i])
		}
	}
}
