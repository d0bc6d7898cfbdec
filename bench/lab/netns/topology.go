package netns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The devices of the namespace: two veth pairs with both ends inside. Dummy devices would do, but many kernels lack
// them.
const (
	NodeDevice = "node0" // up, with a carrier; has the node's addresses
	nodeFar    = "node0-far"
	SinkDevice = "sink0" // up, but its far end is down: the kernel drops packets sent here
	sinkFar    = "sink0-far"
)

// Topology is the network of a node, as its own processes see it.
type Topology struct {
	// Node are the addresses of the node itself.
	Node []netip.Addr
	// Sink are the ranges outside the node: of Services, pods, load balancers and external addresses.
	Sink []netip.Prefix
}

// Connect builds the topology. A packet to a Sink range traverses the OUTPUT and POSTROUTING chains, and is then
// dropped by a device without carrier. Addresses are usable at once, and the first packet to a pod does not wait. See
// docs/design/namespaces.md.
func (l *Lab) Connect(t Topology) error {
	if err := Guard(); err != nil {
		return err
	}
	// Defaults for future devices. Kernels without IPv6 lack these files. In a container /proc/sys may be read-only;
	// the addresses' own flags suffice there.
	for _, name := range []string{"accept_dad", "dad_transmits", "router_solicitations", "accept_ra", "autoconf"} {
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/default/"+name, []byte("0"), 0o644)
	}
	const noLinkLocal = "1" // IN6_ADDR_GEN_MODE_NONE
	_ = os.WriteFile("/proc/sys/net/ipv6/conf/default/addr_gen_mode", []byte(noLinkLocal), 0o644)
	node, err := pair(NodeDevice, nodeFar, true)
	if err != nil {
		return err
	}
	// The cheapest and most stable sink measured (first dispatch rule, Linux 6.18, p50/p99): 5.4/6.5 µs. Far end up:
	// 6.1/7.1. A route over lo: 6.8/25. Local delivery with its ICMP answer: 10/13.
	sink, err := pair(SinkDevice, sinkFar, false)
	if err != nil {
		return err
	}
	for _, addr := range t.Node {
		if err := addAddress(node, addr); err != nil {
			return err
		}
	}
	for _, prefix := range t.Sink {
		if err := addRoute(sink, prefix); err != nil {
			return err
		}
	}
	return nil
}

// pair makes a veth pair and brings one end up, or both.
func pair(name, far string, both bool) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: far}); err != nil {
		return nil, fmt.Errorf("veth pair %s: %w", name, err)
	}
	var near netlink.Link
	// The far end first: a device that is brought up without carrier keeps the no-op queue.
	for _, end := range []string{far, name} {
		link, err := netlink.LinkByName(end)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", end, err)
		}
		near = link
		if err := errors.Join(netlink.LinkSetARPOff(link), netlink.LinkSetMulticastOff(link)); err != nil {
			return nil, fmt.Errorf("%s: no ARP, no multicast: %w", end, err)
		}
		if end == far && !both {
			continue
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return nil, fmt.Errorf("%s up: %w", end, err)
		}
	}
	return near, nil
}

func addAddress(link netlink.Link, addr netip.Addr) error {
	address := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(addr, addr.BitLen()))}
	if addr.Is6() {
		address.Flags = unix.IFA_F_NODAD
	}
	if err := netlink.AddrAdd(link, address); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("node address %s: %w", addr, err)
	}
	return awaitLocal(addr)
}

// awaitLocal waits until the kernel delivers packets to addr. IPv6 adds an address's local route in a work queue, even
// without duplicate address detection. The kernel announces the address before that, so there is no event to wait for.
func awaitLocal(addr netip.Addr) error {
	const tries, pause = 5000, time.Millisecond
	for range tries {
		routes, err := netlink.RouteGet(addr.AsSlice())
		if err == nil && len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL {
			return nil
		}
		time.Sleep(pause)
	}
	return fmt.Errorf("node address %s did not become local", addr)
}

func addRoute(link netlink.Link, prefix netip.Prefix) error {
	route := &netlink.Route{
		LinkIndex: link.Attrs().Index,
		Dst:       ipNet(prefix.Masked()),
		Scope:     netlink.SCOPE_LINK,
	}
	if prefix.Addr().Is6() {
		route.Scope = netlink.SCOPE_UNIVERSE
	}
	if err := netlink.RouteAdd(route); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("route to %s: %w", prefix, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
