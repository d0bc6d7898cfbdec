package traffic

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/tracker"
)

// Port is a port that endpoints have, in one family.
type Port struct {
	Family   corev1.IPFamily
	Protocol corev1.Protocol
	Number   uint16
}

// Target is the destination of flows: an address of a Service port.
type Target struct {
	Service  tracker.ServicePortName
	Family   corev1.IPFamily
	Protocol corev1.Protocol // TCP or UDP
	Addr     netip.AddrPort
	// Kind of an address other than the cluster IP: node-port or external-ip.
	Kind string
	// Direct is the address of an endpoint, for control flows that no rule translates. Zero: the Service has none.
	Direct netip.AddrPort
}

// Stream says which flows to send.
type Stream struct {
	// Rate is the number of new flows a second.
	Rate float64
	// Focus is the number of additional flows a second to Targets that are about to change, until the kernel shows the
	// change. 0: every second flow of Rate goes to them, for some seconds.
	Focus   float64
	Targets []Target
	// LongLivedTCP and LongLivedUDP are indices of Targets, one for each long-lived flow.
	LongLivedTCP, LongLivedUDP []int
	// Clients are the source addresses, for each family of the Targets. The last of each family is only for long-lived
	// flows.
	Clients []netip.Addr
	Seed    uint64
	sampled bool // for a Sampler: flows of Focus alone, to each target until enough is known
}

// The outcomes of flows. The FlowChecker turns a wrong answer into Misrouted.
const (
	Answered  = ""
	Refused   = "refused" // ICMP, or RST instead of a connection
	TimedOut  = "timeout"
	Reset     = "reset" // RST or end of an open connection
	Misrouted = "misrouted"
	// Unwatched is a flow that timed out while the stream itself had no CPU time: its outcome is unknown.
	Unwatched = "unwatched"
	// NotYet is the outcome of an NewEndpointDelay: the endpoint did not answer before it was removed again, or the stream
	// ended.
	NotYet = "not yet"
)

// Timeouts of flows. A TCP flow gives up before the kernel sends its SYN again, after a second.
const (
	tcpLimit = 900 * time.Millisecond
	udpLimit = 500 * time.Millisecond
	// heldTCPLimit leaves time for retransmissions.
	heldTCPLimit    = 2 * time.Second
	longLivedPeriod = 250 * time.Millisecond
	// lateWatch bounds how late a timeout may be noticed. After a later one, the responder may have had no CPU time
	// either.
	lateWatch = 250 * time.Millisecond
	// longestFlow is longer than a flow or packet with a known outcome lasts. A long-lived flow looks at its packets only
	// once a period.
	longestFlow = heldTCPLimit + longLivedPeriod + 2*lateWatch
)

// Result is the result of a new flow, or of one packet of a long-lived flow. Times are CLOCK_MONOTONIC in ns.
type Result struct {
	Target int `json:"t"`
	// Control: a control flow, straight to the target's Direct.
	Control bool `json:"c,omitempty"`
	// LongLived is the number of the long-lived flow, from 1; 0 means a new flow. Opened: the flow has been answered before.
	// Life counts its connections.
	LongLived int            `json:"h,omitempty"`
	Opened    bool           `json:"o,omitempty"`
	Life      int            `json:"l,omitempty"`
	Due       int64          `json:"d"`
	Sent      int64          `json:"s"`
	End       int64          `json:"e"`
	Outcome   string         `json:"r,omitempty"`
	By        netip.AddrPort `json:"b,omitzero"` // the endpoint that answered
}

// setup is the parent's first message.
type setup struct {
	Ports []Port
}

// command is a later message of the parent: one of its fields.
type command struct {
	Begin *Stream `json:",omitempty"`
	// Add appends to the stream's Targets. Focus are numbers of Targets that are about to change, Seen of those whose
	// change the kernel shows.
	Add   []Target `json:",omitempty"`
	Focus []int    `json:",omitempty"`
	Seen  []int    `json:",omitempty"`
	End   bool     `json:",omitempty"`
	// Listen are more ports to answer on, CPUs those to answer on from now; the child replies with Obeyed.
	Listen []Port `json:",omitempty"`
	CPUs   []int  `json:",omitempty"`
	Loop   *Loop  `json:",omitempty"` // the child replies with Looped or Failed
}

// word is a message of the child: one of its fields.
type word struct {
	Ready  bool    `json:",omitempty"` // the responder listens
	Obeyed bool    `json:",omitempty"` // the responder has done what Listen or CPUs asked for
	Result *Result `json:",omitempty"`
	Ended  bool    `json:",omitempty"` // the stream has ended, and none of its flows is open
	Looped *Looped `json:",omitempty"`
	Failed string  `json:",omitempty"`
}
