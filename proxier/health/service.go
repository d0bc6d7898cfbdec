package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// readHeaderTimeout bounds how long a load balancer may take over one request,
// so that connections that say nothing do not pile up.
const readHeaderTimeout = 10 * time.Second

// ServiceOptions of NewServiceServers.
type ServiceOptions struct {
	// Family of the addresses to listen at: "tcp4" or "tcp6".
	Family corev1.IPFamily
	// Healthy is the proxier's health, Server.Healthy.
	Healthy func() bool
	// Listen opens a listener; net.ListenConfig's, in the network namespace of
	// the thread that calls Open, when nil.
	Listen func(ctx context.Context, network, address string) (net.Listener, error)
	// OnFailure, if any, hears of each listener that could not be opened or
	// that broke, by Service. It may be called from several goroutines and must
	// not call the ServiceServers.
	OnFailure func(service types.NamespacedName, err error)
}

// ServiceServers answer the health check nodePorts of Services with external
// traffic policy Local, one HTTP server a Service. Set, Remove and SetAddrs say
// what there should be, and close at once what should not: a port may move
// from one Service to another. Open opens what is missing.
type ServiceServers struct {
	opts ServiceOptions

	mu      sync.Mutex
	addrs   []netip.Addr
	servers map[types.NamespacedName]*serviceServer
	missing map[types.NamespacedName]bool // those that may lack a listener
	refused map[types.NamespacedName]bool
	serving sync.WaitGroup
}

// serviceServer is one Service's HTTP server and its listeners.
type serviceServer struct {
	port      uint16
	ready     atomic.Int64 // ready endpoints on this node
	http      *http.Server
	listeners map[netip.Addr]net.Listener // those that serve; under ServiceServers.mu
}

// NewServiceServers returns servers for no Service yet.
func NewServiceServers(opts ServiceOptions) (*ServiceServers, error) {
	if opts.Family != corev1.IPv4Protocol && opts.Family != corev1.IPv6Protocol {
		return nil, fmt.Errorf("health check servers: family %q is neither %q nor %q", opts.Family, corev1.IPv4Protocol, corev1.IPv6Protocol)
	}
	if opts.Healthy == nil {
		return nil, errors.New("health check servers: nobody tells the proxier's health")
	}
	if opts.Listen == nil {
		opts.Listen = new(net.ListenConfig).Listen
	}
	s := &ServiceServers{
		opts:    opts,
		servers: map[types.NamespacedName]*serviceServer{},
		missing: map[types.NamespacedName]bool{},
	}
	s.SetAddrs(nil)
	return s, nil
}

// Set says that a Service has a health check nodePort, and so many ready
// endpoints (each address once, terminating ones not) on this node.
func (s *ServiceServers) Set(name types.NamespacedName, port uint16, localReady int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	server := s.servers[name]
	if server == nil || server.port != port {
		s.remove(name)
		server = s.newServer(name, port)
		s.servers[name], s.missing[name] = server, true
	}
	server.ready.Store(int64(localReady))
}

// Remove says that a Service has no health check nodePort any more, if it ever
// had one.
func (s *ServiceServers) Remove(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(name)
}

func (s *ServiceServers) remove(name types.NamespacedName) {
	if server := s.servers[name]; server != nil {
		server.close()
		delete(s.servers, name)
		delete(s.missing, name)
	}
}

// Refuse says for which Services the kernel does not take the rules: whatever
// endpoints they have, traffic for them does not get there.
func (s *ServiceServers) Refuse(names map[types.NamespacedName]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = names
}

