package nftables

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"synclab/bench/verify/walk"
	"synclab/bench/verify/walk/walktest"
	"synclab/proxier/nftables/objects"
	"synclab/proxier/plan"
)

// content returns the content of a model without details that may differ between two equivalent ones: which slot an
// endpoint has, which variant a class is, and chains that nothing jumps to.
func content(t *testing.T, m *Model) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	used := map[Class]bool{}
	base := func(b string) string {
		c := Class(binary.BigEndian.Uint64([]byte(b)))
		used[c] = true
		if c.own() {
			return c.Chain()
		}
		return c.base().Chain()
	}
	for name, s := range m.Sets {
		var elements []string
		for key, e := range s.Elements {
			text := fmt.Sprintf("%x: %x %s", key, e.Value, e.Verdict.Chain)
			switch {
			case strings.HasPrefix(name, setEndpoints.String()):
				ofNode := binary.NativeEndian.Uint32([]byte(key[8:])) >= localSlots
				text = fmt.Sprintf("%x %v: %x", key[:8], ofNode, e.Value)
			case name == setClasses.String():
				continue
			case name == setLists.String():
				text = fmt.Sprintf("%x %s: %x", key[:len(key)-8], base(key[len(key)-8:]), e.Value)
			case name == setFrontends.String(), name == setNodePorts.String():
				text = fmt.Sprintf("%x: %s", key, base(string(e.Value[blankLen:])))
			}
			elements = append(elements, text)
		}
		slices.Sort(elements)
		all[name] = elements
	}
	for class := range used {
		if e, there := m.Sets[setClasses.String()].Elements[string(append64(nil, uint64(class)))]; !there || e.Verdict.Chain != class.Chain() {
			t.Fatalf("class %s has no chain", class.Chain())
		}
		if !class.own() && class.variant() > 0 {
			continue // equal to the others but for a number in them
		}
		var rules []string
		for _, rule := range m.Chains[class.Chain()].Rules {
			for _, x := range rule {
				rules = append(rules, variants.ReplaceAllString(fmt.Sprintf("%T %+v", x, reflect.Indirect(reflect.ValueOf(x))), ""))
			}
		}
		if class.own() {
			all["chain "+class.Chain()] = rules
		}
	}
	return all
}

var variants = regexp.MustCompile(`-v\d+`)

func checkCounts(t *testing.T, r *Ruleset, m *Model) {
	t.Helper()
	total, rules := r.Total(), 0
	for s := range sets {
		n := len(m.Sets[s.String()].Elements)
		if n != r.elements[s] {
			t.Fatalf("set %s has %d elements, not %d", s, n, r.elements[s])
		}
		rules += n
	}
	tally := map[string]int{}
	for name, c := range m.Chains {
		tally[name] = len(c.Rules)
		rules += len(c.Rules)
	}
	if found := driftOfRules(r.rules, r.chains, tally); found != "" {
		t.Fatal(found)
	}
	if total.Chains != len(m.Chains) || total.Rules != rules {
		t.Fatalf("%+v, not %d chains and %d rules", total, len(m.Chains), rules)
	}
}

// Partial syncs lead to the content of a full sync, whatever happened before.
func TestPartialIsFull(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	events := 0
	seeds(t, 30, func(t *testing.T, c *cluster) {
		settings := c.settings()
		r, m := loaded(t, settings, nil)
		if c.chance(0.5) {
			r.idle.bound(c.rng.IntN(5))
		}
		for range 60 {
			for range 1 + c.rng.IntN(5) {
				c.step()
				events++
			}
			r.Update(c.take())
			if err := r.Partial(m); err != nil {
				t.Fatal(err)
			}
			checkCounts(t, r, m)
			if c.chance(0.5) {
				continue // deferred deletes stay
			}
			if err := r.Partial(m); err != nil {
				t.Fatal(err)
			}
			checkCounts(t, r, m)
			fresh, full := loaded(t, settings, c.plan.Ports())
			checkCounts(t, fresh, full)
			want, have := content(t, full), content(t, m)
			for name := range want {
				if !slices.Equal(want[name], have[name]) {
					t.Fatalf("%s:\n%q, not\n%q", name, have[name], want[name])
				}
			}
			if len(want) != len(have) {
				t.Fatalf("%v, not %v", slices.Sorted(maps.Keys(have)), slices.Sorted(maps.Keys(want)))
			}
		}
	})
	t.Logf("%d events", events)
	if events < 10000 && !testing.Short() {
		t.Errorf("only %d events", events)
	}
}

