package conform

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"synclab/sim"
	"synclab/sim/api"
)

// both lists the families in the order that this package always uses.
var both = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}

// key identifies an object.
type key struct{ kind, namespace, name string }

func keyOf(o runtime.Object) key {
	m, err := meta.Accessor(o)
	if err != nil {
		return key{}
	}
	return key{fmt.Sprintf("%T", o), m.GetNamespace(), m.GetName()}
}

// feed is the cluster that both sides watch, with its current objects.
type feed struct {
	cluster *api.Cluster
	current map[key]runtime.Object
	// remembered are the slices of a proxier that never removes a slice whose Service label changed: see EntryMoved.
	remembered map[key]map[string]*discoveryv1.EndpointSlice
	signal     int
	large      bool // there have been more than largeCluster endpoints
	// watched is the node that the proxiers run on. zoneChanged: the node's zone has changed since they started.
	watched     string
	zoneChanged bool
	minor       int // of kube-proxy; 0: not known, or the one that docs/differences.md describes
}

func newFeed() *feed {
	return &feed{
		cluster: api.NewCluster(clock.RealClock{}), current: map[key]runtime.Object{},
		remembered: map[key]map[string]*discoveryv1.EndpointSlice{},
	}
}

// apply applies changes to the cluster.
func (f *feed) apply(ctx context.Context, t sim.Trace) error {
	for _, change := range t {
		if err := f.cluster.Apply(ctx, change); err != nil {
			return err
		}
		f.note(change)
	}
	f.large = f.large || f.endpoints() > largeCluster
	return nil
}

func (f *feed) endpoints() (n int) {
	for _, object := range f.current {
		if slice, ok := object.(*discoveryv1.EndpointSlice); ok {
			n += len(slice.Ports) * len(slice.Endpoints)
		}
	}
	return n
}

// proxiersStart forgets what only proxiers that ran before can know. node is the one that they run on.
func (f *feed) proxiersStart(node string) {
	f.watched, f.zoneChanged, f.large = node, false, f.endpoints() > largeCluster
	clear(f.remembered)
	for _, object := range f.current {
		if slice, ok := object.(*discoveryv1.EndpointSlice); ok {
			f.tell(sim.Add, nil, slice)
		}
	}
}

func (f *feed) note(change sim.Change) {
	k := keyOf(change.Object)
	if node, ok := change.Object.(*corev1.Node); ok && node.Name == f.watched {
		old, _ := f.current[k].(*corev1.Node)
		f.zoneChanged = f.zoneChanged || old == nil || old.Labels[corev1.LabelTopologyZone] != node.Labels[corev1.LabelTopologyZone]
	}
	if slice, ok := change.Object.(*discoveryv1.EndpointSlice); ok {
		old, _ := f.current[k].(*discoveryv1.EndpointSlice)
		f.tell(change.Op, old, slice)
	}
	if change.Op == sim.Delete {
		delete(f.current, k)
	} else {
		f.current[k] = change.Object
	}
}

// objects returns the current objects, with the signal's objects.
func (f *feed) objects() *sim.Objects {
	o := &sim.Objects{}
	keys := slices.SortedFunc(maps.Keys(f.current), func(a, b key) int { return compareKeys(a, b) })
	for _, k := range keys {
		o.Add(f.current[k])
	}
	return o
}

func compareKeys(a, b key) int {
	return slices.Compare([]string{a.kind, a.namespace, a.name}, []string{b.kind, b.namespace, b.name})
}

// traceTo returns the changes from the current objects to o: nodes, then deletions, then additions and updates. An
// object with the same name but another UID is deleted and added, not updated.
func (f *feed) traceTo(o *sim.Objects) sim.Trace {
	var t, gone sim.Trace
	wanted := map[key]bool{}
	set := func(object runtime.Object) {
		k := keyOf(object)
		wanted[k] = true
		switch old, there := f.current[k]; {
		case there && another(old, object):
			gone = append(gone, sim.Change{Op: sim.Delete, Object: old})
			t = append(t, sim.Change{Op: sim.Add, Object: object})
		case !there:
			t = append(t, sim.Change{Op: sim.Add, Object: object})
		case !alike(old, object):
			t = append(t, sim.Change{Op: sim.Update, Object: object})
		}
	}
	for _, node := range o.Nodes {
		set(node)
	}
	nodes := len(t)
	for _, svc := range o.Services {
		set(svc)
	}
	for _, slice := range o.Slices {
		set(slice)
	}
	for _, k := range slices.SortedFunc(maps.Keys(f.current), compareKeys) {
		if k.namespace != signalNamespace && !wanted[k] && reflect.TypeOf(f.current[k]) != reflect.TypeFor[*corev1.Node]() {
			gone = append(gone, sim.Change{Op: sim.Delete, Object: f.current[k]})
		}
	}
	return slices.Insert(t, nodes, gone...)
}

