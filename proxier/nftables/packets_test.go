package nftables

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/proxier/backend"
	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// node makes the namespace a node on which the addresses of its endpoints are local. An endpoint answers with its own
// address and with the source address that it sees.
type node struct {
	*cluster
	t      *testing.T
	b      *Backend
	source uint16 // port of the last client
}

const endpointPort, servicePort, nodePort = 8080, 80, 30080

func newNode(t *testing.T, family corev1.IPFamily) *node { return newNodeOf(t, family, 2, 3) }

// newNodeOf returns a node with so many addresses and endpoints.
func newNodeOf(t *testing.T, family corev1.IPFamily, addresses, endpoints int) *node {
	n := &node{cluster: newCluster(1, family), t: t, source: 20000}
	n.b = onKernel(t, backend.Settings{Family: family, MasqueradeBit: 14, DropInvalid: true, NodeIP: n.mustAddr(netNode, 1)})
	services, err := n.mustAddr(netServices, 0).Prefix(24)
	if family == corev1.IPv6Protocol {
		services, err = n.mustAddr(netServices, 0).Prefix(64)
	}
	if err != nil {
		t.Fatal(err)
	}
	// A packet needs a route before it is translated.
	topology := netns.Topology{Sink: []netip.Prefix{services}}
	for i := 1; i <= addresses; i++ {
		topology.Node = append(topology.Node, n.mustAddr(netNode, i))
	}
	for i := 1; i <= endpoints; i++ {
		topology.Node = append(topology.Node, n.pod(i))
	}
	if err := (&netns.Lab{}).Connect(topology); err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= endpoints; i++ {
		n.serve(n.pod(i))
	}
	return n
}

func (n *node) pod(i int) netip.Addr { return n.mustAddr(netLocalPods, i) }

func (n *node) serve(at netip.Addr) {
	addr := netip.AddrPortFrom(at, endpointPort)
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
	if err != nil {
		n.t.Fatal(err)
	}
	tcp, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(addr))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { udp.Close(); tcp.Close() })
	go func() {
		b := make([]byte, 10)
		for {
			_, from, err := udp.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = udp.WriteToUDPAddrPort([]byte(at.String()+" "+from.String()), from)
		}
	}()
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(c, "%s %s", at, c.RemoteAddr())
			c.Close()
		}
	}()
}

// ask sends a packet. It returns the endpoint that answered, and whether that endpoint saw another source. Masquerading
// picks a random source port, so it shows even if the address is the same.
func (n *node) ask(protocol corev1.Protocol, from, to netip.Addr, port uint16) (endpoint netip.Addr, masqueraded bool, err error) {
	network := strings.ToLower(string(protocol))
	d := net.Dialer{FallbackDelay: -1, Timeout: 10 * time.Second}
	// Use each source port once: a packet with the ports of an earlier flow would belong to that flow.
	n.source++
	d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, n.source))
	if network == "tcp" {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, n.source))
	}
	c, err := d.DialContext(context.Background(), network, netip.AddrPortFrom(to, port).String())
	if err != nil {
		return endpoint, false, err
	}
	defer c.Close()
	if network == "udp" {
		// A packet that is rejected on its way out is an error here. Its answer has to be read.
		if _, err := c.Write([]byte("?")); err != nil && !errors.Is(err, syscall.EPERM) {
			return endpoint, false, err
		}
	}
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return endpoint, false, err
	}
	b := make([]byte, 200)
	k, err := c.Read(b)
	if err != nil {
		return endpoint, false, err
	}
	at, who, _ := strings.Cut(string(b[:k]), " ")
	return netip.MustParseAddr(at), netip.MustParseAddrPort(who) != netip.MustParseAddrPort(c.LocalAddr().String()), nil
}

func (n *node) port(i int, protocol corev1.Protocol, endpoints ...int) *plan.ServicePort {
	p := clusterPort(i, 0)
	copied := *p.ServicePort
	copied.Name.Protocol, copied.ClusterIP, copied.NodePort = protocol, n.mustAddr(netServices, i), uint16(nodePort+i)
	p.ServicePort, p.HasEndpoints = &copied, len(endpoints) > 0
	for _, e := range endpoints {
		to := netip.AddrPortFrom(n.pod(e), endpointPort)
		p.Cluster = append(p.Cluster, &tracker.Endpoint{Addr: to, Text: to.String(), Ready: true, Local: true})
	}
	p.Reachable = p.Cluster
	return p
}

// Real packets go where the plan sends them.
func TestPackets(t *testing.T) {
	for _, family := range bothFamilies {
		for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
			t.Run(string(family)+"/"+string(protocol), func(t *testing.T) {
				n := newNode(t, family)
				sticky := n.port(3, protocol, 1, 2, 3)
				sticky.AffinitySeconds = 100
				ports := []*plan.ServicePort{n.port(1, protocol, 1, 2, 3), n.port(2, protocol), sticky, n.port(4, protocol, 1)}
				mustSync(t, n.b, true, ports)
				first, second := n.mustAddr(netNode, 1), n.mustAddr(netNode, 2)
				n.spread(protocol, first, ports[0].ClusterIP, servicePort, 3)
				n.spread(protocol, first, first, ports[0].NodePort, 3)
				n.refused(protocol, ports[1].ClusterIP)
				n.sticks(protocol, sticky)
				n.hairpin(protocol, ports[3].ClusterIP)

				// Partial syncs: one endpoint is removed, then all are.
				ports[0] = n.port(1, protocol, 2, 3)
				n.b.Update(plan.Delta{Changed: ports[:1]})
				mustSync(t, n.b, false, ports)
				n.spread(protocol, second, ports[0].ClusterIP, servicePort, 2)
				ports[0] = n.port(1, protocol)
				n.b.Update(plan.Delta{Changed: ports[:1]})
				mustSync(t, n.b, false, ports)
				n.refused(protocol, ports[0].ClusterIP)
			})
		}
	}
}

