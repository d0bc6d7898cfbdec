package prefix

import (
	"fmt"
	"maps"
	"slices"
	"sort"
)

// Prefix begins the names of all chains of trees.
const Prefix = "KUBE-TREE-"

// Options of a Tree.
type Options struct {
	// AddrBits of the keys' addresses: 32, 128, or 0 for a tree of ports alone.
	AddrBits int
	// Root is the name of the chain where packets enter.
	Root string
	// Use is a letter that distinguishes this tree's chains from those of other trees in the same table.
	Use byte
}

// Tree stores values under their keys, and the chains to find them. Not safe for concurrent use.
type Tree[V Value[V]] struct {
	opts   Options
	trie   *node[V]
	chains map[string]*chain[V]
	dirty  []span // keys that changed since the last Update
}

// Rule of a chain: a branch to another chain, or a value.
type Rule[V Value[V]] struct {
	// To is the chain of a branch; empty: the rule is a Value.
	To string
	// Match of a branch; the zero Match takes every packet. The one branch of a root is a jump, since packets must
	// return to the rules behind it. All others are gotos.
	Match Match
	// Value whose rules are at this position.
	Value V
}

// chain as of the last Update.
type chain[V Value[V]] struct {
	top    span
	holes  []span
	rules  []Rule[V]
	parent string
}

// Difference between two Updates, names sorted.
type Difference struct {
	// Changed chains are new or have other rules.
	Changed []string
	// Removed chains are no longer there.
	Removed []string
}

// New makes an empty tree: a root without rules.
func New[V Value[V]](opts Options) *Tree[V] {
	return &Tree[V]{opts: opts, chains: map[string]*chain[V]{opts.Root: {}}}
}

func (t *Tree[V]) span(key Key) (span, error) {
	if t.opts.AddrBits > 0 && key.Addr.BitLen() != t.opts.AddrBits || t.opts.AddrBits == 0 && key.Addr.IsValid() {
		return span{}, fmt.Errorf("address %s in a tree of %d address bits", key.Addr, t.opts.AddrBits)
	}
	return span{newPath(key, t.opts.AddrBits), t.opts.AddrBits + protocolBits + portBits}, nil
}

// Add adds a value under a key. It fails for an address of the other family.
func (t *Tree[V]) Add(key Key, v V) error {
	s, err := t.span(key)
	if err != nil {
		return err
	}
	t.trie = t.trie.insert(&s, v)
	t.dirty = append(t.dirty, s)
	return nil
}

// Remove removes a value that was added under a key, and reports whether it was there.
func (t *Tree[V]) Remove(key Key, v V) bool {
	s, err := t.span(key)
	if err != nil {
		return false
	}
	trie, found := t.trie.remove(&s, v)
	if found {
		t.trie = trie
		t.dirty = append(t.dirty, s)
	}
	return found
}

// Rules is the number of rules of all values.
func (t *Tree[V]) Rules() int {
	if t.trie == nil {
		return 0
	}
	return t.trie.rules
}

// Branches is the number of branches as of the last Update: one for each chain but the root.
func (t *Tree[V]) Branches() int { return len(t.chains) - 1 }

// Chain returns the rules of a chain as of the last Update, and whether it exists. The caller must not change them.
func (t *Tree[V]) Chain(name string) ([]Rule[V], bool) {
	c, there := t.chains[name]
	if !there {
		return nil, false
	}
	return c.rules, true
}

// Names returns the names of all chains as of the last Update, with the root's, sorted.
func (t *Tree[V]) Names() []string { return slices.Sorted(maps.Keys(t.chains)) }

// Update lays out the changes since the last Update.
func (t *Tree[V]) Update() Difference {
	if len(t.dirty) == 0 {
		return Difference{}
	}
	slices.SortFunc(t.dirty, func(a, b span) int { return a.path.compare(&b.path) })
	u := update[V]{tree: t, dropped: map[string][]string{}}
	var all cluster[V]
	if t.trie != nil {
		all = cluster[V]{top: t.trie, rules: t.trie.rules}
	}
	u.lay(t.opts.Root, "", &all, t.dirty)
	for parent, children := range u.dropped {
		for _, name := range children {
			u.remove(name, parent)
		}
	}
	t.dirty = t.dirty[:0]
	slices.Sort(u.difference.Changed)
	slices.Sort(u.difference.Removed)
	return u.difference
}

