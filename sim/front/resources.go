package front

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resource describes one resource of the API.
type resource struct {
	schema.GroupVersionResource
	kind, singular string
	shortNames     []string
	categories     []string
	namespaced     bool
	writable       bool // only Events may be written
	// fields are those that a field selector may name, besides metadata.name and metadata.namespace.
	fields map[string]func(runtime.Object) string
	table  tableColumns
	empty  func() runtime.Object
	// copy returns a shallow copy.
	copy func(runtime.Object) runtime.Object
}

func (r *resource) gvk() schema.GroupVersionKind { return r.GroupVersion().WithKind(r.kind) }

// stamped returns a shallow copy of an object with its kind set.
func (r *resource) stamped(o runtime.Object) runtime.Object {
	next := r.copy(o)
	next.GetObjectKind().SetGroupVersionKind(r.gvk())
	return next
}

// fieldsOf returns the values that a field selector is matched with.
func (r *resource) fieldsOf(it *item, selector fields.Selector) fields.Set {
	set := fields.Set{}
	for _, requirement := range selector.Requirements() {
		switch field := requirement.Field; field {
		case "metadata.name":
			set[field] = it.meta.GetName()
		case "metadata.namespace":
			set[field] = it.meta.GetNamespace()
		default:
			set[field] = r.fields[field](it.object)
		}
	}
	return set
}

// checkFields refuses selectors of unsupported fields.
func (r *resource) checkFields(selector fields.Selector) error {
	for _, requirement := range selector.Requirements() {
		switch field := requirement.Field; field {
		case "metadata.name":
		case "metadata.namespace":
			if !r.namespaced {
				return fmt.Errorf("field label not supported: %s", field)
			}
		default:
			if r.fields[field] == nil {
				return fmt.Errorf("field label not supported: %s", field)
			}
		}
	}
	return nil
}

// shallow sets the functions of a resource that depend on its Go type.
func shallow[T any, P interface {
	*T
	runtime.Object
}](r *resource) *resource {
	r.empty = func() runtime.Object { return P(new(T)) }
	r.copy = func(o runtime.Object) runtime.Object {
		next := *o.(P)
		return P(&next)
	}
	return r
}

// The resources, in the order in which discovery lists their groups.
var (
	services = shallow[corev1.Service](&resource{
		GroupVersionResource: corev1.SchemeGroupVersion.WithResource("services"),
		kind:                 "Service", singular: "service", shortNames: []string{"svc"}, categories: []string{"all"}, namespaced: true,
		table: serviceColumns,
		fields: map[string]func(runtime.Object) string{
			"spec.clusterIP": func(o runtime.Object) string { return o.(*corev1.Service).Spec.ClusterIP },
			"spec.type":      func(o runtime.Object) string { return string(o.(*corev1.Service).Spec.Type) },
		},
	})
	nodes = shallow[corev1.Node](&resource{
		GroupVersionResource: corev1.SchemeGroupVersion.WithResource("nodes"),
		kind:                 "Node", singular: "node", shortNames: []string{"no"},
		table: nodeColumns,
		fields: map[string]func(runtime.Object) string{
			"spec.unschedulable": func(o runtime.Object) string { return strconv.FormatBool(o.(*corev1.Node).Spec.Unschedulable) },
		},
	})
	namespaces = shallow[corev1.Namespace](&resource{
		GroupVersionResource: corev1.SchemeGroupVersion.WithResource("namespaces"),
		kind:                 "Namespace", singular: "namespace", shortNames: []string{"ns"},
		table: namespaceColumns,
		fields: map[string]func(runtime.Object) string{
			"status.phase": func(o runtime.Object) string { return string(o.(*corev1.Namespace).Status.Phase) },
		},
	})
	coreEvents = shallow[corev1.Event](&resource{
		GroupVersionResource: corev1.SchemeGroupVersion.WithResource("events"),
		kind:                 "Event", singular: "event", shortNames: []string{"ev"}, namespaced: true, writable: true,
		table:  eventColumns,
		fields: eventFields,
	})
	endpointSlices = shallow[discoveryv1.EndpointSlice](&resource{
		GroupVersionResource: discoveryv1.SchemeGroupVersion.WithResource("endpointslices"),
		kind:                 "EndpointSlice", singular: "endpointslice", namespaced: true,
		table: sliceColumns,
	})
	events = shallow[eventsv1.Event](&resource{
		GroupVersionResource: eventsv1.SchemeGroupVersion.WithResource("events"),
		kind:                 "Event", singular: "event", shortNames: []string{"ev"}, namespaced: true, writable: true,
		table: groupEventColumns,
	})
	serviceCIDRs = shallow[networkingv1.ServiceCIDR](&resource{
		GroupVersionResource: networkingv1.SchemeGroupVersion.WithResource("servicecidrs"),
		kind:                 "ServiceCIDR", singular: "servicecidr",
		table: serviceCIDRColumns,
	})
	resources = []*resource{services, nodes, namespaces, coreEvents, endpointSlices, events, serviceCIDRs}
)

func resourceOf(gvr schema.GroupVersionResource) *resource {
	for _, r := range resources {
		if r.GroupVersionResource == gvr {
			return r
		}
	}
	return nil
}

// verbs lists the verbs that discovery reports for a resource.
func (r *resource) verbs() metav1.Verbs {
	if r.writable {
		return metav1.Verbs{"create", "get", "list", "patch", "update", "watch"}
	}
	return metav1.Verbs{"get", "list", "watch"}
}
