// Package walk is a ruleset evaluator. It sends a packet through a ruleset as the kernel would, without a kernel. The
// result is an outcome distribution (type Verdict): what may become of the packet, with which probability, and how many
// rules it crosses. It is the oracle for every backend and layout, whose rules are right when they give the same
// verdicts.
//
// The path of a packet:
//
//  1. Rules are compiled from typed tables of iptables (CompileIptables, ParseIptables) or from nf_tables objects: those
//     in memory (CompileNftables), or those read from a kernel (ReadNftables). An unknown match or target is an error that
//     names the rule; nothing is ignored.
//  2. A Packet is the first one of a flow. It enters at PREROUTING by a device, or at OUTPUT when the node itself sends
//     it. It crosses the base chains of each hook by priority. After PREROUTING comes INPUT or FORWARD, by the node's
//     addresses (type NodeAddresses). After FORWARD or OUTPUT comes POSTROUTING. A packet from the node to itself enters again
//     by lo and crosses INPUT, but no nat: its flow has a translation by then.
//  3. A random match evaluates both branches, with exact probabilities. Equal outcomes are merged: the outcomes of a
//     Verdict are distinct and their probabilities sum to 1.
//  4. Session affinity is state that the kernel keeps of clients. A packet may name the endpoint that an earlier packet
//     of its client reached (Packet.After). The evaluator then walks the earlier packet first and keeps its state for
//     the second one, whatever a backend calls its lists.
//  5. Walk returns the Verdict. Paths returns each packet path separately, with the rules that matched, whose counters
//     would rise.
//
// A PacketSet makes a set of packets: all that rules of Services may distinguish, and packets close to them.
//
// Not modelled: later packets of a flow, fragments, ICMP; time (a client is remembered, or not); the address that
// masquerading gives, except for packets that the node sends to itself; martian and reverse path checks; policy
// routing.
package walk
