package virtualtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/verify/walk"
	"synclab/proxier/nftables"
	"synclab/proxier/nftables/objects"
)

// nftable is the nf_tables table of one family: a model with time, faults and external writes. It outlives the proxier.
type nftable struct {
	mu    sync.Mutex
	rng   *rand.Rand
	model *nftables.Model
	ways  []way
	// before are external writes that happen before the next transaction.
	before []uint64
}

func newNftable(family corev1.IPFamily, s Setting) *nftable {
	t := &nftable{model: nftables.NewModel(family), rng: rand.New(rand.NewPCG(s.Seed, uint64(family[3])))}
	t.model.Fail = t.transaction
	return t
}

// transaction runs before each transaction: it takes time, and may fail.
func (t *nftable) transaction(ctx context.Context) error {
	t.mu.Lock()
	took := time.Millisecond + time.Duration(t.rng.Int64N(int64(40*time.Millisecond)))
	w, ended := slow, false
	if len(t.ways) > 0 {
		w, ended, t.ways = t.ways[0], true, t.ways[1:]
	}
	if ended && w == slow {
		took *= 1000
	}
	t.mu.Unlock()
	if err := pause(ctx, took); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, pick := range t.before {
		t.externalWrite(pick)
	}
	t.before = nil
	switch {
	case !ended || w == slow:
		return nil
	case w == noMemory:
		return errors.New("cannot allocate memory")
	}
	return errors.New("no buffer space available")
}

// nftMeddlings are the external writes to the table.
var nftMeddlings = []struct {
	what string
	do   func(m *nftables.Model, rng *rand.Rand)
}{
	{"delete the table", func(m *nftables.Model, _ *rand.Rand) { m.Exists, m.Chains, m.Sets = false, nil, nil }},
	{"flush the table", func(m *nftables.Model, _ *rand.Rand) {
		for _, chain := range m.Chains {
			chain.Rules = nil
		}
	}},
	{"flush a chain", func(m *nftables.Model, rng *rand.Rand) {
		if chain := pickOf(m.Chains, rng); chain != nil {
			chain.Rules = nil
		}
	}},
	{"delete a rule", func(m *nftables.Model, rng *rand.Rand) {
		if chain := pickOf(m.Chains, rng); chain != nil && len(chain.Rules) > 0 {
			i := rng.IntN(len(chain.Rules))
			chain.Rules = slices.Delete(slices.Clone(chain.Rules), i, i+1)
		}
	}},
	{"flush a set", func(m *nftables.Model, rng *rand.Rand) {
		if set := pickOf(m.Sets, rng); set != nil {
			clear(set.Elements)
		}
	}},
	{"delete an element", func(m *nftables.Model, rng *rand.Rand) {
		set := pickOf(m.Sets, rng)
		if set == nil || len(set.Elements) == 0 {
			return
		}
		keys := slices.Sorted(maps.Keys(set.Elements))
		delete(set.Elements, keys[rng.IntN(len(keys))])
	}},
	{"add an element", func(m *nftables.Model, rng *rand.Rand) {
		set := pickOf(m.Sets, rng)
		if set == nil || set.Verdicts || set.Dynamic {
			return
		}
		key := make([]byte, set.KeyLen)
		for i := range key {
			key[i] = byte(rng.Uint32())
		}
		set.Elements[string(key)] = objects.Element{Value: make([]byte, set.ValueLen)}
	}},
}

// pickOf returns a random value of a map; nil if it is empty.
func pickOf[T any](all map[string]*T, rng *rand.Rand) *T {
	if len(all) == 0 {
		return nil
	}
	return all[slices.Sorted(maps.Keys(all))[rng.IntN(len(all))]]
}

// externalWrite makes an external write to the table; t.mu must be held.
func (t *nftable) externalWrite(pick uint64) string {
	rng := rand.New(rand.NewPCG(pick, 0x3edd1e))
	m := nftMeddlings[rng.IntN(len(nftMeddlings))]
	if t.model.Exists {
		m.do(t.model, rng)
		t.model.ExternalWrites++
	}
	return m.what
}

func (t *nftable) fault(a Action) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch a.Kind {
	case restores:
		w := []way{fails, noMemory, slow}[a.Pick%3]
		for range a.N {
			t.ways = append(t.ways, w)
		}
		return fmt.Sprintf("transactions: way %d", w)
	case externalWrite:
		return t.externalWrite(a.Pick)
	case externalWriteBefore:
		t.before = append(t.before, a.Pick)
		return string(a.Kind)
	}
	return ""
}

func (t *nftable) calm(bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ways, t.before = nil, nil
}

func (t *nftable) hidden() time.Duration { return syncPeriod }

func (t *nftable) intact() string { return "" }

// differs compares the outcomes of packets, because an endpoint's slot in its Service port depends on history.
func (t *nftable) differs(f fresh) string {
	if !t.model.Exists {
		return "\n  the table is missing"
	}
	have, err := t.walker(f.world)
	if err != nil {
		return "\n  " + err.Error()
	}
	rules, err := walk.CompileNftables(f.nftables.Family, &f.nftables.Table)
	if err != nil {
		return "\n  the fresh table: " + err.Error()
	}
	want := walk.New(rules, f.world)
	for i := range f.packets {
		p := &f.packets[i]
		a, errA := want.Walk(p)
		b, errB := have.Walk(p)
		if err := errors.Join(errA, errB); err != nil {
			return fmt.Sprintf("\n  %s: %v", p, err)
		}
		if !a.Equal(b) {
			return fmt.Sprintf("\n  %s: %s\n  instead of %s", p, b, a)
		}
	}
	return ""
}

func (t *nftable) walker(w walk.NodeAddresses) (*walk.Walker, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rules, err := walk.CompileNftables(t.model.Family, &t.model.Table)
	if err != nil {
		return nil, err
	}
	return walk.New(rules, w), nil
}
