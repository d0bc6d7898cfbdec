package front

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

type ageOf = func(metav1.Time) string

var serviceColumns = tableColumns{
	columnsOf([]string{"Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age"}, "Selector"),
	func(o runtime.Object, age ageOf) []any {
		s := o.(*corev1.Service)
		clusterIP := "<none>"
		if len(s.Spec.ClusterIPs) > 0 {
			clusterIP = s.Spec.ClusterIPs[0]
		} else if s.Spec.ClusterIP != "" {
			clusterIP = s.Spec.ClusterIP
		}
		var ports []string
		for _, p := range s.Spec.Ports {
			port := strconv.Itoa(int(p.Port))
			if p.NodePort > 0 {
				port += ":" + strconv.Itoa(int(p.NodePort))
			}
			ports = append(ports, port+"/"+string(p.Protocol))
		}
		return []any{
			s.Name, string(s.Spec.Type), clusterIP, externalIPs(s), cmp.Or(strings.Join(ports, ","), "<none>"), age(s.CreationTimestamp),
			labels.FormatLabels(s.Spec.Selector),
		}
	},
}

// externalIPs returns the addresses at which clients outside of the cluster reach a Service.
func externalIPs(s *corev1.Service) string {
	switch s.Spec.Type {
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	case corev1.ServiceTypeLoadBalancer:
		var all []string
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			if address := cmp.Or(ingress.IP, ingress.Hostname); address != "" {
				all = append(all, address)
			}
		}
		slices.Sort(all)
		all = append(slices.Compact(all), s.Spec.ExternalIPs...)
		return cmp.Or(strings.Join(all, ","), "<pending>")
	default:
		return cmp.Or(strings.Join(s.Spec.ExternalIPs, ","), "<none>")
	}
}

var sliceColumns = tableColumns{
	columnsOf([]string{"Name", "AddressType", "Ports", "Endpoints", "Age"}),
	func(o runtime.Object, age ageOf) []any {
		s := o.(*discoveryv1.EndpointSlice)
		var ports, addresses []string
		for _, p := range s.Ports {
			switch {
			case p.Port != nil:
				ports = append(ports, strconv.Itoa(int(*p.Port)))
			case p.Name != nil:
				ports = append(ports, *p.Name)
			default:
				ports = append(ports, "*")
			}
		}
		for _, e := range s.Endpoints {
			addresses = append(addresses, e.Addresses...)
		}
		return []any{s.Name, string(s.AddressType), firstThree(ports), firstThree(addresses), age(s.CreationTimestamp)}
	},
}

// firstThree returns what fits into a column.
func firstThree(all []string) string {
	const most = 3
	switch {
	case len(all) == 0:
		return "<unset>"
	case len(all) > most:
		return fmt.Sprintf("%s + %d more...", strings.Join(all[:most], ","), len(all)-most)
	default:
		return strings.Join(all, ",")
	}
}

