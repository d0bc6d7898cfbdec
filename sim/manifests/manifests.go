package manifests

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"synclab/sim"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// PodIPs is the annotation that pins the addresses of a workload's pods (or of a Pod): "10.42.0.148,10.42.0.149". The
// first IPv4 address goes to the first pod, the first IPv6 address too, and so on. Pods beyond the list get addresses
// of the pod ranges. Chain names depend on addresses: with pins, a manifest reproduces the rules of a real cluster.
const PodIPs = "synclab.dev/pod-ips"

// ReadOptions describe the cluster that runs the manifests. The zero value is a dual-stack cluster that prefers IPv4.
type ReadOptions struct {
	// ServiceCIDRs are the ranges of clusterIPs. The family of the first is the
	// cluster's preferred one; two families make a dual-stack cluster.
	// Default 10.96.0.0/12, fd00:10:96::/108.
	ServiceCIDRs []netip.Prefix
	// PodCIDRs are the ranges of pod addresses for pods on nodes without a range. A pod gets one address of each
	// family. Default 10.128.0.0/9, fd00:10:128::/64.
	PodCIDRs []netip.Prefix
	// LoadBalancerCIDRs are the ranges of load balancers' addresses.
	// Default 198.18.0.0/15 (set aside for benchmarks by RFC 2544).
	LoadBalancerCIDRs []netip.Prefix
	// NoLoadBalancerIPs leaves LoadBalancer Services without an ingress address unchanged, like a cluster without a
	// load balancer's controller.
	NoLoadBalancerIPs bool
	// NodePortRange is the range of node ports. Default 30000-32767.
	NodePortRange PortRange
	// MaxPods limits the pods that workloads make. Default 150,000, the most that Kubernetes is tested with: a typo in
	// "replicas" must not exhaust the memory.
	MaxPods int
	// Skipped, if set, is called with each object that has no effect on the result.
	Skipped func(Skipped)
	// Warned, if set, is called with each object of an API server with addresses that the server refuses in new
	// objects.
	Warned func(Warning)
}

// Skipped is an object of the input that does not concern a proxy, or that another object of the input overrides.
type Skipped struct {
	File   string
	Line   int
	Object string // "configmap default/ngx-conf"
	Reason string
}

func (s Skipped) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", s.File, s.Line, s.Object, s.Reason)
}

// Warning is a doubtful value in an object of the input that is used.
type Warning struct {
	File   string
	Line   int
	Object string // "service default/web"
	Text   string
}

func (w Warning) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", w.File, w.Line, w.Object, w.Text)
}

// withDefaults sets defaults, and refuses options that no cluster can have.
func (o ReadOptions) withDefaults() (ReadOptions, error) {
	if len(o.ServiceCIDRs) == 0 {
		o.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd00:10:96::/108")}
	}
	if len(o.PodCIDRs) == 0 {
		o.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9"), netip.MustParsePrefix("fd00:10:128::/64")}
	}
	if len(o.LoadBalancerCIDRs) == 0 {
		o.LoadBalancerCIDRs = []netip.Prefix{netip.MustParsePrefix("198.18.0.0/15")}
	}
	o.NodePortRange.First = cmp.Or(o.NodePortRange.First, 30000)
	o.NodePortRange.Last = cmp.Or(o.NodePortRange.Last, 32767)
	o.MaxPods = cmp.Or(o.MaxPods, 150_000)
	for _, prefix := range slices.Concat(o.ServiceCIDRs, o.PodCIDRs, o.LoadBalancerCIDRs) {
		if !prefix.IsValid() || prefix.Addr().Is4In6() {
			return o, fmt.Errorf("read options: %s is not a range of addresses", prefix)
		}
	}
	if r := o.NodePortRange; r.First < 1 || r.Last > 65535 || r.First > r.Last {
		return o, fmt.Errorf("read options: node port range %d-%d: must lie within 1-65535", r.First, r.Last)
	}
	if o.MaxPods < 0 {
		return o, fmt.Errorf("read options: MaxPods %d: must be positive", o.MaxPods)
	}
	return o, nil
}

// ReadObjects reads the cluster's state from files, directories (*.yaml, *.yml and *.json, recursively) and, for "-",
// from stdin. It takes dumps of `kubectl get svc,endpointslices,nodes -A -o yaml|json` as well as plain manifests.
//
// It does what a cluster would do with them. Pods of workloads get names, nodes and addresses. Services without
// EndpointSlices get slices that are derived from their selectors. Services get their defaults, addresses and ports.
// The same objects give the same result, in any order and division into files.
//
// It reports all faults of the input at once: the error wraps one *InputError for each fault.
func ReadObjects(paths []string, stdin io.Reader, opts ReadOptions) (*sim.Objects, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	files, err := openInputs(paths, stdin)
	if err != nil {
		return nil, err
	}
	input := newManifests(opts)
	for _, file := range files {
		input.readFile(file)
	}
	if err := input.faults(); err != nil {
		return nil, err
	}
	input.sort()
	input.placeNodes()
	input.makePods()
	if err := input.faults(); err != nil {
		return nil, err
	}
	input.completeServices()
	input.deriveSlices()
	if err := input.faults(); err != nil {
		return nil, err
	}
	objects := &sim.Objects{Services: input.services, Slices: input.slices, Nodes: input.nodes}
	objects.Sort()
	return objects, nil
}