// SetAddrs says where to listen: the node's addresses that take nodePorts, or
// nil for all of the family (0.0.0.0 or [::]), as it is at first.
func (s *ServiceServers) SetAddrs(addrs []netip.Addr) {
	switch {
	case addrs == nil && s.opts.Family == corev1.IPv6Protocol:
		addrs = []netip.Addr{netip.IPv6Unspecified()}
	case addrs == nil:
		addrs = []netip.Addr{netip.IPv4Unspecified()}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(addrs, s.addrs) {
		return
	}
	s.addrs = slices.Clone(addrs)
	for name, server := range s.servers {
		for addr, listener := range server.listeners {
			if !slices.Contains(addrs, addr) {
				delete(server.listeners, addr)
				_ = listener.Close()
			}
		}
		s.missing[name] = true
	}
}

// Open opens the listeners that are missing. Those that could not be opened are
// in the error and are tried again by the next Open; the others serve.
func (s *ServiceServers) Open(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, name := range sortedNames(s.missing) {
		delete(s.missing, name)
		for _, addr := range s.addrs {
			if err := s.listen(ctx, name, s.servers[name], addr); err != nil {
				s.missing[name] = true
				s.failed(name, err)
				errs = append(errs, fmt.Errorf("service %s: health check nodePort: %w", name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Close ends all servers and waits until their listeners are closed.
func (s *ServiceServers) Close() {
	s.mu.Lock()
	for name := range s.servers {
		s.remove(name)
	}
	s.mu.Unlock()
	s.serving.Wait()
}

func (s *ServiceServers) newServer(name types.NamespacedName, port uint16) *serviceServer {
	server := &serviceServer{port: port, listeners: map[netip.Addr]net.Listener{}}
	server.http = &http.Server{
		ReadHeaderTimeout: readHeaderTimeout,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			s.answer(w, name, int(server.ready.Load()))
		}),
	}
	return server
}

// listen serves at addr, unless it does already; s.mu is held.
func (s *ServiceServers) listen(ctx context.Context, name types.NamespacedName, server *serviceServer, addr netip.Addr) error {
	if server.listeners[addr] != nil {
		return nil
	}
	network := "tcp4"
	if s.opts.Family == corev1.IPv6Protocol {
		network = "tcp6"
	}
	listener, err := s.opts.Listen(ctx, network, netip.AddrPortFrom(addr, server.port).String())
	if err != nil {
		return err
	}
	server.listeners[addr] = listener
	s.serving.Go(func() {
		err := server.http.Serve(listener)
		s.mu.Lock()
		broken := server.listeners[addr] == listener
		if broken {
			delete(server.listeners, addr)
			s.missing[name] = true // the next Open opens it again
		}
		s.mu.Unlock()
		if broken {
			s.failed(name, fmt.Errorf("listener at %v broke: %w", listener.Addr(), err))
		}
	})
	return nil
}

// close ends a server; ServiceServers.mu is held. Listeners are closed one by
// one as well, since http.Server knows only those whose Serve has begun.
func (server *serviceServer) close() {
	listeners := server.listeners
	server.listeners = nil
	_ = server.http.Close()
	for _, l := range listeners {
		_ = l.Close()
	}
}

// answer writes kube-proxy's answer: 200 if the Service has a ready endpoint on
// this node and the proxier is healthy, as far as the Service goes, else 503.
func (s *ServiceServers) answer(w http.ResponseWriter, name types.NamespacedName, ready int) {
	type service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	}
	s.mu.Lock()
	healthy := !s.refused[name]
	s.mu.Unlock()
	healthy = healthy && s.opts.Healthy()
	code := http.StatusOK
	if ready == 0 || !healthy {
		code = http.StatusServiceUnavailable
	}
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(ready))
	writeJSON(w, code, struct {
		Service      service `json:"service"`
		Local        int     `json:"localEndpoints"`
		ProxyHealthy bool    `json:"serviceProxyHealthy"`
	}{service{name.Namespace, name.Name}, ready, healthy})
}

func (s *ServiceServers) failed(name types.NamespacedName, err error) {
	if s.opts.OnFailure != nil {
		s.opts.OnFailure(name, err)
	}
}

// sortedNames makes the order in which ports are opened, and errors reported,
// the same every time.
func sortedNames(set map[types.NamespacedName]bool) []types.NamespacedName {
	return slices.SortedFunc(maps.Keys(set), func(a, b types.NamespacedName) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
}
