package fault

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/nftables"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/internal/inet"
	"synclab/proxier/kernel"
	"synclab/scenarios"
	"synclab/sim"
)

func init() {
	register(Kind{
		Name: scenarios.FaultDelete, inject: (*Faults).deleted, lasts: atOnce, shows: objectsBack, removesRules: true,
		spares:     []spare{onlyMaps, withoutFormat, oneTable},
		LosesFlows: "perhaps no rule has its Service until the repair",
	})
}

// deleted deletes one object in each family.
func (r *Faults) deleted(ctx context.Context, d *activeFault) error {
	if r.About.Nftables() {
		return r.deletedNftables(d)
	}
	d.began = r.Clock.Now()
	taken := map[tableOf]lost{}
	var places []tableOf
	for _, place := range r.placesOf(d.Table) {
		tally, err := kernel.Tally(string(r.KernelVariant()), place.family, place.table)
		if err != nil {
			return err
		}
		l, err := r.take(ctx, d.Object, place, tally, d.random)
		if err != nil {
			return err
		}
		if l.chain == "" {
			r.note(d, "%s has no such object of the subject", place)
			continue
		}
		taken[place] = l
		places = append(places, place)
	}
	if len(places) == 0 {
		return nil
	}
	d.stillMissing = r.watched(places, func(place tableOf, now map[string]int) (string, error) {
		l := taken[place]
		if !r.wanted(l, d.began) {
			return "", nil
		}
		return l.stillMissing(place, now, func(chain string) ([]string, error) { return r.rulesOf(r.Context(), place, chain) })
	})
	r.start(d)
	for _, place := range places {
		r.note(d, "%s: %s", place, taken[place].what)
	}
	r.Host.Subject.Disturbed()
	return nil
}

// lost is what a fault deleted from a chain.
type lost struct {
	chain         string
	before, after int // rules
	what          string
	// rule is the single deleted rule, and left the rest of the chain, as iptables -S prints them; nil: all rules were
	// deleted.
	rule string
	left []string
}

// stillMissing reports whether a chain is still as the fault left it. The chain was written since if it has other
// rules. If a Service's chain is gone, it is not needed any more. The number of rules is not enough: a change of the
// cluster may have removed a rule meanwhile.
func (l lost) stillMissing(place tableOf, now map[string]int, read func(chain string) ([]string, error)) (string, error) {
	n, there := now[l.chain]
	whole := n >= l.before || perService(l.chain) && (!there || n > 0 && n != l.after) || l.rule == "" && n > l.after
	if whole {
		return "", nil
	}
	if there && l.rule != "" {
		rules, err := read(l.chain)
		if err != nil {
			return "", err
		}
		if slices.Contains(rules, l.rule) || isOwn(l.chain) && len(rules) > 0 && !slices.Equal(rules, l.left) {
			return "", nil
		}
	}
	return fmt.Sprintf("%s: %s has %d rules, want %d", place, l.chain, n, l.before), nil
}

// commented matches the Service that a rule's comment names.
var commented = regexp.MustCompile(`--comment "?([^\s"/]+)/([^\s":]+)`)

// wanted reports whether a deleted rule must come back. If its Service has changed since, it may not have to. package
// visible checks the Service's endpoints anyway.
func (r *Faults) wanted(l lost, since time.Time) bool {
	m := commented.FindStringSubmatch(l.rule)
	return m == nil || !r.touchedSince(types.NamespacedName{Namespace: m[1], Name: m[2]}, since)
}

// take deletes an object chosen at random; the zero value: there is none.
func (r *Faults) take(ctx context.Context, object string, place tableOf, tally map[string]int, lot *rand.Rand) (lost, error) {
	if object == "jump" {
		jumps, err := r.jumpsIn(ctx, place, tally)
		if err != nil || len(jumps) == 0 {
			return lost{}, err
		}
		jump := jumps[lot.IntN(len(jumps))]
		return r.takeRule(ctx, place, jump.base, jump.at, "deleted "+jump.rule)
	}
	chain := drawChain(tally, lot)
	if chain == "" {
		return lost{}, nil
	}
	n := tally[chain]
	if object == "chain" {
		_, err := r.runTool(ctx, place.family, "-t", place.table, "-F", chain)
		return lost{chain: chain, before: n, what: fmt.Sprintf("flushed %s of %d rules", chain, n)}, err
	}
	at := 1 + lot.IntN(n)
	return r.takeRule(ctx, place, chain, at, fmt.Sprintf("deleted rule %d of %d of %s", at, n, chain))
}

