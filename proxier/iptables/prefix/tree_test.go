package prefix

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Rules crossed and depth, for every set of addresses and size. A packet crosses at most 48 rules for any of 50,000,
// the jump of the built-in chain included.
func TestBounds(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	const bound = 48 - 1
	for _, n := range []int{1000, 10_000, 50_000} {
		if testing.Short() && n > 10_000 {
			continue
		}
		for _, s := range sets {
			t.Run(fmt.Sprintf("set=%s/services=%d", s.name, n), func(t *testing.T) {
				rng := newRand(t)
				tree, all := fill(t, s, n, rng)
				tree.Update()
				hit, miss := measure{}, measure{}
				for _, v := range all {
					w := tree.Walk(v.key, keyOf)
					if len(w.Values) != 1 || w.Values[0] != v {
						t.Fatalf("%v finds %d values", v.key, len(w.Values))
					}
					hit.add(w)
				}
				for i := 0; i < n; i += 5 {
					other := all[i].key
					other.Port++
					miss.add(tree.Walk(other, keyOf))
					miss.add(tree.Walk(Key{Addr: s.addr(rng, i), Port: 443}, keyOf))
				}
				t.Logf("%d chains; hit: %s; miss: %s", len(tree.chains)-1, &hit, &miss)
				if hit.most > bound || hit.chains > MaxDepth {
					t.Errorf("a hit crosses %d rules in %d chains, more than %d in %d", hit.most, hit.chains, bound, MaxDepth)
				}
				if most := tree.Miss(); miss.most > most {
					t.Errorf("a miss crosses %d rules, more than the most, %d", miss.most, most)
				}
				if miss.most > bound {
					t.Errorf("a miss crosses %d rules, more than %d", miss.most, bound)
				}
			})
		}
	}
}

// worst is the set in which a packet crosses the most rules. In each partition as many others as possible come first,
// and each of them is as small as possible.
type worst struct {
	keys []Key
	next uint64
}

// block adds n addresses below a prefix of so many bits.
func (w *worst) block(prefix uint64, bits, n int) {
	for range n {
		w.keys = append(w.keys, Key{Addr: v6(prefix<<(64-bits), w.next)})
		w.next++
	}
}

// half of a partition: the largest number of partitions that its size allows before the rest, and the largest rest.
func (w *worst) half(prefix uint64, bits, level int) {
	if level == 0 {
		w.block(prefix, bits, sizes[0]-1)
		return
	}
	for range sizes[level]/sizes[level-1] - 1 {
		w.block(prefix<<1, bits+1, sizes[level-1])
		prefix, bits = prefix<<1|1, bits+1
	}
	w.half(prefix, bits, level-1)
}

func TestWorst(t *testing.T) {
	const n, top = 50_000, len(sizes) - 1
	w := &worst{}
	w.block(0b0, 1, sizes[top])
	w.half(0b1000, 4, top)
	w.half(0b1001, 4, top)
	w.block(0b11, 2, n-len(w.keys))
	tree := New[*rules](Options{AddrBits: 128, Root: "KUBE-SERVICES", Use: 'S'})
	most := measure{}
	all := make([]*rules, n)
	for i, key := range w.keys {
		all[i] = &rules{key: key, order: i, count: 1}
		tree.Add(key, all[i])
	}
	tree.Update()
	for _, v := range all {
		most.add(tree.Walk(v.key, keyOf))
	}
	if t.Logf("%s", &most); most.most != 48-1 || most.chains != MaxDepth {
		t.Errorf("at most %d rules in %d chains, want 47 in %d", most.most, most.chains, MaxDepth)
	}
}

type measure struct{ most, chains, sum, n int }

func (m *measure) add(w Walked[*rules]) {
	m.most, m.chains = max(m.most, w.Crossed), max(m.chains, w.Depth)
	m.sum, m.n = m.sum+w.Crossed, m.n+1
}

func (m *measure) String() string {
	return fmt.Sprintf("max %d mean %.1f in %d chains", m.most, float64(m.sum)/float64(m.n), m.chains)
}

