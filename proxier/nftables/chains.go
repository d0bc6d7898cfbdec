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
	chainServices  = "services"     // picks the frontend
	chainReject    = "reject"       // of the map refusals
	chainInternal  = "refuse"       // cluster IPs that have no endpoints
	chainExternal  = "refuse-ext"   // the same for what outside traffic uses
	chainRejectOut = "drop-local"   // drops what is for the node's own addresses, rejects the rest
	chainDropOut   = "reject-local" // the other way round
)

// fixedChains are made with the table; baseChains last, when it takes over.
var fixedChains = []string{chainServices, chainReject, chainRejectOut, chainDropOut, chainInternal, chainExternal}

// baseChain is one that the kernel calls.
type baseChain struct {
	name string
	hook hook
}

// Priorities as iptables' tables have them.
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

// refusals by their number in the maps of refused frontends. The last two are for an address that is claimed there and
// may be the node's own, where an older Service's NodePort is refused otherwise.
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
	{refuseRejectLocalDrop, expr.Verdict{Kind: expr.VerdictGoto, Chain: chainRejectOut}},
	{refuseDropLocalReject, expr.Verdict{Kind: expr.VerdictGoto, Chain: chainDropOut}},
}

// fixed are the rules of the fixed chains and the base chains.
func (r *rules) fixed(chain string) ruleList {
	var l ruleList
	switch chain {
	case chainServices:
		r.services(&l)
	case chainReject:
		l.add(r.reject())
	case chainRejectOut:
		l.add(local(false), to(expr.VerdictDrop, ""))
		l.add(r.reject())
	case chainDropOut:
		l.add(local(false), r.reject())
		l.add(to(expr.VerdictDrop, ""))
	case chainInternal:
		l.add(r.frontend(0), find(setRefusedServices, 0, r.words), goOn(setRefusals, r.words+1))
	case chainExternal:
		l.add(r.frontend(0), find(setRefusedExternal, 0, r.words), goOn(setRefusals, r.words+1))
		l.add(local(false), protocol(0), dport(1), find(setRefusedNodePorts, 0, 0), goOn(setRefusals, 1))
	case "nat-prerouting", "nat-output":
		l.add(jumpTo(chainServices))
	case "nat-postrouting":
		l.add(r.marked(), r.clearMark(), r.masquerade())
		// Hairpin: an endpoint that reaches itself through a Service must see another source address.
		l.add(r.saddr(0), r.daddr(r.words), lookup(setHairpin, 0), ctDNAT(true), r.masquerade())
	case "filter-input":
		r.localnet(&l)
		r.firewall(&l)
		// The load balancer's probes must reach the health check server, whatever of ours follows.
		l.add(protocol(0), equal(0, []byte{unix.IPPROTO_TCP}), dport(0), lookup(setHealthChecks, 0), to(expr.VerdictAccept, ""))
		l.add(ctState(ctNew, true), jumpTo(chainExternal))
	case "filter-forward":
		r.firewall(&l)
		if r.DropInvalid {
			l.add(ctState(ctInvalid, true), to(expr.VerdictDrop, ""))
		}
		l.add(r.marked(), to(expr.VerdictAccept, ""))
		l.add(ctState(ctNew, true), jumpTo(chainInternal))
		l.add(ctState(ctNew, true), jumpTo(chainExternal))
	case "filter-output":
		r.localnet(&l)
		r.firewall(&l)
		l.add(ctState(ctNew, true), jumpTo(chainInternal))
	}
	return l
}

// firewall drops what load balancers' source ranges did not let through: what they did, has another destination by now.
func (r *rules) firewall(l *ruleList) {
	l.add(ctState(ctNew, true), r.frontend(0), lookup(setFirewall, 0), to(expr.VerdictDrop, ""))
}

var loopback4 = netip.MustParsePrefix("127.0.0.0/8")

// localnet keeps neighbours from 127.0.0.1, which route_localnet would let them reach (CVE-2020-8558).
func (r *rules) localnet(l *ruleList) {
	if !r.IPv4() || !r.LocalhostNodePorts {
		return
	}
	fromOutside := append([]expr.Any{r.daddr(0)}, prefix(0, loopback4, true)...)
	fromOutside = append(append(fromOutside, r.saddr(0)), prefix(0, loopback4, false)...)
	l.add(fromOutside, ctState(ctEstablished|ctRelated, false), ctDNAT(false), to(expr.VerdictDrop, ""))
	// What conntrack does not follow has no status to ask for: the rule above ends there.
	l.add(fromOutside, ctState(ctInvalid|ctUntracked, true), to(expr.VerdictDrop, ""))
}