var nodeColumns = tableColumns{
	columnsOf([]string{"Name", "Status", "Roles", "Age", "Version"}, "Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
	func(o runtime.Object, age ageOf) []any {
		n := o.(*corev1.Node)
		about := n.Status.NodeInfo
		kernel := cmp.Or(about.KernelVersion, "<unknown>")
		if about.Architecture != "" {
			kernel += " (" + about.Architecture + ")"
		}
		return []any{
			n.Name, nodeStatus(n), nodeRoles(n), age(n.CreationTimestamp), about.KubeletVersion,
			nodeAddress(n, corev1.NodeInternalIP), nodeAddress(n, corev1.NodeExternalIP),
			cmp.Or(about.OSImage, "<unknown>"), kernel, cmp.Or(about.ContainerRuntimeVersion, "<unknown>"),
		}
	},
}

func nodeStatus(n *corev1.Node) string {
	status := "Unknown"
	for _, c := range n.Status.Conditions {
		switch {
		case c.Type != corev1.NodeReady:
		case c.Status == corev1.ConditionTrue:
			status = "Ready"
		default:
			status = "NotReady"
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

func nodeRoles(n *corev1.Node) string {
	var roles []string
	for _, label := range slices.Sorted(maps.Keys(n.Labels)) {
		if role, ok := strings.CutPrefix(label, "node-role.kubernetes.io/"); ok && role != "" {
			roles = append(roles, role)
		}
	}
	return cmp.Or(strings.Join(roles, ","), "<none>")
}

func nodeAddress(n *corev1.Node, kind corev1.NodeAddressType) string {
	for _, a := range n.Status.Addresses {
		if a.Type == kind {
			return a.Address
		}
	}
	return "<none>"
}

var namespaceColumns = tableColumns{
	columnsOf([]string{"Name", "Status", "Age"}),
	func(o runtime.Object, age ageOf) []any {
		n := o.(*corev1.Namespace)
		return []any{n.Name, string(n.Status.Phase), age(n.CreationTimestamp)}
	},
}

var serviceCIDRColumns = tableColumns{
	columnsOf([]string{"Name", "CIDRs", "Age"}),
	func(o runtime.Object, age ageOf) []any {
		c := o.(*networkingv1.ServiceCIDR)
		return []any{c.Name, strings.Join(c.Spec.CIDRs, ","), age(c.CreationTimestamp)}
	},
}

var eventColumns = tableColumns{
	columnsOf([]string{"Last Seen", "Type", "Reason", "Object", "Message"}, "Source", "Count", "Name"),
	func(o runtime.Object, age ageOf) []any {
		e := o.(*corev1.Event)
		seen, count := e.LastTimestamp, e.Count
		if seen.IsZero() {
			seen = metav1.NewTime(e.EventTime.Time)
		}
		if e.Series != nil {
			seen, count = metav1.NewTime(e.Series.LastObservedTime.Time), e.Series.Count
		}
		object := strings.ToLower(e.InvolvedObject.Kind)
		if e.InvolvedObject.Name != "" {
			object += "/" + e.InvolvedObject.Name
		}
		source := cmp.Or(e.Source.Component, e.ReportingController)
		if host := cmp.Or(e.Source.Host, e.ReportingInstance); host != "" {
			source += ", " + host
		}
		return []any{
			age(seen), e.Type, e.Reason, object, strings.TrimSpace(e.Message), source, strconv.Itoa(int(max(count, 1))), e.Name,
		}
	},
}

var groupEventColumns = tableColumns{
	eventColumns.columns,
	func(o runtime.Object, age ageOf) []any {
		return eventColumns.cells(coreEvent(o.(*eventsv1.Event)), age)
	},
}

// eventFields are the fields by which Events can be selected: kubectl describe selects the Events of an object.
var eventFields = map[string]func(runtime.Object) string{
	"involvedObject.kind":       func(o runtime.Object) string { return o.(*corev1.Event).InvolvedObject.Kind },
	"involvedObject.namespace":  func(o runtime.Object) string { return o.(*corev1.Event).InvolvedObject.Namespace },
	"involvedObject.name":       func(o runtime.Object) string { return o.(*corev1.Event).InvolvedObject.Name },
	"involvedObject.uid":        func(o runtime.Object) string { return string(o.(*corev1.Event).InvolvedObject.UID) },
	"involvedObject.apiVersion": func(o runtime.Object) string { return o.(*corev1.Event).InvolvedObject.APIVersion },
	"involvedObject.fieldPath":  func(o runtime.Object) string { return o.(*corev1.Event).InvolvedObject.FieldPath },
	"reason":                    func(o runtime.Object) string { return o.(*corev1.Event).Reason },
	"reportingComponent":        func(o runtime.Object) string { return o.(*corev1.Event).ReportingController },
	"source":                    func(o runtime.Object) string { return o.(*corev1.Event).Source.Component },
	"type":                      func(o runtime.Object) string { return o.(*corev1.Event).Type },
}