// update is one run of Update.
type update[V Value[V]] struct {
	tree       *Tree[V]
	dropped    map[string][]string // by chain, the branches that it no longer has
	difference Difference
}

// lay lays out the chain of a partition. dirty are the changed keys in it, sorted.
func (u *update[V]) lay(name, parent string, c *cluster[V], dirty []span) {
	t := u.tree
	old := t.chains[name]
	now := &chain[V]{parent: parent}
	if c.top != nil && parent != "" { // the root has all keys
		now.top, now.holes = c.top.span, spans(c.holes)
	}
	if old != nil && now.top == old.top && slices.Equal(now.holes, old.holes) {
		if old.parent = parent; len(dirty) == 0 {
			return // the same keys with the same values
		}
	}
	t.chains[name] = now
	if c.top != nil {
		u.fill(name, now, c, dirty)
	}
	if old == nil {
		u.difference.Changed = append(u.difference.Changed, name)
		return
	}
	if !slices.Equal(old.rules, now.rules) {
		u.difference.Changed = append(u.difference.Changed, name)
	}
	for _, r := range old.rules {
		if r.To != "" {
			u.dropped[name] = append(u.dropped[name], r.To) // unless another chain branches to it, or will
		}
	}
}

// fill writes a chain's rules and lays out the chains that it branches to.
func (u *update[V]) fill(name string, now *chain[V], c *cluster[V], dirty []span) {
	level := c.level()
	if level == 0 {
		now.add(c)
		return
	}
	if now.parent == "" {
		u.branch(name, now, c.top.match(u.tree.opts.AddrBits), c, dirty)
		return
	}
	cut, rest := c.carve(level - 1)
	for i := range cut {
		var inside []span
		inside, dirty = divide(&cut[i].top.span, dirty)
		u.branch(name, now, cut[i].top.match(u.tree.opts.AddrBits), &cut[i], inside)
	}
	switch {
	case rest.rules == 0:
	case rest.rules <= capacity(0):
		now.add(&rest)
	default:
		u.branch(name, now, Match{}, &rest, dirty)
	}
}

func (u *update[V]) branch(from string, now *chain[V], match Match, c *cluster[V], dirty []span) {
	to := u.tree.name(&c.top.span, c.level())
	now.rules = append(now.rules, Rule[V]{To: to, Match: match})
	u.lay(to, from, c, dirty)
}

// add adds the values of a partition.
func (now *chain[V]) add(c *cluster[V]) {
	c.each(func(n *node[V]) {
		for _, v := range n.values {
			now.rules = append(now.rules, Rule[V]{Value: v})
		}
	})
}

// divide divides sorted keys, in place, into those below a prefix and the others, both sorted.
func divide(top *span, keys []span) (inside, outside []span) {
	first := sort.Search(len(keys), func(i int) bool { return keys[i].path.compare(&top.path) >= 0 })
	last := first
	for last < len(keys) && top.holds(&keys[last].path) {
		last++
	}
	// Three reversals move the keys inside in front of the others.
	slices.Reverse(keys[:first])
	slices.Reverse(keys[first:last])
	slices.Reverse(keys[:last])
	return keys[:last-first], keys[last-first:]
}

// remove deletes a chain without a branch from its parent, unless it has another parent, and the chains only it
// branches to.
func (u *update[V]) remove(name, parent string) {
	t := u.tree
	c := t.chains[name]
	if c == nil || c.parent != parent {
		return
	}
	if p := t.chains[parent]; p != nil && slices.ContainsFunc(p.rules, func(r Rule[V]) bool { return r.To == name }) {
		return
	}
	delete(t.chains, name)
	u.difference.Removed = append(u.difference.Removed, name)
	for _, r := range c.rules {
		if r.To != "" {
			u.remove(r.To, name)
		}
	}
}

func spans[V Value[V]](nodes []*node[V]) []span {
	if len(nodes) == 0 {
		return nil
	}
	s := make([]span, len(nodes))
	for i, n := range nodes {
		s[i] = n.span
	}
	return s
}
