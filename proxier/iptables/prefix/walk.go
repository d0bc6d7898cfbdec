package prefix

// Walked is the path of a packet through a tree.
type Walked[V Value[V]] struct {
	// Values whose rules have the packet's key, in the order of the path.
	Values []V
	// Crossed is the number of rules up to and including the first one of the first value. For a miss it is the number
	// of all rules until the packet returns to the root's end.
	Crossed int
	// Depth is the number of chains below the root on the longest path.
	Depth int
}

// Walk sends a packet to a key through the chains of the last Update. keyOf returns the key of a value, in place of the
// match in the value's rules.
func (t *Tree[V]) Walk(key Key, keyOf func(V) Key) Walked[V] {
	w := walker[V]{tree: t, key: key, keyOf: keyOf}
	for _, r := range t.chains[t.opts.Root].rules {
		w.rule(r, 1)
	}
	return w.Walked
}

type walker[V Value[V]] struct {
	tree  *Tree[V]
	key   Key
	keyOf func(V) Key
	Walked[V]
}

// rule evaluates a rule of a chain at a depth and reports whether the packet left the chain here.
func (w *walker[V]) rule(r Rule[V], depth int) (left bool) {
	if r.To == "" {
		found := w.keyOf(r.Value) == w.key
		if len(w.Values) == 0 {
			if w.Crossed++; !found {
				w.Crossed += r.Value.Rules() - 1
			}
		}
		if found {
			w.Values = append(w.Values, r.Value)
		}
		return false
	}
	if len(w.Values) == 0 {
		w.Crossed++
	}
	if r.Match != (Match{}) && !r.Match.Matches(w.key) {
		return false
	}
	w.Depth = max(w.Depth, depth)
	for _, r := range w.tree.chains[r.To].rules {
		if w.rule(r, depth+1) {
			break
		}
	}
	return true
}

// Miss is the largest number of rules that a packet crosses when no value's rules match it.
func (t *Tree[V]) Miss() int { return t.miss(t.chains[t.opts.Root]) }

func (t *Tree[V]) miss(c *chain[V]) int {
	most, crossed := 0, 0
	for _, r := range c.rules {
		if r.To == "" {
			crossed += r.Value.Rules()
			continue
		}
		crossed++
		most = max(most, crossed+t.miss(t.chains[r.To]))
	}
	return max(most, crossed)
}
