package manifests

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"

	"synclab/sim"
	"synclab/sim/world"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
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
	// NodePortRange is the range of node ports. Default 30000-32767.
	NodePortRange PortRange
	// MaxPods limits the pods that workloads make. Default 150,000, the most that Kubernetes is tested with: a typo in
	// "replicas" must not exhaust the memory.
	MaxPods int
	// Strict refuses what is otherwise left out: objects of an API server that cannot be used, their unknown fields, and
	// files of a folder that cannot be read.
	Strict bool
	// Open opens a file that was named, and not found in a folder; nil: os.Open.
	Open func(path string) (*os.File, error)
	// NoServices accepts objects without a Service among them: a state of a cluster in a sequence of states.
	NoServices bool
	// LeftOut, if set, is called at the end with the objects that are not used, at most a line for each kind and reason.
	LeftOut func(LeftOut)
	// Warned, if set, is called with each object of an API server that has what the server refuses in new objects, and
	// once if addresses are redacted.
	Warned func(Warning)
}

// Warning is a doubtful value in an object of the input that is used.
type Warning struct {
	File   string
	Line   int
	Object string // "service default/web"
	Text   string
}

func (w Warning) String() string {
	return located(w.File, w.Line, w.Object, w.Text)
}

func (o ReadOptions) withDefaults() ReadOptions {
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
	return o
}

// ReadObjects reads the cluster's state from files, folders and archives (*.yaml, *.yml and *.json, recursively) and, for
// "-", from stdin; any of them may be packed with gzip. It takes dumps of `kubectl get svc,endpointslices,nodes -A
// -o yaml|json` and folders of support bundles as well as plain manifests.
//
// It does what a cluster would do with them. Pods of workloads get names, nodes and addresses. Services without
// EndpointSlices get slices that are derived from their selectors. Services get their defaults, addresses and ports.
// The same objects give the same result, in any order and division into files.
//
// An object of an API server that cannot be used is left out. ReadObjects reports all other faults of the input at once:
// the error wraps one *InputError for each fault.
func ReadObjects(paths []string, stdin io.Reader, opts ReadOptions) (*sim.Objects, error) {
	opts = opts.withDefaults()
	input := newManifests(opts)
	if opts.LeftOut != nil {
		defer func() {
			for _, line := range input.left.lines {
				opts.LeftOut(*line)
			}
		}()
	}
	leaveOut := input.left.addFile
	if opts.Strict {
		leaveOut = nil
	}
	files, err := openInputs(paths, stdin, opts.Open, leaveOut)
	if err != nil {
		return nil, err
	}
	for i := range files {
		input.readFile(files[i])
		files[i].text = nil
	}
	for _, step := range []func(){
		input.sort, input.replaceRedacted, input.checkObjects, input.placeNodes, input.makePods,
		input.completeServices, input.deriveSlices, func() { input.requireServices(files) },
	} {
		if err := input.faults(); err != nil {
			return nil, err
		}
		step()
	}
	if err := input.faults(); err != nil {
		return nil, err
	}
	objects := &sim.Objects{Services: input.services, Slices: input.slices, Nodes: input.nodes}
	objects.Sort()
	identify(objects)
	return objects, nil
}

// identify gives an identity to objects that no API server has made: clients tell a new object from a changed one by it.
func identify(o *sim.Objects) {
	for _, object := range o.All() {
		if m := object.(metav1.Object); m.GetUID() == "" {
			m.SetUID(world.UIDOf(0, sim.KindAndName(object)))
		}
	}
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
	names    map[string]metav1.Object    // objects read so far, by name: "service default/ngx-svc"
	dropped  map[metav1.Object]bool      // objects that are left out after they were kept
	book     addressBook                 // addresses that replace redacted ones
	kinds    foundKinds
	left     omissions
	problems []error
}

func newManifests(opts ReadOptions) *manifests {
	return &manifests{
		opts: opts, found: map[metav1.Object]*fragment{}, names: map[string]metav1.Object{}, dropped: map[metav1.Object]bool{},
		book: addressBook{},
	}
}

// sort makes all later steps independent of the order of the input.
func (m *manifests) sort() {
	m.forget()
	sim.SortByName(m.services)
	sim.SortByName(m.slices)
	sim.SortByName(m.endpoints)
	sim.SortByName(m.nodes)
	sim.SortByName(m.pods)
	slices.SortFunc(m.workloads, func(a, b *podMaker) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.kind, b.kind))
	})
}

// forget removes dropped objects.
func (m *manifests) forget() {
	if len(m.dropped) == 0 {
		return
	}
	m.services = without(m.services, m.dropped)
	m.slices = without(m.slices, m.dropped)
	m.endpoints = without(m.endpoints, m.dropped)
	m.nodes = without(m.nodes, m.dropped)
	m.pods = without(m.pods, m.dropped)
	m.workloads = slices.DeleteFunc(m.workloads, func(w *podMaker) bool { return m.dropped[w.object] })
}

