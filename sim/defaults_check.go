package sim

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Checks for what an API server would refuse and what would break a proxier: addresses and ports that no rule can
// contain, and names that are not unique. This is not the whole validation of the API.

var (
	Protocols    = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
	serviceTypes = []corev1.ServiceType{
		corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort,
		corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName,
	}
	IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
)

// Limits of the API server.
const (
	maxSliceEndpoints    = 1000
	maxEndpointAddresses = 100
	maxAffinityTimeout   = 86400 // seconds, one day
)

// CheckService lists what is wrong with a Service that has its defaults.
func CheckService(service *corev1.Service, l *Legacy) field.ErrorList {
	spec, path := &service.Spec, field.NewPath("spec")
	errs := CheckMeta(&service.ObjectMeta, validation.IsDNS1123Label)
	errs = append(errs, OneOf(path.Child("type"), spec.Type, serviceTypes)...)
	if spec.Type == corev1.ServiceTypeExternalName {
		for _, text := range validation.IsDNS1123Subdomain(strings.TrimSuffix(spec.ExternalName, ".")) {
			errs = append(errs, field.Invalid(path.Child("externalName"), spec.ExternalName, text))
		}
		if spec.ClusterIP != "" || len(spec.ClusterIPs) > 0 {
			errs = append(errs, field.Forbidden(path.Child("clusterIP"), "an ExternalName Service has none"))
		}
	} else if len(spec.Ports) == 0 && spec.ClusterIP != corev1.ClusterIPNone {
		errs = append(errs, field.Required(path.Child("ports"), "only a headless or ExternalName Service may have none"))
	}
	// The API allows externalIPs of a headless Service; proxies ignore them.
	if spec.ClusterIP == corev1.ClusterIPNone && (spec.Type == corev1.ServiceTypeNodePort || spec.Type == corev1.ServiceTypeLoadBalancer) {
		errs = append(errs, field.Invalid(path.Child("clusterIP"), spec.ClusterIP, fmt.Sprintf("a %s Service cannot be headless", spec.Type)))
	}
	errs = append(errs, checkServicePorts(spec, path.Child("ports"))...)
	errs = append(errs, checkServiceAddresses(service, path, l)...)
	errs = append(errs, checkServicePolicies(service, path)...)
	return errs
}

func CheckMeta(meta *metav1.ObjectMeta, name func(string) []string) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("metadata")
	if meta.Name == "" {
		return append(errs, field.Required(path.Child("name"), "synclab does not generate names"))
	}
	for _, text := range name(meta.Name) {
		errs = append(errs, field.Invalid(path.Child("name"), meta.Name, text))
	}
	if meta.Namespace != "" {
		for _, text := range validation.IsDNS1123Label(meta.Namespace) {
			errs = append(errs, field.Invalid(path.Child("namespace"), meta.Namespace, text))
		}
	}
	return errs
}

func OneOf[T ~string](path *field.Path, value T, allowed []T) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

func CheckPortNumber(path *field.Path, port int32) field.ErrorList {
	var errs field.ErrorList
	for _, text := range validation.IsValidPortNum(int(port)) {
		errs = append(errs, field.Invalid(path, port, text))
	}
	return errs
}

func checkServicePorts(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	type number struct {
		port     int32
		protocol corev1.Protocol
	}
	names, numbers, nodePorts := map[string]bool{}, map[number]bool{}, map[number]bool{}
	for i := range spec.Ports {
		port, at := &spec.Ports[i], path.Index(i)
		switch {
		case port.Name == "" && len(spec.Ports) > 1:
			errs = append(errs, field.Required(at.Child("name"), "each of several ports needs a name"))
		case port.Name != "" && names[port.Name]:
			errs = append(errs, field.Duplicate(at.Child("name"), port.Name))
		case port.Name != "":
			for _, text := range validation.IsDNS1123Label(port.Name) {
				errs = append(errs, field.Invalid(at.Child("name"), port.Name, text))
			}
		}
		names[port.Name] = true
		errs = append(errs, CheckPortNumber(at.Child("port"), port.Port)...)
		errs = append(errs, OneOf(at.Child("protocol"), port.Protocol, Protocols)...)
		errs = append(errs, checkTargetPort(at.Child("targetPort"), port.TargetPort)...)
		if own := (number{port.Port, port.Protocol}); numbers[own] {
			errs = append(errs, field.Duplicate(at.Child("port"), port.Port))
		} else {
			numbers[own] = true
		}
		if port.NodePort == 0 {
			continue
		}
		errs = append(errs, CheckPortNumber(at.Child("nodePort"), port.NodePort)...)
		if spec.Type == corev1.ServiceTypeClusterIP {
			errs = append(errs, field.Forbidden(at.Child("nodePort"), "only a NodePort or LoadBalancer Service may have one"))
		}
		if own := (number{port.NodePort, port.Protocol}); nodePorts[own] {
			errs = append(errs, field.Duplicate(at.Child("nodePort"), port.NodePort))
		} else {
			nodePorts[own] = true
		}
	}
	return errs
}

