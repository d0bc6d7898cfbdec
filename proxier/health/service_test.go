package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/types"
)

var errInUse = errors.New("address already in use")

// pipes is a network in memory: listeners by address, with pipes as connections.
type pipes struct {
	mu        sync.Mutex
	listeners map[string]*pipeListener
	refuse    string // the address that is in use
}

type pipeListener struct {
	net     *pipes
	address string
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (p *pipes) Listen(_ context.Context, network, address string) (net.Listener, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := network + " " + address
	if p.listeners[key] != nil || key == p.refuse {
		return nil, fmt.Errorf("listen %s: %w", key, errInUse)
	}
	l := &pipeListener{net: p, address: key, conns: make(chan net.Conn), closed: make(chan struct{})}
	p.listeners[key] = l
	return l, nil
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() {
		l.net.mu.Lock()
		delete(l.net.listeners, l.address)
		l.net.mu.Unlock()
		close(l.closed)
	})
	return nil
}

func (l *pipeListener) Addr() net.Addr { return net.Addr(pipeAddr(l.address)) }

type pipeAddr string

func (a pipeAddr) Network() string { return "pipe" }
func (a pipeAddr) String() string  { return string(a) }

// get returns the answer of the listener at an address; "closed" when there is none.
func (p *pipes) get(t *testing.T, address string) string {
	t.Helper()
	p.mu.Lock()
	l := p.listeners[address]
	p.mu.Unlock()
	if l == nil {
		return "closed"
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		l.conns <- server
		return client, nil
	}}
	resp, err := (&http.Client{Transport: transport}).Get("http://node/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d weight=%s %s", resp.StatusCode, resp.Header.Get("X-Load-Balancing-Endpoint-Weight"), strings.TrimSpace(string(body)))
}

func TestServiceServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &pipes{listeners: map[string]*pipeListener{}}
		var healthy atomic.Bool
		healthy.Store(true)
		var failures atomic.Int64
		s, err := NewServiceServers(ServiceOptions{
			Family:    v4,
			Healthy:   healthy.Load,
			Listen:    network.Listen,
			OnFailure: func(types.NamespacedName, error) { failures.Add(1) },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		first, second := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
		s.SetAddrs([]netip.Addr{first, second})
		web, dns := types.NamespacedName{Namespace: "default", Name: "web"}, types.NamespacedName{Namespace: "kube-system", Name: "dns"}
		open := func(wantErr string) {
			t.Helper()
			err := s.Open(t.Context())
			if (err != nil) != (wantErr != "") || err != nil && !strings.Contains(err.Error(), wantErr) {
				t.Errorf("Open: %v, want %q", err, wantErr)
			}
		}
		want := func(address, want string) {
			t.Helper()
			if got := network.get(t, address); got != want {
				t.Errorf("%s answers\n  %s, want\n  %s", address, got, want)
			}
		}
		const ok = `200 weight=2 {"service":{"namespace":"default","name":"web"},"localEndpoints":2,"serviceProxyHealthy":true}`

		s.Set(web, 32000, 2)
		open("")
		want("tcp4 192.0.2.1:32000", ok)
		want("tcp4 192.0.2.2:32000", ok)
		healthy.Store(false)
		want("tcp4 192.0.2.1:32000", `503 weight=2 {"service":{"namespace":"default","name":"web"},"localEndpoints":2,"serviceProxyHealthy":false}`)
		healthy.Store(true)
		s.Refuse(map[types.NamespacedName]bool{web: true})
		want("tcp4 192.0.2.1:32000", `503 weight=2 {"service":{"namespace":"default","name":"web"},"localEndpoints":2,"serviceProxyHealthy":false}`)
		s.Refuse(nil)
		want("tcp4 192.0.2.1:32000", ok)
		s.Set(web, 32000, 0)
		want("tcp4 192.0.2.1:32000", `503 weight=0 {"service":{"namespace":"default","name":"web"},"localEndpoints":0,"serviceProxyHealthy":true}`)

		// The port moves to another Service, and one address is in use.
		network.refuse = "tcp4 192.0.2.2:32000"
		s.Set(web, 32001, 2)
		s.Set(dns, 32000, 1)
		open("service kube-system/dns: health check nodePort: listen tcp4 192.0.2.2:32000")
		want("tcp4 192.0.2.1:32000", `200 weight=1 {"service":{"namespace":"kube-system","name":"dns"},"localEndpoints":1,"serviceProxyHealthy":true}`)
		want("tcp4 192.0.2.2:32000", "closed")
		want("tcp4 192.0.2.1:32001", ok)
		network.refuse = ""
		s.Set(dns, 32000, 0)
		open("")
		want("tcp4 192.0.2.2:32000", `503 weight=0 {"service":{"namespace":"kube-system","name":"dns"},"localEndpoints":0,"serviceProxyHealthy":true}`)
		if got := failures.Load(); got != 1 {
			t.Errorf("%d failures reported, want 1", got)
		}

		// A listener breaks. The next Open replaces it.
		network.mu.Lock()
		broken := network.listeners["tcp4 192.0.2.1:32001"]
		network.mu.Unlock()
		_ = broken.Close()
		synctest.Wait()
		want("tcp4 192.0.2.1:32001", "closed")
		want("tcp4 192.0.2.2:32001", ok)
		s.Remove(dns)
		s.Remove(types.NamespacedName{Name: "never there"})
		open("")
		want("tcp4 192.0.2.1:32001", ok)
		want("tcp4 192.0.2.1:32000", "closed")
		if got := failures.Load(); got != 2 {
			t.Errorf("%d failures reported, want 2", got)
		}

		// The node's addresses change: to one, to none, to all.
		s.SetAddrs([]netip.Addr{second})
		want("tcp4 192.0.2.1:32001", "closed")
		want("tcp4 192.0.2.2:32001", ok)
		s.SetAddrs([]netip.Addr{})
		open("")
		want("tcp4 192.0.2.2:32001", "closed")
		s.SetAddrs(nil)
		open("")
		want("tcp4 0.0.0.0:32001", ok)
		if got := failures.Load(); got != 2 {
			t.Errorf("%d failures reported, want 2: closing a listener is no failure", got)
		}

		s.Close()
		if len(network.listeners) != 0 {
			t.Errorf("left open: %v", network.listeners)
		}
	})
}

// TestServiceServersListen uses real sockets of the loopback interface.
func TestServiceServersListen(t *testing.T) {
	free, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Skipf("no loopback interface here: %v", err)
	}
	addr := netip.MustParseAddrPort(free.Addr().String())
	_ = free.Close()
	s, err := NewServiceServers(ServiceOptions{Family: v4, Healthy: func() bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.SetAddrs([]netip.Addr{addr.Addr()})
	s.Set(types.NamespacedName{Namespace: "default", Name: "web"}, addr.Port(), 1)
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get("http://" + addr.String())
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get("X-Load-Balancing-Endpoint-Weight") != "1" {
		t.Errorf("answer %d, headers %v", resp.StatusCode, resp.Header)
	}
}

func TestServiceOptions(t *testing.T) {
	if _, err := NewServiceServers(ServiceOptions{Family: v4}); err == nil {
		t.Error("accepted without the proxier's health")
	}
	if _, err := NewServiceServers(ServiceOptions{Family: "IPv5", Healthy: func() bool { return true }}); err == nil {
		t.Error("family IPv5 was accepted")
	}
	s, err := NewServiceServers(ServiceOptions{Family: v6, Healthy: func() bool { return true }})
	if err != nil || len(s.addrs) != 1 || s.addrs[0] != netip.IPv6Unspecified() {
		t.Errorf("IPv6 listens at %v (%v), want [::]", s.addrs, err)
	}
}