// The sets in the order in which a packet reads them. The sets of the filter hooks count as old as the first one: see
// docs/design/nftables-table.md on the weaker guarantees between hooks.
var lookOrder = [][]set{
	{setFrontends, setNodePorts, setRefused, setRefusedNodePorts, setHealthChecks, setRefusalsInput, setRefusalsForward, setRefusalsOutput},
	{setClasses}, {setLists}, {setAffinity, setMembers}, endpointSets(), {setHairpin},
}

func endpointSets() (all []set) {
	for s := setEndpoints; s < sets; s++ {
		all = append(all, s)
	}
	return all
}

// torn returns the rules as a packet may meet them that is on its way during a commit. The sets that it reads first are
// the old ones, the others the new ones. The chains are old or new.
func torn(t *testing.T, before, after *Model, seen int, chains *Model) *walk.Rules {
	t.Helper()
	old := map[string]bool{}
	for _, group := range lookOrder[:seen] {
		for _, s := range group {
			old[s.String()] = true
		}
	}
	// A new chain is empty for packets that entered before. A deleted chain still exists for them.
	both := objects.Table{Name: chains.Name, Chains: maps.Clone(chains.Chains), Sets: map[string]*objects.Set{}}
	for name, c := range before.Chains {
		if both.Chains[name] == nil {
			both.Chains[name] = c
		}
	}
	for name := range after.Chains {
		if both.Chains[name] == nil {
			both.Chains[name] = &objects.Chain{}
		}
	}
	for name := range chains.Sets {
		both.Sets[name] = after.Sets[name]
		if old[name] {
			both.Sets[name] = before.Sets[name]
		}
	}
	rules, err := walk.CompileNftables(before.Family, &both)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// At any moment a packet ends as in the old or the new desired state. A client with torn affinity may get any endpoint.
// With several events in one sync, a packet that read a Service port from the frontend's old class meets that port's
// new endpoints.
func TestNoPacketInBetween(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	transitions, transactions, looks := 0, 0, 0
	seeds(t, 4, func(t *testing.T, c *cluster) {
		settings := c.settings()
		r, m := loaded(t, settings, nil)
		r.idle.bound(1)
		var states []*Model
		m.Committed = func(m *Model) { states = append(states, m.Clone()) }
		for round := range 12 {
			several := round%3 == 0
			states = append(states[:0:0], m.Clone())
			before := slices.Clone(c.plan.Ports())
			for range 1 + c.rng.IntN(4) {
				if c.step(); !several {
					break
				}
			}
			r.Update(c.take())
			if err := r.Partial(m); err != nil {
				t.Fatal(err)
			}
			transitions++
			transactions += len(states) - 1
			packets := c.packets(before, 50)
			first, last := walk.New(rulesOf(t, states[0]), c.world()), walk.New(rulesOf(t, m), c.world())
			known := targetsOf(append(before, c.plan.Ports()...))
			wanted := make([][]walk.Result, len(packets))
			for i := range packets {
				p := packets[i]
				wanted[i] = []walk.Result{walked(t, first, &p), walked(t, last, &p)}
				if p.After != nil {
					p.After = nil
					wanted[i] = append(wanted[i], walked(t, first, &p), walked(t, last, &p))
				}
			}
			eachTorn(t, states, func(what string, rules *walk.Rules) {
				w := walk.New(rules, c.world())
				for i := range packets {
					v := walked(t, w, &packets[i])
					looks++
					if v.Within(wanted[i]...) || several && allTo(v, known) && allTo(wanted[i][0], known) {
						continue
					}
					t.Fatalf("%s:\n%s: %s, neither of\n%s", what, &packets[i], v, wanted[i])
				}
			})
		}
	})
	t.Logf("%d transitions, %d transactions, %d packets", transitions, transactions, looks)
}

// eachTorn calls f with all rules that packets may meet during the commits between some states. A packet that runs a
// chain's new rules reads only new sets after that.
func eachTorn(t *testing.T, states []*Model, f func(what string, rules *walk.Rules)) {
	const untilChain = 2 // groups of sets that are read before a class's chain
	for n := 1; n < len(states); n++ {
		before, after := states[n-1], states[n]
		for seen := range len(lookOrder) + 1 {
			what := fmt.Sprintf("transaction %d of %d, %d groups of sets seen before", n, len(states)-1, seen)
			f(what+", old chains", torn(t, before, after, seen, before))
			if seen <= untilChain {
				f(what+", new chains", torn(t, before, after, seen, after))
			}
		}
	}
}

// allTo reports whether a packet certainly goes to some endpoint.
func allTo(v walk.Result, endpoints map[netip.AddrPort]bool) bool {
	return !slices.ContainsFunc(v.Outcomes, func(o walk.Outcome) bool { return !endpoints[o.To] })
}

func targetsOf(ports []*plan.ServicePort) map[netip.AddrPort]bool {
	all := map[netip.AddrPort]bool{}
	for _, p := range ports {
		for _, ep := range p.Reachable {
			all[ep.Addr] = true
		}
	}
	return all
}

// Replacing an endpoint writes one element of endpoints, and nothing that refers to it.
func TestReplacedEndpoint(t *testing.T) {
	p, q := clusterPort(1, 10), clusterPort(1, 10)
	q.Cluster = append(slices.Clone(q.Cluster[:9]), endpoint(99))
	for _, ep := range slices.Concat(p.Cluster, q.Cluster) {
		ep.Local = true
	}
	r, m := loaded(t, plainSettings, []*plan.ServicePort{p})
	before := m.Clone()
	r.Update(plan.Delta{Changed: []*plan.ServicePort{q}})
	if err := r.Partial(m); err != nil {
		t.Fatal(err)
	}
	for s := range sets {
		changed := 0
		for key, e := range m.Sets[s.String()].Elements {
			if old, there := before.Sets[s.String()].Elements[key]; !there || !bytes.Equal(old.Value, e.Value) {
				changed++
			}
		}
		want := 0
		if s == setEndpoints || s == setHairpin {
			want = 1
		}
		if changed != want {
			t.Errorf("%s: %d elements changed, not %d", s, changed, want)
		}
	}
}

// A Service that had any number of endpoints leaves a limited number of chains and of elements that refer to them.
func TestIdleClasses(t *testing.T) {
	const most = 200
	var ports []*plan.ServicePort
	e := newEncoder(plainSettings.Family, tableNames[0], taken)
	r := NewRuleset(plainSettings)
	if err := r.Load(e, nil); err != nil {
		t.Fatal(err)
	}
	r.idle.bound(most)
	made := len(r.chains)
	change := func(i, all, local int) {
		p := clusterPort(i, all)
		p.ExternalPolicyLocal, p.NodePort, p.Local = true, uint16(30000+i), p.Cluster[:local]
		r.Update(plan.Delta{Changed: []*plan.ServicePort{p}})
		if err := r.Partial(e); err != nil {
			t.Fatal(err)
		}
		ports = append(ports, p)
	}
	for i := range 100 { // in use all the while
		change(1+i, 40+i, 1)
	}
	used, worst, seen := len(r.chains), 0, map[[2]int]bool{}
	for n := 1; n <= 60; n++ {
		for m := range min(n, 10) {
			change(0, n, m)
			seen[[2]int{n, m}] = true
			worst = max(worst, len(r.chains))
		}
	}
	if len(seen) < 500 || worst > used+2*most {
		t.Errorf("%d chains after %d pairs, %d were made with the table, %d are in use", worst, len(seen), made, used-made)
	}
	for _, p := range ports[:100] {
		for _, class := range []Class{newClass(kindCluster, len(p.Cluster), 0, 0), newClass(kindNodePortLocal, len(p.Cluster), 1, 0)} {
			if _, there := r.chains[class]; !there {
				t.Errorf("class %s is in use and its chain is missing", class.Chain())
			}
		}
	}
}

// While a new table and the old one are both at work, packets end as in one of them. The kernel calls the newer one
// first: of chains with the same priority, the one registered last.
func TestBothTables(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	packets := 0
	seeds(t, 5, func(t *testing.T, c *cluster) {
		settings := c.settings()
		for range 4 {
			for range 10 {
				c.step()
			}
			c.take()
			before := slices.Clone(c.plan.Ports())
			_, old := loaded(t, settings, before)
			for range 5 {
				c.step()
			}
			c.take()
			_, fresh := loaded(t, settings, c.plan.Ports())
			fresh.Name = tableNames[1]
			rules, err := walk.CompileNftables(c.family, &fresh.Table, &old.Table)
			if err != nil {
				t.Fatal(err)
			}
			both := walk.New(rules, c.world())
			first, last := walk.New(rulesOf(t, old), c.world()), walk.New(rulesOf(t, fresh), c.world())
			for _, p := range c.packets(before, 50) {
				packets++
				wanted := []walk.Result{walked(t, first, &p), walked(t, last, &p)}
				v := walked(t, both, &p)
				if p.After != nil {
					p.After = nil // the earlier packet may have met the other table
					wanted = append(wanted, walked(t, first, &p), walked(t, last, &p))
				}
				if v.Within(wanted...) {
					continue
				}
				// One table may translate, and the other one masquerade because the endpoint was here, or is now.
				for i := range wanted {
					wanted[i] = walktest.WithoutHairpin(wanted[i], p.Source.Addr())
				}
				if !walktest.WithoutHairpin(v, p.Source.Addr()).Within(wanted...) {
					t.Fatalf("%s: %s, neither of\n%s", &p, v, wanted)
				}
			}
		}
	})
	t.Logf("%d packets", packets)
}
