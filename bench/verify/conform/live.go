package conform

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"synclab/proxier"
	"synclab/proxier/config"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
	"synclab/sim"
)

// Live is an unmodified kube-proxy on a simulated cluster, for callers that need more than differences of rules.
type Live struct {
	feed  *feed
	proxy *kubeProxy
	mode  string
}

// StartLive starts kube-proxy on the objects, in the mode of the setting's configuration. node is the name of its node.
func StartLive(ctx context.Context, command string, s Setting, node string, o *sim.Objects) (*Live, error) {
	l := &Live{feed: newFeed(), mode: string(s.Config.Mode)}
	if err := l.feed.apply(ctx, l.feed.traceTo(o)); err != nil {
		l.feed.cluster.Stop()
		return nil, err
	}
	i := slices.IndexFunc(o.Nodes, func(n *corev1.Node) bool { return n.Name == node })
	if i < 0 {
		l.feed.cluster.Stop()
		return nil, fmt.Errorf("node %q is not in the cluster", node)
	}
	l.feed.proxiersStart(node)
	var err error
	if l.proxy, err = startKubeProxy(ctx, command, s, o.Nodes[i], l.feed); err != nil {
		l.feed.cluster.Stop()
		return nil, err
	}
	return l, nil
}

// Become applies the changes that turn the current objects into o.
func (l *Live) Become(ctx context.Context, o *sim.Objects) error {
	return l.feed.apply(ctx, l.feed.traceTo(o))
}

// Objects returns the current objects, with the objects of the signal (see Sync).
func (l *Live) Objects() *sim.Objects { return l.feed.objects() }

// Remembered returns the slices as kube-proxy's cache stores them: see EntryMoved.
func (l *Live) Remembered() []*discoveryv1.EndpointSlice { return sortedSlices(l.feed.remembered) }

// ZoneChanged reports whether the zone of kube-proxy's node has changed since the start: see EntryZone.
func (l *Live) ZoneChanged() bool { return l.feed.zoneChanged }

// Sync returns when kube-proxy has written all changes so far.
func (l *Live) Sync(ctx context.Context) error {
	signal, err := l.feed.raise(ctx)
	if err != nil {
		return err
	}
	if l.mode == string(config.ModeNFTables) {
		return l.proxy.awaitNftables(ctx, l.feed.signal)
	}
	return l.proxy.await(ctx, signal)
}

// Do runs f on a thread in kube-proxy's network namespace.
func (l *Live) Do(f func() error) error { return l.proxy.space.do(f) }

// Saved returns the output of iptables-save for kube-proxy's rules.
func (l *Live) Saved(family corev1.IPFamily) ([]byte, error) {
	return savedIn(l.proxy.space, l.proxy.variant, family)
}

// Machine returns the kernel and tool features in kube-proxy's namespace.
func (l *Live) Machine() (proxier.Machine, error) { return machineOf(l.proxy.space, l.proxy.variant) }

// Stop stops kube-proxy and the cluster that it watches.
func (l *Live) Stop() {
	l.proxy.stop()
	l.feed.cluster.Stop()
}

// awaitNftables returns when the table of mode nftables has the chain of the signal's newest port, in each family.
// kube-proxy writes that chain when both the Service and the slice have arrived.
func (k *kubeProxy) awaitNftables(ctx context.Context, signal int) error {
	port := fmt.Sprintf("-%s/%s/tcp/s%d", signalNamespace, signalName, signal)
	return k.awaitEach(ctx, func(family corev1.IPFamily) (there bool, err error) {
		err = k.space.do(func() error {
			chains, err := kernel.Chains(string(iptables.Nft), family, "kube-proxy")
			there = slices.ContainsFunc(chains, func(c kernel.Chain) bool {
				return strings.HasPrefix(c.Name, "service-") && strings.HasSuffix(c.Name, port)
			})
			return err
		})
		return there, err
	})
}
