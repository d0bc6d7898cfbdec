package proxier

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"synclab/proxier/backend"
	"synclab/proxier/conntrack"
	"synclab/proxier/iptables"
	"synclab/proxier/nftables"
)

// The health check node port of a Service is open at the node's addresses that take NodePorts. It reports the number of
// local endpoints, and closes when the Service no longer needs it.
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
	defer e.postSync.close()
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

// Failed transactions of backend nftables count, and other failures of a sync do not.
func TestMetricsOfFailedTransactions(t *testing.T) {
	e := testEngine(t, corev1.IPv4Protocol, nil, func(o *Options) {
		o.Backend = Nftables
		o.Model = nftables.NewModel
	})
	for _, c := range []struct {
		err             error
		exit            int // of one of the sync's runs
		failed, cleanup int
	}{
		{errors.New("addresses of the node"), 0, 0, 0},
		{fmt.Errorf("sync: %w", &nftables.TransactionError{Err: errors.New("no memory")}), 1, 1, 0},
		{&nftables.TransactionError{Err: errors.New("busy"), Cleanup: true}, 1, 1, 1},
		{nil, 1, 2, 1}, // refused, and repaired within the sync
		{nil, 0, 2, 1},
	} {
		e.postSync.synced(t.Context(), e, &Sync{Kind: Full, Err: c.err, Work: backend.Work{Runs: []backend.Run{{ExitCode: c.exit}, {}}}})
		for name, want := range map[string]int{
			"sync_proxy_rules_nftables_sync_failures_total": c.failed, "sync_proxy_rules_nftables_cleanup_failures_total": c.cleanup,
			"sync_proxy_rules_iptables_restore_failures_total": 0,
		} {
			if got := total(t, e.opts.Registry, name); got != want {
				t.Errorf("%v: %s = %d, want %d", c.err, name, got, want)
			}
		}
	}
}

// brokenFlows is a conntrack table that cannot be read.
type brokenFlows struct{ err error }

func (b *brokenFlows) DeleteUDP(context.Context, corev1.IPFamily, func(conntrack.Flow) bool) (conntrack.Pass, error) {
	return conntrack.Pass{}, b.err
}

// Health check node ports open, at the addresses that take NodePorts only, even if the conntrack cleanup fails.
func TestHealthCheckNodePortsWithoutConntrack(t *testing.T) {
	free, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Skipf("no loopback interface here: %v", err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	_ = free.Close()
	flows := &brokenFlows{errors.New("broken")}
	e := testEngine(t, corev1.IPv4Protocol, iptables.NewModel(corev1.IPv4Protocol), func(o *Options) {
		o.Config.NodePortAddresses = []string{"127.0.0.0/8"}
		o.Addresses = func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil }
		o.Conntrack = func(corev1.IPFamily) (conntrack.Table, error) { return flows, nil }
		o.ServeHealthChecks = true
	})
	defer e.postSync.close()
	svc, slice := plainService("svc", "10.96.0.1", 0), plainSlice("svc", "10.128.0.1")
	udp(svc, slice)
	svc.Spec.Type, svc.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
	svc.Spec.HealthCheckNodePort = int32(port)
	e.tracker.SetService(svc, time.Time{})
	e.tracker.SetSlice(slice, time.Time{})
	if err := e.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]bool{"127.0.0.1": true, "127.0.0.2": false} {
		c, err := net.Dial("tcp4", net.JoinHostPort(addr, strconv.Itoa(port)))
		if (err == nil) != want {
			t.Errorf("%s is open: %t, want %t", addr, err == nil, want)
		}
		if err == nil {
			_ = c.Close()
		}
	}
}
