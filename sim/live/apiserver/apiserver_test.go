package apiserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"synclab/bench/lab/netns"
	"synclab/proxier"
	"synclab/proxier/conntrack"
	"synclab/proxier/daemon"
	"synclab/proxier/iptables"
	"synclab/sim"
	"synclab/sim/capture"
	"synclab/sim/live"
	"synclab/sim/manifests"
)

// The tests run in a separate network namespace: no other process can reach the server or use its ports.
func TestMain(m *testing.M) { os.Exit(netns.TestMain(m)) }

// rig is a server with a few objects in it.
type rig struct {
	*Server
	client kubernetes.Interface // an administrator's
}

func newRig(t *testing.T) *rig {
	t.Helper()
	programs, err := Find()
	if err != nil {
		t.Skipf("%v; put kube-apiserver and etcd there to run this test", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	server, err := Start(ctx, programs, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	r := &rig{Server: server, client: clientOf(t, server.Admin())}
	for i := range 3 {
		r.addNode(t, i)
	}
	for i := range 25 {
		r.addService(t, fmt.Sprintf("svc-%d", i), i)
	}
	return r
}

func clientOf(t *testing.T, cfg *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (r *rig) addNode(t *testing.T, i int) {
	t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i), Labels: map[string]string{corev1.LabelTopologyZone: "zone-a"}},
		Spec:       corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("10.128.%d.0/24", i)}},
	}
	nodes := r.client.CoreV1().Nodes()
	if _, err := nodes.Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.retryConflicts(t, node.Name, func(n *corev1.Node) {
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.0.2.%d", i+1)}}
	})
}

// retryConflicts changes a node's status, as a kubelet does.
func (r *rig) retryConflicts(t *testing.T, name string, change func(*corev1.Node)) {
	t.Helper()
	nodes := r.client.CoreV1().Nodes()
	for {
		node, err := nodes.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		change(node)
		if _, err = nodes.UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err == nil {
			return
		} else if !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
	}
}

func (r *rig) addService(t *testing.T, name string, i int) {
	t.Helper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"team": "a"}},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Name: "web", Port: 80}},
		},
	}
	switch i % 5 {
	case 1:
		service.Spec.Type = corev1.ServiceTypeNodePort
	case 2:
		service.Spec.Type, service.Spec.LoadBalancerSourceRanges = corev1.ServiceTypeLoadBalancer, []string{"192.0.2.0/24", "198.51.100.0/25"}
	case 3:
		service.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}
	if i == 4 {
		service.Spec.ClusterIP = corev1.ClusterIPNone
	}
	if i == 9 {
		service.Labels["service.kubernetes.io/service-proxy-name"] = "other"
	}
	services := r.client.CoreV1().Services("default")
	service, err := services.Create(t.Context(), service, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if service.Spec.Type == corev1.ServiceTypeLoadBalancer {
		service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: fmt.Sprintf("203.0.113.%d", i)}}
		if _, err := services.UpdateStatus(t.Context(), service, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name + "-x", Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("web"), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	if i == 4 {
		slice.Labels[corev1.IsHeadlessService] = ""
	}
	for j := range 3 {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.128.%d.%d", j, i+1)}, NodeName: ptr.To(fmt.Sprintf("node-%d", j)), Zone: ptr.To("zone-a"),
		})
	}
	if _, err := r.client.DiscoveryV1().EndpointSlices("default").Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// All code that reads a cluster, tested with a real one.
func TestAPIServer(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	r := newRig(t)
	t.Run("capture", r.testCapture)
	t.Run("rights", r.testRights)
	t.Run("daemon", r.testDaemon)
	t.Run("manifests", r.testManifests)
	t.Run("follow", r.testFollow) // last: it restarts the server
}

