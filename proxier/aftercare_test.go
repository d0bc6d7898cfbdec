package proxier

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"synclab/proxier/iptables"
)

// The health check node port of a Service is open at those addresses of the node that take NodePorts, says how many
// endpoints there are here, and closes with the Service's need for it.
func TestHealthCheckNodePorts(t *testing.T) {
	free, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Skipf("no loopback interface here: %v", err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	_ = free.Close()
	addrs := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.1")}
	e := testEngine(t, corev1.IPv4Protocol, iptables.NewModel(corev1.IPv4Protocol), func(o *Options) {
		o.Config.NodePortAddresses = []string{"127.0.0.0/8"}
		o.Addresses = func() ([]netip.Addr, error) { return addrs, nil }
		o.ServeHealthChecks = true
	})
	defer e.after.close()
	svc, slice := plainService("svc", "10.96.0.1", 0), plainSlice("svc", "10.128.0.1")
	svc.Spec.Type, svc.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
	svc.Spec.HealthCheckNodePort = int32(port)
	ask := func(addr, want string) {
		t.Helper()
		got := "closed"
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		if resp, err := client.Get(fmt.Sprintf("http://%s:%d", addr, port)); err == nil {
			got = resp.Header.Get("X-Load-Balancing-Endpoint-Weight")
			_ = resp.Body.Close()
		}
		if got != want {
			t.Errorf("%s says %s, want %s", addr, got, want)
		}
	}
	sync := func() {
		t.Helper()
		if err := e.sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	e.tracker.SetService(svc, time.Time{})
	e.tracker.SetSlice(slice, time.Time{})
	sync()
	ask("127.0.0.1", "0")
	ask("127.0.0.2", "closed")
	slice.Endpoints[0].NodeName = ptr.To(e.opts.NodeName)
	e.tracker.SetSlice(slice, time.Time{})
	sync()
	ask("127.0.0.1", "1")

	addrs[0] = netip.MustParseAddr("127.0.0.2")
	e.check(t.Context())
	sync()
	ask("127.0.0.1", "closed")
	ask("127.0.0.2", "1")

	svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	e.tracker.SetService(svc, time.Time{})
	sync()
	ask("127.0.0.2", "closed")
	svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	e.tracker.SetService(svc, time.Time{})
	sync()
	ask("127.0.0.2", "1")
	e.tracker.DeleteService(svc, time.Time{})
	sync()
	ask("127.0.0.2", "closed")
}
