package walk

import (
	"fmt"
	"net/netip"
	"slices"
)

// Protocol is a transport protocol by its number in the IP header.
type Protocol uint8

// The protocols of Services.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// String returns the protocol's name in lower case.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	}
	return fmt.Sprintf("protocol %d", uint8(p))
}

// State is the conntrack state of a packet.
type State uint8

// The states: a packet begins a flow, belongs to one, is related to one, or is invalid.
const (
	StateNew State = iota
	StateEstablished
	StateRelated
	StateInvalid
)

// Packet is a packet that enters the machine by a device or comes from the node's own processes.
type Packet struct {
	// What describes the packet, for messages.
	What string
	// Input is the device by which it enters; empty: the node itself sends it.
	Input       string
	Protocol    Protocol
	Source      netip.AddrPort
	Destination netip.AddrPort
	State       State
	// After, when set, is the client's earlier flow.
	After *After
}

// After is an earlier flow of the client: to Endpoint, by the address Via (the zero value: this packet's destination).
// If that flow could not reach the endpoint, the client is not remembered.
type After struct {
	Via      netip.AddrPort
	Endpoint netip.AddrPort
}

// String describes the packet in one line.
func (p *Packet) String() string {
	from := p.Input
	if from == "" {
		from = "the node"
	}
	text := fmt.Sprintf("%s %s -> %s from %s", p.Protocol, p.Source, p.Destination, from)
	if p.What != "" {
		text = p.What + ": " + text
	}
	if p.State != StateNew {
		text += fmt.Sprintf(", state %d", p.State)
	}
	if p.After != nil {
		text += fmt.Sprintf(", after %s", p.After.Endpoint)
		if p.After.Via.IsValid() {
			text += fmt.Sprintf(" by %s", p.After.Via)
		}
	}
	return text
}

// NodeAddresses has the node addresses, which rules can match besides the packet.
type NodeAddresses struct {
	// Local are the addresses of the node besides loopback, with the main one of each family first.
	Local []netip.Addr
}

// IsLocal reports whether the node itself receives packets to an address.
func (w *NodeAddresses) IsLocal(addr netip.Addr) bool {
	return addr.IsLoopback() || slices.Contains(w.Local, addr)
}

// main returns the node's main address of the same family as another address.
func (w *NodeAddresses) main(like netip.Addr) netip.Addr {
	for _, addr := range w.Local {
		if addr.Is4() == like.Is4() {
			return addr
		}
	}
	return like
}
