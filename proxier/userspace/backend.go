package userspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/backend"
	"synclab/proxier/iptables"
	"synclab/proxier/iptables/rule"
	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// Options of a Backend.
type Options struct {
	backend.Options
	// Tables to write.
	Tables iptables.Tables
	// Report takes a Line for each change of a Service port's endpoints. nil: none.
	Report io.Writer
}

// Backend carries the packets of one family's Services. Only one goroutine may use it; Close ends its sockets.
type Backend struct {
	opts     Options
	settings backend.Settings
	ports    map[tracker.ServicePortName]*port
	numbers  map[uint16]bool // of sockets: unique over protocols, so that a rule names its Service port
	changed  map[tracker.ServicePortName]*plan.ServicePort
	removed  map[tracker.ServicePortName]bool
	refused  map[tracker.ServicePortName]error
	// written are the rules in the kernel; nil: not known, since no write or none of late succeeded. stale: the
	// frontends have changed since.
	written map[string][]rule.Rule
	stale   bool
	started bool
}

// port is a Service port with a socket.
type port struct {
	plan     *plan.ServicePort
	socket   netip.AddrPort
	balancer *balancer
	close    func() error
}

// New makes a Backend without sockets. Its node's main address is the settings' NodeIP.
func New(opts Options) (*Backend, error) {
	settings, err := opts.Settings()
	if err != nil {
		return nil, err
	}
	return &Backend{
		opts: opts, settings: settings, ports: map[tracker.ServicePortName]*port{}, numbers: map[uint16]bool{},
		changed: map[tracker.ServicePortName]*plan.ServicePort{}, removed: map[tracker.ServicePortName]bool{}, refused: map[tracker.ServicePortName]error{},
	}, nil
}

// Update records the changes of the plan for the next sync.
func (b *Backend) Update(delta plan.Delta) {
	for _, name := range delta.Removed {
		delete(b.changed, name)
		delete(b.refused, name)
		b.removed[name] = true
	}
	for _, p := range delta.Changed {
		delete(b.removed, p.Name)
		b.changed[p.Name] = p
	}
}

// Dirty reports whether a sync may have anything to do.
func (b *Backend) Dirty() bool { return len(b.changed) > 0 || len(b.removed) > 0 || b.stale }

// NeedsFull returns an empty reason: the number of endpoints has no influence on the rules.
func (b *Backend) NeedsFull(int) string { return "" }

// Settings returns the settings in force.
func (b *Backend) Settings() backend.Settings { return b.settings }

// Fingerprint returns a fingerprint of the tables.
func (b *Backend) Fingerprint() (backend.Fingerprint, error) { return b.opts.Tables.Fingerprint() }

// Others returns a fingerprint that external writes change and a sync does not.
func (b *Backend) Others() (backend.Fingerprint, error) { return b.opts.Tables.Others(b.installed()) }

// Glance has nothing to compare: Fingerprint shows every change of the tables.
func (b *Backend) Glance() (string, error) { return "", nil }

// Inherited returns none: the rules redirect to sockets of the process, not to endpoints.
func (b *Backend) Inherited() ([]backend.Inherited, error) { return nil, nil }

// Sync opens the sockets of new Service ports, gives all their endpoints, and writes the rules if frontends have
// changed or req asks for it. Sockets of removed Service ports are closed after that. A socket that cannot be opened
// refuses its port.
func (b *Backend) Sync(ctx context.Context, req backend.Request) (result backend.Result, err error) {
	result.Full = req.Full
	begin := b.opts.Clock.Now()
	if req.Full {
		b.stale = true
		for _, p := range req.Ports { // what was refused is tried again
			if b.ports[p.Name] == nil {
				b.changed[p.Name] = p
			}
		}
	}
	dirty := b.Dirty()
	if err := b.balance(); err != nil {
		return result, err
	}
	result.Encode = b.opts.Clock.Since(begin)
	if b.stale {
		run, err := b.write(ctx, req)
		result.Runs = append(result.Runs, run)
		if err != nil {
			return result, err
		}
	} else if dirty { // endpoints alone: no tool runs, but there was something to do
		result.Runs = append(result.Runs, backend.Run{Tool: "balancer", Wall: result.Encode})
	}
	result.Installed = b.installed()
	if len(result.Runs) > 0 && result.Runs[0].Bytes > 0 {
		result.Sent = result.Installed
	}
	result.Refused = b.refused
	return result, b.closeRemoved()
}

// installed counts the chains and rules that were written.
func (b *Backend) installed() map[backend.Table]backend.Count {
	total := backend.Count{Chains: len(chains)}
	for _, rules := range b.written {
		total.Rules += len(rules)
	}
	return map[backend.Table]backend.Count{iptables.NAT: total}
}

// balance brings sockets and balancers to the plan, but for removed ports.
func (b *Backend) balance() error {
	var lines []Line
	if !b.started {
		lines = append(lines, Line{Started: true, Family: b.settings.Family})
	}
	for _, name := range slices.SortedFunc(maps.Keys(b.changed), plan.CompareNames) {
		at, p := b.ports[name], b.changed[name]
		if at == nil {
			var err error
			if at, err = b.open(p); err != nil {
				b.refused[name] = err
				continue
			}
			delete(b.refused, name)
			b.ports[name], b.stale = at, true
		}
		b.stale = b.stale || !sameFrontends(at.plan, p)
		at.plan = p
		endpoints := endpointsOf(p)
		addrs := make([]netip.AddrPort, len(endpoints))
		for i, endpoint := range endpoints {
			addrs[i] = endpoint.Addr
		}
		at.balancer.set(addrs, time.Duration(p.AffinitySeconds)*time.Second)
		lines = append(lines, b.lineOf(at))
	}
	if err := b.report(lines...); err != nil {
		return err
	}
	b.started = true
	clear(b.changed)
	for name := range b.removed {
		b.stale = b.stale || b.ports[name] != nil
	}
	return nil
}