func without[T metav1.Object](objects []T, dropped map[metav1.Object]bool) []T {
	return slices.DeleteFunc(objects, func(o T) bool { return dropped[o] })
}

// checkObjects checks the objects that nothing completes.
func (m *manifests) checkObjects() {
	for _, slice := range m.slices {
		sim.DefaultEndpointSlice(slice)
		l := m.legacy(slice)
		if !m.reject("endpointslice", slice, sim.CheckEndpointSlice(slice, l)...) {
			m.warn("endpointslice", slice, l)
		}
	}
	for _, node := range m.nodes {
		l := m.legacy(node)
		if !m.reject("node", node, sim.CheckNode(node, l)...) {
			m.warn("node", node, l)
		}
	}
	m.forget()
}

// legacy collects the addresses of an object that an API server refuses in new objects; nil refuses them.
func (m *manifests) legacy(object metav1.Object) *sim.Legacy {
	if at := m.found[object]; at == nil || !at.dumped {
		return nil
	}
	return &sim.Legacy{}
}

// requireServices refuses an input without Services: most often, the command that should have written it failed.
func (m *manifests) requireServices(files []inputFile) {
	if len(m.services) > 0 || m.opts.NoServices && len(m.kinds.order) > 0 {
		return
	}
	name := files[0].name
	if more := len(files) - 1; more > 0 {
		name += fmt.Sprintf(" and %d more files", more)
	}
	has := "found no Kubernetes object"
	if found := m.kinds.String(); found != "" {
		has = "found " + found
	}
	m.problems = append(m.problems, &InputError{File: name, Err: fmt.Errorf(
		"no Service that can be used: %s; want for example the output of: kubectl get svc,endpointslices,nodes -A -o yaml", has)})
}

// completeServices sets what an API server sets in Services.
func (m *manifests) completeServices() {
	allocator := newServiceAllocator(m.opts)
	var sound []*corev1.Service
	for _, service := range m.services {
		sim.DefaultService(service)
		sim.DefaultFamilies(service, allocator.families)
		l := m.legacy(service)
		if m.reject("service", service, sim.CheckService(service, l)...) {
			continue
		}
		if !m.reject("service", service, allocator.reserve(service, l)...) {
			m.warn("service", service, l)
		}
		sound = append(sound, service)
	}
	for _, service := range sound {
		if err := allocator.allocate(service); err != nil {
			m.reject("service", service, err)
		}
	}
	m.forget()
}

// reject refuses an object that has faults, or leaves it out. It reports whether there are any.
func (m *manifests) reject(kind string, object metav1.Object, errs ...*field.Error) bool {
	if len(errs) == 0 {
		return false
	}
	at := m.found[object]
	m.dropped[object] = true
	fault := func(err *field.Error) *InputError {
		return at.fault(sim.ObjectName(kind, object), err.Field, err.ErrorBody())
	}
	if m.leavesOut(at) {
		m.left.addUnusable(at, fault(errs[0]), len(errs)-1) // to find a place takes time: only the first is shown
		return true
	}
	for _, err := range errs {
		m.problems = append(m.problems, fault(err))
	}
	return true
}

// leavesOut reports whether an object that cannot be used is left out: one of an API server, as a proxy would ignore it, too.
func (m *manifests) leavesOut(at *fragment) bool { return at.dumped && !m.opts.Strict }

// refuse records the fault of an object, or leaves the object out.
func (m *manifests) refuse(at *fragment, fault *InputError) {
	if m.leavesOut(at) {
		m.left.addUnusable(at, fault, 0)
		return
	}
	m.problems = append(m.problems, fault)
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
	for _, object := range o.All() {
		kinds, _, err := scheme.Scheme.ObjectKinds(object)
		if err != nil {
			return fmt.Errorf("write objects: %w", err)
		}
		entry, err := sim.ShallowCopy(object)
		if err != nil {
			return fmt.Errorf("write objects: %w", err)
		}
		entry.GetObjectKind().SetGroupVersionKind(kinds[0])
		if err := writeItem(w, entry); err != nil {
			return err
		}
	}
	return nil
}

// writeItem writes one object as an item of a YAML sequence.
func writeItem(w io.Writer, entry runtime.Object) error {
	text, err := yaml.Marshal(entry)
	if err != nil {
		return fmt.Errorf("write %s: %w", sim.KindAndName(entry), err)
	}
	var item bytes.Buffer
	prefix := "- "
	for line := range bytes.Lines(text) {
		item.WriteString(prefix)
		item.Write(line)
		prefix = "  "
	}
	if _, err := w.Write(item.Bytes()); err != nil {
		return fmt.Errorf("write %s: %w", sim.KindAndName(entry), err)
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
