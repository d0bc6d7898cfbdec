package netns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"

	"github.com/vishvananda/netlink"
	kernelns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// The devices between the node and its pods: veth pairs with one end in the node's namespace.
const (
	ClientDevice  = "client0" // to the pods of this node
	BackendDevice = "pods0"   // to all other pods
	podDevice     = "eth0"    // the pods' end of either pair
)

// The next hops of routes. No host has these addresses; permanent neighbour entries map each of them to a device.
var (
	nodeGateway = map[bool]netip.Addr{ // next hop of pods, by "is IPv6"
		false: netip.MustParseAddr("169.254.1.1"), true: netip.MustParseAddr("fe80::1"),
	}
	podGateway = map[bool]netip.Addr{ // next hop of the node to other pods
		false: netip.MustParseAddr("169.254.1.2"), true: netip.MustParseAddr("fe80::2"),
	}
)

// PodTopology lists the pods.
type PodTopology struct {
	// Clients are the addresses of this node's client pods.
	Clients []netip.Addr
	// Outside are addresses of hosts outside of the cluster, in the clients' namespace.
	Outside []netip.Addr
	// Ranges contain all pods. One namespace answers for every pod that is not a client.
	Ranges []netip.Prefix
	// Network is Routed, Bridge or VXLAN; empty: Routed.
	Network string
}

// Pods are the namespaces of pods.
type Pods struct {
	Client   *Namespace // has the clients' addresses
	Backends *Namespace // every address of the ranges is local here
	Other    *Namespace // the node of Backends with VXLAN; else nil
}

// Close releases the namespaces and their devices. The kernel removes them when no process uses them any more.
func (p *Pods) Close() {
	p.Client.Close()
	p.Backends.Close()
	p.Other.Close()
}

// ConnectPods makes namespaces for pods, and makes the node a router between them, like a routing CNI plugin. Call it
// after Connect, whose sinks must not contain the ranges. Afterwards forwarding is on. Reverse path filters and limits
// on ICMP are off if /proc/sys is writable. See docs/design/namespaces.md.
func (l *Lab) ConnectPods(t PodTopology) (pods *Pods, err error) {
	if err := Guard(); err != nil {
		return nil, err
	}
	node, err := currentNamespace()
	if err != nil {
		return nil, err
	}
	defer node.Close()
	if err := routing(families(t)); err != nil {
		return nil, err
	}
	pods = &Pods{}
	defer func() {
		if err != nil {
			pods.Close()
		}
	}()
	if pods.Client, err = newNamespace(); err != nil {
		return nil, fmt.Errorf("client pods: %w", err)
	}
	if pods.Backends, err = newNamespace(); err != nil {
		return nil, fmt.Errorf("pods: %w", err)
	}
	client, err := node.link(ClientDevice, pods.Client)
	if err != nil {
		return nil, err
	}
	if t.Network == Bridge {
		if err := client.bridged(t); err != nil {
			return nil, err
		}
	}
	if err := client.clients(pods.Client, t); err != nil {
		return nil, fmt.Errorf("client pods: %w", err)
	}
	if t.Network == VXLAN {
		return pods, node.otherNode(pods, t)
	}
	backends, err := node.link(BackendDevice, pods.Backends)
	if err != nil {
		return nil, err
	}
	if err := backends.others(pods.Backends, t); err != nil {
		return nil, fmt.Errorf("pods: %w", err)
	}
	return pods, nil
}

// families reports whether the clients have IPv4 and IPv6 addresses.
func families(t PodTopology) (v4, v6 bool) {
	for _, addr := range t.Clients {
		v4, v6 = v4 || addr.Is4(), v6 || addr.Is6()
	}
	return v4, v6
}

