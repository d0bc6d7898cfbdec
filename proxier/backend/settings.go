package backend

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// LargeCluster is the number of endpoints above which kube-proxy saves where it can: no comments on the rules of
// endpoints, and nothing is written anew by time alone.
const LargeCluster = 1000

// Settings are everything that shapes the rules but the Services.
type Settings struct {
	Family corev1.IPFamily
	// MasqueradeBit marks packets to be masqueraded, 0 to 31.
	MasqueradeBit int
	MasqueradeAll bool
	// Local tells traffic of pods from other traffic.
	Local Local
	// LocalhostNodePorts lets NodePorts answer on loopback (IPv4 only).
	LocalhostNodePorts bool
	// NodePortAddresses limit NodePorts to these of the node's addresses; nil means all of them.
	NodePortAddresses []netip.Addr
	// NodeIP is the node's main address: source ranges that hold it let the node use the load balancer itself.
	NodeIP netip.Addr
	// RandomFully asks for fully random source ports where masquerading (iptables 1.6.2).
	RandomFully bool
	// DropInvalid drops packets that conntrack finds out of window, unless the kernel is told to be liberal (k/k#74839).
	DropInvalid bool
	// Accounting counts dropped packets and loopback NodePort packets in nfacct objects, where the kernel has the match.
	Accounting bool
	// BPF compares a packet's two addresses in one rule for all Services, where the kernel has the match: layout tree of
	// backend iptables then needs no chains for endpoints.
	BPF bool
}

// IPv4 says whether the family is IPv4.
func (s *Settings) IPv4() bool { return s.Family == corev1.IPv4Protocol }

// Local is how traffic of this cluster's or node's pods is told from other traffic: by at most one of its fields. The
// zero value tells nothing: then no rule that needs it is written.
type Local struct {
	// Source holds the pods' addresses.
	Source netip.Prefix
	// Interface is the one that pods' packets come in by, InterfacePrefix how the names of such interfaces begin.
	Interface, InterfacePrefix string
}

// Implemented says whether anything is told apart.
func (l Local) Implemented() bool { return l != Local{} }
