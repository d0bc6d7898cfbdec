package manifests

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"synclab/sim"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
	casejson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// strictDecoder decodes one object of client-go's scheme and reports unknown and repeated fields.
var strictDecoder = kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, scheme.Scheme, scheme.Scheme,
	kjson.SerializerOptions{Strict: true})

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
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

func (h head) object() string {
	if h.Kind == "" || h.Metadata.Name == "" {
		return strings.ToLower(h.Kind)
	}
	namespace := h.Metadata.Namespace
	if namespace == "" && !clusterKinds[h.Kind] {
		namespace = metav1.NamespaceDefault
	}
	return sim.NameOf(h.Kind, namespace, h.Metadata.Name)
}

// readFile reads every object of a file.
func (m *manifests) readFile(file inputFile) {
	for d := range splitDocuments(file) {
		if len(m.problems) > manyFaults {
			return
		}
		if m.readList(d) {
			continue
		}
		if len(d.text) > largestDocument {
			m.problems = append(m.problems, (&fragment{document: &document{file: d.file, above: d.above}}).fault("", "",
				fmt.Sprintf("a document of more than %d MiB that cannot be read item by item: "+
					"write a list in block style as kubectl does, or as JSON, or as several documents", largestDocument>>20)))
			continue
		}
		text, err := yaml.YAMLToJSONStrict(d.text)
		if err != nil {
			m.problems = append(m.problems, d.syntaxFault(err))
			continue
		}
		if string(text) != "null" {
			m.readObject(&fragment{document: d, json: text}, schema.GroupVersionKind{})
		}
	}
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

// syntaxFault moves the line number from the YAML parser's message to the place of the fault. The parser counts lines
// from the start of the document.
func (d *document) syntaxFault(err error) *InputError {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	line := d.firstLine()
	if match := yamlLine.FindStringSubmatch(text); match != nil {
		line, _ = strconv.Atoi(match[1])
		text = strings.Replace(text, match[0], "", 1)
	}
	text = strings.TrimPrefix(strings.Join(strings.Fields(text), " "), "unmarshal errors: ")
	return &InputError{File: d.file, Line: d.above + line, Err: fmt.Errorf("not YAML or JSON: %s", text)}
}

// readObject reads an object, or each item of a list. expected is the kind of the items of a typed list (ServiceList):
// they need not name it themselves.
func (m *manifests) readObject(at *fragment, expected schema.GroupVersionKind) {
	var h head
	if err := casejson.UnmarshalCaseSensitivePreserveInts(at.json, &h); err != nil {
		m.problems = append(m.problems, at.typeFault("", err, &head{}))
		return
	}
	if h.APIVersion == "" && h.Kind == "" {
		h.APIVersion, h.Kind = expected.ToAPIVersionAndKind()
	}
	if h.APIVersion == "" || h.Kind == "" {
		m.problems = append(m.problems, at.fault(h.object(), "", "not a Kubernetes object: apiVersion or kind is missing"))
		return
	}
	version, err := schema.ParseGroupVersion(h.APIVersion)
	if err != nil {
		m.problems = append(m.problems, at.fault(h.object(), "apiVersion", err.Error()))
		return
	}
	if isList(h.Kind) {
		item := itemKind(h.Kind, version)
		for i, text := range h.Items {
			path := strings.TrimPrefix(fmt.Sprintf("%s.items[%d]", at.path, i), ".")
			m.readObject(&fragment{document: at.document, path: path, json: text}, item)
		}
		return
	}
	kind := version.WithKind(h.Kind)
	served, wanted := wantedKinds[kind.GroupKind()]
	switch {
	case !wanted:
		m.skip(at, h.object(), "does not concern a Service proxy")
	case served != version.Version:
		m.problems = append(m.problems, at.fault(h.object(), "apiVersion",
			fmt.Sprintf("%s is not served any more: convert the manifest to %s", h.APIVersion, servedVersion(kind))))
	default:
		m.decode(at, h, kind)
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

func servedVersion(kind schema.GroupVersionKind) string {
	if kind.Group == "extensions" {
		kind.Group = "apps"
	}
	return schema.GroupVersion{Group: kind.Group, Version: "v1"}.String()
}

// decode reads an object of a wanted kind and keeps it.
func (m *manifests) decode(at *fragment, h head, kind schema.GroupVersionKind) {
	decoded, _, err := strictDecoder.Decode(at.json, &kind, nil)
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		for _, fault := range strict.Errors() {
			m.problems = append(m.problems, at.strictFault(h.object(), fault))
		}
		return
	}
	if err != nil {
		blank, newErr := scheme.Scheme.New(kind)
		if newErr != nil {
			err = errors.Join(err, newErr)
		}
		m.problems = append(m.problems, at.typeFault(h.object(), err, blank))
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
	name := sim.ObjectName(h.Kind, object)
	if first, again := m.names[name]; again {
		m.problems = append(m.problems, at.fault(name, "",
			fmt.Sprintf("is already defined at %s:%d", first.document.file, first.line(""))))
		return
	}
	m.names[name], m.found[object] = at, at
	at.json = nil // decoded: only its position is needed from now on
	m.keep(object)
}

func (m *manifests) keep(object metav1.Object) {
	switch object := object.(type) {
	case *corev1.Service:
		m.services = append(m.services, object)
	case *discoveryv1.EndpointSlice:
		sim.DefaultEndpointSlice(object)
		l := sim.LegacyOf(object)
		m.reject("endpointslice", object, sim.CheckEndpointSlice(object, l)...)
		m.warn("endpointslice", object, l)
		m.slices = append(m.slices, object)
	case *endpoints:
		m.endpoints = append(m.endpoints, object)
	case *corev1.Node:
		l := sim.LegacyOf(object)
		m.reject("node", object, sim.CheckNode(object, l)...)
		m.warn("node", object, l)
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

var quoted = regexp.MustCompile(`^(unknown|duplicate) field "(.*)"$`)

// strictFault returns the fault of an "unknown field …" or "duplicate field …" error, with its place.
func (f *fragment) strictFault(object string, err error) *InputError {
	if match := quoted.FindStringSubmatch(err.Error()); match != nil {
		return f.fault(object, match[2], match[1]+" field")
	}
	return f.fault(object, "", err.Error())
}

// typeFault returns the fault of a value of the wrong type, with its place. The decoder's message names the field
// without the list index; encoding/json finds the same fault again and returns its byte offset.
func (f *fragment) typeFault(object string, err error, blank any) *InputError {
	var typeError *json.UnmarshalTypeError
	if blank != nil && errors.As(json.Unmarshal(f.json, blank), &typeError) {
		if path := pathAt(f.json, typeError.Offset); path != "" {
			return f.fault(object, path, fmt.Sprintf("is of type %s: want %s", typeError.Value, typeError.Type))
		}
	}
	return f.fault(object, "", err.Error())
}
