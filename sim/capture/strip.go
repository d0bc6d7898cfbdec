package capture

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// taintLeaving marks a node that the cluster autoscaler will remove. A proxy's /healthz reports it to load balancers.
const taintLeaving = "ToBeDeletedByClusterAutoscaler"

// readPrefixes are the prefixes of labels and annotations that some proxy reads.
var readPrefixes = []string{
	"service.kubernetes.io/", "endpointslice.kubernetes.io/", "endpoints.kubernetes.io/", "topology.kubernetes.io/",
	discoveryv1.LabelServiceName,
}

// Strip returns the object with only the fields that a Service proxy reads. The result shares the kept fields with the
// object. An object that is not a Service, EndpointSlice or Node is returned unchanged.
func Strip(object runtime.Object) runtime.Object {
	switch o := object.(type) {
	case *corev1.Service:
		return stripService(o)
	case *discoveryv1.EndpointSlice:
		return stripSlice(o)
	case *corev1.Node:
		return stripNode(o)
	}
	return object
}

// stripMeta drops finalizers, owners, managed fields and the last applied configuration.
func stripMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, Labels: kept(m.Labels), Annotations: kept(m.Annotations),
	}
}

func kept(all map[string]string) map[string]string {
	some := maps.Clone(all)
	maps.DeleteFunc(some, func(name, _ string) bool {
		for _, prefix := range readPrefixes {
			if strings.HasPrefix(name, prefix) {
				return false
			}
		}
		return true
	})
	if len(some) == 0 {
		return nil
	}
	return some
}

func stripService(s *corev1.Service) *corev1.Service {
	o := &corev1.Service{ObjectMeta: stripMeta(&s.ObjectMeta), Spec: s.Spec}
	// EndpointSlices name the selected pods, and another controller makes the load balancer.
	o.Spec.Selector, o.Spec.LoadBalancerClass, o.Spec.LoadBalancerIP = nil, nil, ""
	o.Status.LoadBalancer = s.Status.LoadBalancer
	return o
}

func stripSlice(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	o := &discoveryv1.EndpointSlice{ObjectMeta: stripMeta(&s.ObjectMeta), AddressType: s.AddressType, Ports: s.Ports}
	o.Endpoints = make([]discoveryv1.Endpoint, len(s.Endpoints))
	for i := range s.Endpoints {
		o.Endpoints[i] = s.Endpoints[i]
		o.Endpoints[i].TargetRef, o.Endpoints[i].DeprecatedTopology, o.Endpoints[i].Hostname = nil, nil, nil
	}
	return o
}

func stripNode(n *corev1.Node) *corev1.Node {
	o := &corev1.Node{ObjectMeta: stripMeta(&n.ObjectMeta)}
	o.Spec.PodCIDR, o.Spec.PodCIDRs = n.Spec.PodCIDR, n.Spec.PodCIDRs
	for _, taint := range n.Spec.Taints {
		if taint.Key == taintLeaving {
			o.Spec.Taints = append(o.Spec.Taints, taint)
		}
	}
	o.Status.Addresses = n.Status.Addresses
	return o
}
