package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	// Addrs to listen at, the node's addresses that take nodePorts; all of the
	// family's (0.0.0.0 or [::]) when empty.
	Addrs []netip.Addr
	// Healthy is the proxier's health, Server.Healthy.
	Healthy func() bool
	// Listen opens a listener; net.ListenConfig's, in the network namespace of
	// the thread that calls Sync, when nil.
	Listen func(ctx context.Context, network, address string) (net.Listener, error)
	// OnFailure, if any, hears of each listener that could not be opened or
	// that broke, by Service. It may be called from several goroutines and must
	// not call the ServiceServers.
	OnFailure func(service types.NamespacedName, err error)
}

// ServiceServers answer the health check nodePorts of Services with external
// traffic policy Local, one HTTP server a Service.
type ServiceServers struct {
	opts ServiceOptions

	mu      sync.Mutex
	servers map[types.NamespacedName]*serviceServer
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
	if len(opts.Addrs) == 0 {
		opts.Addrs = []netip.Addr{netip.IPv4Unspecified()}
		if opts.Family == corev1.IPv6Protocol {
			opts.Addrs = []netip.Addr{netip.IPv6Unspecified()}
		}
	}
	return &ServiceServers{opts: opts, servers: map[types.NamespacedName]*serviceServer{}}, nil
}

// Sync makes the servers those of ports, the health check nodePorts by Service,
// and tells them how many ready endpoints (each address once, terminating ones
// not) their Service has on this node. Listeners that could not be opened are
// in the error and are tried again by the next Sync; the others serve.
func (s *ServiceServers) Sync(ctx context.Context, ports map[types.NamespacedName]uint16, localReady map[types.NamespacedName]int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Close first: a port may have moved from one Service to another.
	for name, server := range s.servers {
		if port, wanted := ports[name]; !wanted || port != server.port {
			server.close()
			delete(s.servers, name)
		}
	}
	var errs []error
	for _, name := range sortedNames(ports) {
		server, ok := s.servers[name]
		if !ok {
			server = s.newServer(name, ports[name])
			s.servers[name] = server
		}
		server.ready.Store(int64(localReady[name]))
		for _, addr := range s.opts.Addrs {
			if err := s.listen(ctx, name, server, addr); err != nil {
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
	for name, server := range s.servers {
		server.close()
		delete(s.servers, name)
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
			delete(server.listeners, addr) // the next Sync opens it again
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
// this node and the proxier is healthy, else 503.
func (s *ServiceServers) answer(w http.ResponseWriter, name types.NamespacedName, ready int) {
	type service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	}
	healthy := s.opts.Healthy()
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
func sortedNames(ports map[types.NamespacedName]uint16) []types.NamespacedName {
	names := make([]types.NamespacedName, 0, len(ports))
	for name := range ports {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b types.NamespacedName) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return names
}
