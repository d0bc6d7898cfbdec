package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	utilnet "k8s.io/utils/net"

	"synclab/proxier/config"
)

// nodeState is what the proxier takes from its Node, once.
type nodeState struct {
	exists   bool
	ips      []netip.Addr // at most one a family, the main family first
	podCIDRs []string
}

// nodeWatch follows the one Node of the informer.
type nodeWatch struct {
	name, bindAddress string

	mu      sync.Mutex
	now     nodeState
	changed chan struct{}   // closed at the next change
	used    *nodeState      // what the proxier was made with; nil until then
	moved   func(err error) // called when podCIDRs are others than those used
}

// findNode waits until the Node says what the proxier needs of it, for as long as kube-proxy waits.
func (o *Options) findNode(ctx context.Context, factory informers.SharedInformerFactory, fail context.CancelCauseFunc) (nodeState, error) {
	needsPodCIDRs := o.Proxier.Config.DetectLocalMode == config.LocalModeNodeCIDR
	w := &nodeWatch{name: o.Proxier.NodeName, bindAddress: o.Proxier.Config.BindAddress, changed: make(chan struct{})}
	if needsPodCIDRs {
		w.moved = fail
	}
	registration, err := factory.Core().V1().Nodes().Informer().AddEventHandler(w)
	if err != nil {
		return nodeState{}, fmt.Errorf("watching node %s: %w", o.Proxier.NodeName, err)
	}
	factory.Start(ctx.Done())
	if !cache.WaitFor(ctx, "", registration.HasSyncedChecker()) {
		return nodeState{}, fmt.Errorf("waiting for node %s: %w", o.Proxier.NodeName, context.Cause(ctx))
	}
	hasIPs := func(s nodeState) bool { return s.exists && len(s.ips) > 0 }
	if err := o.await(ctx, w, o.NodeWait, hasIPs); err != nil {
		return nodeState{}, err
	}
	if needsPodCIDRs {
		if err := o.await(ctx, w, o.PodCIDRWait, func(s nodeState) bool { return len(s.podCIDRs) > 0 }); err != nil {
			return nodeState{}, err
		}
	}
	found := w.use()
	switch {
	case needsPodCIDRs && len(found.podCIDRs) == 0:
		return found, fmt.Errorf("node %s has no podCIDRs, which detectLocalMode NodeCIDR needs", o.Proxier.NodeName)
	case !found.exists:
		klog.ErrorS(nil, "The node does not exist, going on without it", "node", o.Proxier.NodeName)
	case len(found.ips) == 0:
		klog.ErrorS(nil, "The node has no addresses, taking those of loopback", "node", o.Proxier.NodeName)
	}
	return found, nil
}

// await returns when the node is as wanted, or when time is up; its only error is the end of ctx.
func (o *Options) await(ctx context.Context, w *nodeWatch, most time.Duration, wanted func(nodeState) bool) error {
	timeout := o.Proxier.Clock.NewTimer(most)
	defer timeout.Stop()
	for {
		state, changed := w.state()
		if wanted(state) {
			return nil
		}
		select {
		case <-changed:
		case <-timeout.C():
			return nil
		case <-ctx.Done():
			return fmt.Errorf("waiting for node %s: %w", o.Proxier.NodeName, context.Cause(ctx))
		}
	}
}

func (w *nodeWatch) state() (nodeState, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now, w.changed
}

// use gives what is known now, and has changes compared with it from here on.
func (w *nodeWatch) use() nodeState {
	w.mu.Lock()
	defer w.mu.Unlock()
	used := w.now
	w.used = &used
	return used
}

// OnAdd implements cache.ResourceEventHandler.
func (w *nodeWatch) OnAdd(obj any, _ bool) { w.see(obj) }

// OnUpdate implements cache.ResourceEventHandler.
func (w *nodeWatch) OnUpdate(_, obj any) { w.see(obj) }

// OnDelete implements cache.ResourceEventHandler. What the proxier has of its node, it keeps.
func (w *nodeWatch) OnDelete(any) {}

func (w *nodeWatch) see(obj any) {
	node, ok := obj.(*corev1.Node)
	if !ok || node.Name != w.name {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = nodeState{exists: true, ips: nodeIPs(node, w.bindAddress), podCIDRs: node.Spec.PodCIDRs}
	close(w.changed)
	w.changed = make(chan struct{})
	if w.used == nil {
		return
	}
	if w.moved != nil && !slices.Equal(w.used.podCIDRs, w.now.podCIDRs) {
		// kube-proxy ends too, so that it is started again with the new ones.
		w.moved(fmt.Errorf("node %s: podCIDRs changed from %v to %v: start again", node.Name, w.used.podCIDRs, w.now.podCIDRs))
	}
	if !slices.Equal(w.used.ips, w.now.ips) {
		klog.InfoS("The node's addresses changed, which takes a restart to matter", "node", node.Name, "used", w.used.ips, "now", w.now.ips)
	}
}

// nodeIPs are the first address of the node and the first of the other family, internal ones before external ones. A
// bindAddress that is an address stands in for its family's, and comes first.
func nodeIPs(node *corev1.Node, bindAddress string) []netip.Addr {
	var ips []netip.Addr
	add := func(text string) {
		ip := utilnet.ParseIPSloppy(text)
		addr, ok := netip.AddrFromSlice(ip)
		addr = addr.Unmap()
		if !ok || slices.ContainsFunc(ips, func(a netip.Addr) bool { return a.Is4() == addr.Is4() }) {
			return
		}
		ips = append(ips, addr)
	}
	if bind := utilnet.ParseIPSloppy(bindAddress); bind != nil && !bind.IsUnspecified() {
		add(bindAddress)
	}
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, a := range node.Status.Addresses {
			if a.Type == kind {
				add(a.Address)
			}
		}
	}
	return ips
}