func checkTargetPort(path *field.Path, port intstr.IntOrString) field.ErrorList {
	if port.Type == intstr.Int {
		return CheckPortNumber(path, port.IntVal)
	}
	var errs field.ErrorList
	for _, text := range validation.IsValidPortName(port.StrVal) {
		errs = append(errs, field.Invalid(path, port.StrVal, text))
	}
	return errs
}

func checkServiceAddresses(service *corev1.Service, path *field.Path, l *Legacy) field.ErrorList {
	var errs field.ErrorList
	spec := &service.Spec
	for i, family := range spec.IPFamilies {
		errs = append(errs, OneOf(path.Child("ipFamilies").Index(i), family, IPFamilies)...)
	}
	if len(spec.IPFamilies) > 2 {
		errs = append(errs, field.TooMany(path.Child("ipFamilies"), len(spec.IPFamilies), 2))
	} else if len(spec.IPFamilies) == 2 && spec.IPFamilies[0] == spec.IPFamilies[1] {
		errs = append(errs, field.Duplicate(path.Child("ipFamilies").Index(1), spec.IPFamilies[1]))
	}
	if len(spec.ClusterIPs) > 2 {
		errs = append(errs, field.TooMany(path.Child("clusterIPs"), len(spec.ClusterIPs), 2))
	}
	for i, ip := range spec.ClusterIPs {
		at := path.Child("clusterIPs").Index(i)
		switch {
		case i == 0 && ip != spec.ClusterIP:
			errs = append(errs, field.Invalid(at, ip, "must be the clusterIP, "+spec.ClusterIP))
		case ip == corev1.ClusterIPNone && len(spec.ClusterIPs) == 1:
		default:
			bad := l.checkIP(path.Child("clusterIP"), ip)
			errs = append(errs, bad...)
			if len(bad) == 0 && i < len(spec.IPFamilies) && FamilyOf(ip) != spec.IPFamilies[i] {
				errs = append(errs, field.Invalid(at, ip, "is not of the family in ipFamilies, "+string(spec.IPFamilies[i])))
			}
		}
	}
	for i, ip := range spec.ExternalIPs {
		errs = append(errs, l.CheckReachableIP(path.Child("externalIPs").Index(i), ip)...)
	}
	for i, cidr := range spec.LoadBalancerSourceRanges {
		errs = append(errs, l.checkCIDR(path.Child("loadBalancerSourceRanges").Index(i), cidr)...)
	}
	if spec.LoadBalancerIP != "" { // deprecated, but many manifests still set it
		errs = append(errs, l.checkUnread(path.Child("loadBalancerIP"), spec.LoadBalancerIP)...)
	}
	ingresses := field.NewPath("status", "loadBalancer", "ingress")
	for i, ingress := range service.Status.LoadBalancer.Ingress {
		if ingress.IP != "" {
			errs = append(errs, l.checkIP(ingresses.Index(i).Child("ip"), ingress.IP)...)
		}
	}
	return errs
}

func checkServicePolicies(service *corev1.Service, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	spec := &service.Spec
	if policy := spec.IPFamilyPolicy; policy != nil {
		errs = append(errs, OneOf(path.Child("ipFamilyPolicy"), *policy, []corev1.IPFamilyPolicy{
			corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack,
		})...)
		if *policy == corev1.IPFamilyPolicySingleStack && (len(spec.IPFamilies) > 1 || len(spec.ClusterIPs) > 1) {
			errs = append(errs, field.Invalid(path.Child("ipFamilyPolicy"), *policy, "the Service names two families or two clusterIPs"))
		}
	}
	errs = append(errs, OneOf(path.Child("sessionAffinity"), spec.SessionAffinity,
		[]corev1.ServiceAffinity{corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP})...)
	if config := spec.SessionAffinityConfig; config != nil && config.ClientIP != nil && config.ClientIP.TimeoutSeconds != nil {
		seconds := *config.ClientIP.TimeoutSeconds
		if seconds < 1 || seconds > maxAffinityTimeout {
			errs = append(errs, field.Invalid(path.Child("sessionAffinityConfig", "clientIP", "timeoutSeconds"), seconds,
				validation.InclusiveRangeError(1, maxAffinityTimeout)))
		}
	}
	if policy := spec.InternalTrafficPolicy; policy != nil {
		errs = append(errs, OneOf(path.Child("internalTrafficPolicy"), *policy, []corev1.ServiceInternalTrafficPolicy{
			corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal,
		})...)
	}
	if policy := spec.ExternalTrafficPolicy; policy != "" {
		errs = append(errs, OneOf(path.Child("externalTrafficPolicy"), policy, []corev1.ServiceExternalTrafficPolicy{
			corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal,
		})...)
		if !ExternallyReachable(service) {
			errs = append(errs, field.Forbidden(path.Child("externalTrafficPolicy"), "nothing outside of the cluster reaches this Service"))
		}
	}
	if spec.HealthCheckNodePort != 0 {
		at := path.Child("healthCheckNodePort")
		errs = append(errs, CheckPortNumber(at, spec.HealthCheckNodePort)...)
		if !NeedsHealthCheck(spec) {
			errs = append(errs, field.Forbidden(at, "only a LoadBalancer Service with externalTrafficPolicy Local may have one"))
		}
	}
	return errs
}

