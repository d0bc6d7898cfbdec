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

// readHeaderTimeout bounds the time to read a request's headers, so that silent connections do not pile up.
const readHeaderTimeout = 10 * time.Second

// ServiceOptions configures NewServiceServers.
type ServiceOptions struct {
	// Family is the family of the addresses to listen at: "tcp4" or "tcp6".
	Family corev1.IPFamily
	// Healthy reports the proxier's health, see Server.Healthy.
	Healthy func() bool
	// Listen opens a listener. When nil, it is net.ListenConfig's, in the network namespace of the thread that calls
	// Open.
	Listen func(ctx context.Context, network, address string) (net.Listener, error)
	// OnFailure, if set, is called for each listener that could not be opened or that broke, with its Service. It must
	// be safe for concurrent use and must not call the ServiceServers.
	OnFailure func(service types.NamespacedName, err error)
}

// ServiceServers answer the health check NodePorts of Services with external traffic policy Local, with one HTTP server
// per Service. Set, Remove and SetAddrs define the desired listeners and close others at once, because a port may move
// from one Service to another. Open opens missing listeners.
type ServiceServers struct {
	opts ServiceOptions

	mu      sync.Mutex
	addrs   []netip.Addr
	servers map[types.NamespacedName]*serviceServer
	missing map[types.NamespacedName]bool // Services that may lack a listener
	refused map[types.NamespacedName]bool
	serving sync.WaitGroup
}

// serviceServer is one Service's HTTP server with its listeners.
type serviceServer struct {
	port      uint16
	ready     atomic.Int64 // ready endpoints on this node
	http      *http.Server
	listeners map[netip.Addr]net.Listener // open listeners; guarded by ServiceServers.mu
}

// NewServiceServers returns a ServiceServers without Services.
func NewServiceServers(opts ServiceOptions) (*ServiceServers, error) {
	if opts.Family != corev1.IPv4Protocol && opts.Family != corev1.IPv6Protocol {
		return nil, fmt.Errorf("health check servers: family %q is neither %q nor %q", opts.Family, corev1.IPv4Protocol, corev1.IPv6Protocol)
	}
	if opts.Healthy == nil {
		return nil, errors.New("health check servers: ServiceOptions.Healthy is nil")
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

// Set declares the health check NodePort of a Service. localReady is its number of ready endpoints on this node: each
// address counts once, terminating endpoints do not count.
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

// Remove declares that a Service has no health check NodePort.
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

// Refuse declares the Services whose rules the kernel refused. Their traffic reaches no endpoint, whatever endpoints
// exist.
func (s *ServiceServers) Refuse(names map[types.NamespacedName]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = names
}

// SetAddrs declares where to listen: the node's addresses that take NodePorts, or nil for all addresses of the family
// (0.0.0.0 or [::]). nil is the default.
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

// Open opens the missing listeners. Its error contains those that could not be opened; the next Open retries them. The
// others serve.
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

// listen serves at addr, unless a listener exists. The caller holds s.mu.
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
			s.missing[name] = true // the next Open retries
		}
		s.mu.Unlock()
		if broken {
			s.failed(name, fmt.Errorf("listener at %v broke: %w", listener.Addr(), err))
		}
	})
	return nil
}

// close closes a server. The caller holds ServiceServers.mu. It also closes each listener, because http.Server knows
// only those whose Serve has begun.
func (server *serviceServer) close() {
	listeners := server.listeners
	server.listeners = nil
	_ = server.http.Close()
	for _, l := range listeners {
		_ = l.Close()
	}
}

// answer writes kube-proxy's answer. It is 200 if the Service has a ready endpoint on this node, the proxier is healthy
// and the Service's rules are not refused; otherwise 503.
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

// sortedNames makes the order of opening ports and of errors deterministic.
func sortedNames(set map[types.NamespacedName]bool) []types.NamespacedName {
	return slices.SortedFunc(maps.Keys(set), func(a, b types.NamespacedName) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
}
