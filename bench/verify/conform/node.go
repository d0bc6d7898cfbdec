package conform

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/proxier/config"
)

// exitsAtAddresses is the first minor that exits when the addresses of its node change. Older ones log it, and continue
// with the addresses that they read at their start.
const exitsAtAddresses = 37

// endsWith returns why a proxier of a kube-proxy's minor exits when its node changes; empty if it continues.
func (s Setting) endsWith(before, now *corev1.Node, minor int) string {
	if s.Config.DetectLocalMode == config.LocalModeNodeCIDR && !slices.Equal(before.Spec.PodCIDRs, now.Spec.PodCIDRs) {
		return fmt.Sprintf("podCIDRs of node %s changed from %v to %v", now.Name, before.Spec.PodCIDRs, now.Spec.PodCIDRs)
	}
	asWritten := &v1alpha1.KubeProxyConfiguration{} // a bind address does not replace what the Node has
	if was, is := config.NodeIPs(asWritten, before), config.NodeIPs(asWritten, now); (minor == 0 || minor >= exitsAtAddresses) && !slices.Equal(was, is) {
		return fmt.Sprintf("addresses of node %s changed from %v to %v", now.Name, was, is)
	}
	return ""
}

// followNode starts the subjects again if their node has changed so that they exit. kube-proxy must exit by itself. It
// returns that as an explained difference.
func (r *run) followNode(ctx context.Context) ([]Difference, error) {
	nodes := r.feed.objects().Nodes
	i := slices.IndexFunc(nodes, func(n *corev1.Node) bool { return n.Name == r.node.Name })
	if i < 0 {
		return nil, fmt.Errorf("node %s is not in the cluster", r.node.Name)
	}
	why := r.batch.Setting.endsWith(r.node, nodes[i], r.Minor)
	if why == "" {
		return nil, nil
	}
	var ended []Difference
	for _, side := range r.sides {
		k, ok := side.(*kubeProxy)
		if !ok {
			continue
		}
		if err := k.awaitExit(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", why, err)
		}
		ended = append(ended, Difference{Family: both[0], Entry: EntryNode,
			Lines: []string{"kube-proxy exits: " + why + "; synclab proxy exits too; both are started again"}})
	}
	r.stop()
	return ended, r.startOn(ctx, nodes[i], r.rendered.machine)
}

// awaitExit returns when kube-proxy has exited with the status that it has when its node changes.
func (k *kubeProxy) awaitExit(ctx context.Context) error {
	timeout := time.NewTimer(k.most)
	defer timeout.Stop()
	select {
	case <-k.exited:
	case <-timeout.C:
		return fmt.Errorf("kube-proxy has not exited within %s", k.most)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if status := k.cmd.ProcessState.ExitCode(); status != 1 {
		return fmt.Errorf("kube-proxy exited: %s, want status 1%s", k.cmd.ProcessState, k.reports())
	}
	return nil
}
