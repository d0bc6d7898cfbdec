package prefix

// MaxDepth is the largest number of chains on a path to a rule, the root not counted. The nft variant accepts a path of
// 15 chains below the built-in one, gotos included. Six of them are not the tree's: KUBE-SERVICES and the FW, EXT, SVC,
// SEP and MARK-MASQ chains, or for NodePorts KUBE-SERVICES, KUBE-NODEPORTS and the last four.
const MaxDepth = 9

// sizes of partitions by level. A chain of level 0 contains up to capacity(0) rules of values. A chain of level l is
// cut into partitions of sizes[l-1] to capacity(l-1) rules. See docs/design/prefix-tree.md for the choice of the sizes.
var sizes = [MaxDepth - 1]int{5, 15, 45, 135, 405, 1215, 3645, 14580}

func capacity(level int) int { return 2*sizes[level] - 2 }

// cluster is a partition: the keys below top that are below none of the holes.
type cluster[V Value[V]] struct {
	top   *node[V]
	holes []*node[V] // in the order of keys, none below another
	rules int
}

// level returns the level of a partition's chain.
func (c *cluster[V]) level() int {
	level := 0
	for level < MaxDepth-1 && c.rules > capacity(level) && !c.top.isKey() {
		level++
	}
	return level
}

// carve cuts the partition into partitions of a level, in the order in which they must be tested, and a rest.
func (c *cluster[V]) carve(level int) (cut []cluster[V], rest cluster[V]) {
	k := carver[V]{size: sizes[level], top: c.top}
	rest = k.carve(c.top, c.holes)
	return k.cut, rest
}

type carver[V Value[V]] struct {
	size int
	top  *node[V]
	cut  []cluster[V]
}

// carve cuts partitions below a node, without the holes, and returns what is left.
func (k *carver[V]) carve(n *node[V], holes []*node[V]) cluster[V] {
	left := cluster[V]{top: n, holes: holes, rules: n.rules}
	for _, hole := range holes {
		left.rules -= hole.rules
	}
	if left.rules < k.size {
		return left // no node below can have reached the size
	}
	if !n.isKey() {
		boundary := 0 // holes of the first child come first
		for boundary < len(holes) && holes[boundary].path.bit(n.length) == 0 {
			boundary++
		}
		a, b := k.carve(n.child[0], holes[:boundary]), k.carve(n.child[1], holes[boundary:])
		left.holes = append(a.holes[:len(a.holes):len(a.holes)], b.holes...)
		left.rules = a.rules + b.rules
	}
	if left.rules < k.size || n == k.top {
		return left
	}
	k.cut = append(k.cut, left)
	return cluster[V]{top: n, holes: []*node[V]{n}}
}

// each calls f for the keys of the partition, in order.
func (c *cluster[V]) each(f func(*node[V])) {
	if c.rules == 0 {
		return
	}
	holes := c.holes
	var visit func(n *node[V])
	visit = func(n *node[V]) {
		if len(holes) > 0 && holes[0] == n {
			holes = holes[1:]
			return
		}
		if n.isKey() {
			f(n)
			return
		}
		visit(n.child[0])
		visit(n.child[1])
	}
	visit(c.top)
}
