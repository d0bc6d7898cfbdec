package manifests

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"synclab/internal/inet"
	"synclab/sim"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/endpointslice"
	"k8s.io/endpointslice/trafficdist"
	endpointsliceutil "k8s.io/endpointslice/util"
	"k8s.io/utils/ptr"
)

// This file does what the EndpointSlice controller does with Services and pods. The controller's Reconciler
// (k8s.io/endpointslice) packs endpoints in the order of a Go map and gives slices random names. Here order and names
// are stable; a test compares the result with the Reconciler's.

const (
	slicesBy       = "endpointslice-controller.k8s.io"
	mirroredBy     = "endpointslicemirroring-controller.k8s.io"
	slicesCapacity = 100 // endpoints, the controller's default
)

// endpoints is the legacy form of EndpointSlices. Dumps, and manifests of Services without selector, still contain it.
//
//lint:ignore SA1019 read for the sake of old manifests
type endpoints = corev1.Endpoints //nolint:staticcheck // as above

// serviceID names a Service, or a slice, in a map.
type serviceID struct{ namespace, name string }

// deriveSlices makes the EndpointSlices of Services that bring none: from their Endpoints if there are any, else from
// the pods that they select.
func (m *manifests) deriveSlices() {
	covered, names := map[serviceID]bool{}, sliceNames{}
	for _, slice := range m.slices {
		names[serviceID{slice.Namespace, slice.Name}] = true
		covered[serviceID{slice.Namespace, slice.Labels[discoveryv1.LabelServiceName]}] = true
	}
	services := map[serviceID]bool{}
	for _, service := range m.services {
		services[serviceID{service.Namespace, service.Name}] = true
	}
	for _, e := range m.endpoints {
		id := serviceID{e.Namespace, e.Name}
		if covered[id] {
			m.left.add(m.found[e], "Endpoints", sim.ObjectName("endpoints", e), "the Service has EndpointSlices")
			continue
		}
		if !services[id] {
			m.left.add(m.found[e], "Endpoints", sim.ObjectName("endpoints", e), "no Service has this name")
			continue
		}
		covered[id] = true
		l := m.legacy(e)
		for _, slice := range mirrorEndpoints(e, names) {
			errs := sim.CheckEndpointSlice(slice, l)
			if len(errs) > 0 {
				// The slice's fields are not in the input: name the field of the Endpoints.
				m.refuse(m.found[e], m.found[e].fault(sim.ObjectName("endpoints", e), "subsets", errs[0].Error()))
				break
			}
			canonicalAddresses(slice)
			m.slices = append(m.slices, slice)
		}
		m.warn("endpoints", e, l)
	}
	nodes := map[string]*corev1.Node{}
	for _, node := range m.nodes {
		nodes[node.Name] = node
	}
	index := indexPods(m.pods)
	for _, service := range m.services {
		selects := len(service.Spec.Selector) > 0 && service.Spec.Type != corev1.ServiceTypeExternalName
		if selects && !covered[serviceID{service.Namespace, service.Name}] {
			m.slices = append(m.slices, slicesOf(service, index.selected(service), nodes, names)...)
		}
	}
}

// podLabel is a label of the pods of a namespace.
type podLabel struct{ namespace, key, value string }

// podIndex finds the pods of a selector without a scan of all pods: 10,000 Services times 100,000 pods would take
// minutes.
type podIndex map[podLabel][]*corev1.Pod

func indexPods(pods []*corev1.Pod) podIndex {
	index := podIndex{}
	for _, pod := range pods {
		for key, value := range pod.Labels {
			label := podLabel{pod.Namespace, key, value}
			index[label] = append(index[label], pod)
		}
	}
	return index
}