// another reports whether b is a new object with a's name, not a later state of a. A slice cannot change its
// addressType. A Node is never new, because a proxier does not outlive its node.
func another(a, b runtime.Object) bool {
	switch a := a.(type) {
	case *discoveryv1.EndpointSlice:
		b := b.(*discoveryv1.EndpointSlice)
		return a.UID != b.UID || a.AddressType != b.AddressType
	case *corev1.Service:
		return a.UID != b.(*corev1.Service).UID
	}
	return false
}

func alike(a, b runtime.Object) bool {
	a, b = a.DeepCopyObject(), b.DeepCopyObject()
	for _, o := range []runtime.Object{a, b} {
		if m, err := meta.Accessor(o); err == nil {
			m.SetResourceVersion("")
		}
	}
	return reflect.DeepEqual(a, b)
}

// The signal is a Service that shows how far a proxier has synced. Events of both watches (Service and EndpointSlice)
// arrive in order. The name of a signal chain depends on the newest port name (Service) and the newest address (slice).
// Once that chain exists, all earlier changes have arrived too.
const (
	signalNamespace = "synclab"
	signalName      = "signal"
)

var signalIPs = map[corev1.IPFamily][2]string{ // the Service's address, and the prefix of its endpoint's address
	corev1.IPv4Protocol: {"10.255.255.1", "10.254."},
	corev1.IPv6Protocol: {"fd00:255::1", "fd00:254::"},
}

// raise changes the signal, and returns the chain to wait for in each family.
func (f *feed) raise(ctx context.Context) (map[corev1.IPFamily]string, error) {
	f.signal++
	port := fmt.Sprintf("s%d", f.signal)
	meta := metav1.ObjectMeta{Namespace: signalNamespace, Name: signalName, CreationTimestamp: metav1.Unix(1<<30, 0)}
	svc := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: signalIPs[both[0]][0], ClusterIPs: []string{signalIPs[both[0]][0], signalIPs[both[1]][0]},
		IPFamilies: both, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyRequireDualStack),
		Ports: []corev1.ServicePort{{Name: port, Port: 1, Protocol: corev1.ProtocolTCP}},
	}}
	sim.DefaultService(svc)
	t := sim.Trace{{Object: svc}}
	chains := map[corev1.IPFamily]string{}
	for _, family := range both {
		address := fmt.Sprintf("%s%x", signalIPs[family][1], f.signal)
		if family == corev1.IPv4Protocol {
			address = fmt.Sprintf("%s%d.%d", signalIPs[family][1], f.signal/250, 1+f.signal%250)
		}
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: *meta.DeepCopy(), AddressType: discoveryv1.AddressType(family),
			Ports:     []discoveryv1.EndpointPort{{Name: &port, Port: ptr.To[int32](1), Protocol: ptr.To(corev1.ProtocolTCP)}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
		}
		slice.Name += "-" + map[corev1.IPFamily]string{both[0]: "ipv4", both[1]: "ipv6"}[family]
		slice.Labels = map[string]string{discoveryv1.LabelServiceName: signalName}
		t = append(t, sim.Change{Object: slice})
		chains[family] = endpointChain(signalNamespace+"/"+signalName+":"+port, "tcp", netip.AddrPortFrom(netip.MustParseAddr(address), 1))
	}
	for i := range t {
		t[i].Op = sim.Update
		if f.signal == 1 {
			t[i].Op = sim.Add
		}
	}
	return chains, f.apply(ctx, t)
}

// endpointChain returns kube-proxy's name for an endpoint's chain: 80 bits of SHA-256 in base32.
func endpointChain(port, protocol string, endpoint netip.AddrPort) string {
	sum := sha256.Sum256([]byte(port + protocol + endpoint.String()))
	return "KUBE-SEP-" + base32.StdEncoding.EncodeToString(sum[:10])
}
