package flow

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"synclab/bench/internal/rigtest"
	"synclab/bench/lab/netns"
	"synclab/bench/pass"
	"synclab/bench/subject"
	"synclab/bench/traffic"
	"synclab/proxier/config"
	"synclab/scenarios"
)

// Real rules spread new flows of a client pod over the endpoints of their Service, and over no others, in every network of
// pods.
func TestFlowsAreSpread(t *testing.T) {
	for _, test := range []struct{ name, network string }{
		{"synclab/nftables", netns.Routed}, {"synclab/iptables-legacy-tree", netns.Routed}, {"synclab/nftables", netns.Bridge}, {"synclab/nftables", netns.VXLAN},
	} {
		t.Run(test.name+" "+test.network, func(t *testing.T) {
			name := test.name
			about, err := subject.Parse(name)
			if err != nil || about.Available() != nil {
				t.Skipf("%v %v", err, about.Available())
			}
			netns.Fresh(t)
			world := rigtest.World(t, scenarios.Shape{Services: 50, Protocols: map[string]float64{"UDP": 0.3}})
			made := rigtest.New(t, world, about, nil)
			r := &Flows{Env: &pass.Env{Lab: &netns.Lab{}, World: world, Config: config.New(), Families: []corev1.IPFamily{corev1.IPv4Protocol}}}
			r.Scenario = scenarios.Scenario{Shape: scenarios.Shape{PodCIDRs: []string{"10.128.0.0/9"}, PodNetwork: test.network}}
			r.FindNode()
			if err := r.ConnectPods(world.Objects(), pass.Sinks(r.Scenario.Shape, world.Objects(), r.Families)); err != nil {
				t.Fatal(err)
			}
			made.Sync(t)
			if err := r.StartPods(context.Background()); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}()
			var targets []traffic.Target
			for at, name := range portsByAddress(world.Objects().Services, corev1.IPv4Protocol) {
				if len(targets) < 2 && (len(targets) == 0 || targets[0].Protocol != at.protocol) {
					targets = append(targets, traffic.Target{Service: name, Family: corev1.IPv4Protocol, Protocol: at.protocol, Addr: at.addr})
				}
			}
			const flows = 100 * rigtest.Endpoints // of each
			reached := []map[netip.AddrPort]int{{}, {}}
			done := make(chan struct{})
			n := 0
			err = r.pods.Begin(traffic.Stream{Rate: 1000, Targets: targets, Clients: r.Clients, Seed: 1}, func(result traffic.Result) {
				if result.Outcome != traffic.Answered { // on a busy machine; an endpoint that never answers is missing below
					return
				}
				if n++; n <= flows*2 {
					reached[result.Target][result.By]++
				}
				if n == flows*2 {
					close(done)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			<-done
			if err := r.pods.End(); err != nil {
				t.Fatal(err)
			}
			for i, counts := range reached {
				if len(counts) != rigtest.Endpoints {
					t.Errorf("%s %s: reached %v, want %d endpoints", targets[i].Protocol, targets[i].Service, counts, rigtest.Endpoints)
				}
				for by, count := range counts {
					if count < 40 || count > 180 { // 100 ± six standard deviations
						t.Errorf("%s %s: %s was reached %d times of %d", targets[i].Protocol, targets[i].Service, by, count, flows)
					}
				}
			}
		})
	}
}

// Pods answer on a port once it is known, and each port is reported once.
func TestPortsAreListenedOn(t *testing.T) {
	r := &Flows{Env: &pass.Env{Families: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}}}
	slice := &discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{{Port: ptr.To[int32](80)}, {Port: ptr.To[int32](80)}, {}}}
	if n := len(r.newPorts(slice)); n != 4 {
		t.Errorf("%d ports of one number, want 4: two families, two protocols", n)
	}
	slice.Ports[0].Port = ptr.To[int32](81)
	if ports := r.newPorts(slice); len(ports) != 4 || ports[0].Number != 81 {
		t.Errorf("new ports %v, want those of 81", ports)
	}
	if ports := r.newPorts(slice); len(ports) != 0 {
		t.Errorf("reported again: %v", ports)
	}
}

// Without a route of the other node, no flow arrives: the tunnel is the way, and there is no other.
func TestTunnelIsTheWay(t *testing.T) {
	netns.Fresh(t)
	lab := &netns.Lab{}
	client, pod := netip.MustParseAddr("10.128.0.250"), netip.MustParseAddrPort("10.129.0.5:8080")
	if err := lab.Connect(netns.Topology{Node: []netip.Addr{netip.MustParseAddr("192.168.0.1")}}); err != nil {
		t.Fatal(err)
	}
	pods, err := lab.ConnectPods(netns.PodTopology{Clients: []netip.Addr{client}, Ranges: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")}, Network: netns.VXLAN})
	if err != nil {
		t.Fatal(err)
	}
	defer pods.Close()
	arrives := func(within time.Duration) bool {
		var server, from *net.UDPConn
		err := pods.Backends.Do(func() (err error) {
			server, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(pod))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		err = pods.Client.Do(func() (err error) {
			from, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(client, 0)), net.UDPAddrFromAddrPort(pod))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		// The first packets may wait for an answer of ARP, which a busy machine delays.
		for end := time.Now().Add(within); time.Now().Before(end); {
			if _, err := from.Write([]byte("a question")); err != nil {
				return false
			}
			_ = server.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
			if _, _, err = server.ReadFromUDPAddrPort(make([]byte, 64)); err == nil {
				return true
			}
		}
		return false
	}
	if !arrives(10 * time.Second) {
		t.Fatal("no packet arrives")
	}
	err = pods.Other.Do(func() error {
		link, err := netlink.LinkByName(netns.BackendDevice)
		if err != nil {
			return err
		}
		routes, err := netlink.RouteList(link, netlink.FAMILY_V4)
		for i := range routes {
			err = errors.Join(err, netlink.RouteDel(&routes[i]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if arrives(time.Second) {
		t.Error("a packet arrives though the other node has no route to the pods")
	}
}
