package nftables

import (
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The chains of every table.
const (
	chainServices    = "services"     // picks the frontend
	chainReject      = "reject"       // of the map refusals
	chainInternal    = "refuse"       // cluster IPs that have no endpoints
	chainExternal    = "refuse-ext"   // the same for addresses of external traffic
	chainDropLocal   = "drop-local"   // drops packets to the node's own addresses, rejects the others
	chainRejectLocal = "reject-local" // the other way round
	chainLoopback    = "loopback"     // packets to the loopback network from elsewhere
)

// fixedChains are created with the table, baseChains last, when the table takes over.
var fixedChains = []string{chainServices, chainReject, chainDropLocal, chainRejectLocal, chainInternal, chainExternal, chainLoopback}

// baseChain is a chain that the kernel calls.
type baseChain struct {
	name string
	hook hook
}

// The priorities of iptables' tables.
const (
	priorityDNAT, priorityFilter, prioritySNAT = -100, 0, 100
)

var baseChains = []baseChain{
	{"nat-prerouting", hook{"nat", unix.NF_INET_PRE_ROUTING, priorityDNAT}},
	{"nat-output", hook{"nat", unix.NF_INET_LOCAL_OUT, priorityDNAT}},
	{"nat-postrouting", hook{"nat", unix.NF_INET_POST_ROUTING, prioritySNAT}},
	{"filter-input", hook{"filter", unix.NF_INET_LOCAL_IN, priorityFilter}},
	{"filter-forward", hook{"filter", unix.NF_INET_FORWARD, priorityFilter}},
	{"filter-output", hook{"filter", unix.NF_INET_LOCAL_OUT, priorityFilter}},
}

type ruleList [][]expr.Any

func (l *ruleList) add(parts ...any) {
	var rule []expr.Any
	for _, p := range parts {
		switch p := p.(type) {
		case []expr.Any:
			rule = append(rule, p...)
		case expr.Any:
			rule = append(rule, p)
		}
	}
	*l = append(*l, rule)
}

// refusals by their number in the maps of refused frontends. The last two are for an address that may be the node's
// own, where an older Service's NodePort is refused in the other way.
const (
	refuseReject uint32 = iota + 1
	refuseDrop
	refuseRejectLocalDrop
	refuseDropLocalReject
)

var refusals = []struct {
	number uint32
	to     expr.Verdict
}{
	{refuseReject, expr.Verdict{Kind: expr.VerdictGoto, Chain: chainReject}},
	{refuseDrop, expr.Verdict{Kind: expr.VerdictDrop}},
	{refuseRejectLocalDrop, expr.Verdict{Kind: expr.VerdictGoto, Chain: chainDropLocal}},
	{refuseDropLocalReject, expr.Verdict{Kind: expr.VerdictGoto, Chain: chainRejectLocal}},
}

// fixed returns the rules of a fixed chain or of a base chain.
func (r *rules) fixed(chain string) ruleList {
	var l ruleList
	switch chain {
	case chainServices:
		r.services(&l)
	case chainReject:
		l.add(r.reject())
	case chainDropLocal:
		l.add(local(false), to(expr.VerdictDrop, ""))
		l.add(r.reject())
	case chainRejectLocal:
		l.add(local(false), r.reject())
		l.add(to(expr.VerdictDrop, ""))
	case chainInternal:
		l.add(r.frontend(), find(setRefusedServices, 0, r.at.refusal-1), goOn(setRefusals, r.at.refusal))
	case chainExternal:
		l.add(r.frontend(), find(setRefusedExternal, 0, r.at.refusal-1), goOn(setRefusals, r.at.refusal))
		l.add(protocol(0), dport(1), find(setRefusedNodePorts, 0, 0), local(false), goOn(setRefusals, 1))
	case chainLoopback:
		l.add(ctState(ctEstablished|ctRelated, false), ctDNAT(false), to(expr.VerdictDrop, ""))
		// A packet that conntrack does not track has no status: the rule above ends there.
		l.add(ctState(ctInvalid|ctUntracked, true), to(expr.VerdictDrop, ""))
	case "nat-prerouting", "nat-output":
		l.add(jumpTo(chainServices))
	case "nat-postrouting":
		l.add(r.marked(), r.clearMark(), r.masquerade())
		// Hairpin: an endpoint that reaches itself through a Service must see another source address.
		l.add(ctDNAT(true), r.saddr(0), r.daddr(r.words), lookup(setHairpin, 0), r.masquerade())
	case "filter-input":
		r.localnet(&l)
		l.add(notNew()...)
		r.firewall(&l)
		// Probes of the load balancer must reach the health check server, whatever rules of this table follow.
		l.add(protocol(0), equal(0, []byte{unix.IPPROTO_TCP}), dport(0), lookup(setHealthChecks, 0), to(expr.VerdictAccept, ""))
		l.add(jumpTo(chainExternal))
	case "filter-forward":
		if r.DropInvalid {
			l.add(ctState(ctInvalid, true), to(expr.VerdictDrop, ""))
		}
		l.add(notNew()...)
		r.firewall(&l)
		l.add(r.marked(), to(expr.VerdictAccept, ""))
		l.add(jumpTo(chainInternal))
		l.add(jumpTo(chainExternal))
	case "filter-output":
		r.localnet(&l)
		l.add(notNew()...)
		r.firewall(&l)
		l.add(jumpTo(chainInternal))
	}
	return l
}

// notNew ends a base chain for all but the first packets of flows: no rule behind it concerns others.
func notNew() []any { return []any{ctState(ctNew, false), to(expr.VerdictAccept, "")} }

// firewall drops packets that load balancers' source ranges did not accept: the others have another destination by now.
func (r *rules) firewall(l *ruleList) {
	l.add(r.frontend(), lookup(setFirewall, 0), to(expr.VerdictDrop, ""))
}

var loopback4 = netip.MustParsePrefix("127.0.0.0/8")

// localnet protects 127.0.0.1 from neighbours, which route_localnet would let reach it (CVE-2020-8558).
func (r *rules) localnet(l *ruleList) {
	if !r.IPv4() || !r.LocalhostNodePorts {
		return
	}
	within := append([]expr.Any{r.daddr(0)}, prefix(0, loopback4, true)...)
	from := append([]expr.Any{r.saddr(0)}, prefix(0, loopback4, false)...)
	l.add(within, from, jumpTo(chainLoopback))
}

// services finds the frontend. A packet that its chain does not take returns, and may be for a NodePort. Its port is
// looked up before its address: asking the routes for an address takes longer, and most packets have another port.
func (r *rules) services(l *ruleList) {
	l.add(r.frontend(), find(setFrontends, 0, r.at.class-1), goOn(setClasses, r.at.class))
	port := []expr.Any{protocol(r.at.nodePort), dport(r.at.nodePort + 1), find(setNodePorts, r.at.nodePort, r.at.nodePort-1)}
	class := goOn(setClasses, r.at.nodePort)
	if r.NodePortAddresses == nil {
		not := prefix(0, loopback4, false)
		switch {
		case !r.IPv4():
			not = prefix(0, netip.PrefixFrom(netip.IPv6Loopback(), 128), false)
		case r.LocalhostNodePorts:
			l.add(port, local(false), class)
			return
		}
		l.add(r.daddr(0), not, port, local(false), class)
		return
	}
	for _, addr := range r.NodePortAddresses {
		if addr.IsLoopback() && !(r.IPv4() && r.LocalhostNodePorts) {
			continue // no NodePort on loopback in IPv6, nor where it is disabled
		}
		l.add(r.daddr(0), equal(0, addr.AsSlice()), port, class)
	}
}

// list looks up the Service port of a frontend. Its key includes the class: see docs/design/nftables-table.md, torn
// reads.
func (r *rules) list(c Class) []expr.Any {
	load := r.frontend()
	if c.kind().nodePort() {
		load = r.nodePort()
	}
	return append(load, value(r.at.listClass, append64(nil, uint64(c))), find(setLists, 0, r.at.id-1))
}

// class returns the rules of a class's chain.
func (r *rules) class(c Class) (l ruleList) {
	switch c.kind() {
	case kindCluster, kindClusterLocal:
		switch {
		case r.MasqueradeAll:
			l.add(r.setMark())
		case r.Local.Implemented():
			// The replies would not return through this node.
			l.add(r.pod(false), r.setMark())
		}
		offset := uint32(0)
		if c.kind() == kindClusterLocal {
			offset = localSlots
		}
		r.pick(&l, nil, c, c.Count(), offset)
	case kindExternal, kindNodePort:
		// The endpoint may be on any node, so the reply must return through this node.
		l.add(r.setMark())
		r.pick(&l, nil, c, c.Count(), 0)
	case kindLocal, kindNodePortLocal:
		// Policy Local keeps the client's address. Traffic from this node or from its pods may go to any endpoint.
		if r.Local.Implemented() {
			r.pick(&l, r.pod(true), c, c.Count(), 0)
		}
		l.add(local(true), r.setMark())
		r.pick(&l, local(true), c, c.Count(), 0)
		if c.local() > 0 {
			r.pick(&l, nil, c, c.local(), localSlots)
		}
	}
	return l
}

// pick chooses one of n endpoints with equal chances; with affinity, the client's previous endpoint comes first.
func (r *rules) pick(l *ruleList, match []expr.Any, c Class, n int, offset uint32) {
	seconds := c.seconds()
	if seconds > 0 {
		l.add(match, r.list(c), r.saddr(r.at.client), zeros(r.at.target, 4*r.words), zeros(r.at.target+r.words, 4),
			find(setAffinity, r.at.client, r.at.slot),
			// The endpoint may have been removed since.
			value(r.at.slot, native(offset)), lookup(setMembers, r.at.id),
			r.remember(unix.NFT_DYNSET_OP_UPDATE, r.at.slot, seconds), r.dnat(r.at.target))
	}
	random := &expr.Numgen{Register: reg(r.at.slot), Modulus: uint32(n), Type: unix.NFT_NG_RANDOM, Offset: offset}
	chosen := []any{match, r.list(c), random}
	if seconds > 0 {
		// An update would keep the value of an existing element.
		value := r.at.target // of affinity: a blank, then the target
		l.add(append(slices.Clone(chosen), zeros(value, 8), zeros(value+2, 4*r.words), find(endpointsOf(n), r.at.id, value+1),
			r.saddr(r.at.client), r.remember(opDelete, value, 0), r.remember(unix.NFT_DYNSET_OP_UPDATE, value, seconds), r.dnat(value+1))...)
		// When the set is full, that rule ends at the update. The next rule translates without affinity.
	}
	l.add(append(chosen, find(endpointsOf(n), r.at.id, r.at.target), r.dnat(r.at.target))...)
}

// remember changes the client's element in affinity.
func (r *rules) remember(op uint32, value, seconds int) expr.Any {
	// The kernel requires the register of a map's value for every operation.
	return &expr.Dynset{SetName: setAffinity.String(), Operation: op, SrcRegKey: reg(r.at.client), SrcRegData: reg(value),
		Timeout: time.Duration(seconds) * time.Second}
}

// frontendChain returns the rules of a frontend's own chain: its ways, one after the other. A packet that a way does
// not take returns.
func (r *rules) frontendChain(ways []way) (l ruleList) {
	for _, w := range ways {
		through := jumpTo(w.class.Chain())
		if w.role != roleLimited {
			l.add(through)
			continue
		}
		port, nodeWithin := w.of.port, false
		for _, p := range port.SourceRanges {
			l.add(r.saddr(0), prefix(0, p, true), through)
			nodeWithin = nodeWithin || p.Contains(r.NodeIP)
		}
		if nodeWithin {
			// The source of a packet from the node itself is the load balancer's address, which no source range
			// contains.
			for _, vip := range port.LoadBalancerVIPs {
				l.add(r.saddr(0), equal(0, vip.AsSlice()), through)
			}
		}
	}
	return l
}