// routing makes the calling thread's namespace a router.
func routing(v4, v6 bool) error {
	const sys = "/proc/sys/net/"
	set := func(name, value string) error { return os.WriteFile(sys+name, []byte(value), 0o644) }
	for _, name := range []string{
		"ipv4/conf/all/rp_filter", "ipv4/conf/default/rp_filter", "ipv4/icmp_ratelimit", "ipv6/icmp/ratelimit",
		"ipv4/icmp_ratemask", // no type; the limit for all destinations together (icmp_msgs_per_sec) is separate
	} {
		_ = set(name, "0")
	}
	_ = set("ipv6/icmp/ratemask", "255") // only a type that is never sent
	if v4 {
		if err := set("ipv4/ip_forward", "1"); err != nil {
			return fmt.Errorf("forwarding between pods: %w", err)
		}
	}
	if v6 {
		if err := set("ipv6/conf/all/forwarding", "1"); err != nil {
			return fmt.Errorf("forwarding between pods: %w", err)
		}
	}
	return nil
}

// cable is a veth pair between the node and a namespace of pods.
type cable struct {
	near, far       netlink.Link
	nearMAC, farMAC net.HardwareAddr
	asks            bool // neighbours are asked for, and not set
}

// link makes a cable from the calling thread's namespace to another namespace.
func (n *Namespace) link(name string, to *Namespace) (*cable, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: podDevice, PeerNamespace: netlink.NsFd(int(to.handle))}); err != nil {
		return nil, fmt.Errorf("veth pair %s: %w", name, err)
	}
	c := &cable{}
	var err error
	if c.near, c.nearMAC, err = bringUp(name); err != nil {
		return nil, err
	}
	err = to.Do(func() (err error) {
		c.far, c.farMAC, err = bringUp(podDevice)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("far end of %s: %w", name, err)
	}
	return c, nil
}

func bringUp(name string) (netlink.Link, net.HardwareAddr, error) {
	_ = os.WriteFile("/proc/sys/net/ipv4/conf/"+name+"/rp_filter", []byte("0"), 0o644)
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return nil, nil, fmt.Errorf("%s up: %w", name, err)
	}
	return link, link.Attrs().HardwareAddr, nil
}

// clients adds the clients' addresses to the pods' end, and host routes to the node.
func (c *cable) clients(pods *Namespace, t PodTopology) error {
	addrs := slices.Concat(t.Clients, t.Outside)
	for _, addr := range addrs {
		if err := addRoute(c.near, netip.PrefixFrom(addr, addr.BitLen())); err != nil {
			return err
		}
		if c.asks {
			continue
		}
		if err := neighbour(c.near, addr, c.farMAC); err != nil {
			return err
		}
	}
	return pods.Do(func() error {
		for _, addr := range addrs {
			if err := addAddress(c.far, addr); err != nil {
				return err
			}
		}
		return c.toNode(t)
	})
}

// toOthers routes the ranges to the far end.
func (c *cable) toOthers(t PodTopology) error {
	for _, prefix := range t.Ranges {
		gateway := podGateway[prefix.Addr().Is6()]
		if err := neighbour(c.near, gateway, c.farMAC); err != nil {
			return err
		}
		if err := routeVia(c.near, prefix, gateway, 0); err != nil {
			return err
		}
	}
	return nil
}

// others makes every address of the ranges local at the pods' end, except the clients', and routes the ranges there.
func (c *cable) others(pods *Namespace, t PodTopology) error {
	if err := c.toOthers(t); err != nil {
		return err
	}
	return pods.Do(func() error {
		if err := c.toNode(t); err != nil {
			return err
		}
		for _, prefix := range t.Ranges {
			if err := HoldRange(prefix); err != nil {
				return err
			}
		}
		for _, addr := range t.Clients { // the longer prefix takes precedence over the range
			if err := routeVia(c.far, netip.PrefixFrom(addr, addr.BitLen()), nodeGateway[addr.Is6()], unix.RT_TABLE_LOCAL); err != nil {
				return err
			}
		}
		return nil
	})
}

// HoldRange makes all addresses of a range local, but assigns them to no device. Processes may send from them, and a
// proxier that lists the node's addresses does not find them.
func HoldRange(p netip.Prefix) error {
	if err := Guard(); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	// In table local, because the kernel looks up source addresses only there.
	route := &netlink.Route{LinkIndex: lo.Attrs().Index, Dst: ipNet(p.Masked()), Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST, Table: unix.RT_TABLE_LOCAL}
	if err := netlink.RouteAdd(route); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("local addresses %s: %w", p, err)
	}
	return nil
}

