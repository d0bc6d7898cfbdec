package conntrack

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// namespace makes a network namespace for the test. Its thread ends with the goroutine, so that no other test runs
// there.
func namespace(t testing.TB) netns.NsHandle {
	t.Helper()
	type made struct {
		ns  netns.NsHandle
		err error
	}
	result := make(chan made)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		ns, err := netns.New()
		result <- made{ns, err}
	}()
	m := <-result
	if errors.Is(m.err, unix.EPERM) {
		t.Skip("needs CAP_SYS_ADMIN for a network namespace: run as root or under unshare -rn")
	}
	if m.err != nil {
		t.Fatal(m.err)
	}
	t.Cleanup(func() { _ = m.ns.Close() })
	return m.ns
}

// insert adds entries to the namespace's table. The reply tuple contains the DNAT.
func insert(t testing.TB, ns netns.NsHandle, proto uint8, flows ...Flow) {
	t.Helper()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_NETFILTER)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	ip := func(a netip.AddrPort) net.IP { return a.Addr().AsSlice() }
	for _, f := range flows {
		family := unix.AF_INET
		if f.Dst.Addr().Is6() {
			family = unix.AF_INET6
		}
		entry := &netlink.ConntrackFlow{
			FamilyType: uint8(family),
			Forward:    netlink.IPTuple{SrcIP: ip(f.Src), DstIP: ip(f.Dst), SrcPort: f.Src.Port(), DstPort: f.Dst.Port(), Protocol: proto},
			Reverse:    netlink.IPTuple{SrcIP: ip(f.ReplySrc), DstIP: ip(f.ReplyDst), SrcPort: f.ReplySrc.Port(), DstPort: f.ReplyDst.Port(), Protocol: proto},
			TimeOut:    600,
		}
		if proto == unix.IPPROTO_TCP {
			entry.ProtoInfo = &netlink.ProtoInfoTCP{State: 3 /* established */}
		}
		if err := h.ConntrackCreate(netlink.ConntrackTable, netlink.InetFamily(family), entry); err != nil {
			t.Fatalf("insert %+v: %v", f, err)
		}
	}
}

// listed counts the namespace's entries of a family by "protocol destination>endpoint". It uses the conntrack code of
// package netlink.
func listed(t testing.TB, ns netns.NsHandle, family netlink.InetFamily) map[string]int {
	t.Helper()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_NETFILTER)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	flows, err := h.ConntrackTableList(netlink.ConntrackTable, family)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, f := range flows {
		seen[fmt.Sprintf("%d %v:%d>%v", f.Forward.Protocol, f.Forward.DstIP, f.Forward.DstPort, f.Reverse.SrcIP)]++
	}
	return seen
}

func TestKernelDeletesStaleEntriesOnly(t *testing.T) {
	ns := namespace(t)
	insert(t, ns, unix.IPPROTO_UDP,
		flow("10.96.0.10:53", "10.1.0.1:53"),
		flow("10.96.0.11:53", "10.1.0.9:53"), // endpoint left
		flow("10.96.0.12:53", "10.1.0.2:53"), // the Service has no endpoints
		flow("192.0.2.99:30053", "192.0.2.99:30053"))
	insert(t, ns, unix.IPPROTO_TCP, flow("10.96.0.11:53", "10.1.0.9:53"))
	insert(t, ns, unix.IPPROTO_UDP,
		Flow{Src: ap("[fd00::1]:1"), Dst: ap("[fd00::a]:53"), ReplySrc: ap("[fd01::9]:53"), ReplyDst: ap("[fd00::1]:1")})

	kernel := NewKernel(ns)
	addrs, err := kernel.LocalAddrs(corev1.IPv4Protocol)
	if err != nil {
		t.Fatal(err)
	}
	if len(addrs) != 0 { // not even loopback is up
		t.Errorf("addresses of a new namespace: %v", addrs)
	}
	serving := NewEndpoints(ap("10.1.0.1:53"))
	want := Expectation{
		Serving: map[Frontend]Endpoints{
			frontend("10.96.0.10:53"): serving,
			frontend("10.96.0.11:53"): serving,
			frontend("10.96.0.12:53"): nil,
			NodePort(30053):           serving,
		},
		Local: NodeLocal(addrs, true),
	}
	pass, err := kernel.DeleteUDP(t.Context(), corev1.IPv4Protocol, want.Stale)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Pass{Visited: 4, Deleted: 2}); pass != want {
		t.Errorf("IPv4: %+v, want %+v", pass, want)
	}
	if got := fmt.Sprint(listed(t, ns, unix.AF_INET)); got != "map[17 10.96.0.10:53>10.1.0.1:1 17 192.0.2.99:30053>192.0.2.99:1 6 10.96.0.11:53>10.1.0.9:1]" {
		t.Errorf("IPv4 entries left: %s", got)
	}

	want.Serving[frontend("[fd00::a]:53")] = NewEndpoints(ap("[fd01::1]:53"))
	pass, err = kernel.DeleteUDP(t.Context(), corev1.IPv6Protocol, want.Stale)
	if err != nil || pass != (Pass{Visited: 1, Deleted: 1}) {
		t.Errorf("IPv6: %+v, %v", pass, err)
	}
}

// TestKernelLargeTable has enough entries for a dump of many parts. Every third entry is deleted during the dump.
func TestKernelLargeTable(t *testing.T) {
	const entries = 6000
	ns := namespace(t)
	var flows []Flow
	for i := range entries {
		f := flow("10.96.0.10:53", fmt.Sprintf("10.1.0.%d:53", i%3+1))
		f.Src = netip.AddrPortFrom(f.Src.Addr(), uint16(1024+i))
		f.ReplyDst = f.Src
		flows = append(flows, f)
	}
	insert(t, ns, unix.IPPROTO_UDP, flows...)
	c, err := NewCleaner(Options{Table: NewKernel(ns), Family: corev1.IPv4Protocol})
	if err != nil {
		t.Fatal(err)
	}
	c.Set(frontend("10.96.0.10:53"), NewEndpoints(ap("10.1.0.1:53"), ap("10.1.0.2:53")))
	clean(t, c, Pass{Visited: entries, Deleted: entries / 3})
	clean(t, c, Pass{})
	c.Remove(frontend("10.96.0.10:53"))
	clean(t, c, Pass{Visited: entries * 2 / 3, Deleted: entries * 2 / 3})
}