// After random changes the chains equal those of a new tree and the difference is exact. A packet meets exactly the
// values with its key, in order.
func TestChanges(t *testing.T) {
	for _, bits := range []int{0, 32, 128} {
		t.Run(fmt.Sprintf("bits=%d", bits), func(t *testing.T) {
			rng := newRand(t)
			opts := Options{AddrBits: bits, Root: "KUBE-SERVICES", Use: 'S'}
			tree, oracle := New[*rules](opts), map[*rules]bool{}
			for step := range 150 {
				change(t, tree, oracle, opts, rng, step)
			}
			for v := range oracle {
				tree.Remove(v.key, v)
			}
			tree.Update()
			if names := tree.Names(); len(names) != 1 {
				t.Errorf("an empty tree has chains: %q", names)
			}
		})
	}
}

func change(t *testing.T, tree *Tree[*rules], oracle map[*rules]bool, opts Options, rng *rand.Rand, step int) {
	t.Helper()
	before := text(tree)
	amount := []int{1, 1, 3, 40}[rng.IntN(4)]
	for range amount {
		if len(oracle) > 0 && rng.IntN(100) < []int{30, 70}[step/25%2] {
			v := sorted(oracle)[rng.IntN(len(oracle))]
			if delete(oracle, v); !tree.Remove(v.key, v) {
				t.Fatalf("%v was not there", v.key)
			}
			if tree.Remove(v.key, v) {
				t.Fatalf("%v was there twice", v.key)
			}
			continue
		}
		v := &rules{key: randomKey(opts.AddrBits, rng), order: rng.IntN(1000) + 1000*len(oracle), count: 1 + rng.IntN(10)/9}
		if oracle[v] = true; tree.Add(v.key, v) != nil {
			t.Fatalf("%v was refused", v.key)
		}
	}
	difference := tree.Update()
	after := text(tree)
	var want Difference
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if old, there := before[name]; !there || old != after[name] {
			want.Changed = append(want.Changed, name)
		}
		if len(name) > 28 {
			t.Errorf("the name %s is too long", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, there := after[name]; !there {
			want.Removed = append(want.Removed, name)
		}
	}
	if d := cmp.Diff(want, difference); d != "" {
		t.Fatalf("step %d: difference (-want +got):\n%s", step, d)
	}
	fresh := New[*rules](opts)
	for _, v := range sorted(oracle) {
		fresh.Add(v.key, v)
	}
	fresh.Update()
	if d := cmp.Diff(text(fresh), after); d != "" {
		t.Fatalf("step %d: made anew, then changed:\n%s", step, d)
	}
	byKey := map[Key][]*rules{}
	for _, v := range sorted(oracle) {
		byKey[v.key] = append(byKey[v.key], v)
	}
	for range 50 {
		byKey[randomKey(opts.AddrBits, rng)] = nil
	}
	for _, v := range sorted(oracle) {
		byKey[v.key] = nil
	}
	for _, v := range sorted(oracle) {
		byKey[v.key] = append(byKey[v.key], v)
	}
	for key, want := range byKey {
		if got := tree.Walk(key, keyOf).Values; !slices.Equal(got, want) {
			t.Fatalf("step %d: %v meets %v, not %v", step, key, got, want)
		}
	}
}

func sorted(oracle map[*rules]bool) []*rules {
	return slices.SortedFunc(maps.Keys(oracle), (*rules).Compare)
}

// randomKey returns one of few keys, so that many coincide: addresses with many ports, keys with many values.
func randomKey(bits int, rng *rand.Rand) Key {
	k := Key{Protocol: []Protocol{TCP, TCP, UDP, SCTP}[rng.IntN(4)], Port: uint16(rng.IntN(20))}
	if rng.IntN(3) == 0 {
		k.Port = uint16(rng.IntN(1 << 16))
	}
	n := uint32(rng.IntN(4))
	if rng.IntN(2) == 0 {
		n = rng.Uint32() >> rng.IntN(32)
	}
	switch bits {
	case 32:
		k.Addr = v4(n)
	case 128:
		k.Addr = v6(uint64(n)<<(rng.IntN(2)*32), uint64(n))
	}
	return k
}

// The number of chains that one Service more or less touches, over random churn at a size.
func TestTouched(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	const n, changes = 10_000, 2000
	for _, s := range sets {
		t.Run("set="+s.name, func(t *testing.T) {
			rng := newRand(t)
			tree, all := fill(t, s, n+1, rng)
			tree.Update()
			spare := all[n]
			tree.Remove(spare.key, spare)
			tree.Update()
			sum, most := 0, 0
			count := func() {
				d := tree.Update()
				touched := len(d.Changed) + len(d.Removed)
				sum, most = sum+touched, max(most, touched)
			}
			for range changes {
				at := rng.IntN(n)
				all[at], spare = spare, all[at]
				tree.Add(all[at].key, all[at])
				count()
				tree.Remove(spare.key, spare)
				count()
			}
			mean := float64(sum) / (2 * changes)
			t.Logf("%.2f chains a change, at most %d", mean, most)
			if mean > s.touched || most > 10*int(s.touched) {
				t.Errorf("more than %.0f and %d", s.touched, 10*int(s.touched))
			}
		})
	}
}

func BenchmarkUpdate(b *testing.B) {
	const n = 50_000
	for _, s := range []set{sets[0], sets[1], sets[9]} {
		b.Run(fmt.Sprintf("set=%s/services=%d", s.name, n), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 0))
			tree, all := fill(b, s, n+1, rng)
			tree.Update()
			spare := all[n]
			tree.Remove(spare.key, spare)
			for b.Loop() {
				at := rng.IntN(n)
				all[at], spare = spare, all[at]
				tree.Remove(spare.key, spare)
				tree.Add(all[at].key, all[at])
				tree.Update()
			}
		})
	}
}

