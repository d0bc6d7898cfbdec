package prefix

import "slices"

// Value is a group of rules with one key.
type Value[V any] interface {
	comparable
	// Rules is the number of rules; it never changes.
	Rules() int
	// Compare orders the values of one key: packets meet the lower ones first.
	Compare(V) int
}

// node of the trie: a fork, or a key with its values.
type node[V Value[V]] struct {
	span
	child  [2]*node[V]
	values []V // of a key, in order
	rules  int // here and below
}

func (n *node[V]) isKey() bool { return n.child[0] == nil }

// insert adds a value and returns the node that replaces this one.
func (n *node[V]) insert(key *span, v V) *node[V] {
	if n == nil {
		return &node[V]{span: *key, values: []V{v}, rules: v.Rules()}
	}
	if shared := min(n.path.common(&key.path), n.length); shared < n.length {
		fork := &node[V]{span: span{key.path.cut(shared), shared}, rules: n.rules + v.Rules()}
		side := key.path.bit(shared)
		fork.child[side] = &node[V]{span: *key, values: []V{v}, rules: v.Rules()}
		fork.child[1-side] = n
		return fork
	}
	n.rules += v.Rules()
	if n.isKey() {
		at, _ := slices.BinarySearchFunc(n.values, v, func(a, b V) int { return a.Compare(b) })
		n.values = slices.Insert(n.values, at, v)
		return n
	}
	side := key.path.bit(n.length)
	n.child[side] = n.child[side].insert(key, v)
	return n
}

// remove removes a value, if it is there, and returns the node that replaces this one.
func (n *node[V]) remove(key *span, v V) (_ *node[V], found bool) {
	if n == nil || !n.holds(&key.path) {
		return n, false
	}
	if n.isKey() {
		at := slices.Index(n.values, v)
		if at < 0 {
			return n, false
		}
		n.values = slices.Delete(n.values, at, at+1)
		n.rules -= v.Rules()
		if len(n.values) == 0 {
			return nil, true
		}
		return n, true
	}
	side := key.path.bit(n.length)
	n.child[side], found = n.child[side].remove(key, v)
	if n.child[side] == nil {
		return n.child[1-side], found
	}
	if found {
		n.rules -= v.Rules()
	}
	return n, found
}