// services finds the frontend. What its chain does not take comes back, and may be for a NodePort.
func (r *rules) services(l *ruleList) {
	l.add(r.frontend(0), find(setFrontends, 0, r.words-1), goOn(setClasses, r.words))
	nodePort := []expr.Any{protocol(1), dport(2), find(setNodePorts, 1, 0), goOn(setClasses, 1)}
	if r.NodePortAddresses == nil {
		not := prefix(0, loopback4, false)
		switch {
		case !r.IPv4():
			not = prefix(0, netip.PrefixFrom(netip.IPv6Loopback(), 128), false)
		case r.LocalhostNodePorts:
			l.add(local(false), nodePort)
			return
		}
		l.add(local(false), r.daddr(0), not, nodePort)
		return
	}
	for _, addr := range r.NodePortAddresses {
		if addr.IsLoopback() && !(r.IPv4() && r.LocalhostNodePorts) {
			continue // no NodePort on loopback in IPv6, nor where it is switched off
		}
		l.add(r.daddr(0), equal(0, addr.AsSlice()), nodePort)
	}
}

// list looks up whose endpoints a frontend has. The class is part of the key: see doc.go on torn reads.
func (r *rules) list(c Class) []expr.Any {
	load := r.frontend(0)
	if c.kind().nodePort() {
		load = r.nodePort(0)
	}
	return append(load, value(r.words+2, append64(nil, uint64(c))), find(setLists, 0, r.at.id-1))
}

// class are the rules that a class stands for.
func (r *rules) class(c Class) (l ruleList) {
	switch c.kind() {
	case kindCluster, kindClusterLocal:
		switch {
		case r.MasqueradeAll:
			l.add(r.setMark())
		case r.Local.Implemented():
			// The replies would not come back through this node by themselves.
			l.add(r.pod(false), r.setMark())
		}
		offset := uint32(0)
		if c.kind() == kindClusterLocal {
			offset = localSlots
		}
		r.pick(&l, nil, c, c.Count(), offset)
	case kindExternal, kindNodePort:
		// Any node may answer for any endpoint: the reply must come back through this one.
		l.add(r.setMark())
		r.pick(&l, nil, c, c.Count(), 0)
	case kindLocal, kindNodePortLocal:
		// Policy Local keeps the client's address, but what starts on this node or in its pods may go anywhere.
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

// pick chooses one of n endpoints in equal parts, with affinity the one that the client had before.
func (r *rules) pick(l *ruleList, match []expr.Any, c Class, n int, offset uint32) {
	seconds := c.seconds()
	if seconds > 0 {
		l.add(match, r.list(c), r.saddr(r.at.client), zeros(r.at.target, 4*r.words), zeros(r.at.target+r.words, 4),
			find(setAffinity, r.at.client, r.at.slot),
			// It may be gone since.
			value(r.at.slot, native(offset)), lookup(setMembers, r.at.id),
			r.remember(unix.NFT_DYNSET_OP_UPDATE, r.at.slot, seconds), r.dnat(r.at.target))
	}
	random := &expr.Numgen{Register: reg(r.at.slot), Modulus: uint32(n), Type: unix.NFT_NG_RANDOM, Offset: offset}
	chosen := []any{match, r.list(c), random}
	if seconds > 0 {
		// An update would leave the value of an element that is there as it is.
		value := r.at.target // of affinity: a blank, and then the target
		l.add(append(slices.Clone(chosen), zeros(value, 8), zeros(value+2, 4*r.words), find(setEndpoints, r.at.id, value+1),
			r.saddr(r.at.client), r.remember(opDelete, value, 0), r.remember(unix.NFT_DYNSET_OP_UPDATE, value, seconds), r.dnat(value+1))...)
		// Where the set holds as many clients as it may, that rule ends at the update: this one goes on without.
	}
	l.add(append(chosen, find(setEndpoints, r.at.id, r.at.target), r.dnat(r.at.target))...)
}

// remember changes what the client is remembered by.
func (r *rules) remember(op uint32, value, seconds int) expr.Any {
	// The kernel wants the register of a map's value whatever is to be done.
	return &expr.Dynset{SetName: setAffinity.String(), Operation: op, SrcRegKey: reg(r.at.client), SrcRegData: reg(value),
		Timeout: time.Duration(seconds) * time.Second}
}

// frontendChain are the rules of a frontend's own chain: its ways, one after the other. What a way does not take
// comes back.
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
			// From the node itself the packet's source is the load balancer's address, which no range would hold.
			for _, vip := range port.LoadBalancerVIPs {
				l.add(r.saddr(0), equal(0, vip.AsSlice()), through)
			}
		}
	}
	return l
}