// selected lists the pods of a Service, in the order of the index.
func (x podIndex) selected(service *corev1.Service) []*corev1.Pod {
	var fewest []*corev1.Pod
	first := true
	for key, value := range service.Spec.Selector {
		if pods := x[podLabel{service.Namespace, key, value}]; first || len(pods) < len(fewest) {
			fewest, first = pods, false
		}
	}
	selector := labels.SelectorFromSet(service.Spec.Selector)
	var pods []*corev1.Pod
	for _, pod := range fewest {
		if selector.Matches(labels.Set(pod.Labels)) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// slicesOf makes the slices of one Service, separate ones for each family.
func slicesOf(service *corev1.Service, pods []*corev1.Pod, nodes map[string]*corev1.Node, names sliceNames) []*discoveryv1.EndpointSlice {
	var made []*discoveryv1.EndpointSlice
	for _, family := range service.Spec.IPFamilies {
		pack := newPacker(service.ObjectMeta, discoveryv1.AddressType(family), names)
		if service.Spec.ClusterIP == corev1.ClusterIPNone || service.Spec.ClusterIP == "" {
			pack.labels[corev1.IsHeadlessService] = ""
		}
		for _, pod := range pods {
			if !endpointsliceutil.ShouldPodBeInEndpoints(pod, true) {
				continue
			}
			endpoint := podEndpoint(service, pod, nodes[pod.Spec.NodeName], family)
			if len(endpoint.Addresses) > 0 {
				pack.add(podPorts(service, pod), endpoint)
			}
		}
		slices := pack.slices()
		if len(slices) == 0 {
			// For a Service without endpoints, the controller makes an empty slice.
			slices = append(slices, pack.slice(0, []discoveryv1.EndpointPort{}, []discoveryv1.Endpoint{}))
		}
		if service.Spec.TrafficDistribution != nil {
			slices, _, _ = trafficdist.ReconcileHints(service.Spec.TrafficDistribution, slices, nil, nil)
		}
		made = append(made, slices...)
	}
	return made
}

func podEndpoint(service *corev1.Service, pod *corev1.Pod, node *corev1.Node, family corev1.IPFamily) discoveryv1.Endpoint {
	serving, terminating := endpointsliceutil.IsPodReady(pod), pod.DeletionTimestamp != nil
	endpoint := discoveryv1.Endpoint{
		Addresses: []string{},
		Conditions: discoveryv1.EndpointConditions{
			// A terminating pod is never ready, unless the Service publishes addresses that are not ready.
			Ready:       ptr.To(service.Spec.PublishNotReadyAddresses || serving && !terminating),
			Serving:     ptr.To(serving),
			Terminating: ptr.To(terminating),
		},
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
	}
	for _, ip := range pod.Status.PodIPs {
		if sim.FamilyOf(ip.IP) == family {
			addr, _ := inet.ParseAddr(ip.IP)
			endpoint.Addresses = append(endpoint.Addresses, addr.String())
		}
	}
	if pod.Spec.NodeName != "" {
		endpoint.NodeName = ptr.To(pod.Spec.NodeName)
	}
	if node != nil && node.Labels[corev1.LabelTopologyZone] != "" {
		endpoint.Zone = ptr.To(node.Labels[corev1.LabelTopologyZone])
	}
	if endpointsliceutil.ShouldSetHostname(pod, service) {
		endpoint.Hostname = ptr.To(pod.Spec.Hostname)
	}
	return endpoint
}

// podPorts returns the Service's ports with the pod's port numbers. A named target port that no container has is left
// out, for this pod only.
func podPorts(service *corev1.Service, pod *corev1.Pod) []discoveryv1.EndpointPort {
	ports := []discoveryv1.EndpointPort{}
	for i := range service.Spec.Ports {
		port := &service.Spec.Ports[i]
		number, err := endpointslice.FindPort(pod, port)
		if err != nil {
			continue
		}
		ports = append(ports, discoveryv1.EndpointPort{
			Name: ptr.To(port.Name), Protocol: ptr.To(port.Protocol), Port: ptr.To(int32(number)), AppProtocol: port.AppProtocol,
		})
	}
	return ports
}

// mirrorEndpoints turns legacy Endpoints into slices, separate ones for each family.
func mirrorEndpoints(e *endpoints, names sliceNames) []*discoveryv1.EndpointSlice {
	packs := map[corev1.IPFamily]*packer{}
	for _, family := range sim.IPFamilies {
		packs[family] = newPacker(e.ObjectMeta, discoveryv1.AddressType(family), names)
		packs[family].labels[discoveryv1.LabelManagedBy] = mirroredBy
	}
	for _, subset := range e.Subsets {
		ports := []discoveryv1.EndpointPort{}
		for _, port := range subset.Ports {
			ports = append(ports, discoveryv1.EndpointPort{
				Name: ptr.To(port.Name), Protocol: ptr.To(cmp.Or(port.Protocol, corev1.ProtocolTCP)),
				Port: ptr.To(port.Port), AppProtocol: port.AppProtocol,
			})
		}
		add := func(addresses []corev1.EndpointAddress, ready bool) {
			for _, address := range addresses {
				endpoint := discoveryv1.Endpoint{
					Addresses:  []string{address.IP},
					Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(ready)},
					NodeName:   address.NodeName,
					TargetRef:  address.TargetRef,
				}
				if address.Hostname != "" {
					endpoint.Hostname = ptr.To(address.Hostname)
				}
				packs[sim.FamilyOf(address.IP)].add(ports, endpoint)
			}
		}
		add(subset.Addresses, true)
		add(subset.NotReadyAddresses, false)
	}
	return append(packs[corev1.IPv4Protocol].slices(), packs[corev1.IPv6Protocol].slices()...)
}

// packer packs endpoints of one owner and family into slices. The endpoints of a slice share their ports, and no slice
// has more than slicesCapacity endpoints.
type packer struct {
	owner  metav1.ObjectMeta
	family discoveryv1.AddressType
	labels map[string]string
	groups map[string]*endpointGroup // by the ports, as JSON
	names  sliceNames
}

type endpointGroup struct {
	ports     []discoveryv1.EndpointPort
	endpoints []discoveryv1.Endpoint
}

// sliceNames is the set of slice names in use.
type sliceNames map[serviceID]bool

func newPacker(owner metav1.ObjectMeta, family discoveryv1.AddressType, names sliceNames) *packer {
	p := &packer{owner: owner, family: family, labels: map[string]string{}, groups: map[string]*endpointGroup{}, names: names}
	maps.Copy(p.labels, owner.Labels)
	delete(p.labels, corev1.IsHeadlessService) // only the controllers set it, whatever the owner has
	p.labels[discoveryv1.LabelServiceName] = owner.Name
	p.labels[discoveryv1.LabelManagedBy] = slicesBy
	return p
}

func (p *packer) add(ports []discoveryv1.EndpointPort, endpoint discoveryv1.Endpoint) {
	key, err := json.Marshal(ports)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	group := p.groups[string(key)]
	if group == nil {
		group = &endpointGroup{ports: ports}
		p.groups[string(key)] = group
	}
	group.endpoints = append(group.endpoints, endpoint)
}

// slices packs the added endpoints, sorted by address. Each group of equal ports becomes the smallest number of full
// slices and one with the rest.
func (p *packer) slices() []*discoveryv1.EndpointSlice {
	var made []*discoveryv1.EndpointSlice
	for _, key := range slices.Sorted(maps.Keys(p.groups)) {
		group := p.groups[key]
		slices.SortStableFunc(group.endpoints, func(a, b discoveryv1.Endpoint) int {
			left, _ := inet.ParseAddr(a.Addresses[0])
			right, _ := inet.ParseAddr(b.Addresses[0])
			return left.Compare(right)
		})
		for chunk := range slices.Chunk(group.endpoints, slicesCapacity) {
			made = append(made, p.slice(len(made), group.ports, slices.Clone(chunk)))
		}
	}
	return made
}

func (p *packer) slice(number int, ports []discoveryv1.EndpointPort, endpoints []discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	id := serviceID{namespace: p.owner.Namespace}
	for salt := 0; id.name == "" || p.names[id]; salt++ {
		id.name = suffixedName(p.owner.Name+"-", fmt.Sprintf("%s/%s/%s/%d/%d", id.namespace, p.owner.Name, p.family, number, salt))
	}
	p.names[id] = true
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: id.namespace, Name: id.name, Labels: maps.Clone(p.labels)},
		AddressType: p.family,
		Ports:       ports,
		Endpoints:   endpoints,
	}
}

// canonicalAddresses respells the addresses of a slice that synclab makes: it is a new object.
func canonicalAddresses(slice *discoveryv1.EndpointSlice) {
	for i := range slice.Endpoints {
		for j, text := range slice.Endpoints[i].Addresses {
			if addr, ok := inet.ParseAddr(text); ok {
				slice.Endpoints[i].Addresses[j] = addr.String()
			}
		}
	}
}