// spread sends packets until all endpoints have answered. Of so many tries, all but one in 10^15 succeed.
func (n *node) spread(protocol corev1.Protocol, from, to netip.Addr, port uint16, endpoints int) {
	n.t.Helper()
	seen := map[netip.Addr]bool{}
	const tries = 100
	for range tries {
		at, _, err := n.ask(protocol, from, to, port)
		if err != nil {
			n.t.Fatalf("%s:%d: %v", to, port, err)
		}
		seen[at] = true
	}
	if len(seen) != endpoints {
		n.t.Errorf("%s:%d: answers of %d endpoints, not %d", to, port, len(seen), endpoints)
	}
}

func (n *node) refused(protocol corev1.Protocol, to netip.Addr) {
	n.t.Helper()
	if _, _, err := n.ask(protocol, n.pod(3), to, servicePort); !errors.Is(err, syscall.ECONNREFUSED) {
		n.t.Errorf("%s: %v, not refused", to, err)
	}
}

func (n *node) sticks(protocol corev1.Protocol, p *plan.ServicePort) {
	n.t.Helper()
	at := map[netip.Addr]netip.Addr{}
	for i := range 60 {
		from := n.mustAddr(netNode, 1+i%2)
		to, port := p.ClusterIP, p.Port
		if i%3 == 0 { // the client is remembered for any address
			to, port = n.mustAddr(netNode, 1), p.NodePort
		}
		endpoint, _, err := n.ask(protocol, from, to, port)
		if err != nil {
			n.t.Fatal(err)
		}
		if before, known := at[from]; known && before != endpoint {
			n.t.Fatalf("try %d from %s: %s, before %s", i, from, endpoint, before)
		}
		at[from] = endpoint
	}
	// When its endpoint is removed, the client sticks to another one.
	from := n.mustAddr(netNode, 1)
	changed := *p
	changed.Cluster = nil
	for _, ep := range p.Cluster {
		if ep.Addr.Addr() != at[from] {
			changed.Cluster = append(changed.Cluster, ep)
		}
	}
	n.b.Update(plan.Delta{Changed: []*plan.ServicePort{&changed}})
	mustSync(n.t, n.b, false, nil)
	first, _, err := n.ask(protocol, from, p.ClusterIP, p.Port)
	if err != nil || first == at[from] {
		n.t.Fatalf("%s, %v", first, err)
	}
	for range 30 {
		if again, _, err := n.ask(protocol, from, p.ClusterIP, p.Port); again != first {
			n.t.Fatalf("%s, before %s, %v", again, first, err)
		}
	}
}

func (n *node) hairpin(protocol corev1.Protocol, to netip.Addr) {
	n.t.Helper()
	self := n.pod(1)
	masqueraded := false
	for range 3 { // the random port may be the same, once
		at, other, err := n.ask(protocol, self, to, servicePort)
		if err != nil || at != self {
			n.t.Fatalf("%s, %v", at, err)
		}
		masqueraded = masqueraded || other
	}
	if !masqueraded {
		n.t.Errorf("%s sees itself", self)
	}
	if _, masqueraded, err := n.ask(protocol, n.mustAddr(netNode, 2), to, servicePort); err != nil || masqueraded {
		n.t.Errorf("another client is masqueraded: %v, %v", masqueraded, err)
	}
}

// While tables replace each other, and endpoints are added and removed, every first packet of a flow finds an endpoint.
func TestNoGap(t *testing.T) {
	for _, family := range bothFamilies {
		t.Run(string(family), func(t *testing.T) {
			n := newNode(t, family)
			ports := []*plan.ServicePort{n.port(1, corev1.ProtocolUDP, 1, 2, 3)}
			mustSync(t, n.b, true, ports)
			const flows = 600
			sockets := make([]*net.UDPConn, flows) // of this thread's namespace
			for i := range sockets {
				var err error
				if sockets[i], err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(ports[0].ClusterIP, servicePort))); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { sockets[i].Close() })
			}
			unanswered := make(chan error, 1)
			defer func() {
				if err := <-unanswered; err != nil {
					t.Error(err)
				}
			}()
			const each = 5 // flows that begin during one sync
			for round := range flows / each {
				go func() { unanswered <- askAll(sockets[round*each : (round+1)*each]) }()
				if round > 0 {
					if err := <-unanswered; err != nil {
						t.Fatalf("sync %d: %v", round, err)
					}
				}
				if round%2 == 0 {
					mustSync(t, n.b, true, ports)
					continue
				}
				lists := [][]int{{1}, {1, 2}, {1, 2, 3}, {2, 3}, {3, 1}}
				ports = []*plan.ServicePort{n.port(1, corev1.ProtocolUDP, lists[round/2%len(lists)]...)}
				n.b.Update(plan.Delta{Changed: ports})
				mustSync(t, n.b, false, ports)
			}
		})
	}
}

// askAll sends one packet by each socket and waits for the answers.
func askAll(sockets []*net.UDPConn) error {
	b := make([]byte, 200)
	for i, s := range sockets {
		if _, err := s.Write([]byte("?")); err != nil {
			return fmt.Errorf("flow %d: %w", i, err)
		}
		if err := s.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return err
		}
		if _, err := s.Read(b); err != nil {
			return fmt.Errorf("flow %d: %w", i, err)
		}
	}
	return nil
}
