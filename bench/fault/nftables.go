package fault

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/google/nftables"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/bench/netns"
	"synclab/proxier/kernel"
	"synclab/scenarios"
	"synclab/sim"
)

// flush empties what the subject's backend calls a table. With nftables, any table means the subject's own: it is
// deleted, as by a program that flushes the ruleset.
func (r *Faults) flush(ctx context.Context, family corev1.IPFamily, table string) error {
	r.flushes.Add(1)
	if !r.About.Nftables() {
		return FlushTable(ctx, r.KernelVariant(), family, table)
	}
	if err := netns.Guard(); err != nil {
		return fmt.Errorf("flush table %s: %w", table, err)
	}
	there, conn, err := r.OwnNftables(family)
	if err != nil {
		return err
	}
	if len(there) == 0 {
		return fmt.Errorf("delete %s table %s: it does not exist", family, r.About.Tables[0])
	}
	for _, table := range there {
		conn.DelTable(table)
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("delete %s table %s: %w", family, there[0].Name, err)
	}
	return nil
}

// NftProtocol is nft's name of a family.
func NftProtocol(family corev1.IPFamily) string {
	if family == corev1.IPv6Protocol {
		return "ip6"
	}
	return "ip"
}

// liveTable is the table that packets traverse, with the objects that a fault may delete.
type liveTable struct {
	conn  *nftables.Conn
	table *nftables.Table
	base  []*nftables.Chain
	other []*nftables.Chain // sorted by name
}

// liveNftables returns the subject's table with base chains; nil: packets traverse none.
func (r *Faults) liveNftables(family corev1.IPFamily) (*liveTable, error) {
	tables, conn, err := r.OwnNftables(family)
	if err != nil || len(tables) == 0 {
		return nil, err
	}
	all, err := conn.ListChainsOfTableFamily(tables[0].Family)
	if err != nil {
		return nil, fmt.Errorf("%s chains of nftables: %w", family, err)
	}
	slices.SortFunc(all, func(a, b *nftables.Chain) int { return cmp.Compare(a.Name, b.Name) })
	for _, table := range tables {
		l := &liveTable{conn: conn, table: table}
		for _, chain := range all {
			switch {
			case chain.Table.Name != table.Name:
			case chain.Hooknum != nil:
				l.base = append(l.base, chain)
			default:
				l.other = append(l.other, chain)
			}
		}
		if len(l.base) > 0 {
			return l, nil
		}
	}
	return nil, nil
}

// liveTables returns the tables of all families, or an error if one is missing.
func (r *Faults) liveTables() (map[corev1.IPFamily]*liveTable, error) {
	if err := netns.Guard(); err != nil {
		return nil, err
	}
	lives := map[corev1.IPFamily]*liveTable{}
	for _, family := range r.Families {
		l, err := r.liveNftables(family)
		if err != nil {
			return nil, err
		}
		if l == nil {
			return nil, fmt.Errorf("%s table %s: none has base chains, so that packets traverse none", family, r.About.Tables[0])
		}
		lives[family] = l
	}
	return lives, nil
}

// watchedNftables reports what the traversed table lacks. It reads the table only after a commit.
func (r *Faults) watchedNftables(stillMissing func(corev1.IPFamily, *liveTable) (string, error)) func() (string, error) {
	var last uint64
	var answer string
	return func() (string, error) {
		stamp, err := kernel.Stamp(kernel.Nft, r.Families[0], "")
		if err != nil || stamp == last {
			return answer, err
		}
		answer = ""
		for _, family := range r.Families {
			l, err := r.liveNftables(family)
			switch {
			case err != nil:
				return "", err
			case l == nil:
				answer = fmt.Sprintf("%s: packets traverse no table of the subject", family)
			default:
				if answer, err = stillMissing(family, l); err != nil {
					return "", err
				}
			}
			if answer != "" {
				break
			}
		}
		last = stamp
		return answer, nil
	}
}

