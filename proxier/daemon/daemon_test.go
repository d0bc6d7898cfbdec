package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"synclab/proxier"
	"synclab/proxier/config"
	"synclab/proxier/conntrack"
	"synclab/proxier/iptables"
)

func node(name string, podCIDRs []string, addresses ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: podCIDRs}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

func service(name, clusterIP string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: clusterIP, Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
}

func slice(service, address string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: service + "-a", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}}},
	}
}

// running is a daemon on tables in memory.
type running struct {
	model *iptables.Model
	syncs chan proxier.Sync
	stop  func() error
	// addresses are those of the two listeners, for metrics and for health.
	addresses <-chan net.Addr
}

func start(t *testing.T, o Options) running {
	t.Helper()
	r := running{model: iptables.NewModel(corev1.IPv4Protocol), syncs: make(chan proxier.Sync, 100)}
	addresses := make(chan net.Addr, 2)
	r.addresses = addresses
	o.Proxier.NodeName = "node-1"
	o.Proxier.Tables = func(corev1.IPFamily) (iptables.Tables, error) { return r.model, nil }
	o.Proxier.Conntrack = func(corev1.IPFamily) (conntrack.Table, error) { return &conntrack.Memory{}, nil }
	o.Proxier.Addresses = func() ([]netip.Addr, error) { return nil, nil }
	if o.Listen == nil {
		o.Listen = func(network, _ string) (net.Listener, error) {
			l, err := net.Listen(network, "127.0.0.1:0")
			if err == nil {
				addresses <- l.Addr()
			}
			return l, err
		}
	}
	reader, writer := io.Pipe()
	o.SyncLog = writer
	go func() {
		for record, err := range proxier.ReadSyncLog(reader) {
			if err == nil {
				r.syncs <- record
			}
		}
		close(r.syncs)
	}()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, o)
		writer.Close()
	}()
	r.stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

