package conntrack

import (
	"net/netip"
	"testing"
)

func ap(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// flow returns a flow from a client to dst that endpoint answers.
func flow(dst, endpoint string) Flow {
	client := ap("10.0.9.9:5000")
	return Flow{Src: client, Dst: ap(dst), ReplySrc: ap(endpoint), ReplyDst: client}
}

func frontend(s string) Frontend { return Frontend{Addr: ap(s).Addr(), Port: ap(s).Port()} }

func TestStale(t *testing.T) {
	want := Expectation{
		Serving: map[Frontend]Endpoints{
			frontend("10.96.0.10:53"):     NewEndpoints(ap("10.1.0.2:53"), ap("10.1.0.1:53")),
			frontend("203.0.113.7:53"):    NewEndpoints(ap("10.1.0.1:53")),
			frontend("10.96.0.11:53"):     nil, // lost its last endpoint
			frontend("[fd00::a]:53"):      NewEndpoints(ap("[fd01::1]:53")),
			NodePort(30053):               NewEndpoints(ap("10.1.0.1:53")),
			NodePort(30054):               nil,
			frontend("192.0.2.1:30099"):   NewEndpoints(ap("10.1.0.3:53")),
			frontend("198.51.100.1:1000"): NewEndpoints(ap("10.1.0.3:53")),
		},
		Gone: map[Frontend]Endpoints{
			frontend("10.96.0.12:53"):     NewEndpoints(ap("10.1.0.4:53")),
			frontend("198.51.100.1:1000"): NewEndpoints(ap("10.1.0.4:53")), // came back with another endpoint
			NodePort(30055):               NewEndpoints(ap("10.1.0.4:53")),
			frontend("192.0.2.1:30053"):   NewEndpoints(ap("10.1.0.1:53")), // a former external IP at the port of a NodePort
			NodePort(30099):               NewEndpoints(ap("10.1.0.3:53")),
		},
		Local: NodeLocal([]netip.Addr{netip.MustParseAddr("192.0.2.1")}, true),
	}
	tests := []struct {
		name          string
		dst, endpoint string
		stale         bool
	}{
		{"serving endpoint", "10.96.0.10:53", "10.1.0.1:53", false},
		{"other serving endpoint", "10.96.0.10:53", "10.1.0.2:53", false},
		{"endpoint that left", "10.96.0.10:53", "10.1.0.9:53", true},
		{"right address, wrong port", "10.96.0.10:53", "10.1.0.1:54", true},
		{"never redirected", "10.96.0.10:53", "10.96.0.10:53", true},
		{"same address, port of no service", "10.96.0.10:54", "10.1.0.9:53", false},
		{"external IP", "203.0.113.7:53", "10.1.0.2:53", true},
		{"service without endpoints", "10.96.0.11:53", "10.1.0.1:53", true},
		{"IPv6", "[fd00::a]:53", "[fd01::1]:53", false},
		{"IPv6, endpoint that left", "[fd00::a]:53", "[fd01::2]:53", true},

		{"nodePort, serving", "192.0.2.1:30053", "10.1.0.1:53", false},
		{"nodePort, endpoint that left", "192.0.2.1:30053", "10.1.0.9:53", true},
		{"nodePort over loopback", "127.0.0.1:30053", "10.1.0.9:53", true},
		{"nodePort number at a foreign address", "192.0.2.99:30053", "192.0.2.99:30053", false},
		{"nodePort number at a foreign address, redirected by another", "192.0.2.99:30053", "10.1.0.9:53", false},
		{"nodePort without endpoints", "192.0.2.1:30054", "10.1.0.1:53", true},

		{"deleted service", "10.96.0.12:53", "10.1.0.4:53", true},
		{"deleted service's address, not redirected", "10.96.0.12:53", "10.96.0.12:53", false},
		{"deleted service's address, redirected elsewhere", "10.96.0.12:53", "10.7.7.7:53", false},
		{"frontend that came back", "198.51.100.1:1000", "10.1.0.3:53", false},
		{"frontend that came back, former endpoint", "198.51.100.1:1000", "10.1.0.4:53", true},
		{"deleted nodePort", "192.0.2.1:30055", "10.1.0.4:53", true},
		{"deleted nodePort, foreign address", "192.0.2.99:30055", "10.1.0.4:53", false},
		{"deleted nodePort that an external IP serves", "192.0.2.1:30099", "10.1.0.3:53", false},
		{"unrelated", "8.8.8.8:53", "8.8.8.8:53", false},
	}
	for _, tt := range tests {
		if got := want.Stale(flow(tt.dst, tt.endpoint)); got != tt.stale {
			t.Errorf("%s: %s answered by %s: stale %v, want %v", tt.name, tt.dst, tt.endpoint, got, tt.stale)
		}
	}
	want.Local = nil
	if want.Stale(flow("192.0.2.1:30053", "10.1.0.9:53")) {
		t.Error("a flow was matched with a NodePort although the local addresses are unknown")
	}
}

func TestNodeLocalLoopback(t *testing.T) {
	without := NodeLocal(nil, false)
	with := NodeLocal(nil, true)
	for addr, want := range map[string]bool{"127.0.0.1": true, "127.8.8.8": true, "::1": false, "128.0.0.1": false} {
		a := netip.MustParseAddr(addr)
		if with(a) != want || without(a) {
			t.Errorf("%s: local %v with loopback and %v without, want %v and false", addr, with(a), without(a), want)
		}
	}
}
