package proxier

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"synclab/proxier/iptables"
	"synclab/proxier/plan"
)

// Render returns the tables that a proxier would write for the given objects, one set per family, without a kernel.
func Render(ctx context.Context, opts Options, services []*corev1.Service, slices []*discoveryv1.EndpointSlice, node *corev1.Node) ([]*iptables.Model, error) {
	var models []*iptables.Model
	opts.Tables = func(family corev1.IPFamily) (iptables.Tables, error) {
		models = append(models, iptables.NewModel(family))
		return models[len(models)-1], nil
	}
	p, err := New(opts)
	if err != nil {
		return nil, err
	}
	now, digester := p.opts.Clock.Now(), p.opts.Digester()
	for _, e := range p.engines {
		if node != nil {
			e.setNode(plan.Node{Name: p.opts.NodeName, Zone: node.Labels[corev1.LabelTopologyZone]})
		}
		for _, svc := range services {
			e.tracker.PutService(digester.Service(svc), now)
		}
		for _, slice := range slices {
			e.tracker.PutSlice(digester.Slice(slice), now)
		}
	}
	return models, p.SyncNow(ctx, "")
}
