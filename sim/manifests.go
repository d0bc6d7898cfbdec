package sim

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// PodIPs is the annotation that pins the addresses of a workload's pods (or of
// a Pod): "10.42.0.148,10.42.0.149". The first IPv4 address goes to the first
// pod, the first IPv6 address too, and so on; pods beyond the list get
// addresses of the pod ranges. Chain names depend on addresses, so this is how
// a manifest reproduces the rules of a cluster that somebody saw.
const PodIPs = "synclab.dev/pod-ips"

// ReadOptions says in what kind of cluster manifests come to life. The zero
// value is a dual-stack cluster that prefers IPv4.
type ReadOptions struct {
	// ServiceCIDRs are the ranges of clusterIPs. The family of the first is the
	// cluster's preferred one; two families make a dual-stack cluster.
	// Default 10.96.0.0/12, fd00:10:96::/108.
	ServiceCIDRs []netip.Prefix
	// PodCIDRs are the ranges of pod addresses, where the pod's node has none.
	// A pod gets one address of each family. Default 10.128.0.0/9, fd00:10:128::/64.
	PodCIDRs []netip.Prefix
	// LoadBalancerCIDRs are the ranges of load balancers' addresses.
	// Default 198.18.0.0/15 (set aside for benchmarks by RFC 2544).
	LoadBalancerCIDRs []netip.Prefix
	// NoLoadBalancerIPs leaves LoadBalancer Services without an ingress address
	// as they are, like a cluster without a load balancer's controller.
	NoLoadBalancerIPs bool
	// NodePortRange is where node ports come from. Default 30000-32767.
	NodePortRange PortRange
	// MaxPods bounds the pods that workloads make. Default 150,000, the most
	// that Kubernetes is tested with: a slip in "replicas" shall not eat the machine.
	MaxPods int
	// Skipped, if set, is told of each object that has no effect on the result.
	Skipped func(Skipped)
	// Warned, if set, is told of each object of an API server with addresses
	// that the server refuses in new objects.
	Warned func(Warning)
}

// Skipped is an object of the input that a proxy does not care about, or that
// another object of the input overrules.
type Skipped struct {
	File   string
	Line   int
	Object string // "configmap default/ngx-conf"
	Reason string
}

func (s Skipped) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", s.File, s.Line, s.Object, s.Reason)
}

// Warning is what is doubtful about an object of the input that is used.
type Warning struct {
	File   string
	Line   int
	Object string // "service default/web"
	Text   string
}

func (w Warning) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", w.File, w.Line, w.Object, w.Text)
}

// withDefaults also refuses what no cluster can be made of.
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
		return o, fmt.Errorf("read options: %d pods at most: must be positive", o.MaxPods)
	}
	return o, nil
}

// ReadObjects reads the cluster's state from files, directories (*.yaml, *.yml
// and *.json, recursively) and, for "-", from stdin: dumps of `kubectl get
// svc,endpointslices,nodes -A -o yaml|json` as well as plain manifests. It
// does what a cluster would do with them: pods of workloads get names, nodes
// and addresses, EndpointSlices are derived from the selectors of Services
// that bring none, and Services get their defaults, addresses and ports. The
// same objects give the same result, in whatever order and files they come.
//
// Everything wrong with the input is reported at once: the error wraps one
// *InputError for each fault.
func ReadObjects(paths []string, stdin io.Reader, opts ReadOptions) (*Objects, error) {
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
	objects := &Objects{Services: input.services, Slices: input.slices, Nodes: input.nodes}
	objects.sort()
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

	found    map[metav1.Object]*fragment // where each object of the input stands
	names    map[string]*fragment        // "service default/ngx-svc": seen already
	problems []error
}

func newManifests(opts ReadOptions) *manifests {
	return &manifests{opts: opts, found: map[metav1.Object]*fragment{}, names: map[string]*fragment{}}
}

// sort makes everything that follows independent of the order of the input.
func (m *manifests) sort() {
	sortByName(m.services)
	sortByName(m.slices)
	sortByName(m.endpoints)
	sortByName(m.nodes)
	sortByName(m.pods)
	slices.SortFunc(m.workloads, func(a, b *podMaker) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.kind, b.kind))
	})
}

// completeServices gives Services what an API server gives them.
func (m *manifests) completeServices() {
	allocator := newServiceAllocator(m.opts)
	var sound []*corev1.Service
	for _, service := range m.services {
		DefaultService(service)
		DefaultFamilies(service, allocator.families)
		l := legacyOf(service)
		if errs := checkService(service, l); len(errs) > 0 {
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

// reject notes what is wrong with an object.
func (m *manifests) reject(kind string, object metav1.Object, errs ...*field.Error) {
	for _, err := range errs {
		m.problems = append(m.problems, m.found[object].fault(objectName(kind, object), err.Field, err.ErrorBody()))
	}
}

// skip tells who asked about an object without effect.
func (m *manifests) skip(at *fragment, object, reason string) {
	if m.opts.Skipped != nil {
		m.opts.Skipped(Skipped{File: at.document.file, Line: at.line(""), Object: object, Reason: reason})
	}
}

// maxFaults bounds a report: past a score of faults the cause is one and the same.
const maxFaults = 20

// manyFaults end the reading: an input of nothing but faults would take memory for each.
const manyFaults = 1000

func (m *manifests) faults() error {
	if len(m.problems) > maxFaults {
		more := len(m.problems) - maxFaults
		return errors.Join(append(m.problems[:maxFaults:maxFaults], fmt.Errorf("and %d more", more))...)
	}
	return errors.Join(m.problems...)
}

// WriteObjects writes a YAML dump (one `kind: List`) that ReadObjects reads
// back to equal objects, if they have their defaults and hold a Node: where
// there is none, ReadObjects makes one.
func WriteObjects(w io.Writer, o *Objects) error {
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
		return fmt.Errorf("write %s: %w", objectName(kind, object), err)
	}
	var item bytes.Buffer
	prefix := "- "
	for line := range bytes.Lines(text) {
		item.WriteString(prefix)
		item.Write(line)
		prefix = "  "
	}
	if _, err := w.Write(item.Bytes()); err != nil {
		return fmt.Errorf("write %s: %w", objectName(kind, object), err)
	}
	return nil
}
