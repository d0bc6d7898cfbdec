package netns

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// BeyondDevice is the node's device to the router behind it.
const BeyondDevice = "beyond0"

// Beyond is the router behind the node. It takes packets and sends none.
type Beyond struct {
	router *Namespace
	near   netlink.Link
}

// ConnectBeyond routes addresses to a router behind the node, as a node's default route does with the external
// addresses of Services: packets that no rule of a proxy translates leave there. Addresses with a route of their own
// keep it. The caller closes the router.
func (l *Lab) ConnectBeyond(addrs []netip.Addr) (_ *Beyond, err error) {
	if err := Guard(); err != nil {
		return nil, err
	}
	node, err := currentNamespace()
	if err != nil {
		return nil, err
	}
	defer node.Close()
	b := &Beyond{}
	if b.router, err = newNamespace(); err != nil {
		return nil, fmt.Errorf("router behind the node: %w", err)
	}
	defer func() {
		if err != nil {
			b.router.Close()
		}
	}()
	cable, err := node.link(BeyondDevice, b.router)
	if err != nil {
		return nil, err
	}
	b.near = cable.near
	// It came up without a carrier, and would drop packets until the kernel's link watch has run.
	if err := errors.Join(netlink.LinkSetDown(b.near), netlink.LinkSetUp(b.near)); err != nil {
		return nil, fmt.Errorf("%s up: %w", BeyondDevice, err)
	}
	for _, addr := range addrs {
		gateway := podGateway[addr.Is6()]
		if err := neighbour(cable.near, gateway, cable.farMAC); err != nil {
			return nil, err
		}
		err := routeVia(cable.near, netip.PrefixFrom(addr, addr.BitLen()), gateway, 0)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, err
		}
	}
	return b, nil
}

// Close removes the router and the routes to it.
func (b *Beyond) Close() error {
	defer b.router.Close()
	if err := netlink.LinkDel(b.near); err != nil {
		return fmt.Errorf("%s: %w", BeyondDevice, err)
	}
	return nil
}
