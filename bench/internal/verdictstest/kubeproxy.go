package verdictstest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/verify/conform"
	"synclab/bench/verify/walk"
	"synclab/proxier"
	"synclab/proxier/iptables/rule"
	"synclab/sim"
)

// errUnexplained means that no entry of docs/differences.md predicts a verdict.
var errUnexplained = errors.New("no entry of docs/differences.md predicts it")

// entryOrder: if several Services have the same address, kube-proxy chooses at random at every sync which one gets it.
const entryOrder = "service-order"

// theirs has kube-proxy's rules of a state, and the data to explain them.
type theirs struct {
	Ruleset
	saved map[corev1.IPFamily][]byte // output of iptables-save; nil in mode nftables
	live  *conform.Live
	state *State
	// guesses are rules that explain differences, made on demand.
	guesses map[string]map[corev1.IPFamily]*walk.Rules
}

// readIptables reads kube-proxy's rules in mode iptables.
func readIptables(live *conform.Live, s *State) (*theirs, error) {
	k := &theirs{
		Ruleset: Ruleset{Subject: "kube-proxy/iptables", Rules: map[corev1.IPFamily]*walk.Rules{}},
		saved:   map[corev1.IPFamily][]byte{}, live: live, state: s, guesses: map[string]map[corev1.IPFamily]*walk.Rules{},
	}
	for _, family := range both {
		text, err := live.Saved(family)
		if err != nil {
			return nil, err
		}
		k.saved[family] = text
		if k.Rules[family], err = walk.ParseIptables(family, text); err != nil {
			return nil, fmt.Errorf("%s: %w", k.Subject, err)
		}
	}
	return k, nil
}

// readNftables reads kube-proxy's rules in mode nftables.
func readNftables(live *conform.Live, s *State) (*theirs, error) {
	k := &theirs{
		Ruleset: Ruleset{Subject: "kube-proxy/nftables", Rules: map[corev1.IPFamily]*walk.Rules{}},
		live:    live, state: s, guesses: map[string]map[corev1.IPFamily]*walk.Rules{},
	}
	err := live.Do(func() (err error) {
		for _, family := range both {
			if k.Rules[family], err = walk.ReadNftables(family, "kube-proxy"); err != nil {
				return fmt.Errorf("%s: %w", k.Subject, err)
			}
		}
		return nil
	})
	return k, err
}

// belief is a possible view of kube-proxy on the cluster, and the entry that predicts this view.
type belief struct {
	entry   string
	what    string // distinguishes several views of the entry
	objects *sim.Objects
}

// beliefs yields views that could change the verdict on a packet, first those closest to the real cluster.
func (k *theirs) beliefs(d *Difference) iter.Seq[belief] {
	return func(yield func(belief) bool) {
		o := k.state.Objects
		remembered := &sim.Objects{Services: o.Services, Nodes: o.Nodes, Slices: k.live.Remembered()}
		if !yield(belief{entryOrder, "", o}) || !yield(belief{conform.EntryMoved, "", remembered}) {
			return
		}
		claimers := k.claimers(d)
		for _, service := range claimers {
			n := 0
			for order := range conform.Orders(remembered.Slices, d.Family, service) {
				n++
				what := fmt.Sprintf("%s %s %d", d.Family, service, n)
				if !yield(belief{conform.EntryTwice, what, &sim.Objects{Services: o.Services, Nodes: o.Nodes, Slices: order}}) {
					return
				}
			}
		}
		if k.saved == nil && len(claimers) > 1 { // in mode iptables, the order is visible in the rules
			for _, service := range claimers {
				if !yield(belief{entryOrder, service, &sim.Objects{Services: oldest(o.Services, service), Nodes: o.Nodes, Slices: remembered.Slices}}) {
					return
				}
				if !yield(belief{modeOwner, service + " of " + strings.Join(claimers, " "), &sim.Objects{Services: withoutOthers(o.Services, claimers, service), Nodes: o.Nodes, Slices: remembered.Slices}}) {
					return
				}
			}
		}
		if !k.live.ZoneChanged() {
			yield(belief{conform.EntryZone, "", &sim.Objects{Services: o.Services, Nodes: conform.WithoutZones(o.Nodes), Slices: remembered.Slices}})
		}
	}
}