func BenchmarkFill(b *testing.B) {
	for _, n := range []int{1000, 10_000, 50_000} {
		b.Run(fmt.Sprintf("set=%s/services=%d", sets[1].name, n), func(b *testing.B) {
			_, all := fill(b, sets[1], n, rand.New(rand.NewPCG(1, 0)))
			b.ReportAllocs()
			for b.Loop() {
				tree := New[*rules](ipv4)
				for _, v := range all {
					tree.Add(v.key, v)
				}
				tree.Update()
			}
		})
	}
}

func TestMatchText(t *testing.T) {
	for _, c := range []struct {
		bits   int
		key    Key
		length int
		match  string
		name   string
	}{
		{32, Key{Addr: v4(base4)}, 12, "10.96.0.0/12 0 0-65535", "KUBE-TREE-S0A600000-12-3"},
		{32, Key{Addr: v4(base4 + 1), Protocol: UDP}, 33, "10.96.0.1/32 1 0-65535", "KUBE-TREE-S0A600001N0000-03"},
		{32, Key{Addr: v4(base4 + 1), Protocol: UDP}, 34, "10.96.0.1/32 2 0-65535", "KUBE-TREE-S0A600001U0000-03"},
		{32, Key{Addr: v4(base4 + 1), Port: 8080}, 46, "10.96.0.1/32 2 8080-8095", "KUBE-TREE-S0A600001T1F90-c3"},
		{32, Key{Addr: v4(base4 + 1), Protocol: SCTP, Port: 8080}, 50, "10.96.0.1/32 2 8080-8080", "KUBE-TREE-S0A600001S1F90-g3"},
		{0, Key{}, 0, "invalid Prefix 0 0-65535", "KUBE-TREE-SA0000-03"},
		{0, Key{Port: 30000}, 12, "invalid Prefix 2 29952-30015", "KUBE-TREE-ST7500-a3"},
		{128, Key{Addr: v6(base6, 0)}, 108, "2001:db8::/108 0 0-65535", "KUBE-TREE-SQRBKFDJVY64AAA4B3"},
	} {
		tree := New[*rules](Options{AddrBits: c.bits, Use: 'S'})
		s := span{newPath(c.key, c.bits).cut(c.length), c.length}
		m := s.match(c.bits)
		if got := fmt.Sprintf("%s %d %d-%d", m.Prefix, m.Protocols, m.First, m.Last); got != c.match {
			t.Errorf("match of %v/%d: %s, not %s", c.key, c.length, got, c.match)
		}
		if got := tree.name(&s, 3); got != c.name || len(got) > 28 {
			t.Errorf("name of %v/%d: %s, not %s", c.key, c.length, got, c.name)
		}
	}
}

func TestOtherFamily(t *testing.T) {
	tree := New[*rules](ipv4)
	if err := tree.Add(Key{Addr: v6(base6, 1)}, &rules{count: 1}); err == nil {
		t.Error("an IPv6 address in an IPv4 tree was taken")
	}
	if tree.Remove(Key{Addr: v6(base6, 1)}, nil) {
		t.Error("an IPv6 address was found in an IPv4 tree")
	}
}