func (r *running) rules(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	if err := r.model.Save(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func TestRunFromAPI(t *testing.T) {
	client := fake.NewClientset(node("node-1", nil, "192.0.2.1"), service("a", "10.96.0.1"), slice("a", "10.128.0.1"))
	r := start(t, Options{Client: client})
	if first := <-r.syncs; first.Kind != proxier.Full || first.Services != 1 || first.Err != nil {
		t.Fatalf("the first sync is %+v", first)
	}
	if rules := r.rules(t); !strings.Contains(rules, "--to-destination 10.128.0.1:8080") {
		t.Errorf("no rule for the endpoint:\n%s", rules)
	}
	for range 2 {
		address := (<-r.addresses).String()
		for path, want := range map[string]string{
			"/proxyMode": "iptables",
			"/livez":     `"healthy":true`,
			"/healthz":   `"nodeEligible":true`,
			"/metrics":   `kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family="IPv4"} 1`,
		} {
			if body := get(t, "http://"+address+path); !strings.Contains(body, want) {
				t.Errorf("%s does not contain %s:\n%s", path, want, body)
			}
		}
		if body := get(t, "http://"+address+"/metrics"); !strings.Contains(body, "process_cpu_seconds_total") {
			t.Error("no metrics of the process")
		}
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if rules := r.rules(t); !strings.Contains(rules, "10.128.0.1") {
		t.Error("the rules were removed when the process ended")
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// The proxier requests the same objects from the API server as kube-proxy, by the same selectors.
func TestSelectors(t *testing.T) {
	client := fake.NewClientset(node("node-1", nil, "192.0.2.1"))
	type asked struct{ labels, fields string }
	var mu sync.Mutex
	lists := map[string]asked{}
	client.PrependReactor("list", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		restrictions := action.(clienttesting.ListAction).GetListRestrictions()
		mu.Lock()
		defer mu.Unlock()
		lists[action.GetResource().Resource] = asked{restrictions.Labels.String(), restrictions.Fields.String()}
		return false, nil, nil
	})
	r := start(t, Options{Client: client})
	<-r.syncs
	mu.Lock()
	defer mu.Unlock()
	want := map[string]asked{
		"nodes":          {"", "metadata.name=node-1"},
		"services":       {"!service.kubernetes.io/service-proxy-name", "spec.clusterIP!=None"},
		"endpointslices": {"!service.kubernetes.io/headless", ""},
	}
	if diff := cmp.Diff(want, lists, cmp.AllowUnexported(asked{})); diff != "" {
		t.Errorf("requested objects (-want +got):\n%s", diff)
	}
}

// findNode runs Options.findNode with a fake clock, and returns channels for its result.
func findNode(t *testing.T, client *fake.Clientset, mode string) (*clocktesting.FakeClock, <-chan nodeState, <-chan error) {
	cfg := config.New()
	if mode != "" {
		cfg.DetectLocalMode = config.LocalModeNodeCIDR
	}
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	o := Options{Client: client, Proxier: proxier.Options{Config: cfg, NodeName: "node-1", Clock: clk}}
	o.setDefaults()
	ctx, fail := context.WithCancelCause(t.Context())
	failed, found := make(chan error, 1), make(chan nodeState, 1)
	context.AfterFunc(ctx, func() { failed <- context.Cause(ctx) })
	go func() {
		state, err := o.findNode(ctx, o.informers(), fail)
		if err != nil {
			fail(err)
			return
		}
		found <- state
	}()
	return clk, found, failed
}

// waiters returns when a goroutine waits for the clock.
func waiters(clk *clocktesting.FakeClock) {
	for !clk.HasWaiters() {
		time.Sleep(time.Millisecond)
	}
}

func TestNodeComesLater(t *testing.T) {
	client := fake.NewClientset(node("node-2", nil, "192.0.2.2"), node("node-1", nil))
	clk, found, _ := findNode(t, client, "")
	waiters(clk)
	if _, err := client.CoreV1().Nodes().Update(t.Context(), node("node-1", []string{"10.1.0.0/24"}, "2001:db8::1", "192.0.2.1", "192.0.2.9"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	want := []netip.Addr{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("192.0.2.1")}
	if got := <-found; fmt.Sprint(got.ips) != fmt.Sprint(want) || len(got.podCIDRs) != 1 {
		t.Errorf("found %+v; want the addresses %v", got, want)
	}
}

func TestNodeNeverComes(t *testing.T) {
	clk, found, _ := findNode(t, fake.NewClientset(), "")
	waiters(clk)
	clk.Step(30 * time.Second)
	if got := <-found; got.exists || got.ips != nil {
		t.Errorf("found %+v; want nothing", got)
	}
}

// Detect-local mode NodeCIDR does not work without podCIDRs, nor with old ones.
func TestNodeCIDRs(t *testing.T) {
	t.Run("never", func(t *testing.T) {
		clk, _, failed := findNode(t, fake.NewClientset(node("node-1", nil, "192.0.2.1")), "NodeCIDR")
		waiters(clk)
		clk.Step(5 * time.Minute)
		if err := <-failed; err == nil || !strings.Contains(err.Error(), "no podCIDRs") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("changed", func(t *testing.T) {
		client := fake.NewClientset(node("node-1", []string{"10.1.0.0/24"}, "192.0.2.1"))
		_, found, failed := findNode(t, client, "NodeCIDR")
		<-found
		if _, err := client.CoreV1().Nodes().Update(t.Context(), node("node-1", []string{"10.2.0.0/24"}, "192.0.2.1"), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := <-failed; err == nil || !strings.Contains(err.Error(), "podCIDRs changed from [10.1.0.0/24] to [10.2.0.0/24]") {
			t.Errorf("error %v", err)
		}
	})
}

// A proxier that was made with other addresses ends, as kube-proxy does. Changes of what it does not read are no reason.
func TestNodeAddressesChange(t *testing.T) {
	client := fake.NewClientset(node("node-1", []string{"10.1.0.0/24"}, "192.0.2.1"))
	_, found, failed := findNode(t, client, "")
	<-found
	for _, next := range []*corev1.Node{node("node-1", []string{"10.2.0.0/24"}, "192.0.2.1", "192.0.2.9"), node("node-1", []string{"10.2.0.0/24"}, "192.0.2.7")} {
		if _, err := client.CoreV1().Nodes().Update(t.Context(), next, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "addresses changed from [192.0.2.1] to [192.0.2.7]") {
		t.Errorf("error %v", err)
	}
}

// The proxier runs although an address is in use, unless the configuration forbids that.
func TestAddressInUse(t *testing.T) {
	inUse := errors.New("address already in use")
	client := fake.NewClientset(node("node-1", nil, "192.0.2.1"))
	r := start(t, Options{Client: client, Listen: func(string, string) (net.Listener, error) { return nil, inUse }})
	<-r.syncs

	hard := config.New()
	hard.BindAddressHardFail = true
	err := Run(t.Context(), Options{
		Client:  client,
		Proxier: proxier.Options{Config: hard, NodeName: "node-1", Tables: func(f corev1.IPFamily) (iptables.Tables, error) { return iptables.NewModel(f), nil }},
		Listen:  func(string, string) (net.Listener, error) { return nil, inUse },
	})
	if !errors.Is(err, inUse) {
		t.Errorf("with bindAddressHardFail: %v; want %v", err, inUse)
	}
}

// A reader of the log must not take a broken log for a proxier without syncs.
func TestBrokenLog(t *testing.T) {
	reader, writer := io.Pipe()
	reader.Close()
	err := Run(t.Context(), Options{
		Client: fake.NewClientset(node("node-1", nil, "192.0.2.1")), SyncLog: writer,
		Proxier: proxier.Options{NodeName: "node-1", Tables: func(f corev1.IPFamily) (iptables.Tables, error) { return iptables.NewModel(f), nil }},
		Listen:  func(network, _ string) (net.Listener, error) { return net.Listen(network, "127.0.0.1:0") },
	})
	if !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Run returned %v; want %v", err, io.ErrClosedPipe)
	}
}

// Without families, the addresses are those of the default family. nodePortAddresses are selected from them.
func TestAddressesByDefault(t *testing.T) {
	o := Options{}
	o.setDefaults()
	addresses, err := o.Proxier.Addresses()
	if err != nil || !slices.Contains(addresses, netip.MustParseAddr("127.0.0.1")) {
		t.Errorf("%v, %v", addresses, err)
	}
	for _, a := range addresses {
		if !a.Is4() {
			t.Errorf("%s", a)
		}
	}
}