func (r *Faults) flushedNftables(ctx context.Context, f *scenarios.Fault, name string) error {
	lives, err := r.liveTables()
	if err != nil {
		return err
	}
	began := r.Clock.Now() // before the flush: the subject may detect it at once
	for _, family := range r.Families {
		if err := r.flush(ctx, family, f.Table); err != nil {
			return err
		}
	}
	d, err := r.startFault(ctx, f, name, &activeFault{began: began, stillMissing: r.watchedNftables(func(family corev1.IPFamily, now *liveTable) (string, error) {
		if n := len(lives[family].base); len(now.base) < n {
			return fmt.Sprintf("%s: table %s has %d base chains, want %d", family, now.table.Name, len(now.base), n), nil
		}
		return "", nil
	})})
	if err != nil {
		return err
	}
	r.Host.Subject.Disturbed()
	r.follow(d)
	return nil
}

// deletedNftables deletes one object from the table, in each family: a base chain with its rules, the rules of another
// chain, or an element.
func (r *Faults) deletedNftables(ctx context.Context, f *scenarios.Fault, name string, lot *rand.Rand) error {
	lives, err := r.liveTables()
	if err != nil {
		return err
	}
	type back func(*liveTable) (string, error)
	backs := map[corev1.IPFamily]back{}
	var what []string
	began := r.Clock.Now() // before the deletion: the subject may detect it at once
	for _, family := range r.Families {
		var text string
		var stillMissing back
		switch l := lives[family]; f.Object {
		case "jump":
			text, stillMissing, err = takeBase(l, lot)
		case "chain":
			text, stillMissing, err = takeRules(family, l, lot)
		default:
			var taken kernel.NftElement
			taken, text, stillMissing, err = takeElement(family, l, lot)
			stillMissing = r.unlessChanged(taken, stillMissing)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", family, err)
		}
		backs[family] = stillMissing
		what = append(what, text)
	}
	d, err := r.startFault(ctx, f, name, &activeFault{began: began, stillMissing: r.watchedNftables(func(family corev1.IPFamily, now *liveTable) (string, error) {
		return backs[family](now)
	})})
	if err != nil {
		return err
	}
	r.note(d, "%s", strings.Join(what, "; "))
	r.Host.Subject.Disturbed()
	r.follow(d)
	return nil
}

func takeBase(l *liveTable, lot *rand.Rand) (string, func(*liveTable) (string, error), error) {
	chain := l.base[lot.IntN(len(l.base))]
	l.conn.FlushChain(chain)
	l.conn.DelChain(chain)
	return "deleted base chain " + chain.Name, func(now *liveTable) (string, error) {
		if len(now.base) < len(l.base) {
			return fmt.Sprintf("table %s has %d base chains, want %d", now.table.Name, len(now.base), len(l.base)), nil
		}
		return "", nil
	}, l.conn.Flush()
}

// takeRules flushes a chain. It is repaired when it has rules again, or is deleted: backends create and delete chains.
func takeRules(family corev1.IPFamily, l *liveTable, lot *rand.Rand) (string, func(*liveTable) (string, error), error) {
	n, err := kernel.OpenNftables()
	if err != nil {
		return "", nil, err
	}
	defer n.Close()
	tally, err := n.RulesByChain(family, l.table.Name)
	if err != nil {
		return "", nil, err
	}
	chains := slices.DeleteFunc(slices.Clone(l.other), func(c *nftables.Chain) bool { return tally[c.Name] == 0 })
	if len(chains) == 0 {
		return "", nil, fmt.Errorf("table %s has no chain with rules", l.table.Name)
	}
	chain := chains[lot.IntN(len(chains))]
	had := tally[chain.Name]
	l.conn.FlushChain(chain)
	return fmt.Sprintf("flushed chain %s of %d rules", chain.Name, had), func(now *liveTable) (string, error) {
		n, err := kernel.OpenNftables()
		if err != nil {
			return "", err
		}
		defer n.Close()
		tally, err := n.RulesByChain(family, now.table.Name)
		if has, there := tally[chain.Name]; err == nil && there && has == 0 {
			return fmt.Sprintf("chain %s has 0 rules, want %d", chain.Name, had), nil
		}
		return "", err
	}, l.conn.Flush()
}

