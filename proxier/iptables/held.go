package iptables

import (
	"hash/maphash"
	"slices"
)

// held is what the kernel holds of the proxier in one table, as far as is known.
type held struct {
	content map[string]content
	// loose chains are there, or may be, without being settled: a sync that was not finished made them, or whoever was
	// here before. true: packets may reach them.
	loose map[string]bool
}

// content of a chain: enough to tell whether it is as wanted, without its text.
type content struct {
	hash  uint64 // of its rules; meaningless unless sure
	rules int32
	round uint16 // of the sync that wrote it; 0: an earlier one, or none
	sure  bool
}

func newHeld() *held { return &held{content: map[string]content{}, loose: map[string]bool{}} }

// is says whether a chain is known to be there with this text.
func (h *held) is(name string, hash uint64) bool {
	c, there := h.content[name]
	return there && c.sure && c.hash == hash
}

// doubt takes note that nobody knows what a chain holds, and whether it is there.
func (h *held) doubt(name string, live bool) {
	h.content[name] = content{}
	h.loose[name] = live
}

// wrote takes note of what a chain holds since a sync wrote it, and gives what that makes of what the sync wrote.
func (h *held) wrote(t *chainText, round uint16) Count {
	change := Count{Chains: 1, Rules: int(t.rules)}
	if old := h.content[t.name]; old.round == round {
		change = Count{Rules: int(t.rules - old.rules)}
	}
	h.content[t.name] = content{t.hash, t.rules, round, true}
	return change
}

// deleted takes note of a chain that is gone, and gives what that takes from what a sync wrote.
func (h *held) deleted(name string, round uint16) (change Count) {
	if old := h.content[name]; old.round == round {
		change = Count{Chains: -1, Rules: -int(old.rules)}
	}
	delete(h.content, name)
	delete(h.loose, name)
	return change
}

// begin begins a sync: what it writes is counted from here on, each chain once and as it is in the end.
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

// seed makes hashes differ from process to process: nobody can make two texts that look the same.
var seed = maphash.MakeSeed()

func hashText(text []byte) uint64 { return maphash.Bytes(seed, text) }

// Forget takes whatever is in the kernel for unknown: everything will be written. existing are the names of the chains
// there, by table; void tables had none that leads to Services.
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

// leads says whether a chain is one that leads to Services, or one of theirs.
func (r *Ruleset) leads(name string) bool {
	return ownChain(name) || slices.ContainsFunc(dispatchChains[:], func(c chain) bool { return c.name == name })
}
