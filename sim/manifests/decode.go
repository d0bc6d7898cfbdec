package manifests

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	casejson "sigs.k8s.io/json"

	"synclab/internal/yamldoc"
	"synclab/sim"
)

// wantedKinds are the kinds that affect a proxy, with the version in which an API server serves them.
var wantedKinds = map[schema.GroupKind]string{
	{Kind: "Service"}:               "v1",
	{Kind: "Endpoints"}:             "v1",
	{Kind: "Node"}:                  "v1",
	{Kind: "Pod"}:                   "v1",
	{Kind: "ReplicationController"}: "v1",
	{Group: "discovery.k8s.io", Kind: "EndpointSlice"}: "v1",
	{Group: "apps", Kind: "Deployment"}:                "v1",
	{Group: "apps", Kind: "ReplicaSet"}:                "v1",
	{Group: "apps", Kind: "StatefulSet"}:               "v1",
	{Group: "apps", Kind: "DaemonSet"}:                 "v1",
	// The group these kinds had before Kubernetes 1.16.
	{Group: "extensions", Kind: "Deployment"}: "",
	{Group: "extensions", Kind: "ReplicaSet"}: "",
	{Group: "extensions", Kind: "DaemonSet"}:  "",
}

// clusterKinds are the wanted kinds without a namespace.
var clusterKinds = map[string]bool{"Node": true}

// head holds the fields of an object that decide how to read the rest.
type head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name              string `json:"name"`
		Namespace         string `json:"namespace"`
		UID               any    `json:"uid"`
		ResourceVersion   any    `json:"resourceVersion"`
		CreationTimestamp any    `json:"creationTimestamp"`
	} `json:"metadata"`
	Status any             `json:"status"`
	Items  json.RawMessage `json:"items"` // of any type: custom resources have such fields too
}

// items returns the objects of a list.
func (h head) items() (items []json.RawMessage, err error) {
	if h.Items != nil {
		err = json.Unmarshal(h.Items, &items)
	}
	return items, err
}

// object names the object. Only kinds that are known to have a namespace get the default one.
func (h head) object() string {
	if h.Kind == "" || h.Metadata.Name == "" {
		return strings.ToLower(h.Kind)
	}
	namespace := h.Metadata.Namespace
	group, _ := schema.ParseGroupVersion(h.APIVersion)
	if _, wanted := wantedKinds[group.WithKind(h.Kind).GroupKind()]; wanted && namespace == "" && !clusterKinds[h.Kind] {
		namespace = metav1.NamespaceDefault
	}
	return sim.NameOf(h.Kind, namespace, h.Metadata.Name)
}

// isDumped reports whether an object has fields that only an API server sets. Manifests of pods and nodes have a status,
// too.
func (h head) isDumped() bool {
	m := h.Metadata
	return hasValue(m.UID) || hasValue(m.ResourceVersion) || hasValue(m.CreationTimestamp) ||
		h.Kind != "Pod" && h.Kind != "Node" && hasValue(h.Status)
}

// hasValue reports whether a value holds any text, number or truth: tools write "status: {loadBalancer: {}}" and
// "creationTimestamp: null".
func hasValue(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		return slices.ContainsFunc(slices.Collect(maps.Values(value)), hasValue)
	case []any:
		return slices.ContainsFunc(value, hasValue)
	}
	return value != nil && value != ""
}

// readFile reads every object of a file.
func (m *manifests) readFile(file inputFile) {
	for d := range splitDocuments(file) {
		if len(m.problems) > manyFaults {
			return
		}
		if m.refuseError(d) || m.readList(d) {
			continue
		}
		if len(d.text) > largestDocument {
			m.refuseLarge(d)
			continue
		}
		text, err := parse(d.text)
		if err != nil {
			m.refuseSyntax(d, err)
			continue
		}
		m.readObject(&fragment{document: d, json: text}, schema.GroupVersionKind{})
	}
}

// deepestList limits lists of lists.
const deepestList = 8

