package iptables

import (
	"hash/maphash"
	"slices"
)

// staleness says how far a table's rules in the kernel may be from what a Ruleset knows of them. A failure raises it; a sync
// that finishes makes it current.
type staleness uint8

const (
	// current: only the chains of dirty Service ports may differ from the desired ones.
	current staleness = iota
	// behind: any chain may differ from the desired one, because the settings changed or the last sync did not finish.
	// The dispatch rules are the installed ones.
	behind
	// void: any chain may differ, and there are no dispatch rules. The table had no chain that jumps to Services when
	// Forget was called.
	void
	// unread: any chain may differ, and so may the dispatch rules, from the installed ones. A sync that needs the
	// dispatch rules reads them.
	unread
)

// known is the known kernel content of the proxier in one table.
type known struct {
	staleness staleness
	content   map[string]content
	// unsettled chains exist, or may exist: a sync that did not finish made them, or an earlier process. true: packets
	// may reach them.
	unsettled map[string]bool
	// stuck chains could not be deleted because a foreign rule refers to them. They stay, empty, until a full sync.
	stuck map[string]bool
}

// content of a chain: enough to compare it with the desired chain, without its text.
type content struct {
	hash  uint64 // of its rules; meaningless unless sure
	rules int32
	round uint16 // the sync that wrote it; 0: an earlier one, or none
	sure  bool
}

func newKnown() *known {
	return &known{staleness: behind, content: map[string]content{}, unsettled: map[string]bool{}, stuck: map[string]bool{}}
}

// staleness returns the higher one of both tables.
func (r *Ruleset) staleness() staleness {
	return max(r.known[NAT].staleness, r.known[Filter].staleness)
}

// raise records that both tables are at least this stale.
func (r *Ruleset) raise(to staleness) {
	for _, k := range r.known {
		k.staleness = max(k.staleness, to)
	}
}

// is reports whether a chain is known to exist with this text.
func (k *known) is(name string, hash uint64) bool {
	c, there := k.content[name]
	return there && c.sure && c.hash == hash
}

// doubt records that the content of a chain, and whether it exists, is unknown.
func (k *known) doubt(name string, live bool) {
	k.content[name] = content{}
	k.unsettled[name] = live
}

// wrote records the content of a chain that a sync wrote, and returns how that changes the sync's count.
func (k *known) wrote(t *chainText, round uint16) Count {
	change := Count{Chains: 1, Rules: int(t.rules)}
	if old := k.content[t.name]; old.round == round {
		change = Count{Rules: int(t.rules - old.rules)}
	}
	k.content[t.name] = content{t.hash, t.rules, round, true}
	return change
}

// deleted records that a chain is deleted, and returns how that changes the sync's count.
func (k *known) deleted(name string, round uint16) (change Count) {
	if old := k.content[name]; old.round == round {
		change = Count{Chains: -1, Rules: -int(old.rules)}
	}
	delete(k.content, name)
	delete(k.unsettled, name)
	return change
}

// begin begins a sync and its count, which includes each chain once, with its last content.
func (r *Ruleset) begin() {
	r.written = map[Table]Count{}
	if r.round++; r.round != 0 {
		return
	}
	r.round = 1 // after 65,535 syncs
	for _, k := range r.known {
		for name, c := range k.content {
			c.round = 0
			k.content[name] = c
		}
	}
}

// seed makes hashes differ from process to process, so that no input can be made to collide.
var seed = maphash.MakeSeed()

func hashText(text []byte) uint64 { return maphash.Bytes(seed, text) }

// Forget marks all kernel content as unknown, so that everything is written. existing are the chains in the kernel, by
// table. noJumps are the tables that had no chain that jumps to Services.
func (r *Ruleset) Forget(existing map[Table][]string, noJumps map[Table]bool) {
	shared := map[chain]bool{}
	for _, c := range dispatchChains {
		shared[c] = true
	}
	for c := range r.settings.fixedChains() {
		shared[c] = true
	}
	for table, k := range r.known {
		k.staleness, k.content, k.unsettled = unread, map[string]content{}, map[string]bool{}
		if noJumps[table] {
			k.staleness = void
		}
		for _, name := range existing[table] {
			if ownChain(name) || shared[chain{table, name}] {
				k.doubt(name, true)
			}
		}
	}
	for name := range r.wanted {
		r.dirty[name] = true
	}
}

// leads reports whether a chain is a dispatch chain or a chain of Services.
func (r *Ruleset) leads(name string) bool {
	return ownChain(name) || slices.ContainsFunc(dispatchChains[:], func(c chain) bool { return c.name == name })
}