// takeRule deletes one rule of a chain, counted from 1.
func (r *Faults) takeRule(ctx context.Context, place tableOf, chain string, at int, what string) (lost, error) {
	rules, err := r.rulesOf(ctx, place, chain)
	if err != nil {
		return lost{}, err
	}
	if at > len(rules) {
		return lost{}, fmt.Errorf("%s: %s has only %d rules now: rule %d was deleted meanwhile", place, chain, len(rules), at)
	}
	l := lost{chain: chain, before: len(rules), after: len(rules) - 1, what: what, rule: rules[at-1]}
	l.left = slices.Delete(slices.Clone(rules), at-1, at)
	_, err = r.runTool(ctx, place.family, "-t", place.table, "-D", chain, strconv.Itoa(at))
	return l, err
}

// drawChain chooses the kind of chain first, since almost all chains belong to single endpoints.
func drawChain(tally map[string]int, lot *rand.Rand) string {
	kinds := map[string][]string{}
	for chain, n := range tally {
		if !isOwn(chain) || n == 0 {
			continue
		}
		kind := "shared"
		if perService(chain) {
			kind = chain[:strings.LastIndexByte(chain, '-')]
			if strings.HasPrefix(chain, "KUBE-TREE-") {
				kind = "KUBE-TREE"
			}
		}
		kinds[kind] = append(kinds[kind], chain)
	}
	if len(kinds) == 0 {
		return ""
	}
	names := slices.Sorted(maps.Keys(kinds))
	chains := kinds[names[lot.IntN(len(names))]]
	slices.Sort(chains)
	return chains[lot.IntN(len(chains))]
}

// deletedNftables deletes one object from the table, in each family: a base chain with its rules, the rules of another
// chain, or an element.
func (r *Faults) deletedNftables(d *activeFault) error {
	lives, err := r.liveTables()
	if err != nil {
		return err
	}
	type back func(*liveTable) (string, error)
	backs := map[corev1.IPFamily]back{}
	var what []string
	d.began = r.Clock.Now() // before the deletion: the subject may detect it at once
	for _, family := range r.Families {
		var text string
		var stillMissing back
		switch l := lives[family]; d.Object {
		case "jump":
			text, stillMissing, err = takeBase(l, d.random)
		case "chain":
			text, stillMissing, err = takeRules(family, l, d.random)
		default:
			var taken kernel.NftElement
			taken, text, stillMissing, err = takeElement(family, l, d.random)
			stillMissing = r.unlessChanged(taken, stillMissing)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", family, err)
		}
		backs[family] = stillMissing
		what = append(what, text)
	}
	d.stillMissing = r.watchedNftables(func(family corev1.IPFamily, now *liveTable) (string, error) { return backs[family](now) })
	r.start(d)
	r.note(d, "%s", strings.Join(what, "; "))
	r.Host.Subject.Disturbed()
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
	tally, err := rulesByChain(family, l.table.Name)
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
		tally, err := rulesByChain(family, now.table.Name)
		if has, there := tally[chain.Name]; err == nil && there && has == 0 {
			return fmt.Sprintf("chain %s has 0 rules, want %d", chain.Name, had), nil
		}
		return "", err
	}, l.conn.Flush()
}

func rulesByChain(family corev1.IPFamily, table string) (map[string]int, error) {
	n, err := kernel.OpenNftables()
	if err != nil {
		return nil, err
	}
	defer n.Close()
	return n.RulesByChain(family, table)
}

// unlessChanged ends the wait for a deleted element once a Service of its addresses has changed: the element may not have
// to come back. An address of the cluster that no Service has any more belongs to a change that the subject has not seen
// yet, which fault relist hides. Package visible checks the Services' endpoints anyway.
func (r *Faults) unlessChanged(taken kernel.NftElement, stillMissing func(*liveTable) (string, error)) func(*liveTable) (string, error) {
	owners, since := owners(r.World.Objects(), taken), r.Clock.Now()
	shape := r.World.Shape()
	gone := len(owners) == 0 && within(taken, slices.Concat(shape.ServiceCIDRs, shape.PodCIDRs))
	return func(now *liveTable) (string, error) {
		if gone || slices.ContainsFunc(owners, func(name types.NamespacedName) bool { return r.touchedSince(name, since) }) {
			return "", nil
		}
		return stillMissing(now)
	}
}

// owners returns the Services of which an element has an address: their own, or an endpoint's.
func owners(o *sim.Objects, e kernel.NftElement) (names []types.NamespacedName) {
	holds := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(text string) bool {
			addr, ok := inet.ParseAddr(text)
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

// within reports whether an element has an address of some ranges. A register has four bytes.
func within(e kernel.NftElement, ranges []string) bool {
	for _, text := range ranges {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			continue
		}
		size := prefix.Addr().BitLen() / 8
		for _, part := range [][]byte{e.Key, e.Data} {
			for at := 0; at+size <= len(part); at += 4 {
				if addr, ok := netip.AddrFromSlice(part[at : at+size]); ok && prefix.Contains(addr) {
					return true
				}
			}
		}
	}
	return false
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