// readObject reads an object, or each item of a list. expected is the kind of the items of a typed list (ServiceList):
// they need not name it themselves.
func (m *manifests) readObject(at *fragment, expected schema.GroupVersionKind) {
	switch at.json[0] {
	case 'n': // null
		return
	case '[':
		m.readItems(at, head{Items: at.json}, "", expected)
		return
	case '{':
	default:
		m.refuseKindless(at, head{})
		return
	}
	var h head
	if err := casejson.UnmarshalCaseSensitivePreserveInts(at.json, &h); err != nil {
		m.refuseHead(at, h.Kind, at.typeFault("", reflect.TypeOf(h), err))
		return
	}
	inferred := false // only support bundles have objects without a kind
	if h.APIVersion == "" && h.Kind == "" {
		if expected.Empty() {
			expected = at.inferKind(h)
			inferred = !expected.Empty()
		}
		h.APIVersion, h.Kind = expected.ToAPIVersionAndKind()
	}
	if h.APIVersion == "" || h.Kind == "" {
		m.refuseKindless(at, h)
		return
	}
	version, err := schema.ParseGroupVersion(h.APIVersion)
	if err != nil {
		m.refuse(at, at.fault(h.object(), "apiVersion", strconv.Quote(h.APIVersion)+" is not of the form group/version"))
		return
	}
	if isList(h.Kind) {
		m.readItems(at, h, "items", itemKind(h.Kind, version))
		return
	}
	at.dumped = h.isDumped() || inferred
	found := h.Kind
	if found == "Service" && version.Group != "" {
		found = version.Group + " " + found // of Knative, for example
	}
	m.kinds.add(found)
	kind := version.WithKind(h.Kind)
	served, wanted := wantedKinds[kind.GroupKind()]
	switch {
	case !wanted:
		m.left.add(at, h.Kind, h.object(), at.whyUnwanted(h.Kind))
	case served == version.Version || at.dumped:
		m.decode(at, h, servedKind(kind))
	default:
		m.refuse(at, at.fault(h.object(), "apiVersion",
			fmt.Sprintf("%s is not served any more: convert the manifest to %s", h.APIVersion, servedKind(kind).GroupVersion())))
	}
}

// readItems reads the items of a list, at a path of its own in the fragment.
func (m *manifests) readItems(at *fragment, h head, path string, item schema.GroupVersionKind) {
	if strings.Count(at.path, "[") > deepestList {
		m.refuse(at, at.fault("list", "", fmt.Sprintf("more than %d lists in each other", deepestList)))
		return
	}
	items, err := h.items()
	if err != nil {
		m.refuseHead(at, h.Kind, at.fault("", path, "not a list"))
		return
	}
	for i, text := range items {
		m.readObject(&fragment{document: at.document, path: yamldoc.Join(at.path, yamldoc.Element(path, i)), json: text}, item)
	}
}

// itemKind returns the kind of a list's items. It is empty for kind List, whose items may be of any kind.
func itemKind(kind string, version schema.GroupVersion) schema.GroupVersionKind {
	item := version.WithKind(strings.TrimSuffix(kind, "List"))
	if item.Kind == "" {
		return schema.GroupVersionKind{}
	}
	return item
}

// servedKind returns a kind in the version that an API server serves. Proxies' fields are the same in all versions, but
// for those that convert sets.
func servedKind(kind schema.GroupVersionKind) schema.GroupVersionKind {
	if kind.Group == "extensions" {
		kind.Group = "apps"
	}
	kind.Version = "v1"
	return kind
}

// decode reads an object of a wanted kind and keeps it. Fields of a dump that are unknown are of a newer API server.
func (m *manifests) decode(at *fragment, h head, kind schema.GroupVersionKind) {
	decoded, err := scheme.Scheme.New(kind)
	if err != nil {
		m.refuse(at, at.fault(h.object(), "kind", "is not of "+kind.GroupVersion().String()))
		return
	}
	unknown, err := casejson.UnmarshalStrict(at.json, decoded)
	if err != nil {
		m.refuse(at, at.typeFault(h.object(), reflect.TypeOf(decoded), err))
		return
	}
	if len(unknown) > 0 && (m.opts.Strict || !at.dumped) {
		for _, fault := range unknown {
			m.problems = append(m.problems, at.strictFault(h.object(), fault))
		}
		return
	}
	decoded.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // as client-go hands objects out
	object := decoded.(metav1.Object)
	object.SetManagedFields(nil) // field ownership is half of a dump, and proxies ignore it
	if clusterKinds[h.Kind] {
		object.SetNamespace("")
	} else if object.GetNamespace() == "" {
		object.SetNamespace(metav1.NamespaceDefault)
	}
	if slice, ok := object.(*discoveryv1.EndpointSlice); ok && h.APIVersion != discoveryv1.SchemeGroupVersion.String() {
		readTopology(slice, at.json)
	}
	if m.isRepeated(at, h.Kind, object) {
		return
	}
	at.json = nil // decoded: only its position is needed from now on
	m.keep(object)
}

