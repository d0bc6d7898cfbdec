package backend

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// LargeCluster is the number of endpoints above which kube-proxy saves work: endpoint rules have no comments, and no
// full sync runs by time alone.
const LargeCluster = 1000

// Settings is everything but the Services that determines the rules.
type Settings struct {
	Family corev1.IPFamily
	// MasqueradeBit is the bit (0 to 31) that marks packets to be masqueraded.
	MasqueradeBit int
	MasqueradeAll bool
	// Local separates the pods' traffic from other traffic.
	Local Local
	// LocalhostNodePorts makes NodePorts answer on loopback (IPv4 only).
	LocalhostNodePorts bool
	// NodePortAddresses are the node's addresses that take NodePorts; nil means all addresses.
	NodePortAddresses []netip.Addr
	// NodeIP is the node's main address. If a source range contains it, the node may use the load balancer.
	NodeIP netip.Addr
	// RandomFully requests fully random source ports for masquerading (iptables 1.6.2).
	RandomFully bool
	// DropInvalid drops packets that conntrack finds out of window, unless nf_conntrack_tcp_be_liberal is set
	// (k/k#74839).
	DropInvalid bool
	// Accounting counts dropped packets and loopback NodePort packets in nfacct objects, if the kernel has the match.
	Accounting bool
	// BPF compares a packet's two addresses in one rule for all Services, if the kernel has the match. Layout tree of
	// backend iptables then needs no chains for endpoints.
	BPF bool
}

// IPv4 reports whether the family is IPv4.
func (s *Settings) IPv4() bool { return s.Family == corev1.IPv4Protocol }

// Local identifies traffic of the pods of this cluster or node, by at most one of its fields. With the zero value, no
// rule that needs the distinction is written.
type Local struct {
	// Source is the prefix of the pods' addresses.
	Source netip.Prefix
	// Interface is the input interface of the pods' packets. InterfacePrefix is the name prefix of several such
	// interfaces.
	Interface, InterfacePrefix string
}

// Implemented reports whether a field is set.
func (l Local) Implemented() bool { return l != Local{} }
