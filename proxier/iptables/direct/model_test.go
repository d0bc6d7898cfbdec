package direct

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/iptables"
	"synclab/proxier/kernel/xtables"
)

// newest are the revisions that the kernels of today have.
var newest = revisions{dnat: 2, nfacct: 1, bpf: 1}

// emptyTable is nat as the kernel makes it: four built-in chains, in the order of their hooks, that accept everything.
func emptyTable(t testing.TB, family corev1.IPFamily) *xtables.Table {
	t.Helper()
	table := &xtables.Table{Wire: xtables.Of(family)}
	copy(table.Info.Name[:], "nat")
	b, err := newBlock(0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	e := encoder{wire: table.Wire, block: b}
	for _, hook := range []int{0, 1, 3, 4} {
		table.Info.ValidHooks |= 1 << hook
		table.Info.HookEntry[hook], table.Info.Underflow[hook] = uint32(b.size), uint32(b.size)
		at, err := e.plain("", verdictSize)
		if err != nil {
			t.Fatal(err)
		}
		accept := int32(verdictAccept)
		b.put32(at, uint32(accept))
	}
	if err := e.head("ERROR"); err != nil {
		t.Fatal(err)
	}
	table.Entries = bytes.Clone(b.entries[:b.size])
	table.Info.NumEntries, table.Info.Size = e.entries, uint32(b.size)
	return table
}

func scriptOf(text string) *script { return &script{segments: [][]byte{[]byte(text)}} }

// trySplice gives the table that a payload of one table leaves.
func trySplice(table *xtables.Table, text []byte) (*xtables.Table, error) {
	in, err := index(table)
	if err != nil {
		return nil, err
	}
	s := scriptOf(string(text))
	if _, err := s.table(); err != nil {
		return nil, err
	}
	e := newEdit(in, 0)
	if err := s.into(e); err != nil {
		return nil, err
	}
	made, err := splice(e, newest)
	if made != nil {
		defer made.block.close()
	}
	if err != nil {
		return nil, err
	}
	return &xtables.Table{Wire: table.Wire, Info: made.info, Entries: bytes.Clone(made.block.entries[:made.block.size])}, nil
}

func spliced(t testing.TB, table *xtables.Table, text []byte) *xtables.Table {
	t.Helper()
	made, err := trySplice(table, text)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// rulesOf are the rules of a table, chain by chain, as iptables-save prints them.
func rulesOf(t testing.TB, table *xtables.Table) []string {
	t.Helper()
	in, err := index(table)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := in.rules()
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// What a payload says of itself saves its lists from growing: each time they do, the collector has their size more.
func TestKnownChains(t *testing.T) {
	c := &cluster{corev1.IPv4Protocol, 3}
	const services = 50
	s := scriptOf(c.payload(services, upTo(services), 0))
	s.written = map[iptables.Table]iptables.Count{iptables.NAT: {Chains: 2 + services*4}}
	if _, err := s.table(); err != nil {
		t.Fatal(err)
	}
	in, err := index(emptyTable(t, c.family))
	if err != nil {
		t.Fatal(err)
	}
	e := newEdit(in, s.chains)
	chains, runs := cap(e.chains), cap(e.runs)
	if err := s.into(e); err != nil {
		t.Fatal(err)
	}
	if added := len(e.chains) - e.count; added != 2+services*4 || cap(e.chains) != chains || cap(e.runs) != runs {
		t.Errorf("%d chains added; lists of %d and %d became %d and %d", added, chains, runs, cap(e.chains), cap(e.runs))
	}
}
