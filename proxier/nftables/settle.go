package nftables

import (
	"crypto/sha256"
	"net/netip"
	"slices"
)

// settle updates the elements of all touched frontend keys.
func (r *Ruleset) settle() {
	slices.SortFunc(r.touched, place.compare)
	for _, p := range slices.Compact(r.touched) {
		s := r.places[p]
		if p.set == setFrontends || p.set == setNodePorts {
			r.settleFrontend(p, s)
		} else {
			r.settleFilter(p, s)
		}
		if len(s.claims) == 0 {
			delete(r.places, p)
		}
	}
	r.touched = r.touched[:0]
	r.settleHosts()
}

func (r *Ruleset) settleFrontend(p place, s *placeState) {
	ways := s.ways(p)
	class, old := decide(p, ways), s.class
	if class != old {
		to := &r.now[p.set]
		if old != 0 {
			to.removed = p.key(to.removed)
		}
		if class != 0 {
			to.added = appendTo64(p.key(to.added), uint64(class))
		}
		if old.own() {
			delete(r.hashes, old)
			r.then.classes = append(r.then.classes, old)
		}
	}
	for _, w := range ways {
		r.needClass(w.class)
	}
	if class.own() {
		r.needFrontendChain(class, ways, class != old)
	}
	s.class = class
	r.settleLists(p, s, ways)
}

// needFrontendChain writes a frontend's own chain, unless it is installed as desired. Writing one makes the kernel
// validate the table, with all such chains.
func (r *Ruleset) needFrontendChain(class Class, ways []way, fresh bool) {
	hash := hashWays(ways)
	if !fresh && r.hashes[class] == hash {
		return
	}
	r.hashes[class] = hash
	chain := chainRules{class, r.rules.frontendChain(ways)}
	if fresh {
		r.ahead = append(r.ahead, chain)
	} else {
		r.rewrite = append(r.rewrite, chain)
	}
}

// hashWays hashes all that shapes a frontend's own chain.
func hashWays(ways []way) [sha256.Size]byte {
	var b []byte
	for _, w := range ways {
		b = append(append64(b, uint64(w.class)), byte(w.role))
		if w.role == roleLimited {
			for _, p := range w.of.port.SourceRanges {
				b = append(appendAddr(b, p.Addr()), byte(p.Bits()))
			}
			b = append(b, 0xff) // no number of bits
			for _, vip := range w.of.port.LoadBalancerVIPs {
				b = appendAddr(b, vip)
			}
		}
	}
	return sha256.Sum256(b)
}

// settleLists updates the elements of lists for a frontend. Deletes are deferred, because a packet may have read the
// old class.
func (r *Ruleset) settleLists(p place, s *placeState, ways []way) {
	width, now, then := 4*r.rules.words, &r.now[setLists], &r.then.removed[setLists]
	for _, l := range s.lists {
		if !slices.ContainsFunc(ways, func(w way) bool { return w.class == l.class }) {
			*then = p.listKey(*then, l.class, width)
		}
	}
	for _, w := range ways {
		i := slices.IndexFunc(s.lists, func(l list) bool { return l.class == w.class })
		if i >= 0 && s.lists[i].id == w.id {
			continue
		}
		if i >= 0 {
			now.removed = p.listKey(now.removed, w.class, width)
		}
		now.added = appendTo64(p.listKey(now.added, w.class, width), uint64(w.id))
	}
	for _, w := range ways {
		r.idle.use(w.class, 1)
	}
	for _, l := range s.lists {
		r.idle.use(l.class, -1)
	}
	s.lists = make([]list, len(ways))
	for i := range ways {
		s.lists[i] = ways[i].list
	}
}

// needClass creates a shared chain when it is missing. An unused chain stays for a while: a Service that alternates
// between two numbers of endpoints must not cost two transactions each time.
func (r *Ruleset) needClass(class Class) {
	if _, there := r.chains[class]; !there {
		r.chains[class] = 0
		r.ahead = append(r.ahead, chainRules{class, r.rules.class(class)})
		if !r.loading {
			r.idle.late = append(r.idle.late, class)
		}
	}
}

// touch records a frontend key that may have to change, and the keys that depend on it.
func (r *Ruleset) touch(p place) {
	r.touched = append(r.touched, p)
	if p.set == setRefusedNodePorts {
		for _, addr := range r.refusedAt[p] {
			r.touched = append(r.touched, place{setRefused, p.proto, p.port, addr})
		}
	}
}

func (r *Ruleset) settleFilter(p place, s *placeState) {
	now, old := r.refusal(p, s), s.refusal
	if now == old {
		return
	}
	list := &r.now[p.set]
	if old != 0 {
		list.removed = p.key(list.removed)
	}
	if now != 0 {
		list.added = p.key(list.added)
		if len(specs[p.set].value) > 0 {
			list.added = appendWord(append(list.added, make([]byte, blankLen)...), uint32(now))
		}
	}
	if there := now.external() != 0; p.set == setRefused && there != (old.external() != 0) {
		r.note(p, there)
	}
	s.refusal = now
}

// refusal returns the value that the filter hooks need for a place; 0: none.
func (r *Ruleset) refusal(p place, s *placeState) refusal {
	switch {
	case len(s.claims) == 0:
		return 0
	case p.set == setHealthChecks:
		return 1
	case p.set == setRefusedNodePorts:
		return s.claims[0].refuse()
	}
	var found refusal
	if c := s.first(roleRefused); c != nil {
		found = newRefusal(c.refuse(), 0)
	}
	if c := s.first(roleRefusedExternal); c != nil {
		found |= r.refuseExternal(p, c)
	}
	if s.first(roleFirewall) != nil {
		found |= limitedSources
	}
	return found
}

// refuseExternal returns how an address of external traffic is refused. If the address is the node's, an older Service's
// NodePort comes first.
func (r *Ruleset) refuseExternal(p place, first *claim) refusal {
	own, other := first.refuse(), r.places[nodePortOf(p)]
	switch {
	case other == nil || len(other.claims) == 0 || other.claims[0].compare(first) > 0 || other.claims[0].refuse() == own:
		return own
	case own == refuseReject:
		return refuseRejectLocalDrop
	}
	return refuseDropLocalReject
}

func nodePortOf(p place) place { return place{set: setRefusedNodePorts, proto: p.proto, port: p.port} }

// note updates refusedAt. It does not search for a new address: most Services have one of a few ports.
func (r *Ruleset) note(p place, there bool) {
	at := nodePortOf(p)
	if there {
		r.refusedAt[at] = append(r.refusedAt[at], p.addr)
		return
	}
	r.refusedAt[at] = slices.DeleteFunc(r.refusedAt[at], func(a netip.Addr) bool { return a == p.addr })
	if len(r.refusedAt[at]) == 0 {
		delete(r.refusedAt, at)
	}
}
