package traffic

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/tracker"
)

// Port is one that endpoints have, in one family.
type Port struct {
	Family   corev1.IPFamily
	Protocol corev1.Protocol
	Number   uint16
}

// Target is where flows are sent to: an address of a Service port.
type Target struct {
	Service  tracker.ServicePortName
	Family   corev1.IPFamily
	Protocol corev1.Protocol // TCP or UDP
	Addr     netip.AddrPort
	// Kind of an address that is no cluster IP: node-port or external-ip.
	Kind string
}

// Stream says what to send.
type Stream struct {
	// Rate is new flows a second.
	Rate    float64
	Targets []Target
	// HeldTCP and HeldUDP are indices of Targets, one for each flow that is held.
	HeldTCP, HeldUDP []int
	// Clients to send from, of each family that Targets have; held flows have the last of each for themselves.
	Clients []netip.Addr
	Seed    uint64
}

// How a flow ended, beside Answered. Misrouted is what the Ledger makes of an answer.
const (
	Answered  = ""
	Refused   = "refused" // ICMP, or RST instead of a connection
	TimedOut  = "timeout"
	Reset     = "reset" // RST, or the end, of a connection that was there
	Misrouted = "misrouted"
	// Unwatched is a flow that was to be given up when the stream itself had no CPU: nothing is known of it.
	Unwatched = "unwatched"
	// NotYet is of an AddedWaits: nothing was heard from the endpoint before it was removed again, or the stream ended.
	NotYet = "not yet"
)

// Limits of flows. A TCP flow is given up before the kernel sends its SYN again, after a second.
const (
	tcpLimit = 900 * time.Millisecond
	udpLimit = 500 * time.Millisecond
	// heldTCPLimit leaves time for retransmissions.
	heldTCPLimit = 2 * time.Second
	heldPeriod   = 250 * time.Millisecond
	// lateWatch is how much later than its limit a flow is given up at most: after that, who answers may have had no CPU
	// either.
	lateWatch = 250 * time.Millisecond
)

// Result is one new flow, or one packet of a held one. Times are CLOCK_MONOTONIC in ns.
type Result struct {
	Target int `json:"t"`
	// Held is the number of the held flow, from 1; 0: a new flow. Opened says that it had been answered before, and
	// Life counts its connections.
	Held    int            `json:"h,omitempty"`
	Opened  bool           `json:"o,omitempty"`
	Life    int            `json:"l,omitempty"`
	Due     int64          `json:"d"`
	Sent    int64          `json:"s"`
	End     int64          `json:"e"`
	Outcome string         `json:"r,omitempty"`
	By      netip.AddrPort `json:"b,omitzero"` // who answered
}

// setup is what the child is told first.
type setup struct {
	Ports []Port
}

// command is what the child is told then: one of its fields.
type command struct {
	Begin *Stream `json:",omitempty"`
	// Add appends to the stream's Targets; Focus are numbers of Targets that something is about to happen to.
	Add   []Target `json:",omitempty"`
	Focus []int    `json:",omitempty"`
	End   bool     `json:",omitempty"`
	// Listen are more ports to answer on; it is answered by Listens.
	Listen []Port `json:",omitempty"`
}

// word is what the child says: one of its fields.
type word struct {
	Ready   bool    `json:",omitempty"` // the responder listens
	Listens bool    `json:",omitempty"` // and on more ports
	Result  *Result `json:",omitempty"`
	Ended   bool    `json:",omitempty"` // of a stream: nothing of it is open any more
	Failed  string  `json:",omitempty"`
}