// unlessChanged ends the wait for a deleted element once a Service of its addresses has changed: the element may not have
// to come back. Package visible checks the Service's endpoints anyway.
func (r *Faults) unlessChanged(taken kernel.NftElement, stillMissing func(*liveTable) (string, error)) func(*liveTable) (string, error) {
	owners, since := owners(r.World.Objects(), taken), r.Clock.Now()
	return func(now *liveTable) (string, error) {
		if slices.ContainsFunc(owners, func(name types.NamespacedName) bool { return r.touchedSince(name, since) }) {
			return "", nil
		}
		return stillMissing(now)
	}
}

// owners returns the Services of which an element has an address: their own, or an endpoint's.
func owners(o *sim.Objects, e kernel.NftElement) (names []types.NamespacedName) {
	holds := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(text string) bool {
			addr, ok := sim.ParseAddr(text)
			return ok && (bytes.Contains(e.Key, addr.AsSlice()) || bytes.Contains(e.Data, addr.AsSlice()))
		})
	}
	for _, svc := range o.Services {
		if holds(svc.Spec.ClusterIPs...) || holds(svc.Spec.ExternalIPs...) ||
			slices.ContainsFunc(svc.Status.LoadBalancer.Ingress, func(i corev1.LoadBalancerIngress) bool { return holds(i.IP) }) {
			names = append(names, types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name})
		}
	}
	for _, slice := range o.Slices {
		if slices.ContainsFunc(slice.Endpoints, func(ep discoveryv1.Endpoint) bool { return holds(ep.Addresses...) }) {
			names = append(names, types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]})
		}
	}
	return names
}

// takeElement deletes an element of a set or map that packets do not update.
func takeElement(family corev1.IPFamily, l *liveTable, lot *rand.Rand) (taken kernel.NftElement, text string, stillMissing func(*liveTable) (string, error), err error) {
	sets, err := l.conn.GetSets(l.table)
	if err != nil {
		return taken, "", nil, fmt.Errorf("sets of table %s: %w", l.table.Name, err)
	}
	sets = slices.DeleteFunc(sets, func(s *nftables.Set) bool { return s.Anonymous || s.HasTimeout || s.Dynamic || s.Interval })
	slices.SortFunc(sets, func(a, b *nftables.Set) int { return cmp.Compare(a.Name, b.Name) })
	n, err := kernel.OpenNftables()
	if err != nil {
		return taken, "", nil, err
	}
	defer n.Close()
	for len(sets) > 0 {
		i := lot.IntN(len(sets))
		set := sets[i]
		elements, err := n.Elements(family, l.table.Name, set.Name)
		if err != nil {
			return taken, "", nil, err
		}
		if len(elements) == 0 {
			sets = slices.Delete(sets, i, i+1)
			continue
		}
		slices.SortFunc(elements, func(a, b kernel.NftElement) int { return slices.Compare(a.Key, b.Key) })
		taken = elements[lot.IntN(len(elements))]
		key := taken.Key
		if err := l.conn.SetDeleteElements(set, []nftables.SetElement{{Key: key}}); err != nil {
			return taken, "", nil, err
		}
		stillMissing = func(now *liveTable) (string, error) {
			n, err := kernel.OpenNftables()
			if err != nil {
				return "", err
			}
			defer n.Close()
			_, there, err := n.Element(family, now.table.Name, set.Name, key)
			if there || err != nil {
				return "", err
			}
			return fmt.Sprintf("set %s lacks element %x", set.Name, key), nil
		}
		return taken, "deleted element " + hex.EncodeToString(key) + " of " + set.Name, stillMissing, l.conn.Flush()
	}
	return taken, "", nil, fmt.Errorf("table %s has no set with elements", l.table.Name)
}