// toNode adds a pod's default routes.
func (c *cable) toNode(t PodTopology) error {
	v4, v6 := families(t)
	for _, f := range []struct {
		there   bool
		gateway netip.Addr
		all     netip.Prefix
	}{
		{v4, nodeGateway[false], netip.MustParsePrefix("0.0.0.0/0")},
		{v6, nodeGateway[true], netip.MustParsePrefix("::/0")},
	} {
		if !f.there {
			continue
		}
		if !c.asks {
			if err := neighbour(c.far, f.gateway, c.nearMAC); err != nil {
				return err
			}
		}
		if err := routeVia(c.far, f.all, f.gateway, 0); err != nil {
			return err
		}
	}
	return nil
}

func neighbour(link netlink.Link, addr netip.Addr, mac net.HardwareAddr) error {
	family := unix.AF_INET
	if addr.Is6() {
		family = unix.AF_INET6
	}
	err := netlink.NeighSet(&netlink.Neigh{
		LinkIndex: link.Attrs().Index, Family: family, State: netlink.NUD_PERMANENT, IP: addr.AsSlice(), HardwareAddr: mac,
	})
	if err != nil {
		return fmt.Errorf("neighbour %s of %s: %w", addr, link.Attrs().Name, err)
	}
	return nil
}

func routeVia(link netlink.Link, to netip.Prefix, gateway netip.Addr, table int) error {
	err := netlink.RouteAdd(&netlink.Route{
		LinkIndex: link.Attrs().Index, Dst: ipNet(to.Masked()), Gw: gateway.AsSlice(), Flags: int(netlink.FLAG_ONLINK), Table: table,
	})
	if err != nil {
		return fmt.Errorf("route to %s by %s: %w", to, link.Attrs().Name, err)
	}
	return nil
}

// Namespace is a network namespace that exists without a process in it.
type Namespace struct{ handle kernelns.NsHandle }

// newNamespace makes a namespace with only lo, which is up.
func newNamespace() (*Namespace, error) {
	var made *Namespace
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		var err error
		if made, err = currentNamespace(); err != nil {
			return err
		}
		for _, name := range []string{"accept_dad", "dad_transmits", "router_solicitations", "accept_ra", "autoconf"} {
			_ = os.WriteFile("/proc/sys/net/ipv6/conf/default/"+name, []byte("0"), 0o644)
		}
		return loopbackUp()
	})
	if err != nil && made != nil {
		made.Close()
		made = nil
	}
	return made, err
}

// currentNamespace returns the calling thread's namespace.
func currentNamespace() (*Namespace, error) {
	handle, err := kernelns.GetFromPath("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("network namespace of this thread: %w", err)
	}
	return &Namespace{handle}, nil
}

// Close releases the namespace. Sockets made in it keep it alive.
func (n *Namespace) Close() {
	if n != nil {
		n.handle.Close()
	}
}

// File returns another handle on the namespace, for a child process. The caller closes it.
func (n *Namespace) File(name string) (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(n.handle), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("namespace %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Do calls f on a separate thread in the namespace. Sockets that f makes can be used from any thread.
func (n *Namespace) Do(f func() error) error {
	return onThread(func() error {
		if err := kernelns.Set(n.handle); err != nil {
			return fmt.Errorf("enter namespace: %w", err)
		}
		return f()
	})
}

// onThread calls f on a separate thread, and then returns the thread to its old namespace. If that fails, the thread
// ends.
func onThread(f func() error) error {
	failed := make(chan error)
	go func() {
		runtime.LockOSThread()
		before, err := currentNamespace()
		if err != nil {
			failed <- err
			return
		}
		defer before.Close()
		err = f()
		if back := kernelns.Set(before.handle); back == nil {
			runtime.UnlockOSThread()
		}
		failed <- err
	}()
	return <-failed
}
