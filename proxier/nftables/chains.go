package nftables

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The chains of every table.
const (
	chainLoopback = "loopback" // packets to the loopback network from elsewhere
)

// fixedChains are created with the table, baseChains last, when the table takes over.
var fixedChains = append(refusalChains(), chainLoopback)

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

// refusal is how the filter hooks refuse packets for a frontend. In maps it is a number: two refusals, and whether the
// sources of a load balancer are limited.
type refusal uint32

// The last two are for an address that may be the node's own, where an older Service's NodePort is refused in the other
// way.
const (
	refuseReject refusal = iota + 1
	refuseDrop
	refuseRejectLocalDrop
	refuseDropLocalReject
	refusalsEnd

	refusalBits = 3
	// limitedSources is set for a load balancer that only some sources may use. Packets of the others arrive at the
	// filter hooks, since those of the allowed ones have another destination by then.
	limitedSources refusal = 1 << (2 * refusalBits)
)

var refusalNames = [refusalsEnd]string{
	refuseReject: "reject", refuseDrop: "drop",
	refuseRejectLocalDrop: "drop-local", // drops packets to the node's own addresses, rejects the others
	refuseDropLocalReject: "reject-local",
}

// newRefusal returns how packets for a frontend are refused: as a cluster IP, and as an address of external traffic; 0:
// they are not.
func newRefusal(internal, external refusal) refusal { return external | internal<<refusalBits }

func (f refusal) external() refusal { return f & (1<<refusalBits - 1) }
func (f refusal) internal() refusal { return (f &^ limitedSources) >> refusalBits }

// refusalHook is a base chain that refuses packets.
type refusalHook struct {
	name string // begins the names of its chains
	set  set    // of its verdicts
	// of returns which refusal concerns the hook's packets; 0: none.
	of func(refusal) refusal
}

var (
	refusalsInput   = refusalHook{"input", setRefusalsInput, refusal.external}
	refusalsForward = refusalHook{"forward", setRefusalsForward, func(f refusal) refusal { return cmp.Or(f.internal(), f.external()) }}
	refusalsOutput  = refusalHook{"output", setRefusalsOutput, refusal.internal}

	refusalHooks = [...]*refusalHook{&refusalsInput, &refusalsForward, &refusalsOutput}
)

func (h *refusalHook) chain(f refusal) string { return h.name + "-" + refusalNames[f] }

func refusalChains() (names []string) {
	for _, h := range refusalHooks {
		for f := refuseReject; f < refusalsEnd; f++ {
			names = append(names, h.chain(f))
		}
	}
	return names
}

// verdicts yields what the hook does with each number that concerns it.
func (h *refusalHook) verdicts(yield func(refusal, expr.Verdict)) {
	for internal := range refusalsEnd {
		for external := range refusalsEnd {
			f := newRefusal(internal, external)
			yield(f|limitedSources, expr.Verdict{Kind: expr.VerdictDrop})
			if of := h.of(f); of != 0 {
				yield(f, expr.Verdict{Kind: expr.VerdictGoto, Chain: h.chain(of)})
			}
		}
	}
}

// fixed returns the rules of a fixed chain or of a base chain.
func (r *rules) fixed(chain string) ruleList {
	var l ruleList
	switch chain {
	case chainLoopback:
		l.add(ctState(ctEstablished|ctRelated, false), ctDNAT(false), to(expr.VerdictDrop, ""))
		// A packet that conntrack does not track has no status: the rule above ends there.
		l.add(ctState(ctInvalid|ctUntracked, true), to(expr.VerdictDrop, ""))
	case "nat-prerouting", "nat-output":
		r.services(&l)
	case "nat-postrouting":
		l.add(r.marked(), r.clearMark(), r.masquerade())
		// Hairpin: an endpoint that reaches itself through a Service must see another source address.
		l.add(ctDNAT(true), r.saddr(0), r.daddr(r.words), lookup(setHairpin, 0), r.masquerade())
	case "filter-input":
		r.localnet(&l)
		l.add(notNew()...)
		r.refuse(&l, &refusalsInput)
		l.add(healthChecks()...)
		r.refuseNodePorts(&l, &refusalsInput)
	case "filter-forward":
		if r.DropInvalid {
			l.add(ctState(ctInvalid, true), to(expr.VerdictDrop, ""))
		}
		l.add(notNew()...)
		r.refuse(&l, &refusalsForward)
		l.add(r.acceptMarked()...)
		r.refuseNodePorts(&l, &refusalsForward)
	case "filter-output":
		r.localnet(&l)
		l.add(notNew()...)
		r.refuse(&l, &refusalsOutput)
	default:
		r.refusalChain(&l, chain)
	}
	return l
}

// refuse looks up whether packets for the frontend are refused.
func (r *rules) refuse(l *ruleList, h *refusalHook) {
	l.add(r.frontend(), find(setRefused, 0, r.at.refusal-1), goOn(h.set, r.at.refusal))
}

func (r *rules) refuseNodePorts(l *ruleList, h *refusalHook) {
	l.add(protocol(0), dport(1), find(setRefusedNodePorts, 0, 0), local(false), goOn(h.set, 1))
}

// healthChecks accepts probes of load balancers to the health check server, whatever refuses their address.
func healthChecks() []any {
	return []any{protocol(0), equal(0, []byte{unix.IPPROTO_TCP}), dport(0), lookup(setHealthChecks, 0), to(expr.VerdictAccept, "")}
}

// acceptMarked accepts packets that will be masqueraded, whatever refuses their address: they were translated.
func (r *rules) acceptMarked() []any { return []any{r.marked(), to(expr.VerdictAccept, "")} }

// refusalChain returns the rules of a hook's chain for one refusal.
func (r *rules) refusalChain(l *ruleList, chain string) {
	hook, name, _ := strings.Cut(chain, "-")
	switch hook {
	case refusalsInput.name:
		l.add(healthChecks()...)
	case refusalsForward.name:
		l.add(r.acceptMarked()...)
	}
	drop := to(expr.VerdictDrop, "")
	switch refusal(slices.Index(refusalNames[:], name)) {
	case refuseReject:
		l.add(r.reject())
	case refuseDrop:
		l.add(drop)
	case refuseRejectLocalDrop:
		l.add(local(false), drop)
		l.add(r.reject())
	case refuseDropLocalReject:
		l.add(local(false), r.reject())
		l.add(drop)
	}
}

// notNew ends a base chain for all but the first packets of flows: no rule behind it concerns others.
func notNew() []any { return []any{ctState(ctNew, false), to(expr.VerdictAccept, "")} }

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
// looked up before its address is compared and the routes are asked: most packets have another port.
func (r *rules) services(l *ruleList) {
	l.add(r.frontend(), find(setFrontends, 0, r.at.class-1), goOn(setClasses, r.at.class))
	port := []expr.Any{protocol(r.at.nodePort), dport(r.at.nodePort + 1), find(setNodePorts, r.at.nodePort, r.at.nodePort-1)}
	class := goOn(setClasses, r.at.nodePort)
	if r.NodePortAddresses == nil {
		not := prefix(r.at.behind, loopback4, false)
		switch {
		case !r.IPv4():
			not = prefix(r.at.behind, netip.PrefixFrom(netip.IPv6Loopback(), 128), false)
		case r.LocalhostNodePorts:
			l.add(port, local(false), class)
			return
		}
		l.add(port, r.daddr(r.at.behind), not, local(false), class)
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
