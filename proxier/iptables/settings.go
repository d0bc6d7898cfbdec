package iptables

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// Variant is which of the two iptables there are.
type Variant string

// The variants: legacy replaces whole tables through a socket option, nft writes nf_tables over netlink.
const (
	Legacy Variant = "legacy"
	Nft    Variant = "nft"
)

// Layout is how packets find the rules of their Service.
type Layout string

// The layouts: classic has one rule after the other, as kube-proxy; tree has chains on prefixes of addresses.
const (
	Classic Layout = "classic"
	Tree    Layout = "tree"
)

// Table is an iptables table.
type Table string

// The tables that the proxier writes (mangle holds only a canary).
const (
	Filter Table = "filter"
	NAT    Table = "nat"
	Mangle Table = "mangle"
)

// Settings are everything that shapes the rules but the Services.
type Settings struct {
	Family corev1.IPFamily
	// MasqueradeBit marks packets to be masqueraded, 0 to 31.
	MasqueradeBit int
	MasqueradeAll bool
	// IfLocal and IfNotLocal are the match of traffic from this node's pods, and its inverse; nil: not known.
	IfLocal, IfNotLocal []string
	// LocalhostNodePorts lets NodePorts answer on loopback (IPv4 only).
	LocalhostNodePorts bool
	// NodePortAddresses limit NodePorts to these of the node's addresses; nil means all of them.
	NodePortAddresses []netip.Addr
	// NodeIP is the node's main address: source ranges that hold it let the node use the load balancer itself.
	NodeIP netip.Addr
	// RandomFully asks for --random-fully on MASQUERADE (iptables 1.6.2).
	RandomFully bool
	// DropInvalid drops packets that conntrack finds out of window, unless the kernel is told to be liberal (k/k#74839).
	DropInvalid bool
	// Accounting counts dropped packets and loopback NodePort packets in nfacct objects, where the kernel has the match.
	Accounting bool
}

// mark is the masquerade mark as kube-proxy writes it.
func (s *Settings) mark() string { return fmt.Sprintf("%#08x", 1<<s.MasqueradeBit) }

func (s *Settings) ipv4() bool { return s.Family == corev1.IPv4Protocol }

// The names of the nfacct objects.
const (
	AccountInvalid        = "ct_state_invalid_dropped_pkts"
	AccountLocalNodePorts = "localhost_nps_accepted_pkts"
)