// readTopology reads the node and the zone of endpoints of discovery.k8s.io/v1beta1.
func readTopology(slice *discoveryv1.EndpointSlice, text []byte) {
	var old struct {
		Endpoints []struct {
			Topology map[string]string `json:"topology"`
		} `json:"endpoints"`
	}
	if casejson.UnmarshalCaseSensitivePreserveInts(text, &old) != nil { // as the slice itself: "Endpoints" is another field
		return
	}
	for i, endpoint := range old.Endpoints {
		at := &slice.Endpoints[i]
		if node, there := endpoint.Topology[corev1.LabelHostname]; there && at.NodeName == nil {
			at.NodeName = &node
		}
		if zone, there := endpoint.Topology[corev1.LabelTopologyZone]; there && at.Zone == nil {
			at.Zone = &zone
		}
	}
}

// isRepeated reports whether the input has the object already. must-gather writes a pod into several files, at different
// moments: the latest state counts. Of manifests the last definition counts, as kubectl applies one after the other. It
// records the place of an object that is kept.
func (m *manifests) isRepeated(at *fragment, kind string, object metav1.Object) bool {
	name := sim.ObjectName(kind, object)
	first, again := m.names[name]
	switch {
	case !again:
	case reflect.DeepEqual(first, object):
		m.left.add(at, kind, name, "the input has the same object twice")
		return true
	case at.dumped && m.found[first].dumped && !m.opts.Strict:
		older := sim.VersionOf(object) <= sim.VersionOf(first)
		if older {
			m.left.add(at, kind, name, "the input has a later state of the object")
			return true
		}
		m.left.add(m.found[first], kind, name, "the input has a later state of the object")
		m.dropped[first] = true
	case m.opts.Strict:
		place := m.found[first]
		m.problems = append(m.problems, at.fault(name, "",
			fmt.Sprintf("is already defined at %s:%d, differently: leave out one of them", place.document.file, place.line(""))))
		return true
	default:
		m.left.add(m.found[first], kind, name, "a later definition in the input replaces it, as with kubectl apply")
		m.dropped[first] = true
	}
	m.names[name], m.found[object] = object, at
	return false
}

func (m *manifests) keep(object metav1.Object) {
	switch object := object.(type) {
	case *corev1.Service:
		m.services = append(m.services, object)
	case *discoveryv1.EndpointSlice:
		m.slices = append(m.slices, object)
	case *endpoints:
		m.endpoints = append(m.endpoints, object)
	case *corev1.Node:
		m.nodes = append(m.nodes, object)
	case *corev1.Pod:
		m.pods = append(m.pods, object)
	case *corev1.ReplicationController:
		m.workloads = append(m.workloads, controllerWorkload(object))
	case *appsv1.Deployment:
		m.workloads = append(m.workloads, newWorkload("deployment", object, object.Spec.Replicas, object.Spec.Selector, &object.Spec.Template))
	case *appsv1.ReplicaSet:
		m.workloads = append(m.workloads, newWorkload("replicaset", object, object.Spec.Replicas, object.Spec.Selector, &object.Spec.Template))
	case *appsv1.StatefulSet:
		m.workloads = append(m.workloads, statefulWorkload(object))
	case *appsv1.DaemonSet:
		m.workloads = append(m.workloads, newWorkload("daemonset", object, nil, object.Spec.Selector, &object.Spec.Template))
	}
}