// NeedsHealthCheck reports whether nodes answer a load balancer's health check for this Service: has the node a local
// endpoint?
func NeedsHealthCheck(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeLoadBalancer &&
		spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// CheckEndpointSlice lists what is wrong with an EndpointSlice that has its defaults.
func CheckEndpointSlice(slice *discoveryv1.EndpointSlice, l *Legacy) field.ErrorList {
	errs := CheckMeta(&slice.ObjectMeta, validation.IsDNS1123Subdomain)
	errs = append(errs, OneOf(field.NewPath("addressType"), slice.AddressType, []discoveryv1.AddressType{
		discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN,
	})...)
	names := map[string]bool{}
	for i := range slice.Ports {
		port, at := &slice.Ports[i], field.NewPath("ports").Index(i)
		if names[*port.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), *port.Name))
		} else if *port.Name != "" {
			for _, text := range validation.IsDNS1123Label(*port.Name) {
				errs = append(errs, field.Invalid(at.Child("name"), *port.Name, text))
			}
		}
		names[*port.Name] = true
		errs = append(errs, OneOf(at.Child("protocol"), *port.Protocol, Protocols)...)
		if port.Port != nil { // nil means every port
			errs = append(errs, CheckPortNumber(at.Child("port"), *port.Port)...)
		}
	}
	if len(slice.Endpoints) > maxSliceEndpoints {
		return append(errs, field.TooMany(field.NewPath("endpoints"), len(slice.Endpoints), maxSliceEndpoints))
	}
	for i := range slice.Endpoints {
		errs = append(errs, checkEndpoint(slice, &slice.Endpoints[i], field.NewPath("endpoints").Index(i), l)...)
	}
	return errs
}

func checkEndpoint(slice *discoveryv1.EndpointSlice, endpoint *discoveryv1.Endpoint, path *field.Path, l *Legacy) field.ErrorList {
	var errs field.ErrorList
	addresses := path.Child("addresses")
	switch n := len(endpoint.Addresses); {
	case n == 0:
		errs = append(errs, field.Required(addresses, "an endpoint needs an address"))
	case n > maxEndpointAddresses:
		errs = append(errs, field.TooMany(addresses, n, maxEndpointAddresses))
	}
	for i, address := range endpoint.Addresses {
		if slice.AddressType == discoveryv1.AddressTypeFQDN {
			for _, text := range validation.IsDNS1123Subdomain(strings.TrimSuffix(address, ".")) {
				errs = append(errs, field.Invalid(addresses.Index(i), address, text))
			}
			continue
		}
		bad := l.CheckReachableIP(addresses.Index(i), address)
		errs = append(errs, bad...)
		if len(bad) == 0 && string(FamilyOf(address)) != string(slice.AddressType) {
			errs = append(errs, field.Invalid(addresses.Index(i), address, "is not of the addressType, "+string(slice.AddressType)))
		}
	}
	if endpoint.NodeName != nil {
		for _, text := range validation.IsDNS1123Subdomain(*endpoint.NodeName) {
			errs = append(errs, field.Invalid(path.Child("nodeName"), *endpoint.NodeName, text))
		}
	}
	return errs
}

// CheckNode lists what is wrong with a Node. An API server does not check a node's addresses.
func CheckNode(node *corev1.Node, l *Legacy) field.ErrorList {
	errs := CheckMeta(&node.ObjectMeta, validation.IsDNS1123Subdomain)
	for i, address := range node.Status.Addresses {
		at := field.NewPath("status", "addresses").Index(i).Child("address")
		if isIP := address.Type == corev1.NodeInternalIP || address.Type == corev1.NodeExternalIP; isIP && l != nil {
			l.checkUnread(at, address.Address)
		} else if isIP {
			errs = append(errs, l.CheckReachableIP(at, address.Address)...)
		}
	}
	for i, cidr := range node.Spec.PodCIDRs {
		errs = append(errs, l.checkCIDR(field.NewPath("spec", "podCIDRs").Index(i), cidr)...)
	}
	return errs
}
