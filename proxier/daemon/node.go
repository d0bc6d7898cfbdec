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
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/proxier/config"
)

// nodeState is the part of its Node that the proxier reads once.
type nodeState struct {
	exists   bool
	ips      []netip.Addr // at most one per family, the main family first
	podCIDRs []string
}

// nodeWatch follows the one Node of the informer.
type nodeWatch struct {
	name          string
	cfg           *v1alpha1.KubeProxyConfiguration
	needsPodCIDRs bool
	moved         func(err error) // called when the state differs from the used one

	mu      sync.Mutex
	now     nodeState
	changed chan struct{} // closed at the next change
	used    *nodeState    // the state that the proxier was made with; nil before
}

// findNode waits until the Node has what the proxier needs, for as long as kube-proxy waits.
func (o *Options) findNode(ctx context.Context, factory informers.SharedInformerFactory, fail context.CancelCauseFunc) (nodeState, error) {
	needsPodCIDRs := o.Proxier.Config.DetectLocalMode == config.LocalModeNodeCIDR
	w := &nodeWatch{name: o.Proxier.NodeName, cfg: o.Proxier.Config, needsPodCIDRs: needsPodCIDRs, moved: fail, changed: make(chan struct{})}
	registration, err := factory.Core().V1().Nodes().Informer().AddEventHandler(w)
	if err != nil {
		return nodeState{}, fmt.Errorf("watch node %s: %w", o.Proxier.NodeName, err)
	}
	factory.Start(ctx.Done())
	if !cache.WaitFor(ctx, "", registration.HasSyncedChecker()) {
		return nodeState{}, fmt.Errorf("wait for node %s: %w", o.Proxier.NodeName, context.Cause(ctx))
	}
	hasIPs := func(s nodeState) bool { return s.exists && len(s.ips) > 0 }
	if err := o.await(ctx, w, nodeWait, hasIPs); err != nil {
		return nodeState{}, err
	}
	if needsPodCIDRs {
		if err := o.await(ctx, w, podCIDRWait, func(s nodeState) bool { return len(s.podCIDRs) > 0 }); err != nil {
			return nodeState{}, err
		}
	}
	found := w.use()
	switch {
	case needsPodCIDRs && len(found.podCIDRs) == 0:
		return found, fmt.Errorf("node %s has no podCIDRs, which detectLocalMode NodeCIDR needs", o.Proxier.NodeName)
	case !found.exists:
		klog.ErrorS(nil, "The Node object does not exist, continuing without it", "node", o.Proxier.NodeName)
	case len(found.ips) == 0:
		klog.ErrorS(nil, "The Node has no addresses, using loopback addresses", "node", o.Proxier.NodeName)
	}
	return found, nil
}

// await returns when wanted accepts the node's state, or on timeout. It fails only when ctx ends.
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
			return fmt.Errorf("wait for node %s: %w", o.Proxier.NodeName, context.Cause(ctx))
		}
	}
}

func (w *nodeWatch) state() (nodeState, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now, w.changed
}

// use returns the current state. Later changes are compared with it.
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

// OnDelete implements cache.ResourceEventHandler. The proxier keeps the last known state of its Node.
func (w *nodeWatch) OnDelete(any) {}

func (w *nodeWatch) see(obj any) {
	node, ok := obj.(*corev1.Node)
	if !ok || node.Name != w.name {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = nodeState{exists: true, ips: config.NodeIPs(w.cfg, node), podCIDRs: node.Spec.PodCIDRs}
	close(w.changed)
	w.changed = make(chan struct{})
	if w.used == nil {
		return
	}
	// As kube-proxy, the process ends, so that it is restarted with the new state.
	if w.needsPodCIDRs && !slices.Equal(w.used.podCIDRs, w.now.podCIDRs) {
		w.moved(fmt.Errorf("node %s: podCIDRs changed from %v to %v: restart the proxier", node.Name, w.used.podCIDRs, w.now.podCIDRs))
	}
	if !slices.Equal(w.used.ips, w.now.ips) {
		w.moved(fmt.Errorf("node %s: addresses changed from %v to %v: restart the proxier", node.Name, w.used.ips, w.now.ips))
	}
}
