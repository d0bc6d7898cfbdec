package userspace

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

// udpIdle is how long a UDP flow lives after its last packet, in either direction: kube-proxy's default of
// udpIdleTimeout.
const udpIdle = 250 * time.Millisecond

// udpLast is how long the last read of an idle flow takes at least.
const udpLast = 50 * time.Millisecond

// udpBytes is the longest payload of a packet that is copied whole, as in kube-proxy.
const udpBytes = 4096

var errNoEndpoint = errors.New("no endpoint")

func isClosed(err error) bool { return errors.Is(err, net.ErrClosed) }

// packets is the socket of a UDP Service port.
type packets interface {
	ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error)
	WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error)
	Close() error
}

// udpPort copies the packets of a UDP Service port. A flow has one socket to its endpoint, so that answers can be
// assigned to it.
type udpPort struct {
	packets
	balancer *balancer
	dial     func(endpoint netip.AddrPort) (net.Conn, error)

	mu     sync.Mutex
	flows  map[netip.AddrPort]*udpFlow // by client
	closed bool
}

// udpFlow is a flow's socket to its endpoint.
type udpFlow struct {
	net.Conn
	used time.Time // when a packet last went either way
}

func newUDPPort(p packets, b *balancer) *udpPort {
	return &udpPort{packets: p, balancer: b, flows: map[netip.AddrPort]*udpFlow{}, dial: func(endpoint netip.AddrPort) (net.Conn, error) {
		return net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(endpoint))
	}}
}

// serve copies packets until the socket is closed.
func (u *udpPort) serve() {
	buffer := make([]byte, udpBytes)
	for {
		n, client, err := u.ReadFromUDPAddrPort(buffer)
		if isClosed(err) {
			return
		}
		if err != nil {
			continue // such as an ICMP error of a client that is gone
		}
		// A second attempt: the flow may have ended meanwhile, or its endpoint may be gone.
		for again := range 2 {
			flow, err := u.flow(client, again > 0)
			if err != nil {
				break
			}
			if _, err := flow.Write(buffer[:n]); err == nil {
				break
			}
			u.end(client, flow)
		}
	}
}

// flow returns a client's flow. A new flow gets the next endpoint.
func (u *udpPort) flow(client netip.AddrPort, again bool) (*udpFlow, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	flow := u.flows[client]
	if flow == nil {
		endpoint, ok := u.balancer.pick(client.Addr().Unmap(), again)
		if !ok || u.closed {
			return nil, errNoEndpoint
		}
		conn, err := u.dial(endpoint)
		if err != nil {
			return nil, err
		}
		flow = &udpFlow{Conn: conn}
		u.flows[client] = flow
		go u.answers(client, flow)
	}
	return flow, u.use(flow)
}

// use begins a flow's idle time again. u.mu is held.
func (u *udpPort) use(flow *udpFlow) error {
	flow.used = u.balancer.clock.Now()
	return flow.SetReadDeadline(flow.used.Add(udpIdle - udpLast))
}

// answers copies the endpoint's packets to the client, until the flow was idle for too long or is refused.
func (u *udpPort) answers(client netip.AddrPort, flow *udpFlow) {
	defer u.end(client, flow)
	buffer := make([]byte, udpBytes)
	last := false // the flow is idle
	for {
		n, err := flow.Read(buffer)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && !last:
			// On a busy machine, this goroutine may be late, and an answer there.
			last = u.lastRead(flow)
			continue
		case err != nil:
			return
		}
		last = false
		u.mu.Lock()
		err = u.use(flow)
		u.mu.Unlock()
		if err != nil {
			return
		}
		if _, err := u.WriteToUDPAddrPort(buffer[:n], client); err != nil {
			return
		}
	}
}

// lastRead allows one more read of a flow that is about to be idle for too long. false: it has been used meanwhile.
func (u *udpPort) lastRead(flow *udpFlow) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	over, now := flow.used.Add(udpIdle), u.balancer.clock.Now()
	if now.Before(over.Add(-udpLast)) {
		return false
	}
	if late := now.Add(udpLast); late.After(over) {
		over = late
	}
	_ = flow.SetReadDeadline(over) // an error is that of the read
	return true
}

// end closes a flow.
func (u *udpPort) end(client netip.AddrPort, flow *udpFlow) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.flows[client] == flow {
		delete(u.flows, client)
	}
	_ = flow.Close()
}

// Close ends all flows and closes the socket.
func (u *udpPort) Close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for client, flow := range u.flows {
		delete(u.flows, client)
		_ = flow.Close()
	}
	return u.packets.Close()
}
