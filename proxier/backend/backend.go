package backend

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// Table names a table that a backend writes: of iptables "nat" and "filter", of nftables its only one.
type Table string

// Count is a number of chains and of rules. Of nftables, the elements of sets and maps count as rules.
type Count struct{ Chains, Rules int }

// Options are what every backend is made with.
type Options struct {
	// Settings are asked for at every full sync: addresses come and go, and so may a sysctl.
	Settings func() (Settings, error)
	Clock    clock.PassiveClock
	// Log takes what an operator may want to know; as klog.InfoS.
	Log func(message string, keysAndValues ...any)
}

// Request is what a sync is to do.
type Request struct {
	// Full writes everything, whatever is known to be installed. Otherwise only what differs.
	Full bool
	// Ports are the whole plan, in order.
	Ports []*plan.ServicePort
	// Endpoints known to the cluster.
	Endpoints int
	// Inherit asks for Result.Inherited.
	Inherit bool
}

// Run is the account of one tool that ran, netlink transaction or socket option.
type Run struct {
	Tool string
	Wall time.Duration
	// User and System are CPU time of a tool, netfilter's included in System. Kernels that count in ticks (of 4 ms, mostly)
	// give runs shorter than some 10 ms in whole ticks, or none. Without a tool, System is the wall time of the system calls.
	User, System time.Duration
	Bytes        int   // handed over
	PeakRSS      int64 // bytes; 0 when it ran in this process
	ExitCode     int   // -1 when a signal ended it
}

// Result tells of a sync, failed ones too.
type Result struct {
	// Full: everything was written, asked for or not. Reason says why, when it was not.
	Full   bool
	Reason string
	// Encode and Jumps are the backend's own phases: making what is sent, and the base chains with the tools run for them.
	Encode, Jumps time.Duration
	Runs          []Run
	// Installed is what the tables hold of the proxier, Sent what of that this sync sent to the kernel: what it sent twice,
	// or took back, does not count twice, or not at all. After a full sync they are the same.
	Sent, Installed map[Table]Count
	// Inherited are the UDP frontends that the kernel led to endpoints before a full sync wrote anything, if it was asked.
	Inherited []Inherited
	// Refused Service ports: their rules are not as wanted, because the kernel or the tool refused them.
	Refused map[tracker.ServicePortName]error
}

// Inherited is a UDP frontend as the rules of an earlier proxier led packets from it: of this one, had it been there.
type Inherited struct {
	Frontend netip.AddrPort // without a valid address: a NodePort
	// Endpoints that packets may have been led to, also by way of a firewall or a policy.
	Endpoints []netip.AddrPort
}

// Stamp is a fingerprint of what the kernel holds: it changes when somebody may have changed that. Comparing two costs
// next to nothing.
type Stamp [3]uint64

// Frontend is a cluster IP as packets find it: its place, from 1, in the order in which they meet rules for Services;
// where they meet no more than one, its place among all.
type Frontend struct {
	Position int
	Protocol corev1.Protocol
	Addr     netip.AddrPort
}
