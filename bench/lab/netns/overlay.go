package netns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The kinds of pod networks.
const (
	Routed = "routed" // as Calico's: host routes, and a next hop that no host has
	Bridge = "bridge" // the node's client pods are ports of a bridge, and find the node by ARP
	VXLAN  = "vxlan"  // as flannel's: all other pods are on another node, behind a tunnel
)

// Names that a bridge plugin and flannel give their devices, and the tunnel's settings, as flannel's.
const (
	bridgeDevice  = "cni0"
	tunnelDevice  = "flannel.1"
	underlayNear  = "under0"
	tunnelNetwork = 1
	tunnelPort    = 8472
)

// underlay are the addresses of the two nodes on the wire between them: link-local ones, which no cluster has.
var underlay = [2]netip.Addr{netip.MustParseAddr("169.254.2.1"), netip.MustParseAddr("169.254.2.2")}

// bridged puts the near end of a cable into a new bridge, which becomes the near end. The bridge has the next hop's
// addresses, so that pods find it by ARP and neighbour discovery.
func (c *cable) bridged(t PodTopology) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = bridgeDevice
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return fmt.Errorf("bridge %s: %w", bridgeDevice, supported(err, "bridges"))
	}
	bridge, mac, err := bringUp(bridgeDevice)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetMaster(c.near, bridge); err != nil {
		return fmt.Errorf("port of %s: %w", bridgeDevice, err)
	}
	c.near, c.nearMAC, c.asks = bridge, mac, true
	v4, v6 := families(t)
	for is6, there := range map[bool]bool{false: v4, true: v6} {
		if !there {
			continue
		}
		gateway := nodeGateway[is6]
		address := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(gateway, gateway.BitLen()))}
		if is6 {
			address.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(bridge, address); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("address %s of %s: %w", gateway, bridgeDevice, err)
		}
	}
	return nil
}

// otherNode makes another node between this one and the pods: a tunnel over a wire, with fixed entries for its far end,
// as flannel writes them.
func (n *Namespace) otherNode(pods *Pods, t PodTopology) error {
	var err error
	if pods.Other, err = newNamespace(); err != nil {
		return fmt.Errorf("other node: %w", err)
	}
	if err := pods.Other.Do(func() error { return routing(families(t)) }); err != nil {
		return fmt.Errorf("other node: %w", err)
	}
	wire, err := n.link(underlayNear, pods.Other)
	if err != nil {
		return err
	}
	tunnel := &cable{}
	if tunnel.near, tunnel.nearMAC, err = tunnelEnd(wire.near, underlay[0]); err != nil {
		return err
	}
	err = pods.Other.Do(func() (err error) {
		tunnel.far, tunnel.farMAC, err = tunnelEnd(wire.far, underlay[1])
		return err
	})
	if err != nil {
		return fmt.Errorf("other node: %w", err)
	}
	if err := forward(tunnel.near, tunnel.farMAC, underlay[1]); err != nil {
		return err
	}
	if err := tunnel.toOthers(t); err != nil {
		return err
	}
	return pods.Other.Do(func() error {
		if err := errors.Join(forward(tunnel.far, tunnel.nearMAC, underlay[0]), tunnel.toNode(t)); err != nil {
			return err
		}
		for _, addr := range t.Clients { // the longer prefix takes precedence over the range
			if err := routeVia(tunnel.far, netip.PrefixFrom(addr, addr.BitLen()), nodeGateway[addr.Is6()], 0); err != nil {
				return err
			}
		}
		last, err := pods.Other.link(BackendDevice, pods.Backends)
		if err != nil {
			return err
		}
		return last.others(pods.Backends, t)
	})
}

// tunnelEnd gives the calling thread's end of the wire its address, and makes this end of the tunnel.
func tunnelEnd(wire netlink.Link, local netip.Addr) (netlink.Link, net.HardwareAddr, error) {
	address := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(local, 30))}
	if err := netlink.AddrAdd(wire, address); err != nil {
		return nil, nil, fmt.Errorf("address %s: %w", local, err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = tunnelDevice
	device := &netlink.Vxlan{
		LinkAttrs: attrs, VxlanId: tunnelNetwork, VtepDevIndex: wire.Attrs().Index, SrcAddr: local.AsSlice(), Port: tunnelPort, Learning: false,
	}
	if err := netlink.LinkAdd(device); err != nil {
		return nil, nil, fmt.Errorf("tunnel %s: %w", tunnelDevice, supported(err, "VXLAN"))
	}
	return bringUp(tunnelDevice)
}

// forward sets at a tunnel's end on which node a hardware address is.
func forward(tunnel netlink.Link, mac net.HardwareAddr, node netip.Addr) error {
	err := netlink.NeighSet(&netlink.Neigh{
		LinkIndex: tunnel.Attrs().Index, Family: unix.AF_BRIDGE, State: netlink.NUD_PERMANENT, Flags: netlink.NTF_SELF, IP: node.AsSlice(), HardwareAddr: mac,
	})
	if err != nil {
		return fmt.Errorf("forwarding entry of %s: %w", tunnelDevice, err)
	}
	return nil
}

// supported explains the error of a kernel without a kind of device.
func supported(err error, what string) error {
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("this kernel has no %s: load the module, or measure on another kernel (--kernel 6.12): %w", what, err)
	}
	return err
}
