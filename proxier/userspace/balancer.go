package userspace

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// balancer picks endpoints for the connections of one Service port. It is safe for concurrent use.
type balancer struct {
	clock clock.PassiveClock

	mu        sync.Mutex
	endpoints []netip.AddrPort
	next      int
	affinity  time.Duration // 0: none
	clients   map[netip.Addr]choice
	prune     int // the number of clients that makes pick forget those whose affinity has ended
}

// choice is the endpoint of a client with affinity.
type choice struct {
	endpoint netip.AddrPort
	used     time.Time
}

// fewClients is the smallest number of clients at which it is worth to look for those to forget.
const fewClients = 64

func newBalancer(c clock.PassiveClock) *balancer {
	return &balancer{clock: c, clients: map[netip.Addr]choice{}, prune: fewClients}
}

// set replaces the endpoints and the time-out of affinity; 0: no affinity. Clients keep an endpoint that stays.
func (b *balancer) set(endpoints []netip.AddrPort, affinity time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endpoints, b.affinity = endpoints, affinity
	b.forget()
}

// forget drops clients without affinity, and those whose endpoint is gone.
func (b *balancer) forget() {
	now := b.clock.Now()
	for client, c := range b.clients {
		if now.Sub(c.used) >= b.affinity || !slices.Contains(b.endpoints, c.endpoint) {
			delete(b.clients, client)
		}
	}
	b.prune = max(fewClients, 2*len(b.clients))
}

// pick returns the endpoint for a new connection of a client; false if there is none. again: the last one that it got
// did not answer, so affinity does not count.
func (b *balancer) pick(client netip.Addr, again bool) (netip.AddrPort, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.endpoints) == 0 {
		return netip.AddrPort{}, false
	}
	now := b.clock.Now()
	if c, known := b.clients[client]; known && !again && now.Sub(c.used) < b.affinity {
		b.clients[client] = choice{c.endpoint, now}
		return c.endpoint, true
	}
	b.next %= len(b.endpoints)
	endpoint := b.endpoints[b.next]
	b.next++
	if b.affinity > 0 {
		if len(b.clients) >= b.prune {
			b.forget()
		}
		b.clients[client] = choice{endpoint, now}
	}
	return endpoint, true
}
