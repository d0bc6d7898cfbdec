package manifests

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"synclab/internal/inet"
	"synclab/sim"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// nodeCIDRs are the ranges of implied nodes' addresses. They overlap with none of the defaults of ReadOptions.
var nodeCIDRs = []netip.Prefix{netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("fd00:172:16::/64")}

// defaultNode is the node of an input that names none.
const defaultNode = "node-0"

// placeNodes makes the nodes that pods and slices name, if the input describes no node at all. A single implied node
// gets the cluster's pod ranges.
func (m *manifests) placeNodes() {
	if len(m.nodes) > 0 {
		return
	}
	names := map[string]bool{}
	for _, pod := range m.pods {
		names[pod.Spec.NodeName] = true
	}
	for _, w := range m.workloads {
		names[w.template.Spec.NodeName] = true
	}
	for _, slice := range m.slices {
		for _, endpoint := range slice.Endpoints {
			if endpoint.NodeName != nil {
				names[*endpoint.NodeName] = true
			}
		}
	}
	if delete(names, ""); len(names) == 0 {
		names[defaultNode] = true
	}
	book := addressBook{}
	var pools []*addressPool
	for _, family := range familiesOf(m.opts.PodCIDRs) {
		pools = append(pools, newAddressPool(nodeCIDRs, family, 0, book))
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		node := impliedNode(name)
		for _, pool := range pools {
			// A million nodes fit: an input with more names does not fit into memory.
			if address, err := pool.take(name); err == nil {
				node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address.String()})
			}
		}
		m.nodes = append(m.nodes, node)
	}
	if len(m.nodes) == 1 {
		spec := &m.nodes[0].Spec
		for _, family := range familiesOf(m.opts.PodCIDRs) {
			first := slices.IndexFunc(m.opts.PodCIDRs, func(p netip.Prefix) bool { return inet.FamilyOf(p.Addr()) == family })
			spec.PodCIDRs = append(spec.PodCIDRs, m.opts.PodCIDRs[first].Masked().String())
		}
		spec.PodCIDR = spec.PodCIDRs[0]
	}
}

// placement plays the scheduler and the kubelets: it assigns nodes and addresses to pods.
type placement struct {
	nodes   []*corev1.Node
	byName  map[string]*corev1.Node
	turn    int // the node of the next plain Pod
	book    addressBook
	cluster map[corev1.IPFamily]*addressPool
	own     map[string]map[corev1.IPFamily]*addressPool // by node, for nodes with podCIDRs
	pinned  map[*corev1.Pod]map[corev1.IPFamily]netip.Addr
}

func newPlacement(m *manifests) *placement {
	p := &placement{
		nodes: m.nodes, byName: map[string]*corev1.Node{}, book: m.book,
		cluster: map[corev1.IPFamily]*addressPool{}, own: map[string]map[corev1.IPFamily]*addressPool{},
		pinned: map[*corev1.Pod]map[corev1.IPFamily]netip.Addr{},
	}
	for _, family := range familiesOf(m.opts.PodCIDRs) {
		p.cluster[family] = newAddressPool(m.opts.PodCIDRs, family, 0, p.book)
	}
	for _, node := range m.nodes {
		p.byName[node.Name] = node
		var prefixes []netip.Prefix
		for _, cidr := range node.Spec.PodCIDRs {
			if prefix, ok := sim.ParsePrefix(cidr); ok {
				prefixes = append(prefixes, prefix)
			}
		}
		p.own[node.Name] = map[corev1.IPFamily]*addressPool{}
		for _, family := range familiesOf(prefixes) {
			// The first address belongs to the node's bridge.
			p.own[node.Name][family] = newAddressPool(prefixes, family, 1, p.book)
		}
	}
	return p
}

// nodesFor lists the nodes that a pod may run on: those that its nodeSelector matches and that take new pods. If there
// are none, it lists all nodes: a pending pod would show nothing about proxies.
func (p *placement) nodesFor(spec *corev1.PodSpec) []*corev1.Node {
	selector := labels.SelectorFromSet(spec.NodeSelector)
	var fit []*corev1.Node
	for _, node := range p.nodes {
		if !node.Spec.Unschedulable && selector.Matches(labels.Set(node.Labels)) {
			fit = append(fit, node)
		}
	}
	if len(fit) == 0 {
		return p.nodes
	}
	return fit
}

// pin reserves the i-th of the pinned addresses for a pod.
func (p *placement) pin(pod *corev1.Pod, pins map[corev1.IPFamily][]netip.Addr, i int, owner string) *field.Error {
	for _, family := range sim.IPFamilies {
		if i >= len(pins[family]) {
			continue
		}
		address := pins[family][i]
		if other := p.book.reserve(address, sim.ObjectName("pod", pod)+" of "+owner); other != "" && !pod.Spec.HostNetwork {
			return field.Invalid(field.NewPath("metadata", "annotations"), address.String(), PodIPs+": is already used by "+other)
		}
		if p.pinned[pod] == nil {
			p.pinned[pod] = map[corev1.IPFamily]netip.Addr{}
		}
		p.pinned[pod][family] = address
	}
	return nil
}

// observe reserves the addresses of a running pod.
func (p *placement) observe(pod *corev1.Pod) {
	for _, ip := range pod.Status.PodIPs {
		if address, ok := inet.ParseAddr(ip.IP); ok {
			p.book.reserve(address, sim.ObjectName("pod", pod))
		}
	}
}

// start gives a pod a node, addresses and readiness, unless it has them.
func (p *placement) start(pod *corev1.Pod) error {
	if pod.Spec.NodeName == "" {
		nodes := p.nodesFor(&pod.Spec)
		pod.Spec.NodeName = nodes[p.turn%len(nodes)].Name
		p.turn++
	}
	normalizeStatus(pod)
	if len(pod.Status.PodIPs) == 0 {
		for _, family := range sim.IPFamilies {
			address, err := p.address(pod, family)
			if err != nil {
				return fmt.Errorf("%s address: %w", family, err)
			}
			if address != "" {
				pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: address})
			}
		}
	}
	if len(pod.Status.PodIPs) > 0 {
		pod.Status.PodIP = pod.Status.PodIPs[0].IP
	}
	pod.Status.Phase = corev1.PodRunning
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return nil
		}
	}
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Time{},
	})
	return nil
}

// address returns the pod's address of a family: the pinned one, the node's own for a host network pod, or one of the
// node's or the cluster's range. It is empty if the cluster does not have the family.
func (p *placement) address(pod *corev1.Pod, family corev1.IPFamily) (string, error) {
	if address, pinned := p.pinned[pod][family]; pinned {
		return address.String(), nil
	}
	if node := p.byName[pod.Spec.NodeName]; node != nil && pod.Spec.HostNetwork {
		for _, address := range node.Status.Addresses {
			if address.Type == corev1.NodeInternalIP && sim.FamilyOf(address.Address) == family {
				return address.Address, nil
			}
		}
		return "", nil
	}
	owner := sim.ObjectName("pod", pod)
	if pool := p.own[pod.Spec.NodeName][family]; pool != nil {
		if address, err := pool.take(owner); err == nil {
			return address.String(), nil
		}
	}
	if p.cluster[family] == nil {
		return "", nil
	}
	address, err := p.cluster[family].take(owner)
	if err != nil {
		return "", err
	}
	return address.String(), nil
}
