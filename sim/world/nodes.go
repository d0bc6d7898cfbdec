package world

import (
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// epoch is the creation time of the cluster. Simulated objects contain no time of the machine that made them.
var Epoch = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// Ranges of the generator that no shape sets. None of them is routed.
var (
	nodeRanges = map[corev1.IPFamily]netip.Prefix{
		corev1.IPv4Protocol: netip.MustParsePrefix("192.168.0.0/16"),
		corev1.IPv6Protocol: netip.MustParsePrefix("fd00:192:168::/64"),
	}
	// 198.18.0.0/15 is for benchmarks (RFC 2544), 2001:db8::/32 for
	// documentation (RFC 3849).
	loadBalancerRanges = map[corev1.IPFamily]netip.Prefix{
		corev1.IPv4Protocol: netip.MustParsePrefix("198.18.0.0/16"),
		corev1.IPv6Protocol: netip.MustParsePrefix("2001:db8:18::/64"),
	}
	externalRanges = map[corev1.IPFamily]netip.Prefix{
		corev1.IPv4Protocol: netip.MustParsePrefix("198.19.0.0/16"),
		corev1.IPv6Protocol: netip.MustParsePrefix("2001:db8:19::/64"),
	}
)

// host is what an endpoint needs from its Node. Endpoints that were handed out point into it: replace it, never write to it.
type host struct {
	name  string
	zone  string
	hints *discoveryv1.EndpointHints // for clients in the same zone
	node  *corev1.Node
}

func newHost(node *corev1.Node) *host {
	h := &host{name: node.Name, zone: node.Labels[corev1.LabelTopologyZone], node: node}
	h.hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: h.zone}}}
	return h
}

// newNode makes the i-th Node, "node-<i>".
func newNode(seed uint64, i, zones int, families []corev1.IPFamily, podCIDRs map[corev1.IPFamily][]netip.Prefix) (*corev1.Node, error) {
	name := fmt.Sprintf("node-%d", i)
	created := metav1.NewTime(Epoch)
	quantities := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("16"),
		corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourcePods:   resource.MustParse("250"),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:              name,
			UID:               UIDOf(seed, "node/"+name),
			CreationTimestamp: created,
			Labels: map[string]string{
				corev1.LabelHostname:       name,
				corev1.LabelOSStable:       "linux",
				corev1.LabelArchStable:     "amd64",
				corev1.LabelTopologyZone:   fmt.Sprintf("zone-%d", i%zones),
				corev1.LabelTopologyRegion: "region-0",
			},
		},
		Spec: corev1.NodeSpec{ProviderID: "synclab://" + name},
		Status: corev1.NodeStatus{
			Capacity:    quantities,
			Allocatable: quantities,
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
				LastHeartbeatTime: created, LastTransitionTime: created,
			}},
		},
	}
	for _, family := range families {
		addr, ok := nthAddress(nodeRanges[family], uint64(i))
		if !ok {
			return nil, fmt.Errorf("shape: nodes: range %s has no address for %s", nodeRanges[family], name)
		}
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: addr.String()})
		if parts := podCIDRs[family]; parts != nil {
			node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, parts[i].String())
		}
	}
	if len(node.Spec.PodCIDRs) > 0 {
		node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	}
	node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: name})
	return node, nil
}
