package probe

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/bench/pass"
	"synclab/bench/traffic"
)

// A packet to a port that no Service has leaves the node once, with one hop less, or ends there. All else is a loop.
func TestJudgeHops(t *testing.T) {
	in := func(device string, ttl int) hop { return hop{device, false, ttl} }
	out := func(device string, ttl int) hop { return hop{device, true, ttl} }
	const client, beyond = netns.ClientDevice, netns.BeyondDevice
	for _, c := range []struct {
		what    string
		seen    []hop
		own     bool
		outcome string
		wrong   string
	}{
		{"forwarded", []hop{in(client, 64), out(beyond, 63)}, false, forwarded, ""},
		{"forwarded by a bridge", []hop{in(client, 64), in("cni0", 64), out(beyond, 63)}, false, forwarded, ""},
		{"of the node itself", []hop{out(beyond, 64)}, true, forwarded, ""},
		{"dropped", []hop{in(client, 64)}, false, traffic.TimedOut, ""},
		{"dropped by the node's own rules", nil, true, traffic.TimedOut, ""},
		{"to an address of the node", []hop{out("lo", 64), in("lo", 64)}, true, traffic.TimedOut, ""},
		{"through the node again", []hop{in(client, 64), out("loop0", 63), in("loop1", 63), out(beyond, 62)}, false, looped, "passed the node 2 times, and its TTL fell from 64 to 62"},
		{"until its TTL is over", []hop{out("loop0", 64), in("loop1", 64), out("loop0", 63), in("loop1", 63), in("loop1", 1)}, true, looped, "64 times"},
		{"back to the pods", []hop{in(client, 64), out(client, 63)}, false, looped, "sent it back by client0, with TTL 63"},
		{"redirected without a hop", []hop{in(client, 64), out("loop0", 63), out("loop0", 63)}, false, looped, "left by loop0 2 times"},
	} {
		outcome, wrong := judgeHops(c.seen, c.own)
		if outcome != c.outcome || (wrong == "") != (c.wrong == "") || !strings.Contains(wrong, c.wrong) {
			t.Errorf("%s: %q %q, want %q %q", c.what, outcome, wrong, c.outcome, c.wrong)
		}
	}
}

func TestDestinationOf(t *testing.T) {
	v4 := append([]byte{0x46, 0, 0, 32, 0, 1, 0, 0, 63, 17, 0, 0, 10, 0, 0, 1, 198, 18, 7, 4, 1, 1, 1, 1}, 0x80, 0, 0, 9)
	v6 := append([]byte{0x60, 0, 0, 0, 0, 20, 6, 62}, append(append(netip.MustParseAddr("fd00::1").AsSlice(), netip.MustParseAddr("fd00::2").AsSlice()...), 0x80, 0, 0, 80)...)
	for _, c := range []struct {
		packet []byte
		want   frontend
		ttl    int
	}{
		{v4, frontend{corev1.ProtocolUDP, netip.MustParseAddrPort("198.18.7.4:9")}, 63},
		{v6, frontend{corev1.ProtocolTCP, netip.MustParseAddrPort("[fd00::2]:80")}, 62},
		{v4[:26], frontend{}, 0},
		{nil, frontend{}, 0},
	} {
		to, ttl, ok := destinationOf(c.packet)
		if to != c.want || ok != (c.ttl != 0) || ok && ttl != c.ttl {
			t.Errorf("%x: %v %d %t, want %v %d", c.packet, to, ttl, ok, c.want, c.ttl)
		}
	}
}

// In the kernel: packets leave by the default route, go round between two devices of the node, or return to the pods. A
// route that a subject made stays.
func TestHopsInTheKernel(t *testing.T) {
	netns.Fresh(t)
	lab := &netns.Lab{}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	client := netip.MustParseAddr("10.128.0.250")
	must(lab.Connect(netns.Topology{Node: []netip.Addr{netip.MustParseAddr("192.168.0.1")}, Sink: []netip.Prefix{netip.MustParsePrefix("198.18.0.0/16")}}))
	pods, err := lab.ConnectPods(netns.PodTopology{Clients: []netip.Addr{client}, Ranges: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")}})
	must(err)
	defer pods.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "loop0"
	must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "loop1"}))
	route := func(to, device string, gateway netip.Addr) {
		link, err := netlink.LinkByName(device)
		must(err)
		must(netlink.RouteAdd(&netlink.Route{
			LinkIndex: link.Attrs().Index, Dst: &net.IPNet{IP: netip.MustParseAddr(to).AsSlice(), Mask: net.CIDRMask(32, 32)}, Gw: gateway.AsSlice(), Flags: int(netlink.FLAG_ONLINK),
		}))
	}
	for _, name := range []string{"loop1", "loop0"} { // the one that sends comes up with a carrier
		link, err := netlink.LinkByName(name)
		must(err)
		must(netlink.LinkSetUp(link))
	}
	near, err := netlink.LinkByName("loop0")
	must(err)
	far, err := netlink.LinkByName("loop1")
	must(err)
	round := netip.MustParseAddr("169.254.9.9")
	must(netlink.NeighSet(&netlink.Neigh{LinkIndex: near.Attrs().Index, Family: netlink.FAMILY_V4, State: netlink.NUD_PERMANENT, IP: round.AsSlice(), HardwareAddr: far.Attrs().HardwareAddr}))
	route("198.18.0.2", "loop0", round)
	route("198.18.0.3", netns.ClientDevice, client)

	var all []destination
	for _, text := range []string{"198.18.0.1:9", "198.18.0.2:9", "198.18.0.3:9"} {
		for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
			d := destination{addr: netip.MustParseAddrPort(text), beyond: true}
			d.service.Protocol = protocol
			all = append(all, d)
		}
	}
	beyond, watched, err := (&Probes{Env: &pass.Env{Lab: lab}}).beyond(all)
	must(err)
	defer watched.Close()
	wants := map[string]string{"198.18.0.1:9": "", "198.18.0.2:9": "TTL fell from 64 to 1", "198.18.0.3:9": "sent it back by client0"}
	for i := range all {
		d := &all[i]
		var outcome string
		must(pods.Client.Do(func() (err error) {
			_, outcome, err = oneFlow(d.service.Protocol, client, d.addr, verdictPatience)
			return err
		}))
		var wrong []string
		outcome, err := watched.outcome(d, false, outcome, &wrong)
		must(err)
		want := wants[d.addr.String()]
		if text := strings.Join(wrong, ", "); (want == "") != (text == "") || !strings.Contains(text, want) || (outcome == looped) != (want != "") || want == "" && outcome != forwarded {
			t.Errorf("%s %s: %s %s, want %q", d.service.Protocol, d.addr, outcome, text, want)
		}
	}
	must(beyond.Close())
	if routes, err := netlink.RouteGet(net.IPv4(198, 18, 0, 1)); err != nil || len(routes) != 1 || !routes[0].Gw.Equal(nil) {
		t.Errorf("routes to an external address afterwards: %v, %v", routes, err)
	}
}
