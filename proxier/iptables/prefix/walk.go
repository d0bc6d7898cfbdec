package prefix

// Walked is how a packet went through a tree.
type Walked[V Value[V]] struct {
	// Values whose rules have the packet's key, in the order in which it met them.
	Values []V
	// Crossed is the number of rules up to and including the first one of the first value; of a miss, all that the
	// packet met before it came back to the root's end.
	Crossed int
	// Depth is the number of chains of the longest way that the packet took below the root.
	Depth int
}

// Walk sends a packet to a key through the chains of the last Update. keyOf says which key a value was added under: it
// stands for the match in the value's own rules.
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

// rule of a chain at a depth; it says whether the packet left the chain here.
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

// Miss is the most rules that a packet crosses which none of the values' rules match.
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
