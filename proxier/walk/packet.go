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

// String is the protocol's name in lower case.
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

// State is what conntrack says of a packet.
type State uint8

// The states: a packet begins a flow, belongs to one, or to none that could be.
const (
	StateNew State = iota
	StateEstablished
	StateRelated
	StateInvalid
)

// Packet is what enters the machine: by a device, or from the node's own processes.
type Packet struct {
	// What it is, for messages.
	What string
	// Input is the device it comes in by; empty: the node itself sends it.
	Input       string
	Protocol    Protocol
	Source      netip.AddrPort
	Destination netip.AddrPort
	State       State
	// After, when set, is what the client did before.
	After *After
}

// After says where an earlier flow of the client went: to Endpoint, by the address Via (the zero value: this packet's
// destination). A client that could not get there has no memory.
type After struct {
	Via      netip.AddrPort
	Endpoint netip.AddrPort
}

// String is the packet in one line.
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

// World is what rules can ask for besides the packet.
type World struct {
	// Local are the addresses of the node besides loopback, its main one of each family first.
	Local []netip.Addr
}

// IsLocal says whether the node itself receives what is sent to an address.
func (w *World) IsLocal(addr netip.Addr) bool {
	return addr.IsLoopback() || slices.Contains(w.Local, addr)
}

// main is the node's main address of the family of another one.
func (w *World) main(like netip.Addr) netip.Addr {
	for _, addr := range w.Local {
		if addr.Is4() == like.Is4() {
			return addr
		}
	}
	return like
}
