package tracker

import (
	"slices"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Digester makes digests: what the trackers of a node need of API objects, and nothing else of them. An informer that
// stores digests holds a small part of what it lists, and what it holds it shares with the trackers.
type Digester struct {
	NodeName string // endpoints of this node are local
	// Families that Services are translated for; none: IPv4 and IPv6. An EndpointSlice has one of its own.
	Families []corev1.IPFamily
	// NoExternalIPs leaves the external IPs of Services out.
	NoExternalIPs bool
}

// Transform is a cache.TransformFunc: Services and EndpointSlices become digests, all else stays as it is. A digest is
// its own.
func (d Digester) Transform(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Service:
		return d.Service(o), nil
	case *discoveryv1.EndpointSlice:
		return d.Slice(o), nil
	}
	return obj, nil
}

// identity is what informers want to know of an object.
type identity struct {
	types.NamespacedName
	version string
}

func identityOf(meta *metav1.ObjectMeta) identity {
	name := types.NamespacedName{Namespace: intern(meta.Namespace), Name: meta.Name}
	return identity{name, meta.ResourceVersion}
}

// GetObjectMeta implements metav1.ObjectMetaAccessor, with nothing but name and resourceVersion.
func (i *identity) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: i.Namespace, Name: i.Name, ResourceVersion: i.version}
}

// GetResourceVersion of the object.
func (i *identity) GetResourceVersion() string { return i.version }

// ServiceDigest is what Trackers need of a Service. Immutable.
type ServiceDigest struct {
	identity
	specs [2]*spec // by indexOf(family)
}

// Service digests a Service.
func (d Digester) Service(svc *corev1.Service) *ServiceDigest {
	digest := &ServiceDigest{identity: identityOf(&svc.ObjectMeta)}
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		if len(d.Families) == 0 || slices.Contains(d.Families, family) {
			digest.specs[indexOf(family)] = translateService(svc, digest.NamespacedName, family)
			if d.NoExternalIPs {
				digest.specs[indexOf(family)].closeExternalIPs()
			}
		}
	}
	return digest
}

func indexOf(family corev1.IPFamily) int {
	if family == corev1.IPv6Protocol {
		return 1
	}
	return 0
}

// SliceDigest is what Trackers need of an EndpointSlice. Immutable.
type SliceDigest struct {
	identity
	service   string // empty: the slice is of no Service that is proxied
	family    discoveryv1.AddressType
	endpoints []PortEndpoints
	trigger   time.Time // its last-change-trigger-time annotation; zero when absent
}

// Slice digests an EndpointSlice.
func (d Digester) Slice(obj *discoveryv1.EndpointSlice) *SliceDigest {
	digest := &SliceDigest{identity: identityOf(&obj.ObjectMeta), family: addressType(obj.AddressType)}
	if _, headless := obj.Labels[LabelHeadless]; headless || digest.family == "" {
		return digest
	}
	digest.service = obj.Labels[discoveryv1.LabelServiceName]
	if digest.service == "" {
		return digest
	}
	digest.endpoints = translateSlice(obj, d.NodeName)
	if at, err := time.Parse(time.RFC3339Nano, obj.Annotations[corev1.EndpointsLastChangeTriggerTime]); err == nil {
		digest.trigger = at
	}
	return digest
}

// Moved says whether a slice went over to another Service, or to none, since it was as in old: its labels may be
// changed, and the old Service has to lose its endpoints.
func (s *SliceDigest) Moved(old *SliceDigest) bool {
	return s.service != old.service || s.family != old.family
}

// owner names the slice's Service; false if it is of none of a family's.
func (s *SliceDigest) owner(family corev1.IPFamily) (types.NamespacedName, bool) {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.service}, s.service != "" && string(s.family) == string(family)
}

// addressType is one of IP addresses, or empty: host names are not for a proxier.
func addressType(t discoveryv1.AddressType) discoveryv1.AddressType {
	switch t {
	case discoveryv1.AddressTypeIPv4:
		return discoveryv1.AddressTypeIPv4
	case discoveryv1.AddressTypeIPv6:
		return discoveryv1.AddressTypeIPv6
	}
	return ""
}

// intern gives one copy of a text that many objects hold: decoding makes a new one for each.
func intern(text string) string {
	if text == "" {
		return ""
	}
	return unique.Make(text).Value()
}

// protocolOf is a constant for what the API knows.
func protocolOf(p corev1.Protocol) corev1.Protocol {
	for _, known := range [...]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
		if p == known {
			return known
		}
	}
	if p == "" {
		return corev1.ProtocolTCP // the API's default
	}
	return p
}
