package userspace_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"synclab/bench/lab/netns"
	"synclab/proxier"
	"synclab/proxier/backend"
)

func TestMain(m *testing.M) { os.Exit(netns.TestMain(m)) }

// Services, each with the endpoints of its number, in a namespace of its own. All addresses are local there; each endpoint
// answers with its address.
const services, each, endpointPort = 20, 3, 8080

func (f family) endpoint(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf(f.endpoints, i)) }
func (f family) service(i int) netip.Addr  { return netip.MustParseAddr(fmt.Sprintf(f.services, i)) }

type family struct {
	corev1.IPFamily
	node, endpoints, services, all string
	kind                           discoveryv1.AddressType
}

var families = []family{
	{corev1.IPv4Protocol, "192.0.2.1", "11.0.0.%d", "10.96.0.%d", "10.96.0.0/24", discoveryv1.AddressTypeIPv4},
	{corev1.IPv6Protocol, "2001:db8::1", "fd00:1::%d", "fd00:96::%d", "fd00:96::/64", discoveryv1.AddressTypeIPv6},
}

// objects returns Service i, of protocols in turn, and its slice with the first endpoints of its number.
func (f family) objects(i, endpoints int) (*corev1.Service, *discoveryv1.EndpointSlice) {
	name, protocol := fmt.Sprintf("s%d", i), []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}[i%2]
	ip := f.service(i).String()
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ClusterIP: ip, ClusterIPs: []string{ip}, IPFamilies: []corev1.IPFamily{f.IPFamily},
			Ports: []corev1.ServicePort{{Protocol: protocol, Port: 80, NodePort: int32(30000 + i)}},
		},
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: name + "-a", Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: f.kind,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Protocol: ptr.To(protocol), Port: ptr.To[int32](endpointPort)}},
	}
	for e := range endpoints {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{f.endpoint(i*each + e + 1).String()}})
	}
	return svc, slice
}

// answer answers connections and packets at an address with the address.
func answer(t *testing.T, at netip.AddrPort) {
	listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	socket, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close(); socket.Close() })
	text := []byte(at.Addr().String() + "\n")
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write(text)
			c.Close()
		}
	}()
	go func() {
		buffer := make([]byte, 10)
		for {
			_, from, err := socket.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			_, _ = socket.WriteToUDPAddrPort(text, from)
		}
	}()
}

// answered makes connections to an address, and counts the answers of each endpoint.
func answered(t *testing.T, protocol corev1.Protocol, to netip.AddrPort, connections int) map[string]int {
	t.Helper()
	from := map[string]int{}
	for range connections {
		network := map[corev1.Protocol]string{corev1.ProtocolTCP: "tcp", corev1.ProtocolUDP: "udp"}[protocol]
		c, err := net.DialTimeout(network, to.String(), 10*time.Second)
		if err != nil {
			t.Fatalf("%s %s: %v", network, to, err)
		}
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if protocol == corev1.ProtocolUDP {
			_, err = c.Write([]byte("?"))
		}
		text, readErr := bufio.NewReader(c).ReadString('\n')
		c.Close()
		if err != nil || readErr != nil {
			t.Fatalf("%s %s: %v, %v", network, to, err, readErr)
		}
		from[text[:len(text)-1]]++
	}
	return from
}

// check compares the endpoints that answer for each Service with those that it should have, by cluster IP and NodePort.
func (f family) check(t *testing.T, endpoints int) {
	t.Helper()
	for i := range services {
		svc, slice := f.objects(i, endpoints)
		want := map[string]int{}
		for _, e := range slice.Endpoints {
			want[e.Addresses[0]] = 2
		}
		port := svc.Spec.Ports[0]
		for _, to := range []netip.AddrPort{
			netip.AddrPortFrom(f.service(i), uint16(port.Port)), netip.AddrPortFrom(netip.MustParseAddr(f.node), uint16(port.NodePort)),
		} {
			if got := answered(t, port.Protocol, to, 2*endpoints); !maps.Equal(got, want) {
				t.Errorf("%s %s: answers from %v; want %v", port.Protocol, to, got, want)
			}
		}
	}
}

// connected gives the test's namespace all addresses. The proxier's goroutines use any thread, so no test has a namespace
// of its own.
var connected = sync.OnceValue(func() error {
	var topology netns.Topology
	for _, f := range families {
		topology.Node = append(topology.Node, netip.MustParseAddr(f.node))
		topology.Sink = append(topology.Sink, netip.MustParsePrefix(f.all))
		for i := 1; i <= services*each; i++ {
			topology.Node = append(topology.Node, f.endpoint(i))
		}
	}
	return (&netns.Lab{}).Connect(topology)
})

// Real connections reach the endpoints of their Service, one after the other. Removed endpoints get no new ones.
func TestConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	if err := connected(); err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		t.Run(string(f.IPFamily), func(t *testing.T) { f.test(t) })
	}
}

func (f family) test(t *testing.T) {
	client := fake.NewClientset()
	for i := range services {
		for e := range each {
			answer(t, netip.AddrPortFrom(f.endpoint(i*each+e+1), endpointPort))
		}
		svc, slice := f.objects(i, each)
		if err := errors.Join(client.Tracker().Add(svc), client.Tracker().Add(slice)); err != nil {
			t.Fatal(err)
		}
	}
	synced := make(chan proxier.Sync, 100)
	p, err := proxier.New(proxier.Options{
		Backend: proxier.Userspace, Families: []corev1.IPFamily{f.IPFamily}, NodeIPs: []netip.Addr{netip.MustParseAddr(f.node)},
		LockFile: t.TempDir() + "/lock", OnSync: func(s proxier.Sync) { synced <- s },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := p.Watch(ctx, informers.NewSharedInformerFactory(client, 0)); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	if s := <-synced; s.Err != nil || len(s.Refused) > 0 || s.Installed["nat"].Rules != 4*services {
		t.Fatalf("cold start: %v, refused %v, installed %v", s.Err, s.Refused, s.Installed)
	}
	f.check(t, each)

	for i := range services {
		_, slice := f.objects(i, each-1)
		if _, err := client.DiscoveryV1().EndpointSlices("ns").Update(ctx, slice, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for changes := 0; changes < services; {
		s := <-synced
		if changes += s.Changes; s.Err != nil || slices.ContainsFunc(s.Runs, func(r backend.Run) bool { return r.Bytes > 0 }) {
			t.Fatalf("fewer endpoints: %v, runs %+v", s.Err, s.Runs)
		}
	}
	f.check(t, each-1)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