// manifests is the input on its way to Objects.
type manifests struct {
	opts ReadOptions

	services  []*corev1.Service
	slices    []*discoveryv1.EndpointSlice
	endpoints []*endpoints
	nodes     []*corev1.Node
	pods      []*corev1.Pod
	workloads []*podMaker

	found    map[metav1.Object]*fragment // the position of each object in the input
	names    map[string]*fragment        // objects read so far, by name: "service default/ngx-svc"
	problems []error
}

func newManifests(opts ReadOptions) *manifests {
	return &manifests{opts: opts, found: map[metav1.Object]*fragment{}, names: map[string]*fragment{}}
}

// sort makes all later steps independent of the order of the input.
func (m *manifests) sort() {
	sim.SortByName(m.services)
	sim.SortByName(m.slices)
	sim.SortByName(m.endpoints)
	sim.SortByName(m.nodes)
	sim.SortByName(m.pods)
	slices.SortFunc(m.workloads, func(a, b *podMaker) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.kind, b.kind))
	})
}

// completeServices sets what an API server sets in Services.
func (m *manifests) completeServices() {
	allocator := newServiceAllocator(m.opts)
	var sound []*corev1.Service
	for _, service := range m.services {
		sim.DefaultService(service)
		sim.DefaultFamilies(service, allocator.families)
		l := sim.LegacyOf(service)
		if errs := sim.CheckService(service, l); len(errs) > 0 {
			m.reject("service", service, errs...)
			continue
		}
		m.warn("service", service, l)
		m.reject("service", service, allocator.reserve(service)...)
		sound = append(sound, service)
	}
	for _, service := range sound {
		if err := allocator.allocate(service); err != nil {
			m.reject("service", service, err)
		}
	}
}

// reject records the faults of an object.
func (m *manifests) reject(kind string, object metav1.Object, errs ...*field.Error) {
	for _, err := range errs {
		m.problems = append(m.problems, m.found[object].fault(sim.ObjectName(kind, object), err.Field, err.ErrorBody()))
	}
}

// skip reports an object without effect to opts.Skipped.
func (m *manifests) skip(at *fragment, object, reason string) {
	if m.opts.Skipped != nil {
		m.opts.Skipped(Skipped{File: at.document.file, Line: at.line(""), Object: object, Reason: reason})
	}
}

// maxFaults limits a report: more than 20 faults usually have one cause.
const maxFaults = 20

// manyFaults ends the reading: each fault takes memory.
const manyFaults = 1000

func (m *manifests) faults() error {
	if len(m.problems) > maxFaults {
		more := len(m.problems) - maxFaults
		return errors.Join(append(m.problems[:maxFaults:maxFaults], fmt.Errorf("and %d more", more))...)
	}
	return errors.Join(m.problems...)
}

// WriteObjects writes a YAML dump (one `kind: List`). ReadObjects reads it back to equal objects, if they have their
// defaults and include a Node. Without a Node, ReadObjects makes one.
func WriteObjects(w io.Writer, o *sim.Objects) error {
	if _, err := io.WriteString(w, "apiVersion: v1\nkind: List\nitems:\n"); err != nil {
		return fmt.Errorf("write objects: %w", err)
	}
	for _, node := range o.Nodes {
		entry := *node
		entry.TypeMeta = typeMeta(corev1.SchemeGroupVersion.String(), "Node")
		if err := writeItem(w, "node", node, &entry); err != nil {
			return err
		}
	}
	for _, service := range o.Services {
		entry := *service
		entry.TypeMeta = typeMeta(corev1.SchemeGroupVersion.String(), "Service")
		if err := writeItem(w, "service", service, &entry); err != nil {
			return err
		}
	}
	for _, slice := range o.Slices {
		entry := *slice
		entry.TypeMeta = typeMeta(discoveryv1.SchemeGroupVersion.String(), "EndpointSlice")
		if err := writeItem(w, "endpointslice", slice, &entry); err != nil {
			return err
		}
	}
	return nil
}

func typeMeta(version, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: version, Kind: kind}
}

// writeItem writes one object as an item of a YAML sequence.
func writeItem(w io.Writer, kind string, object metav1.Object, entry runtime.Object) error {
	text, err := yaml.Marshal(entry)
	if err != nil {
		return fmt.Errorf("write %s: %w", sim.ObjectName(kind, object), err)
	}
	var item bytes.Buffer
	prefix := "- "
	for line := range bytes.Lines(text) {
		item.WriteString(prefix)
		item.Write(line)
		prefix = "  "
	}
	if _, err := w.Write(item.Bytes()); err != nil {
		return fmt.Errorf("write %s: %w", sim.ObjectName(kind, object), err)
	}
	return nil
}

// warn reports an object's legacy addresses, if any.
func (m *manifests) warn(kind string, object metav1.Object, l *sim.Legacy) {
	if m.opts.Warned == nil || l == nil || len(l.Notes) == 0 {
		return
	}
	text := l.Notes[0]
	if more := len(l.Notes) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	at := m.found[object]
	m.opts.Warned(Warning{
		File: at.document.file, Line: at.line(""), Object: sim.ObjectName(kind, object),
		Text: text,
	})
}
