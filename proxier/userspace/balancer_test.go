package userspace

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func addrs(texts ...string) []netip.AddrPort {
	all := make([]netip.AddrPort, len(texts))
	for i, text := range texts {
		all[i] = netip.MustParseAddrPort(text)
	}
	return all
}

var three = addrs("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80")

func client(n byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, n}) }

func picks(t *testing.T, b *balancer, from netip.Addr, want ...netip.AddrPort) {
	t.Helper()
	for i, w := range want {
		if got, ok := b.pick(from, false); !ok || got != w {
			t.Errorf("pick %d is %v, %t; want %v", i, got, ok, w)
		}
	}
}

func TestRoundRobin(t *testing.T) {
	b := newBalancer(clocktesting.NewFakeClock(time.Now()))
	if got, ok := b.pick(client(1), false); ok {
		t.Errorf("without endpoints it picks %v", got)
	}
	b.set(three, 0)
	picks(t, b, client(1), three[0], three[1], three[2], three[0])
	b.set(three[:1], 0)
	picks(t, b, client(1), three[0], three[0])
}

func TestAffinity(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	b := newBalancer(clk)
	b.set(three, 10*time.Second)
	picks(t, b, client(1), three[0], three[0])
	picks(t, b, client(2), three[1])
	clk.Step(9 * time.Second)
	picks(t, b, client(1), three[0]) // and counts from now on
	clk.Step(9 * time.Second)
	picks(t, b, client(1), three[0])
	picks(t, b, client(2), three[2]) // after 18 s
	clk.Step(10 * time.Second)
	picks(t, b, client(1), three[0])                        // the next one in turn, by chance the same
	if got, _ := b.pick(client(1), true); got != three[1] { // it did not answer
		t.Errorf("after a failed attempt: %v", got)
	}
	picks(t, b, client(1), three[1])
	b.set(addrs("10.0.0.1:80", "10.0.0.3:80"), 10*time.Second) // the client's endpoint is gone
	if got, _ := b.pick(client(1), false); got == three[1] {
		t.Errorf("a removed endpoint was picked: %v", got)
	}
	b.set(three, 0)
	if len(b.clients) != 0 {
		t.Errorf("without affinity it remembers %v", b.clients)
	}
}

// Clients whose affinity has ended do not use memory for ever.
func TestClientsAreForgotten(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	b := newBalancer(clk)
	b.set(three, time.Second)
	for i := range 100_000 {
		from := netip.MustParseAddr(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255))
		b.pick(from, false)
		clk.Step(100 * time.Millisecond)
	}
	if len(b.clients) > fewClients {
		t.Errorf("%d clients are remembered, of which 10 have affinity", len(b.clients))
	}
}
