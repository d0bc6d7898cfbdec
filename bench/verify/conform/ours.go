package conform

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"synclab/bench/subject"
	"synclab/proxier"
	"synclab/proxier/config"
	"synclab/proxier/conntrack"
	"synclab/proxier/iptables"
)

// Options returns the options of Synclab's proxier for a setting and a node: the families, addresses and configuration
// that kube-proxy gets too.
func (s Setting) Options(node *corev1.Node, machine proxier.Machine) proxier.Options {
	machine.Accounting = machine.Accounting && !s.Unaccounted
	loopback := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	return proxier.Options{
		Config: s.Config, Variant: s.Variant, Families: both, NodeName: node.Name, NodeIPs: config.NodeIPs(s.Config, node), PodCIDRs: node.Spec.PodCIDRs,
		Addresses: func() ([]netip.Addr, error) {
			return slices.Concat(loopback, subject.DeviceAddresses(s.Config, node)), nil
		},
		Machine: machine,
	}
}

// rendered is Synclab's proxier without a kernel: a full sync of the current objects into a model of the tables.
type rendered struct {
	setting Setting
	node    *corev1.Node // as at the start, when a proxier reads addresses and podCIDRs
	machine proxier.Machine
}

// renderObjects returns the rules for the given objects, by family.
func (r *rendered) renderObjects(ctx context.Context, services []*corev1.Service, eps []*discoveryv1.EndpointSlice, nodes []*corev1.Node) (map[corev1.IPFamily]Grouped, error) {
	i := slices.IndexFunc(nodes, func(n *corev1.Node) bool { return n.Name == r.node.Name })
	if i < 0 {
		return nil, fmt.Errorf("node %s is not in the cluster", r.node.Name)
	}
	models, err := proxier.Render(ctx, r.setting.Options(r.node, r.machine), services, eps, nodes[i])
	if err != nil {
		return nil, fmt.Errorf("render: %w", err)
	}
	all := map[corev1.IPFamily]Grouped{}
	for _, m := range models {
		all[m.Family()] = Group(Tables(m.Tables()).Reachable())
	}
	return all, nil
}

func (r *rendered) rules(ctx context.Context, f *feed, _ map[corev1.IPFamily]string) (map[corev1.IPFamily]Grouped, error) {
	o := f.objects()
	return r.renderObjects(ctx, o.Services, o.Slices, o.Nodes)
}

func (r *rendered) stop() {}

// installed is Synclab's proxier in a separate namespace, with partial syncs. It watches the cluster through informers.
type installed struct {
	space   *space
	variant iptables.Variant
	proxier *proxier.Proxier
	end     context.CancelFunc
}

func startInstalled(ctx context.Context, s Setting, node *corev1.Node, f *feed) (*installed, error) {
	sp, err := newSpace(subject.DeviceAddresses(s.Config, node))
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	in := &installed{space: sp, variant: s.Variant, end: end}
	err = sp.do(func() error {
		machine, err := proxier.ExamineMachine(s.Variant)
		if err != nil {
			return err
		}
		o := s.Options(node, machine)
		o.Addresses = func() ([]netip.Addr, error) { // runs on the thread that syncs
			return conntrack.NewKernel(netns.None()).LocalAddrs(both...)
		}
		o.Conntrack = func(corev1.IPFamily) (conntrack.Table, error) { return conntrack.NewKernel(netns.None()), nil }
		in.proxier, err = proxier.New(o)
		return err
	})
	if err == nil {
		err = in.proxier.Watch(ctx, f.cluster.NewInformers())
	}
	if err != nil {
		in.stop()
		return nil, fmt.Errorf("synclab: %w", err)
	}
	return in, nil
}

func (in *installed) rules(ctx context.Context, f *feed, _ map[corev1.IPFamily]string) (map[corev1.IPFamily]Grouped, error) {
	services, eps := f.cluster.Version(&corev1.Service{}), f.cluster.Version(&discoveryv1.EndpointSlice{})
	if err := in.proxier.WaitSeen(ctx, services, eps); err != nil {
		return nil, fmt.Errorf("synclab: %w", err)
	}
	if err := in.space.do(func() error { return in.proxier.SyncNow(ctx, "") }); err != nil {
		return nil, fmt.Errorf("synclab: %w", err)
	}
	return saveBoth(in.space, in.variant)
}

func (in *installed) stop() {
	in.end()
	in.space.close()
}

// machineOf detects the kernel and tool features in a namespace.
func machineOf(s *space, variant iptables.Variant) (machine proxier.Machine, err error) {
	err = s.do(func() (err error) {
		machine, err = proxier.ExamineMachine(variant)
		return err
	})
	return machine, err
}

// sortedSlices returns the slices of a feed's remembered map, sorted.
func sortedSlices(remembered map[key]map[string]*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	var all []*discoveryv1.EndpointSlice
	for _, byName := range remembered {
		for _, s := range byName {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *discoveryv1.EndpointSlice) int { return compareKeys(keyOf(a), keyOf(b)) })
	return all
}
