package world

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"synclab/scenarios"
	"synclab/sim"
)

// Rollout plans rolling updates of some Services at the same time, in waves. At the start of a wave the surge's new
// pods are ready. A third of the interval later as many old ones terminate but still serve; at two thirds they are
// gone. Each Service starts at a random moment of the first third, because Deployments are not synchronized.
func (w *World) Rollout(step scenarios.Rollout) (sim.Trace, error) {
	n := cmp.Or(step.Services, 1)
	surge := cmp.Or(step.Surge, 0.25)
	interval := cmp.Or(step.Interval, time.Second)
	if n < 0 || surge < 0 || surge > 1 || interval < 0 {
		return nil, fmt.Errorf("rollout: services %d, surge %g, interval %s: want no negative value and a surge of at most 1", step.Services, step.Surge, step.Interval)
	}
	var fit []*workload
	for _, l := range w.live {
		if l.proxied() && l.size() > 0 {
			fit = append(fit, l)
		}
	}
	if len(fit) < n {
		return nil, fmt.Errorf("rollout: %w", &TooFewError{"Services with endpoints", n, len(fit), nil})
	}
	var t sim.Trace
	rolled := map[*workload]bool{} // Services that share their pods roll once
	for _, i := range w.random.Perm(len(fit))[:n] {
		l := fit[i]
		if l.shared != nil {
			l = l.shared.owner
		}
		if rolled[l] {
			continue
		}
		rolled[l] = true
		offset := time.Duration(w.random.Int64N(int64(interval/3) + 1))
		if err := w.rollOut(l, surge, offset, interval, &t); err != nil {
			return nil, fmt.Errorf("rollout: service %s/%s: %w", l.service.Namespace, l.service.Name, err)
		}
	}
	return w.finish(t), nil
}

func (w *World) rollOut(l *workload, surge float64, start, interval time.Duration, t *sim.Trace) error {
	old := w.podKeys(l)
	l.revision++
	l.hash = ""
	atOnce := max(1, int(math.Ceil(surge*float64(len(old)))))
	for wave := range slices.Chunk(old, atOnce) {
		up := make([]pod, len(wave))
		draining := map[string]discoveryv1.EndpointConditions{}
		gone := map[string]bool{}
		for i, key := range wave {
			var err error
			if up[i], err = w.newPod(l, w.conditions.ready); err != nil {
				return err
			}
			draining[key] = w.conditions.draining
			gone[key] = true
		}
		w.change(l, start, edit{add: up}, t)
		w.change(l, start+interval/3, edit{set: draining}, t)
		w.change(l, start+2*interval/3, edit{drop: gone}, t)
		start += interval
	}
	return nil
}

// Scale plans the change of one Service to a number of endpoints, one endpoint at a time. It takes the first Service
// in name order that proxies serve. The newest endpoint is removed first.
func (w *World) Scale(step scenarios.Scale) (sim.Trace, error) {
	rate := cmp.Or(step.Rate, 100)
	if step.To < 0 || rate < 0 {
		return nil, fmt.Errorf("scale: to %d at rate %g: want no negative value", step.To, rate)
	}
	var l *workload
	for _, c := range w.live {
		if c.proxied() && (l == nil || nameOrder(c.service, l.service) < 0) {
			l = c
		}
	}
	if l == nil {
		return nil, fmt.Errorf("scale: %w", ErrNothingToChange)
	}
	var t sim.Trace
	size := l.size()
	for i := 0; size != step.To; i++ {
		due := seconds(float64(i) / rate)
		if size > step.To {
			size--
			w.change(l, due, edit{drop: map[string]bool{w.podKey(l.endpoint(size)): true}}, &t)
			continue
		}
		p, err := w.newPod(l, w.conditions.ready)
		if err != nil {
			return nil, fmt.Errorf("scale: service %s/%s: %w", l.service.Namespace, l.service.Name, err)
		}
		w.change(l, due, edit{add: []pod{p}}, &t)
		size++
	}
	return w.finish(t), nil
}