// A capture is the cluster, read by a user who may only list; anonymized, it makes the same number of rules.
func (r *rig) testCapture(t *testing.T) {
	objects, err := capture.Take(t.Context(), clientOf(t, r.Reader()), 10)
	if err != nil {
		t.Fatal(err)
	}
	if len(objects.Nodes) != 3 || len(objects.Services) != 26 || len(objects.Slices) != 25 { // with "kubernetes"
		t.Errorf("%d nodes, %d Services, %d slices; want 3, 26, 25", len(objects.Nodes), len(objects.Services), len(objects.Slices))
	}
	var text bytes.Buffer
	if err := manifests.WriteObjects(&text, objects); err != nil {
		t.Fatal(err)
	}
	for _, unread := range []string{"managedFields", "team", "selector"} {
		if strings.Contains(text.String(), unread) {
			t.Errorf("%s was captured", unread)
		}
	}
	back, err := manifests.ReadObjects([]string{"-"}, &text, manifests.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	hidden, err := capture.Anonymize(objects, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	want := count(t, objects, "node-0")
	if got := count(t, back, "node-0"); got != want || want == 0 {
		t.Errorf("read back, the capture makes %d rules; want %d", got, want)
	}
	// All its nodes have as many local endpoints.
	if got := count(t, hidden.Objects, hidden.Objects.Nodes[0].Name); got != want {
		t.Errorf("anonymized, the cluster makes %d rules; want %d", got, want)
	}
}

// count returns how many rules a cluster makes on a node.
func count(t *testing.T, o *sim.Objects, node string) int {
	t.Helper()
	i := slices.IndexFunc(o.Nodes, func(n *corev1.Node) bool { return n.Name == node })
	options := proxier.Options{NodeName: node, NodeIPs: []netip.Addr{netip.MustParseAddr(o.Nodes[i].Status.Addresses[0].Address)}}
	models, err := proxier.Render(t.Context(), options, o.Services, o.Slices, o.Nodes[i])
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := models[0].Save(&text); err != nil {
		t.Fatal(err)
	}
	return strings.Count(text.String(), "\n-A ")
}

// followed is a running Follow.
type followed struct {
	snapshot chan *sim.Objects
	changes  chan live.Change
	stop     func() (live.Summary, error)
}

func follow(t *testing.T, client kubernetes.Interface) followed {
	t.Helper()
	f := followed{snapshot: make(chan *sim.Objects, 1), changes: make(chan live.Change, 1000)}
	ctx, cancel := context.WithCancel(t.Context())
	var summary live.Summary
	done := make(chan error, 1)
	go func() {
		var err error
		summary, err = live.Follow(ctx, client, live.Options{
			Snapshot: func(o *sim.Objects) error { f.snapshot <- o; return nil },
			Change:   func(c live.Change) error { f.changes <- c; return nil },
		})
		done <- err
	}()
	f.stop = func() (live.Summary, error) { cancel(); err := <-done; return summary, err }
	t.Cleanup(cancel)
	return f
}

// until reads changes up to a certain one, and returns all.
func (f *followed) until(op sim.Op, name string) (seen []string) {
	for c := range f.changes {
		seen = append(seen, string(c.Op)+" "+c.Object.(metav1.Object).GetName())
		if c.Op == op && c.Object.(metav1.Object).GetName() == name {
			break
		}
	}
	return seen
}

// A user who may only list and watch follows all changes, across a server that is killed and restarted.
func (r *rig) testFollow(t *testing.T) {
	f := follow(t, clientOf(t, r.Reader()))
	if o := <-f.snapshot; len(o.Services) != 26 || len(o.Slices) != 25 || len(o.Nodes) != 3 {
		t.Fatalf("the snapshot has %d Services, %d slices, %d nodes", len(o.Services), len(o.Slices), len(o.Nodes))
	}
	ctx := t.Context()
	r.retryConflicts(t, "node-1", func(n *corev1.Node) { n.Status.Phase = corev1.NodeRunning }) // a proxy does not see this
	r.addService(t, "new", 0)
	if err := r.client.DiscoveryV1().EndpointSlices("default").Delete(ctx, "svc-3-x", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	seen := f.until(sim.Delete, "svc-3-x")
	slices.Sort(seen) // kinds have no common order
	if want := []string{"Add new-x", "Delete svc-3-x"}; !slices.Equal(slices.DeleteFunc(seen, func(s string) bool { return s == "Add new" }), want) {
		t.Errorf("changes %q; want %q", seen, want)
	}

	within, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	died := time.Now()
	if err := r.Restart(within); err != nil {
		t.Fatal(err)
	}
	down := time.Since(died)
	if err := r.client.CoreV1().Services("default").Delete(ctx, "svc-7", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.until(sim.Delete, "svc-7")
	r.addService(t, "last", 1)
	f.until(sim.Add, "last")
	summary, err := f.stop()
	if err != nil || summary.Services.Watches < 2 || summary.Nodes.Unchanged == 0 || summary.Nodes.Changes != 0 {
		t.Errorf("summary %+v, %v", summary, err)
	}
	if k := summary.Services; k.Relists > 0 && k.Deaf < down/2 {
		t.Errorf("the server was down for %v, but nothing was missed for %v only", down, k.Deaf)
	}
	t.Logf("after a restart of the server, down for %v:\n%s", down, &summary)
}

// The reader of these tests may do nothing else.
func (r *rig) testRights(t *testing.T) {
	reader := clientOf(t, r.Reader())
	err := reader.CoreV1().Services("default").Delete(t.Context(), "svc-1", metav1.DeleteOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("deleting: %v; want that it is forbidden", err)
	}
	stranger := r.Reader()
	stranger.BearerToken = "wrong"
	_, err = live.Follow(t.Context(), clientOf(t, stranger), live.Options{
		Snapshot: func(*sim.Objects) error { return nil }, Change: func(live.Change) error { return nil },
	})
	if !apierrors.IsUnauthorized(err) {
		t.Errorf("following without rights: %v; want that it is refused", err)
	}
}

// The proxier as a process, without the kernel: the server applies the selectors of its informers.
func (r *rig) testDaemon(t *testing.T) {
	model := iptables.NewModel(corev1.IPv4Protocol)
	syncs := make(chan proxier.Sync, 100)
	var log syncReader = func(line []byte) {
		for s, err := range proxier.ReadSyncLog(bytes.NewReader(line)) {
			if err == nil {
				syncs <- s
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- daemon.Run(ctx, daemon.Options{
			Client: clientOf(t, r.Reader()), SyncLog: log,
			Proxier: proxier.Options{
				NodeName: "node-0", Tables: func(corev1.IPFamily) (iptables.Tables, error) { return model, nil },
				Conntrack: func(corev1.IPFamily) (conntrack.Table, error) { return &conntrack.Memory{}, nil },
			},
			Listen: func(network, _ string) (net.Listener, error) { return net.Listen(network, "127.0.0.1:0") },
		})
	}()
	first := <-syncs
	if first.Err != nil || first.Services != 24 { // with "kubernetes"; without the headless one, and the other proxy's
		t.Errorf("the first sync knows %d Services, error %v; want 24", first.Services, first.Err)
	}
	// A Service that is assigned to another proxier is deleted for this one.
	patch := []byte(`{"metadata":{"labels":{"service.kubernetes.io/service-proxy-name":"other"}}}`)
	if _, err := r.client.CoreV1().Services("default").Patch(t.Context(), "svc-0", "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for s := range syncs {
		if s.Services == 23 {
			break
		}
	}
	cancel()
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("daemon: %v", err)
	}
}

// syncReader takes the lines of a sync log, one line a write.
type syncReader func(line []byte)

func (r syncReader) Write(line []byte) (int, error) { r(line); return len(line), nil }
