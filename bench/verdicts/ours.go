package verdicts

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"synclab/bench/conform"
	"synclab/proxier"
	"synclab/proxier/iptables"
	"synclab/proxier/walk"
	"synclab/sim"
)

// State is one moment of a cluster in a setting.
type State struct {
	Setting conform.Setting
	Node    string // that the proxiers run on
	Machine proxier.Machine
	Objects *sim.Objects
}

// node is the object of the proxiers' node.
func (s *State) node() (*corev1.Node, error) {
	i := slices.IndexFunc(s.Objects.Nodes, func(n *corev1.Node) bool { return n.Name == s.Node })
	if i < 0 {
		return nil, fmt.Errorf("node %s is not there", s.Node)
	}
	return s.Objects.Nodes[i], nil
}

// options of our proxier, but for where its rules go.
func (s *State) options(layout iptables.Layout) (proxier.Options, error) {
	node, err := s.node()
	if err != nil {
		return proxier.Options{}, err
	}
	o := s.Setting.Options(node, s.Machine)
	o.Layout = layout
	return o, nil
}

// World is what the node's addresses are.
func (s *State) World() (walk.World, error) {
	o, err := s.options("")
	return walk.World{Local: o.NodeIPs}, err
}

// Packets of the state's population.
func (s *State) Packets(family corev1.IPFamily, seed uint64) ([]walk.Packet, error) {
	world, err := s.World()
	if err != nil {
		return nil, err
	}
	p := walk.Population{
		Frontends: walk.ObjectFrontends(family, s.Objects.Services, s.Objects.Slices), World: world, Seed: seed,
	}
	return p.Packets(family == corev1.IPv4Protocol), nil
}

// Render gives the rules that a full sync makes of a state.
func Render(ctx context.Context, s *State, layout iptables.Layout) (Ruleset, error) {
	r := Ruleset{Subject: string(layout)}
	o, err := s.options(layout)
	if err != nil {
		return r, err
	}
	node, err := s.node()
	if err != nil {
		return r, err
	}
	models, err := proxier.Render(ctx, o, s.Objects.Services, s.Objects.Slices, node)
	if err != nil {
		return r, fmt.Errorf("%s: %w", layout, err)
	}
	r.Rules, err = modelRules(models)
	return r, err
}

func modelRules(models []*iptables.Model) (map[corev1.IPFamily]*walk.Rules, error) {
	all := map[corev1.IPFamily]*walk.Rules{}
	for _, m := range models {
		var text bytes.Buffer
		if err := m.Save(&text); err != nil {
			return nil, err
		}
		rules, err := walk.ParseIptables(m.Family(), text.Bytes())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Family(), err)
		}
		all[m.Family()] = rules
	}
	return all, nil
}

// Follower is our proxier at work on a cluster, with partial syncs, into models of the tables.
type Follower struct {
	layout  iptables.Layout
	cluster *sim.Cluster
	proxier *proxier.Proxier
	models  []*iptables.Model
	end     context.CancelFunc
}

// Follow starts a proxier on what there is in a cluster. The state says how; its objects are not looked at, but for the
// node.
func Follow(ctx context.Context, s *State, layout iptables.Layout, cluster *sim.Cluster) (*Follower, error) {
	o, err := s.options(layout)
	if err != nil {
		return nil, err
	}
	f := &Follower{layout: layout, cluster: cluster}
	o.Tables = func(family corev1.IPFamily) (iptables.Tables, error) {
		f.models = append(f.models, iptables.NewModel(family))
		return f.models[len(f.models)-1], nil
	}
	if f.proxier, err = proxier.New(o); err != nil {
		return nil, fmt.Errorf("%s: %w", layout, err)
	}
	ctx, f.end = context.WithCancel(ctx)
	if err := f.proxier.Watch(ctx, cluster.NewInformers()); err != nil {
		f.end()
		return nil, fmt.Errorf("%s: %w", layout, err)
	}
	return f, nil
}

// Rules syncs what has happened and gives the rules.
func (f *Follower) Rules(ctx context.Context) (Ruleset, error) {
	r := Ruleset{Subject: string(f.layout) + ", partial syncs"}
	services, eps := f.cluster.Version(&corev1.Service{}), f.cluster.Version(&discoveryv1.EndpointSlice{})
	if err := f.proxier.WaitSeen(ctx, services, eps); err != nil {
		return r, fmt.Errorf("%s: %w", r.Subject, err)
	}
	if err := f.proxier.SyncNow(ctx); err != nil {
		return r, fmt.Errorf("%s: %w", r.Subject, err)
	}
	var err error
	r.Rules, err = modelRules(f.models)
	return r, err
}

// Stop ends it.
func (f *Follower) Stop() { f.end() }