func nameOrder(a, b *corev1.Service) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

const (
	// endpointUpdateGap is the time between two slice changes for a lost Node or a shared pod: the controller's workers
	// handle some thousand Services a second. Its client's default limit is lower, 20 writes a second after the first 30
	// (kube-controller-manager --kube-api-qps); operators of large clusters raise it, and the burst is what a proxy must bear.
	endpointUpdateGap = time.Millisecond
	// evictAfter is how long lost pods stay not ready before they are removed. A real cluster waits 5 minutes
	// (tolerationSeconds), and nothing happens meanwhile.
	evictAfter = 5 * time.Second
)

// NodeLoss plans the loss of some Nodes. Their Ready condition becomes Unknown. Their endpoints become not ready,
// slice by slice, and later are removed. The Nodes are removed last. No pods replace the lost ones.
func (w *World) NodeLoss(step scenarios.NodeLoss) (sim.Trace, error) {
	n := cmp.Or(step.Nodes, 1)
	able := w.hosts[min(1, len(w.hosts)):]
	if n < 0 {
		return nil, fmt.Errorf("nodeLoss: %d nodes: want no negative value", n)
	}
	if n > len(able) {
		return nil, fmt.Errorf("nodeLoss: %w", &TooFewError{"Nodes besides the proxier's own", n, len(able), nil})
	}
	lost := map[string]bool{}
	var t sim.Trace
	for _, i := range w.random.Perm(len(able))[:n] {
		lost[able[i].name] = true
		t.Add(0, sim.Update, w.unreachable(able[i]))
	}
	var hit []*workload
	due := time.Duration(0)
	for _, l := range w.live {
		if edit := w.loss(l, lost, w.conditions.unready); len(edit.set) > 0 {
			edit.drop = nil // not yet
			hit = append(hit, l)
			if l.shared != nil {
				w.place(l, edit)
			}
			addSlices(&t, due, w.pack(l, edit))
			due += endpointUpdateGap
		}
	}
	due = max(due, evictAfter)
	for _, l := range hit {
		edit := w.loss(l, lost, w.conditions.unready)
		edit.set = nil // was set before
		if l.shared != nil {
			w.place(l, edit)
		}
		addSlices(&t, due, w.pack(l, edit))
		due += endpointUpdateGap
	}
	w.hosts = slices.DeleteFunc(w.hosts, func(h *host) bool { return lost[h.name] })
	w.nodes = slices.DeleteFunc(slices.Clone(w.nodes), func(node *corev1.Node) bool {
		if lost[node.Name] {
			gone := *node
			t.Add(due, sim.Delete, &gone)
		}
		return lost[node.Name]
	})
	return w.finish(t), nil
}

// loss returns both edits that lost Nodes cause in a workload: set, then drop.
func (w *World) loss(l *workload, lost map[string]bool, conditions discoveryv1.EndpointConditions) edit {
	var e edit
	for _, g := range l.groups {
		for _, s := range g.slices {
			for i := range s.Endpoints {
				p := &s.Endpoints[i]
				if p.NodeName == nil || !lost[*p.NodeName] {
					continue
				}
				if e.set == nil {
					e.set, e.drop = map[string]discoveryv1.EndpointConditions{}, map[string]bool{}
				}
				e.set[w.podKey(p)] = conditions
				e.drop[w.podKey(p)] = true
			}
		}
	}
	return e
}

// unreachable returns a Node that stopped reporting, as the node lifecycle controller marks it.
func (w *World) unreachable(h *host) *corev1.Node {
	node := *h.node
	node.Status.Conditions = slices.Clone(node.Status.Conditions)
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			c.Status, c.Reason = corev1.ConditionUnknown, "NodeStatusUnknown"
		}
	}
	added := metav1.NewTime(Epoch)
	node.Spec.Taints = append(slices.Clone(node.Spec.Taints),
		corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: &added})
	for i, n := range w.nodes {
		if n.Name == node.Name {
			w.nodes[i] = &node
		}
	}
	h.node = &node
	return &node
}
