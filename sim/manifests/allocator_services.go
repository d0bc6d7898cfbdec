package manifests

import (
	"fmt"
	"net/netip"
	"strings"
	"synclab/internal/inet"
	"synclab/sim"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// serviceAllocator plays the API server and a load balancer's controller for Services. It allocates clusterIPs, node
// ports, health check node ports and ingress addresses. Explicit values are reserved first (reserve, for all
// Services); allocate then fills in the missing ones, in the caller's order. An explicit value outside of the ranges
// is kept: it may come from a cluster with other ranges.
type serviceAllocator struct {
	families  []corev1.IPFamily // of the cluster, the preferred one first
	clusterIP map[corev1.IPFamily]*addressPool
	ingress   map[corev1.IPFamily]*addressPool // empty: ingress addresses are not changed
	ports     *portPool
	book      addressBook // clusterIPs
}

func newServiceAllocator(opts ReadOptions) *serviceAllocator {
	a := &serviceAllocator{
		families:  familiesOf(opts.ServiceCIDRs),
		clusterIP: map[corev1.IPFamily]*addressPool{},
		ingress:   map[corev1.IPFamily]*addressPool{},
		ports:     newPortPool(opts.NodePortRange),
		book:      addressBook{},
	}
	ingressBook := addressBook{}
	for _, family := range sim.IPFamilies {
		// The first address of a cluster's range belongs to default/kubernetes.
		a.clusterIP[family] = newAddressPool(opts.ServiceCIDRs, family, 1, a.book)
		a.ingress[family] = newAddressPool(opts.LoadBalancerCIDRs, family, 0, ingressBook)
	}
	return a
}

// familiesOf lists the families of the prefixes, in order of appearance.
func familiesOf(prefixes []netip.Prefix) []corev1.IPFamily {
	var families []corev1.IPFamily
	for _, prefix := range prefixes {
		family := inet.FamilyOf(prefix.Addr())
		if len(families) == 0 || families[0] != family && len(families) == 1 {
			families = append(families, family)
		}
	}
	return families
}

// healthCheck ends the owner of a health check's port.
const healthCheck = " (health check)"

// reserve records the explicit addresses and ports of the Service, and reports those that another Service has. In a dump,
// a health check may share its port: API servers before 1.12 did not reserve it.
func (a *serviceAllocator) reserve(service *corev1.Service, l *sim.Legacy) field.ErrorList {
	var errs field.ErrorList
	owner, path := sim.ObjectName("service", service), field.NewPath("spec")
	reservePort := func(at *field.Path, port int32, protocol corev1.Protocol, owner string) {
		other := a.ports.reserve(port, protocol, owner)
		if other != "" && l != nil && (strings.HasSuffix(other, healthCheck) || strings.HasSuffix(owner, healthCheck)) {
			l.Note(fmt.Sprintf("%s %d is also used by %s", at, port, other))
		} else if other != "" {
			errs = append(errs, field.Invalid(at, port, "is already used by "+other))
		}
	}
	for i, ip := range service.Spec.ClusterIPs {
		address, ok := inet.ParseAddr(ip)
		if !ok {
			continue // None
		}
		if other := a.book.reserve(address, owner); other != "" {
			errs = append(errs, field.Invalid(path.Child("clusterIPs").Index(i), ip, "is already used by "+other))
		}
	}
	for i, port := range service.Spec.Ports {
		if port.NodePort != 0 {
			reservePort(path.Child("ports").Index(i).Child("nodePort"), port.NodePort, port.Protocol, owner)
		}
	}
	if port := service.Spec.HealthCheckNodePort; port != 0 {
		// The health check is an HTTP server on the node.
		reservePort(path.Child("healthCheckNodePort"), port, corev1.ProtocolTCP, owner+healthCheck)
	}
	asked := []string{service.Spec.LoadBalancerIP} // deprecated, but many manifests still set it
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		asked = append(asked, ingress.IP)
	}
	for _, ip := range asked {
		// Load balancers may share an address: it is no conflict, but it is not allocated either.
		if address, ok := inet.ParseAddr(ip); ok {
			a.ingress[inet.FamilyOf(address)].book.reserve(address, owner)
		}
	}
	return errs
}

