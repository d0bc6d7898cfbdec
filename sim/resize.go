package sim

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Proxied reports whether a Service proxy handles a Service.
func Proxied(s *corev1.Service) bool {
	return s.Spec.Type != corev1.ServiceTypeExternalName && s.Spec.ClusterIP != "" && s.Spec.ClusterIP != corev1.ClusterIPNone
}

// Resize returns a cluster of the same mix with n proxied Services: fewer are a systematic sample of the objects, more are
// whole copies and such a sample. Both take the Services in the order of their endpoints, so that a skewed cluster stays
// skewed. Copies have names, addresses and node ports of their own, from outside the cluster's ranges. Nodes stay, and what no
// proxy handles is left out. without is the number of copied ports that get no node port, since there are only 65,535.
func Resize(o *Objects, n int) (resized *Objects, without int) {
	r := &resizing{from: o, out: &Objects{Nodes: o.Nodes}, used: AddressesOf(o), ports: map[int32]bool{}, next: map[source]netip.Addr{}, names: map[string]bool{}, nodePort: firstNodePort}
	slicesOf := map[types.NamespacedName][]*discoveryv1.EndpointSlice{}
	endpoints := map[types.NamespacedName]int{}
	for _, slice := range o.Slices {
		name := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
		slicesOf[name] = append(slicesOf[name], slice)
		endpoints[name] += len(slice.Endpoints)
	}
	nameOf := func(s *corev1.Service) types.NamespacedName {
		return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
	}
	var proxied []*corev1.Service
	for _, s := range o.Services {
		r.names[s.Namespace+"/"+s.Name] = true
		if Proxied(s) {
			proxied = append(proxied, s)
		}
		for _, port := range s.Spec.Ports {
			r.ports[port.NodePort] = true
		}
		r.ports[s.Spec.HealthCheckNodePort] = true
	}
	slices.SortStableFunc(proxied, func(a, b *corev1.Service) int {
		return cmp.Or(cmp.Compare(endpoints[nameOf(a)], endpoints[nameOf(b)]), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	if len(proxied) == 0 {
		return r.out, 0
	}
	for copied := 0; len(r.out.Services) < n; copied++ {
		left := min(n-len(r.out.Services), len(proxied))
		pods := map[string]string{} // a pod behind several Services stays one pod in each copy
		for i := range left {
			s := proxied[(2*i+1)*len(proxied)/(2*left)]
			r.add(s, slicesOf[nameOf(s)], copied, pods)
		}
	}
	r.out.SortOthers()
	return r.out, r.without
}

// The order in which copies take node ports: the API server's default range, what is above, then what is below.
const firstNodePort, lastPort, lowestNodePort = 30000, 65535, 1024

type resizing struct {
	from     *Objects
	out      *Objects
	used     map[netip.Addr]bool
	next     map[source]netip.Addr
	ports    map[int32]bool
	names    map[string]bool
	nodePort int32
	without  int
}

// source is a range of addresses of copies: the cluster has no other address there.
type source struct {
	family corev1.IPFamily
	pods   bool
}

// address returns an address of a family that no object has. Pods and Services have ranges of their own.
func (r *resizing) address(family corev1.IPFamily, pods bool) string {
	of := source{family, pods}
	addr, begun := r.next[of]
	if !begun {
		of := FreeRange(r.from, family)
		if pods {
			of = FreeRange(r.from, family, of)
		}
		addr = of.Addr().Next()
	}
	for last := addr.AsSlice(); r.used[addr] || last[len(last)-1] == 0 || last[len(last)-1] == 255; last = addr.AsSlice() {
		addr = addr.Next()
	}
	r.used[addr], r.next[of] = true, addr.Next()
	return addr.String()
}

// port returns a free node port; 0: there is none.
func (r *resizing) port() int32 {
	if r.without > 0 {
		r.without++
		return 0
	}
	for range lastPort - lowestNodePort + 1 {
		port := r.nodePort
		if r.nodePort++; r.nodePort > lastPort {
			r.nodePort = lowestNodePort
		}
		if !r.ports[port] {
			r.ports[port] = true
			return port
		}
	}
	r.without++
	return 0
}

func (r *resizing) add(s *corev1.Service, of []*discoveryv1.EndpointSlice, copied int, pods map[string]string) {
	if copied == 0 {
		r.out.Services, r.out.Slices = append(r.out.Services, s), append(r.out.Slices, of...)
		return
	}
	s = s.DeepCopy()
	s.Name, s.UID = r.copyName(s.Namespace, s.Name, copied), ""
	for i, ip := range s.Spec.ClusterIPs {
		s.Spec.ClusterIPs[i] = r.address(FamilyOf(ip), false)
	}
	if s.Spec.ClusterIP = r.address(FamilyOf(s.Spec.ClusterIP), false); len(s.Spec.ClusterIPs) > 0 {
		s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	}
	for i, ip := range s.Spec.ExternalIPs {
		s.Spec.ExternalIPs[i] = r.address(FamilyOf(ip), false)
	}
	for i := range s.Status.LoadBalancer.Ingress {
		if in := &s.Status.LoadBalancer.Ingress[i]; in.IP != "" {
			in.IP = r.address(FamilyOf(in.IP), false)
		}
	}
	for i := range s.Spec.Ports {
		if port := &s.Spec.Ports[i]; port.NodePort != 0 {
			port.NodePort = r.port()
		}
	}
	if s.Spec.HealthCheckNodePort != 0 {
		s.Spec.HealthCheckNodePort = r.port()
	}
	r.out.Services = append(r.out.Services, s)
	for _, slice := range of {
		slice = slice.DeepCopy()
		slice.Name, slice.UID = fmt.Sprintf("%.200s-copy-%d-%d", slice.Name, copied, len(r.out.Slices)), ""
		slice.Labels[discoveryv1.LabelServiceName] = s.Name
		slice.OwnerReferences = nil
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			for k, text := range e.Addresses {
				if slice.AddressType == discoveryv1.AddressTypeFQDN {
					continue
				}
				if pods[text] == "" {
					pods[text] = r.address(FamilyOf(text), true)
				}
				e.Addresses[k] = pods[text]
			}
			if e.TargetRef != nil {
				e.TargetRef.Name = fmt.Sprintf("%.230s-copy-%d", e.TargetRef.Name, copied)
			}
		}
		r.out.Slices = append(r.out.Slices, slice)
	}
}

// longestName is the limit of a DNS label.
const longestName = 63

func (r *resizing) copyName(namespace, name string, copied int) string {
	suffix := fmt.Sprintf("-copy-%d", copied)
	for {
		out := name[:min(len(name), longestName-len(suffix))] + suffix
		if key := namespace + "/" + out; !r.names[key] {
			r.names[key] = true
			return out
		}
		suffix += fmt.Sprintf("-%d", len(r.out.Services)) // names with the same beginning
	}
}
