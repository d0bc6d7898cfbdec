package nftables

import (
	"bytes"
	"net/netip"
	"slices"

	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// fill updates the slots of a Service port. old is nil for a new one, port for a removed one.
func (r *Ruleset) fill(e *entry, old, port *plan.ServicePort) {
	var all, local []*tracker.Endpoint
	before, after := old != nil && old.AffinitySeconds > 0, port != nil && port.AffinitySeconds > 0
	if port != nil {
		all, local = port.Cluster, port.Local
	}
	e.all = r.arrange(e.id, 0, e.all, all, before, after)
	e.local = r.arrange(e.id, localSlots, e.local, local, before, after)
}

// arrange writes one list of endpoints into slots: an endpoint's slot is its number in the list. Endpoints that stay keep
// theirs; new ones and those from beyond the new end take free ones. Deletes beyond the end are deferred: a packet may
// have read the old number of endpoints. So are all deletes when the list moves to another map. before and after: the
// list has members, for affinity.
func (r *Ruleset) arrange(id ID, first uint32, old, wanted []*tracker.Endpoint, before, after bool) []*tracker.Endpoint {
	slots := assign(old, wanted)
	from, in, kept := endpointsOf(len(old)), endpointsOf(len(slots)), min(len(old), len(slots))
	if from != in {
		kept = 0
	}
	list := &r.now[in]
	for i, ep := range slots {
		if i < kept {
			if old[i].Addr == ep.Addr {
				continue
			}
			list.removed = slotKey(list.removed, id, first, i)
		}
		list.added = appendTarget(slotKey(list.added, id, first, i), ep.Addr)
	}
	for i := kept; i < len(old); i++ {
		r.then.removed[from] = slotKey(r.then.removed[from], id, first, i)
	}
	r.members(id, first, old, slots, before, after)
	if !slices.EqualFunc(old, slots, sameHost) {
		r.count(old, -1)
		r.count(slots, 1)
	}
	return slots
}

func slotKey(b []byte, id ID, first uint32, i int) []byte {
	return appendWord(append64(b, uint64(id)), first+uint32(i))
}

func sameTarget(a, b *tracker.Endpoint) bool { return a.Addr == b.Addr }

// sameHost reports whether two endpoints count alike for the set hairpin.
func sameHost(a, b *tracker.Endpoint) bool {
	return a.Addr.Addr() == b.Addr.Addr() && a.Elsewhere == b.Elsewhere
}

// assign gives each desired endpoint a slot.
func assign(old, wanted []*tracker.Endpoint) []*tracker.Endpoint {
	if len(old) == 0 || slices.EqualFunc(old, wanted, sameTarget) {
		return wanted
	}
	waiting := make(map[netip.AddrPort]*tracker.Endpoint, len(wanted))
	for _, ep := range wanted {
		waiting[ep.Addr] = ep
	}
	slots := make([]*tracker.Endpoint, len(wanted))
	for i := range min(len(old), len(wanted)) {
		if ep := waiting[old[i].Addr]; ep != nil {
			slots[i] = ep
			delete(waiting, old[i].Addr)
		}
	}
	free := 0
	for _, ep := range wanted {
		if waiting[ep.Addr] == nil {
			continue
		}
		for slots[free] != nil {
			free++
		}
		slots[free] = ep
	}
	return slots
}

// members updates the set of endpoints that clients may be remembered with.
func (r *Ruleset) members(id ID, first uint32, old, slots []*tracker.Endpoint, before, after bool) {
	if !before {
		old = nil
	}
	if !after {
		slots = nil
	}
	if len(old) == 0 && len(slots) == 0 {
		return
	}
	gone := make(map[netip.AddrPort]bool, len(old))
	for _, ep := range old {
		gone[ep.Addr] = true
	}
	list := &r.now[setMembers]
	for _, ep := range slots {
		if gone[ep.Addr] {
			gone[ep.Addr] = false
			continue
		}
		list.added = memberKey(list.added, id, first, ep)
	}
	for _, ep := range old {
		if gone[ep.Addr] {
			list.removed = memberKey(list.removed, id, first, ep)
		}
	}
}

func memberKey(b []byte, id ID, first uint32, ep *tracker.Endpoint) []byte {
	return appendTarget(slotKey(b, id, first, 0), ep.Addr)
}

// host is an address as the key of a large map: without pointers.
type host [16]byte

// count updates how many slots contain an address that may be on this node. Packets of the others reach themselves through
// another node.
func (r *Ruleset) count(endpoints []*tracker.Endpoint, by int32) {
	for _, ep := range endpoints {
		if ep.Elsewhere {
			continue
		}
		addr := ep.Addr.Addr()
		h := host(addr.As16())
		known := len(r.hairpin)
		if r.loading {
			if r.hairpin[h] += by; len(r.hairpin) > known {
				list := &r.now[setHairpin]
				list.added = appendAddr(appendAddr(list.added, addr), addr)
			}
			continue
		}
		if _, noted := r.hosts[h]; !noted {
			r.hosts[h] = r.hairpin[h]
		}
		r.hairpin[h] += by
	}
}

// settleHosts updates the hairpin set, which contains each address that may be on this node, twice. Packets are looked up in it
// after the translation, so a removed address stays until the next sync.
func (r *Ruleset) settleHosts() {
	hosts := make([]host, 0, len(r.hosts))
	for h := range r.hosts {
		hosts = append(hosts, h)
	}
	slices.SortFunc(hosts, func(a, b host) int { return bytes.Compare(a[:], b[:]) })
	for _, h := range hosts {
		addr := netip.AddrFrom16(h).Unmap()
		before, now := r.hosts[h], r.hairpin[h]
		switch {
		case before == 0 && now > 0:
			list := &r.now[setHairpin]
			list.added = appendAddr(appendAddr(list.added, addr), addr)
		case before > 0 && now == 0:
			left := &r.then.removed[setHairpin]
			*left = appendAddr(appendAddr(*left, addr), addr)
		}
		if now == 0 {
			delete(r.hairpin, h)
		}
	}
	clear(r.hosts)
}
