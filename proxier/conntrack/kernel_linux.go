package conntrack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

const (
	// passes is how often an interrupted walk is repeated before it is reported as failed. Each walk deletes what it
	// visits, so a repetition never does harm.
	passes = 5

	// replyTimeoutSeconds bounds the wait for one reply of the kernel, which takes microseconds to milliseconds.
	replyTimeoutSeconds = 60

	subsystem = unix.NFNL_SUBSYS_CTNETLINK << 8
)

// Kernel is the conntrack table of a network namespace, over ctnetlink. It needs CAP_NET_ADMIN there.
type Kernel struct {
	ns netns.NsHandle
}

// NewKernel returns the table of namespace ns. With no namespace (None), each call uses the namespace of the calling thread.
// The caller keeps ownership of the handle and must keep it open.
func NewKernel(ns netns.NsHandle) *Kernel { return &Kernel{ns: ns} }

// DeleteUDP implements Table. It repeats a walk that the kernel reports as interrupted (the table was resized, a signal
// came) a few times. Visited then counts the last walk, Deleted all of them. stale must not use the table.
func (k *Kernel) DeleteUDP(ctx context.Context, family corev1.IPFamily, stale func(Flow) bool) (Pass, error) {
	var total Pass
	for n := 1; ; n++ {
		pass, err := k.walk(ctx, family, stale)
		total.Visited = pass.Visited
		total.Deleted += pass.Deleted
		if err == nil || n == passes || !interrupted(err) || ctx.Err() != nil {
			return total, err
		}
	}
}

// LocalAddrs returns the addresses of the namespace's interfaces, including loopback, ordered by family.
func (k *Kernel) LocalAddrs(families ...corev1.IPFamily) ([]netip.Addr, error) {
	h, err := netlink.NewHandleAt(k.ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open rtnetlink: %w", err)
	}
	defer h.Close()
	var addrs []netip.Addr
	for _, family := range families {
		list, err := h.AddrList(nil, inetFamily(family))
		if err != nil {
			return nil, fmt.Errorf("list %s addresses: %w", family, err)
		}
		for _, a := range list {
			if addr, ok := netip.AddrFromSlice(a.IP); ok {
				addrs = append(addrs, addr.Unmap())
			}
		}
	}
	return addrs, nil
}

// walk lists the UDP entries once and deletes stale ones meanwhile over a second socket. That is safe: the kernel holds
// no lock between two parts of a dump, and keeps its position by reference.
func (k *Kernel) walk(ctx context.Context, family corev1.IPFamily, stale func(Flow) bool) (Pass, error) {
	list, err := k.open()
	if err != nil {
		return Pass{}, err
	}
	defer list.Close()
	remove, err := k.open()
	if err != nil {
		return Pass{}, err
	}
	defer remove.Close()

	var (
		pass     Pass
		firstErr error // of entries: an error does not stop the walk
		e        entry
	)
	req := newRequest(list, family, nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP)
	req.AddRawData(udpFilter())
	err = req.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(msg []byte) bool {
		if err := parseEntry(msg, &e); err != nil {
			firstErr = cmp.Or(firstErr, err)
			return true
		}
		if e.proto != unix.IPPROTO_UDP { // this kernel does not filter the dump
			return true
		}
		pass.Visited++
		if stale(e.flow) {
			deleted, err := deleteEntry(remove, family, e)
			if deleted {
				pass.Deleted++
			}
			firstErr = cmp.Or(firstErr, err)
		}
		return ctx.Err() == nil
	})
	if err != nil {
		err = fmt.Errorf("list UDP conntrack entries: %w", err)
	}
	return pass, errors.Join(ctx.Err(), err, firstErr)
}

// deleteEntry deletes one entry. An entry that is already gone is no error.
func deleteEntry(socket *nl.SocketHandle, family corev1.IPFamily, e entry) (bool, error) {
	req := newRequest(socket, family, nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK)
	req.AddRawData(deleteKey(e.key))
	for n := 1; ; n++ {
		_, err := req.Execute(unix.NETLINK_NETFILTER, 0)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.ENOENT):
			return false, nil
		case n < passes && errors.Is(err, unix.EINTR):
			continue
		}
		return false, fmt.Errorf("delete conntrack entry %v -> %v (endpoint %v): %w", e.flow.Src, e.flow.Dst, e.flow.ReplySrc, err)
	}
}

// open opens a netfilter netlink socket in the namespace.
func (k *Kernel) open() (*nl.SocketHandle, error) {
	s, err := nl.GetNetlinkSocketAt(k.ns, netns.None(), unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open ctnetlink: %w", err)
	}
	timeout := unix.Timeval{Sec: replyTimeoutSeconds}
	if err := errors.Join(s.SetSendTimeout(&timeout), s.SetReceiveTimeout(&timeout)); err != nil {
		s.Close()
		return nil, fmt.Errorf("open ctnetlink: %w", err)
	}
	return &nl.SocketHandle{Socket: s}, nil
}

// newRequest makes a conntrack request for an open socket.
func newRequest(socket *nl.SocketHandle, family corev1.IPFamily, operation, flags int) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(subsystem|operation, flags)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: socket}
	req.AddData(&nl.Nfgenmsg{NfgenFamily: uint8(inetFamily(family)), Version: nl.NFNETLINK_V0})
	return req
}

func inetFamily(family corev1.IPFamily) int {
	if family == corev1.IPv6Protocol {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// interrupted reports whether a walk may have missed entries for a temporary reason.
func interrupted(err error) bool {
	return errors.Is(err, nl.ErrDumpInterrupted) || errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOBUFS)
}
