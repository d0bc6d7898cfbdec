package fault

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"synclab/bench/lab/netns"
	"synclab/scenarios"
)

func init() {
	register(Kind{
		Name: scenarios.FaultAddresses, inject: (*Faults).moreAddresses, lasts: forTime, shows: changesVisible, LosesFlows: "connections through an address end with the address",
	})
}

// moreAddresses adds one address per family to the node: the last one in the address's network of 256.
func (r *Faults) moreAddresses(ctx context.Context, d *activeFault) error {
	if err := netns.Guard(); err != nil {
		return err
	}
	link, err := netlink.LinkByName(netns.NodeDevice)
	if err != nil {
		return fmt.Errorf("%s: %w", netns.NodeDevice, err)
	}
	var added []string
	for _, addr := range r.NodeIPs {
		more := besides(addr, r.Node)
		address := &netlink.Addr{IPNet: &net.IPNet{IP: more.AsSlice(), Mask: net.CIDRMask(more.BitLen(), more.BitLen())}}
		if more.Is6() {
			address.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, address); err != nil {
			return fmt.Errorf("add address %s: %w", more, err)
		}
		added = append(added, more.String())
		d.stops = append(d.stops, func() error {
			if err := netlink.AddrDel(link, address); err != nil {
				return fmt.Errorf("delete address %s: %w", more, err)
			}
			return nil
		})
	}
	r.start(d)
	r.note(d, "%s", strings.Join(added, ", "))
	if len(r.Config.NodePortAddresses) == 0 {
		r.note(d, "no rule needs to change, since nodePortAddresses is not set: recovery ends with the changes that follow")
	}
	return nil
}

func besides(addr netip.Addr, taken []netip.Addr) netip.Addr {
	bytes := addr.AsSlice()
	last := &bytes[len(bytes)-1]
	if *last == 254 {
		*last--
	} else {
		*last = 254
	}
	more, _ := netip.AddrFromSlice(bytes)
	for slices.Contains(taken, more) {
		more = more.Prev()
	}
	return more
}