func sameFrontends(p, q *plan.ServicePort) bool {
	return p.ClusterIP == q.ClusterIP && p.Port == q.Port && p.NodePort == q.NodePort &&
		slices.Equal(p.ExternalIPs, q.ExternalIPs) && slices.Equal(p.LoadBalancerVIPs, q.LoadBalancerVIPs)
}

// open opens a Service port's socket.
func (b *Backend) open(p *plan.ServicePort) (*port, error) {
	at := &port{plan: p, balancer: newBalancer(b.opts.Clock)}
	for tries := 0; ; tries++ {
		socket, serve, stop, err := listen(p.Name.Protocol, netip.AddrPortFrom(b.settings.NodeIP, 0), at.balancer)
		if err != nil {
			return nil, err
		}
		if number := socket.Port(); b.numbers[number] && tries < 100 {
			_ = stop()
			continue
		}
		b.numbers[socket.Port()] = true
		at.socket, at.close = socket, stop
		go serve()
		return at, nil
	}
}

// listen opens a socket that serve then serves until stop is called.
func listen(protocol corev1.Protocol, at netip.AddrPort, b *balancer) (socket netip.AddrPort, serve func(), stop func() error, err error) {
	switch protocol {
	case corev1.ProtocolTCP:
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		if err != nil {
			return socket, nil, nil, err
		}
		socket = l.Addr().(*net.TCPAddr).AddrPort()
		return socket, func() { serveTCP(l, b) }, l.Close, nil
	case corev1.ProtocolUDP:
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		if err != nil {
			return socket, nil, nil, err
		}
		u := newUDPPort(c, b)
		return c.LocalAddr().(*net.UDPAddr).AddrPort(), u.serve, u.Close, nil
	}
	return socket, nil, nil, fmt.Errorf("protocol %s: mode userspace carries TCP and UDP only", protocol)
}

// write writes all rules. A full sync also adds missing jumps.
func (b *Backend) write(ctx context.Context, req backend.Request) (backend.Run, error) {
	rules := map[string][]rule.Rule{}
	for _, p := range req.Ports {
		if at := b.ports[p.Name]; at != nil {
			for chain, of := range rulesOf(p, at.socket) {
				rules[chain] = append(rules[chain], of...)
			}
		}
	}
	var missing []jump
	if req.Full || b.written == nil {
		kernel, err := b.opts.Tables.Rules(iptables.NAT, "PREROUTING", "OUTPUT")
		if err != nil {
			return backend.Run{}, err
		}
		missing = missingJumps(b.settings.Family, kernel)
	}
	run, err := b.opts.Tables.Restore(ctx, payload(rules, missing))
	if err != nil {
		b.written = nil
		return run, err
	}
	b.written, b.stale = rules, false
	return run, nil
}

// closeRemoved closes the sockets of removed Service ports. Their rules are gone.
func (b *Backend) closeRemoved() error {
	var lines []Line
	for _, name := range slices.SortedFunc(maps.Keys(b.removed), plan.CompareNames) {
		if p := b.ports[name]; p != nil {
			_ = p.close()
			delete(b.numbers, p.socket.Port())
			delete(b.ports, name)
			lines = append(lines, b.line(name))
		}
	}
	clear(b.removed)
	return b.report(lines...)
}

// Drift compares the kernel's rules with those that were written, at once: there are few.
func (b *Backend) Drift() backend.Comparison { return backend.Compared(b.drift()) }

func (b *Backend) drift() (string, error) {
	there, err := b.opts.Tables.Chains(iptables.NAT)
	if err != nil {
		return "", err
	}
	for _, chain := range chains {
		if !slices.Contains(there, chain) {
			return fmt.Sprintf("chain %s in nat is missing", chain), nil
		}
	}
	kernel, err := b.opts.Tables.Rules(iptables.NAT, append([]string{"PREROUTING", "OUTPUT"}, chains...)...)
	if err != nil {
		return "", err
	}
	for _, chain := range chains {
		if !slices.EqualFunc(kernel[chain], b.written[chain], func(x, y rule.Rule) bool { return x.Equal(&y) }) {
			return fmt.Sprintf("chain %s in nat has %d rules, which are not the %d that were written", chain, len(kernel[chain]), len(b.written[chain])), nil
		}
	}
	if missing := missingJumps(b.settings.Family, kernel); len(missing) > 0 {
		return fmt.Sprintf("the jump from %s to %s in nat is missing", missing[0].from, missing[0].Target.Chain), nil
	}
	return "", nil
}

// Dispatch lists the cluster IPs with endpoints in the order of KUBE-PORTALS-HOST, and returns the number of its rules.
func (b *Backend) Dispatch(ports []*plan.ServicePort) (frontends []backend.Frontend, rules int) {
	for _, p := range ports {
		if at := b.ports[p.Name]; at != nil {
			if len(endpointsOf(p)) > 0 {
				frontends = append(frontends, backend.Frontend{Position: rules + 1, Protocol: p.Name.Protocol, Addr: netip.AddrPortFrom(p.ClusterIP, p.Port)})
			}
			rules += len(rulesOf(p, at.socket)[PortalsOwn])
		}
	}
	return frontends, rules
}

// Close closes all sockets. Rules stay in place.
func (b *Backend) Close() error {
	var errs []error
	for name, p := range b.ports {
		errs = append(errs, p.close())
		delete(b.ports, name)
	}
	return errors.Join(errs...)
}
