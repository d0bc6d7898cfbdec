// Package walk is a rule interpreter: it takes a packet through a ruleset as the kernel would, without one, and says
// what may become of it, with which probability, and how many rules it crossed on the way. It is the oracle of every
// backend and layout: they are right when their rules give the same verdicts.
//
// The way of a packet:
//
//  1. Rules are compiled from the text of iptables-save (ParseIptables), or from nf_tables objects: a model's, or those
//     read back from a kernel (Nftables, ReadNftables). What a rule asks for and the interpreter does not know is an
//     error that names the rule; nothing is ignored.
//  2. A Packet is the first one of a flow. It enters at PREROUTING by a device, or at OUTPUT when the node itself sends
//     it, and crosses the base chains of each hook by priority: PREROUTING, then INPUT or FORWARD, as the World says
//     which addresses are local; or OUTPUT; then POSTROUTING. What the node sends to itself comes in again by lo, and
//     meets INPUT, but no nat: its flow has its translation by then.
//  3. Where a rule draws lots, the walk goes both ways, with exact probabilities. What ends alike is merged: the
//     outcomes of a Verdict are distinct and their probabilities sum to 1.
//  4. Session affinity lives in the kernel's memory of clients. A packet may say which endpoint an earlier packet of its
//     client reached (Packet.After): that packet is walked first, and what it left behind is there when the second one
//     comes, whatever a backend calls its lists.
//  5. Walk gives the Verdict; Ways tells of each way on its own, with the rules that matched, whose counters would rise.
//
// A Population makes the packets: everything that Services' rules may tell apart, and what lies beside it.
//
// Not modelled: later packets of a flow, fragments, ICMP; time (a client is remembered, or not); which address
// masquerading gives, but for packets that the node sends to itself; martian and reverse path checks; policy routing.
package walk
