package verdictstest

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"synclab/bench/subject"
	"synclab/bench/verify/conform"
	"synclab/bench/verify/walk"
	"synclab/proxier"
	"synclab/proxier/config"
	"synclab/proxier/iptables"
	"synclab/proxier/nftables"
	"synclab/sim"
	"synclab/sim/api"
)

// State is the state of a cluster in a setting.
type State struct {
	Setting conform.Setting
	Node    string // the node that the proxiers run on
	Machine proxier.Machine
	Objects *sim.Objects
	// Held are further addresses of the node, such as those of load balancers that run on it.
	Held []netip.Addr
}

// node returns the object of the proxiers' node.
func (s *State) node() (*corev1.Node, error) {
	i := slices.IndexFunc(s.Objects.Nodes, func(n *corev1.Node) bool { return n.Name == s.Node })
	if i < 0 {
		return nil, fmt.Errorf("node %s is not in the cluster", s.Node)
	}
	return s.Objects.Nodes[i], nil
}

// Kind is a kind of ruleset.
type Kind string

// The kinds that must give the same verdicts: the iptables layouts, and nftables.
const (
	Classic  Kind = "classic"
	Tree     Kind = "tree"
	Nftables Kind = "nftables"
)

// Kinds lists all kinds.
var Kinds = []Kind{Classic, Tree, Nftables}

// options returns options of Synclab's proxier. Its rules go into new models in m.
func (s *State) options(kind Kind, m *models) (proxier.Options, error) {
	node, err := s.node()
	if err != nil {
		return proxier.Options{}, err
	}
	o := s.Setting.Options(node, s.Machine)
	if kind == Nftables {
		same := config.SettingsOf(o.Config, config.ModeIPTables)
		o.Config = o.Config.DeepCopy()
		config.Change(o.Config, func(s *config.Settings) { *s = same })
		o.Backend = proxier.Nftables
		o.Model = func(family corev1.IPFamily) *nftables.Model {
			m.nftables = append(m.nftables, nftables.NewModel(family))
			return m.nftables[len(m.nftables)-1]
		}
		return o, nil
	}
	o.Layout = iptables.Layout(kind)
	o.Tables = func(family corev1.IPFamily) (iptables.Tables, error) {
		m.iptables = append(m.iptables, iptables.NewModel(family))
		return m.iptables[len(m.iptables)-1], nil
	}
	return o, nil
}

// models are models of the kernel's tables, one for each family, of one kind.
type models struct {
	iptables []*iptables.Model
	nftables []*nftables.Model
}

// rules compiles the models.
func (m *models) rules() (map[corev1.IPFamily]*walk.Rules, error) {
	all := map[corev1.IPFamily]*walk.Rules{}
	for _, m := range m.nftables {
		rules, err := walk.CompileNftables(m.Family, &m.Table)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Family, err)
		}
		all[m.Family] = rules
	}
	for _, m := range m.iptables {
		rules, err := walk.CompileIptables(m.Family(), m.Tables())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Family(), err)
		}
		all[m.Family()] = rules
	}
	return all, nil
}

// World returns the node's addresses.
func (s *State) World() (walk.NodeAddresses, error) {
	node, err := s.node()
	if err != nil {
		return walk.NodeAddresses{}, err
	}
	return walk.NodeAddresses{Local: slices.Concat(subject.DeviceAddresses(s.Setting.Config, node), s.Held)}, nil
}

// Packets returns the state's packet set.
func (s *State) Packets(family corev1.IPFamily, seed uint64) ([]walk.Packet, error) {
	world, err := s.World()
	if err != nil {
		return nil, err
	}
	p := walk.PacketSet{
		Frontends: walk.ObjectFrontends(family, s.Objects.Services, s.Objects.Slices), World: world, Seed: seed,
	}
	return p.Packets(family == corev1.IPv4Protocol), nil
}

// Render returns the rules of a full sync.
func Render(ctx context.Context, s *State, kind Kind) (Ruleset, error) {
	r := Ruleset{Subject: string(kind)}
	var m models
	o, err := s.options(kind, &m)
	if err != nil {
		return r, err
	}
	node, err := s.node()
	if err != nil {
		return r, err
	}
	made, err := proxier.Render(ctx, o, s.Objects.Services, s.Objects.Slices, node)
	if err != nil {
		return r, fmt.Errorf("%s: %w", kind, err)
	}
	if kind != Nftables {
		m.iptables = made
	}
	r.Rules, err = m.rules()
	return r, err
}

// Follower is Synclab's proxier on a cluster, with partial syncs, writing into models of the tables.
type Follower struct {
	kind    Kind
	cluster *api.Cluster
	proxier *proxier.Proxier
	models  models
	end     context.CancelFunc
}

// Follow starts a proxier on a cluster. It takes the options from the state, and only the node from the state's
// objects.
func Follow(ctx context.Context, s *State, kind Kind, cluster *api.Cluster) (*Follower, error) {
	f := &Follower{kind: kind, cluster: cluster}
	o, err := s.options(kind, &f.models)
	if err != nil {
		return nil, err
	}
	if f.proxier, err = proxier.New(o); err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	ctx, f.end = context.WithCancel(ctx)
	if err := f.proxier.Watch(ctx, cluster.NewInformers()); err != nil {
		f.end()
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	return f, nil
}

// Rules syncs all changes so far and returns the rules.
func (f *Follower) Rules(ctx context.Context) (Ruleset, error) {
	r := Ruleset{Subject: string(f.kind) + ", partial syncs"}
	services, eps := f.cluster.Version(&corev1.Service{}), f.cluster.Version(&discoveryv1.EndpointSlice{})
	if err := f.proxier.WaitSeen(ctx, services, eps); err != nil {
		return r, fmt.Errorf("%s: %w", r.Subject, err)
	}
	if err := f.proxier.SyncNow(ctx, ""); err != nil {
		return r, fmt.Errorf("%s: %w", r.Subject, err)
	}
	var err error
	r.Rules, err = f.models.rules()
	return r, err
}

// Stop stops the proxier.
func (f *Follower) Stop() { f.end() }
