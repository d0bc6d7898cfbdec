package invariants

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"synclab/bench/mirror"
	"synclab/bench/verify/walk"
	"synclab/proxier"
	"synclab/proxier/iptables"
	"synclab/proxier/nftables"
	"synclab/proxier/plan"
	"synclab/sim"
)

// expected is the result of a fresh full sync of the same objects.
type expected struct {
	saved map[corev1.IPFamily]Saved
	nft   map[corev1.IPFamily]*NftTable
	rules map[corev1.IPFamily]*walk.Rules
}

// expect renders the objects once, and caches the result.
func (e *Evidence) expect(ctx context.Context) (*expected, error) {
	if e.expected == nil {
		x, err := e.closest(ctx)
		if err != nil {
			return nil, err
		}
		e.expected = x
	}
	return e.expected, nil
}

// closest renders for the detected machine and for machines without some features. The proxier stops using a match that
// the kernel rejects in spite of detection (k/k#142068), separately in each family. For each family, the rendered rules
// closest to the kernel's count.
func (e *Evidence) closest(ctx context.Context) (*expected, error) {
	machines := []proxier.Machine{e.Options.Machine}
	if e.Options.Machine.Accounting && e.Subject.Iptables() {
		machines = append(machines, e.Options.Machine)
		machines[1].Accounting = false
	}
	if e.Options.Machine.BPF && e.Subject.Tree() {
		for _, m := range slices.Clone(machines) {
			m.BPF = false
			machines = append(machines, m)
		}
	}
	var best *expected
	fewest := map[corev1.IPFamily]int{}
	for _, machine := range machines {
		x, err := e.render(ctx, machine, e.Objects)
		if err != nil {
			return nil, err
		}
		if best == nil {
			best = x
		}
		differing := 0
		for family, saved := range e.Saved {
			n := len(differences(x.saved[family], saved))
			if known, ok := fewest[family]; !ok || n < known {
				fewest[family] = n
				best.saved[family], best.rules[family] = x.saved[family], x.rules[family]
			}
			differing += fewest[family]
		}
		if differing == 0 {
			break
		}
	}
	return best, nil
}

// render returns the rules for the objects. kube-proxy's modes are compared with layout classic.
func (e *Evidence) render(ctx context.Context, machine proxier.Machine, o *sim.Objects) (*expected, error) {
	opts := e.Options
	opts.Machine, opts.Families = machine, e.Families
	opts.Backend, opts.Variant, opts.Layout = e.Subject.Backend, e.Subject.Variant, e.Subject.Layout
	if !e.Subject.Own {
		opts.Backend, opts.Layout = proxier.Iptables, iptables.Classic
		if e.Subject.Nftables() { // kube-proxy's mode nftables never answers on loopback
			opts.Config = opts.Config.DeepCopy()
			opts.Config.IPTables.LocalhostNodePorts = ptr.To(false)
		}
	}
	node := nodeOf(o, opts.NodeName)
	x := &expected{saved: map[corev1.IPFamily]Saved{}, nft: map[corev1.IPFamily]*NftTable{}, rules: map[corev1.IPFamily]*walk.Rules{}}
	if e.Subject.Own && e.Subject.Nftables() {
		return x, x.renderNftables(ctx, opts, o, node)
	}
	models, err := proxier.Render(ctx, opts, o.Services, o.Slices, node)
	if err != nil {
		return nil, fmt.Errorf("render: %w", err)
	}
	for _, m := range models {
		saved := Saved(m.Tables())
		x.saved[m.Family()] = saved
		if x.rules[m.Family()], err = saved.Compile(m.Family()); err != nil {
			return nil, fmt.Errorf("render: %w", err)
		}
	}
	return x, nil
}

func (x *expected) renderNftables(ctx context.Context, opts proxier.Options, o *sim.Objects, node *corev1.Node) error {
	var models []*nftables.Model
	opts.Model = func(family corev1.IPFamily) *nftables.Model {
		models = append(models, nftables.NewModel(family))
		return models[len(models)-1]
	}
	if _, err := proxier.Render(ctx, opts, o.Services, o.Slices, node); err != nil {
		return fmt.Errorf("render: %w", err)
	}
	for _, m := range models {
		x.nft[m.Family] = nftOfModel(m)
		rules, err := walk.CompileNftables(m.Family, &m.Table)
		if err != nil {
			return fmt.Errorf("render: %w", err)
		}
		x.rules[m.Family] = rules
	}
	return nil
}

// nodeOf returns the object of a node, or nil.
func nodeOf(o *sim.Objects, name string) *corev1.Node {
	i := slices.IndexFunc(o.Nodes, func(n *corev1.Node) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return o.Nodes[i]
}

// plan returns the desired state of the objects, computed once a family.
func (e *Evidence) plan(family corev1.IPFamily) *plan.Plan {
	if e.plans == nil {
		e.plans = map[corev1.IPFamily]*plan.Plan{}
	}
	if e.plans[family] == nil {
		on := plan.Node{Name: e.Options.NodeName}
		if n := nodeOf(e.Objects, on.Name); n != nil {
			on.Zone = n.Labels[corev1.LabelTopologyZone]
		}
		desired := mirror.New(on, family)
		desired.Load(e.Objects.Services, e.Objects.Slices, time.Unix(0, 0)) // any time will do: nothing waits
		e.plans[family] = desired.Of(family)
	}
	return e.plans[family]
}