// allocate fills in the Service's missing addresses and ports.
func (a *serviceAllocator) allocate(service *corev1.Service) *field.Error {
	if err := a.allocateClusterIPs(service); err != nil {
		return err
	}
	if err := a.allocatePorts(service); err != nil {
		return err
	}
	if service.Spec.Type == corev1.ServiceTypeLoadBalancer {
		return a.allocateIngress(service)
	}
	return nil
}

func (a *serviceAllocator) allocateClusterIPs(service *corev1.Service) *field.Error {
	spec, path := &service.Spec, field.NewPath("spec")
	if spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	if ptr.Deref(spec.IPFamilyPolicy, "") == corev1.IPFamilyPolicyRequireDualStack && len(spec.IPFamilies) < 2 {
		return field.Invalid(path.Child("ipFamilyPolicy"), *spec.IPFamilyPolicy,
			fmt.Sprintf("the cluster's service ranges are all %s", a.families[0]))
	}
	if spec.ClusterIP == corev1.ClusterIPNone {
		return nil
	}
	for i := len(spec.ClusterIPs); i < len(spec.IPFamilies); i++ {
		address, err := a.clusterIP[spec.IPFamilies[i]].take(sim.ObjectName("service", service))
		if err != nil {
			return field.Invalid(path.Child("ipFamilies").Index(i), spec.IPFamilies[i], err.Error())
		}
		spec.ClusterIPs = append(spec.ClusterIPs, address.String())
	}
	spec.ClusterIP = spec.ClusterIPs[0]
	return nil
}

func (a *serviceAllocator) allocatePorts(service *corev1.Service) *field.Error {
	spec, path, owner := &service.Spec, field.NewPath("spec"), sim.ObjectName("service", service)
	wanted := spec.Type == corev1.ServiceTypeNodePort ||
		spec.Type == corev1.ServiceTypeLoadBalancer && ptr.Deref(spec.AllocateLoadBalancerNodePorts, true)
	for i := range spec.Ports {
		port := &spec.Ports[i]
		if !wanted || port.NodePort != 0 {
			continue
		}
		// One port for two protocols (DNS) gets one node port, if that is free for both.
		for _, other := range spec.Ports {
			if other.Port == port.Port && other.Protocol != port.Protocol && other.NodePort != 0 &&
				a.ports.reserve(other.NodePort, port.Protocol, owner) == "" {
				port.NodePort = other.NodePort
				break
			}
		}
		if port.NodePort != 0 {
			continue
		}
		number, err := a.ports.take(port.Protocol, owner)
		if err != nil {
			return field.Invalid(path.Child("ports").Index(i).Child("nodePort"), port.NodePort, err.Error())
		}
		port.NodePort = number
	}
	if sim.NeedsHealthCheck(spec) && spec.HealthCheckNodePort == 0 {
		number, err := a.ports.take(corev1.ProtocolTCP, owner+healthCheck)
		if err != nil {
			return field.Invalid(path.Child("healthCheckNodePort"), 0, err.Error())
		}
		spec.HealthCheckNodePort = number
	}
	return nil
}

// allocateIngress plays the load balancer's controller: it adds an address of each of the Service's families that has
// ranges, or the one that the Service requests.
func (a *serviceAllocator) allocateIngress(service *corev1.Service) *field.Error {
	status := &service.Status.LoadBalancer
	if len(status.Ingress) > 0 {
		return nil
	}
	add := func(ip string) {
		status.Ingress = append(status.Ingress, corev1.LoadBalancerIngress{IP: ip, IPMode: ptr.To(corev1.LoadBalancerIPModeVIP)})
	}
	if _, ok := inet.ParseAddr(service.Spec.LoadBalancerIP); ok {
		add(service.Spec.LoadBalancerIP)
		return nil
	}
	for _, family := range service.Spec.IPFamilies {
		if len(a.ingress[family].prefixes) == 0 {
			continue
		}
		address, err := a.ingress[family].take(sim.ObjectName("service", service))
		if err != nil {
			return field.Invalid(field.NewPath("status", "loadBalancer", "ingress"), "", err.Error())
		}
		add(address.String())
	}
	return nil
}