// oldest returns the Services with one made the oldest, so that it wins contested addresses.
func oldest(services []*corev1.Service, name string) []*corev1.Service {
	all := slices.Clone(services)
	for i, svc := range all {
		if svc.Namespace+"/"+svc.Name == name {
			all[i] = svc.DeepCopy()
			all[i].CreationTimestamp.Time = time.Unix(1, 0)
		}
	}
	return all
}

// withoutOthers removes all claimers except one.
func withoutOthers(services []*corev1.Service, claimers []string, one string) []*corev1.Service {
	return slices.DeleteFunc(slices.Clone(services), func(svc *corev1.Service) bool {
		name := svc.Namespace + "/" + svc.Name
		return name != one && slices.Contains(claimers, name)
	})
}

// explain returns the entry that predicts kube-proxy's verdict on a packet. Synclab's rules for the entry's view of the
// cluster must give the same verdict, or, in mode nftables, one that differs as the modes do.
func (k *theirs) explain(ctx context.Context, d *Difference) (string, error) {
	world, err := k.state.World()
	if err != nil {
		return "", err
	}
	for b := range k.beliefs(d) {
		rules, err := k.guess(ctx, b.entry+" "+b.what, b.objects)
		if err != nil {
			return "", err
		}
		w := walk.New(rules[d.Family], world)
		v, err := w.Walk(&d.Packet)
		if err != nil {
			return "", err
		}
		if v.Equal(d.Verdicts[0]) {
			return b.entry, nil
		}
		if k.saved == nil {
			entry, err := k.modeEntry(w, world, d, v)
			if entry != "" || err != nil {
				return entry, err
			}
		}
	}
	return "", errUnexplained
}

// claimers returns the Services that may get a packet, or the earlier packet of its client.
func (k *theirs) claimers(d *Difference) []string {
	destinations := []netip.AddrPort{d.Packet.Destination}
	if d.Packet.After != nil {
		destinations = append(destinations, d.Packet.After.Via)
	}
	var names []string
	for _, f := range walk.ObjectFrontends(d.Family, k.state.Objects.Services, nil) {
		for _, to := range destinations {
			claims := slices.Contains(f.Addresses, to.Addr()) && f.Port == to.Port() || f.NodePort == to.Port()
			if claims && f.Protocol == d.Packet.Protocol && !slices.Contains(names, f.Service) {
				names = append(names, f.Service)
			}
		}
	}
	return names
}

// guess renders the rules for a possible view of kube-proxy, with shared chains in kube-proxy's order.
func (k *theirs) guess(ctx context.Context, name string, believed *sim.Objects) (map[corev1.IPFamily]*walk.Rules, error) {
	if rules, made := k.guesses[name]; made {
		return rules, nil
	}
	s := *k.state
	s.Objects = believed
	o, err := s.options(Classic, &models{})
	if err != nil {
		return nil, err
	}
	node, err := s.node()
	if err != nil {
		return nil, err
	}
	made, err := proxier.Render(ctx, o, believed.Services, believed.Slices, node)
	if err != nil {
		return nil, err
	}
	rules := map[corev1.IPFamily]*walk.Rules{}
	for _, m := range made {
		if k.saved != nil {
			other, err := rule.ParseTables(m.Family(), k.saved[m.Family()])
			if err != nil {
				return nil, err
			}
			orderAs(m.Tables(), other)
		}
		if rules[m.Family()], err = walk.CompileIptables(m.Family(), m.Tables()); err != nil {
			return nil, err
		}
	}
	k.guesses[name] = rules
	return rules, nil
}

// orderAs sorts the rules of shared chains in the order of another ruleset. Rules missing there come first.
func orderAs(mine, other rule.Tables) {
	for table, chains := range mine {
		for name, c := range chains {
			if !shared(name) || other[table][name] == nil {
				continue
			}
			place := map[string]int{}
			for i, r := range other[table][name].Rules {
				place[r.Line(name)] = i
			}
			at := func(r rule.Rule) int {
				if i, there := place[r.Line(name)]; there {
					return i
				}
				return -1 // before the jump to the NodePorts, which is last
			}
			slices.SortStableFunc(c.Rules, func(a, b rule.Rule) int { return at(a) - at(b) })
		}
	}
}

// shared reports whether a chain has rules of several Services.
func shared(chain string) bool {
	switch chain {
	case "KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-EXTERNAL-SERVICES", "KUBE-PROXY-FIREWALL":
		return true
	}
	return false
}
