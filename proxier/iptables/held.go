package iptables

import (
	"hash/maphash"
	"slices"
)

// held is the known kernel content of the proxier in one table.
type held struct {
	content map[string]content
	// loose chains exist, or may exist, and are not settled: a sync that did not finish made them, or an earlier
	// process. true: packets may reach them.
	loose map[string]bool
}

// content of a chain: enough to compare it with the desired chain, without its text.
type content struct {
	hash  uint64 // of its rules; meaningless unless sure
	rules int32
	round uint16 // the sync that wrote it; 0: an earlier one, or none
	sure  bool
}

func newHeld() *held { return &held{content: map[string]content{}, loose: map[string]bool{}} }

// is reports whether a chain is known to exist with this text.
func (h *held) is(name string, hash uint64) bool {
	c, there := h.content[name]
	return there && c.sure && c.hash == hash
}

// doubt records that the content of a chain, and whether it exists, is unknown.
func (h *held) doubt(name string, live bool) {
	h.content[name] = content{}
	h.loose[name] = live
}

// wrote records the content of a chain that a sync wrote, and returns how that changes the sync's count.
func (h *held) wrote(t *chainText, round uint16) Count {
	change := Count{Chains: 1, Rules: int(t.rules)}
	if old := h.content[t.name]; old.round == round {
		change = Count{Rules: int(t.rules - old.rules)}
	}
	h.content[t.name] = content{t.hash, t.rules, round, true}
	return change
}

// deleted records that a chain is deleted, and returns how that changes the sync's count.
func (h *held) deleted(name string, round uint16) (change Count) {
	if old := h.content[name]; old.round == round {
		change = Count{Chains: -1, Rules: -int(old.rules)}
	}
	delete(h.content, name)
	delete(h.loose, name)
	return change
}

// begin begins a sync and its count, which includes each chain once, with its last content.
func (r *Ruleset) begin() {
	r.written = map[Table]Count{}
	if r.round++; r.round != 0 {
		return
	}
	r.round = 1 // after 65,535 syncs
	for _, h := range r.held {
		for name, c := range h.content {
			c.round = 0
			h.content[name] = c
		}
	}
}

// seed makes hashes differ from process to process, so that no input can be made to collide.
var seed = maphash.MakeSeed()

func hashText(text []byte) uint64 { return maphash.Bytes(seed, text) }

// Forget marks all kernel content as unknown, so that everything is written. existing are the chains in the kernel, by
// table. void tables had no chain that jumps to Services.
func (r *Ruleset) Forget(existing map[Table][]string, void map[Table]bool) {
	shared := map[chain]bool{}
	for _, c := range dispatchChains {
		shared[c] = true
	}
	for c := range r.settings.fixedChains() {
		shared[c] = true
	}
	for table, h := range r.held {
		*h = *newHeld()
		for _, name := range existing[table] {
			if ownChain(name) || shared[chain{table, name}] {
				h.doubt(name, true)
			}
		}
	}
	for name := range r.wanted {
		r.dirty[name] = true
	}
	r.behind, r.unread, r.void = true, true, void
}

// leads reports whether a chain is a dispatch chain or a chain of Services.
func (r *Ruleset) leads(name string) bool {
	return ownChain(name) || slices.ContainsFunc(dispatchChains[:], func(c chain) bool { return c.name == name })
}
