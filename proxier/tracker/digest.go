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

// Digester makes digests: the parts of API objects that the trackers of a node need. An informer that stores digests
// holds a small part of each object and shares it with the trackers.
type Digester struct {
	NodeName string // endpoints of this node are local
	// Families that Services are translated for; none: IPv4 and IPv6. An EndpointSlice has exactly one family.
	Families []corev1.IPFamily
	// NoExternalIPs omits the external IPs of Services.
	NoExternalIPs bool
}

// Transform is a cache.TransformFunc. Services and EndpointSlices become digests. All other objects, and digests, stay
// as they are.
func (d Digester) Transform(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Service:
		return d.Service(o), nil
	case *discoveryv1.EndpointSlice:
		return d.Slice(o), nil
	}
	return obj, nil
}

// identity is the metadata that informers need.
type identity struct {
	types.NamespacedName
	version string
}

func identityOf(meta *metav1.ObjectMeta) identity {
	name := types.NamespacedName{Namespace: intern(meta.Namespace), Name: meta.Name}
	return identity{name, meta.ResourceVersion}
}

// GetObjectMeta implements metav1.ObjectMetaAccessor, with only the name and the resourceVersion.
func (i *identity) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: i.Namespace, Name: i.Name, ResourceVersion: i.version}
}

// GetResourceVersion returns the object's resourceVersion.
func (i *identity) GetResourceVersion() string { return i.version }

// ServiceDigest is the part of a Service that Trackers need. Immutable.
type ServiceDigest struct {
	identity
	specs [2]*spec // by indexOf(family)
}

// Service returns the digest of a Service.
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

// SliceDigest is the part of an EndpointSlice that Trackers need. Immutable.
type SliceDigest struct {
	identity
	service   string // empty: the slice belongs to no proxied Service
	family    discoveryv1.AddressType
	endpoints []PortEndpoints
	trigger   time.Time // its last-change-trigger-time annotation; zero when absent
}

// Slice returns the digest of an EndpointSlice.
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

// Moved reports whether a change of labels moved the slice from the Service in old to another one, or to none. The old
// Service then has to lose its endpoints.
func (s *SliceDigest) Moved(old *SliceDigest) bool {
	return s.service != old.service || s.family != old.family
}

// owner returns the slice's Service; false if it has no Service in this family.
func (s *SliceDigest) owner(family corev1.IPFamily) (types.NamespacedName, bool) {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.service}, s.service != "" && string(s.family) == string(family)
}

// addressType returns an IP address type, or empty: a proxier does not use host names.
func addressType(t discoveryv1.AddressType) discoveryv1.AddressType {
	switch t {
	case discoveryv1.AddressTypeIPv4:
		return discoveryv1.AddressTypeIPv4
	case discoveryv1.AddressTypeIPv6:
		return discoveryv1.AddressTypeIPv6
	}
	return ""
}

// intern returns one shared copy of a text that many objects contain. Decoding makes a copy for each object.
func intern(text string) string {
	if text == "" {
		return ""
	}
	return unique.Make(text).Value()
}

// protocolOf returns the constant for a protocol that the API has.
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
