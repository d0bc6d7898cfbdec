package backend

import (
	"context"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// Table is the name of a table that a backend writes: "nat" and "filter" of iptables, or the one table of nftables.
type Table string

// Count is a number of chains and of rules. For nftables, elements of sets and maps count as rules.
type Count struct {
	Chains int `json:"chains"`
	Rules  int `json:"rules"`
}

// Options are the options that all backends share.
type Options struct {
	// Settings returns the current settings. Every full sync calls it, because addresses and sysctls may change.
	Settings func() (Settings, error)
	Clock    clock.PassiveClock
	// Log logs a message for the operator, like klog.InfoS.
	Log func(message string, keysAndValues ...any)
}

// Request describes what a sync has to do.
type Request struct {
	// Full: write everything, even what is known to be installed. Otherwise write only differences.
	Full bool
	// Ports are all Service ports of the plan, in order.
	Ports []*plan.ServicePort
	// Endpoints is the number of endpoints known in the cluster.
	Endpoints int
}

// Run is one tool run, one netlink transaction or one socket option.
type Run struct {
	Tool string        `json:"tool"`
	Wall time.Duration `json:"wall_ns"`
	// User and System are the CPU time of a tool; System includes netfilter's time. Kernels that count in ticks
	// (usually 4 ms) report runs shorter than some 10 ms as whole ticks, or as 0. Without a tool, System is the wall
	// time of the system calls.
	User     time.Duration `json:"user_ns"`
	System   time.Duration `json:"system_ns"`
	Bytes    int           `json:"bytes"`          // sent to the tool or the kernel
	PeakRSS  int64         `json:"peak_rss_bytes"` // 0 for a run inside this process
	ExitCode int           `json:"exitCode"`       // -1: ended by a signal
}

// Result describes a sync, successful or failed.
type Result struct {
	// Full: the sync wrote everything. Reason explains why, if the request did not ask for it.
	Full   bool
	Reason string
	Work
	// Refused lists the Service ports whose rules differ from the desired ones, because the kernel or the tool refused
	// them.
	Refused map[tracker.ServicePortName]error
}

// Work is what a backend did in a sync. A new count is a field here: it gets into the Sync that the proxier reports, and into
// the sync log.
type Work struct {
	// Encode and Jumps are the backend's phases: making the input, and writing the base chains with the tools run for
	// them.
	Encode time.Duration `json:"encode_ns"`
	Jumps  time.Duration `json:"jumps_ns"`
	// Runs are the runs of iptables-restore: one, unless a sync was split or something had to be isolated.
	Runs []Run `json:"runs,omitempty"`
	// Installed counts the proxier's chains and rules in the tables. Sent counts those that this sync sent: what it
	// sent twice counts once, and what it removed again does not count. After a full sync both are the same.
	Installed map[Table]Count `json:"installed,omitempty"`
	Sent      map[Table]Count `json:"sent,omitempty"`
}

// Inherited is a UDP frontend as the rules of an earlier proxier redirected it.
type Inherited struct {
	Frontend netip.AddrPort // an invalid address means a NodePort
	// Endpoints are the possible DNAT targets, including those behind a firewall or a policy.
	Endpoints []netip.AddrPort
}

// Comparison compares the kernel's rules with the desired ones and describes the first difference; empty: there is none.
type Comparison func(context.Context) (string, error)

// Compared returns a comparison that has been made.
func Compared(found string, err error) Comparison {
	return func(context.Context) (string, error) { return found, err }
}

// Fingerprint is a fingerprint of the kernel's rules. It changes when the rules may have changed. Comparing two costs almost
// nothing.
type Fingerprint [3]uint64

// Frontend is a cluster IP with its position, from 1, in the order in which packets meet the Service rules. Where a
// packet meets at most one Service rule, Position is the index among all frontends.
type Frontend struct {
	Position int
	Protocol corev1.Protocol
	Addr     netip.AddrPort
}
