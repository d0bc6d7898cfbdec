package bench

import (
	"context"
	"fmt"
	"net/netip"

	vishnetns "github.com/vishvananda/netns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"synclab/proxier"
	"synclab/proxier/conntrack"
	"synclab/proxier/iptables"
	"synclab/proxier/runner"
)

// inProcess is the lab's own proxier, in this process, on the cluster's informers. It tells of its syncs itself.
type inProcess struct {
	*repetition
	proxier *proxier.Proxier
	cancel  context.CancelFunc
	done    chan error
}

// startInProcess makes a proxier, waits until its handlers have everything, and lets it sync. Metric load is how long
// they had to be waited for, and what it took before to make the cluster.
func (r *repetition) startInProcess(ctx context.Context, made float64) (subject, error) {
	machine, err := proxier.ExamineMachine(r.about.Variant)
	if err != nil {
		return nil, err
	}
	objects := r.world.Objects()
	var podCIDRs []string
	if len(objects.Nodes) > 0 {
		podCIDRs = objects.Nodes[0].Spec.PodCIDRs
	}
	p, err := proxier.New(proxier.Options{
		Config: r.config, Backend: r.about.Backend, Variant: r.variant, Layout: r.about.Layout, Families: r.families, NodeName: nodeName(objects), NodeIPs: r.node, PodCIDRs: podCIDRs,
		Addresses: r.addresses, Machine: machine, Policy: runner.Policy(r.Scenario.Proxy.Policy), Burst: r.Scenario.Proxy.Burst,
		LockFile: r.lab.LockFile, Clock: r.clock, OnSync: r.onSync, Conntrack: kernelConntrack, ServeHealthChecks: true, Sysctls: true,
		Restorer: iptables.RestorerOptions{Prepare: r.faults.prepare, Started: r.faults.started},
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	begin := r.clock.Now()
	if err := p.Watch(ctx, r.cluster.NewInformers()); err != nil {
		cancel()
		return nil, err
	}
	r.record(Record{Metric: Load, Value: made + r.clock.Since(begin).Seconds(), Unit: "s"})
	s := &inProcess{repetition: r, proxier: p, cancel: cancel, done: make(chan error, 1)}
	go func() {
		err := p.Run(ctx)
		if err != nil {
			r.fail(fmt.Errorf("proxier: %w", err)) // nothing would ever settle
		}
		s.done <- err
	}()
	return s, nil
}

func kernelConntrack(corev1.IPFamily) (conntrack.Table, error) {
	return conntrack.NewKernel(vishnetns.None()), nil
}

// addresses are all of the node's, those of loopback included.
func (r *repetition) addresses() ([]netip.Addr, error) {
	return conntrack.NewKernel(vishnetns.None()).LocalAddrs(r.families...)
}

func (s *inProcess) stop() error { s.cancel(); return <-s.done }

// inSync waits until its handlers have seen every change, nothing is pending and the kernel holds as many rules as the
// last sync left: after a foreign flush the proxier is idle, and wrong, until it finds out.
func (s *inProcess) inSync(ctx context.Context) error {
	services, slices := s.cluster.Version(&corev1.Service{}), s.cluster.Version(&discoveryv1.EndpointSlice{})
	if err := s.proxier.WaitSeen(ctx, services, slices); err != nil {
		return err
	}
	for {
		if err := s.proxier.WaitIdle(ctx); err != nil {
			return err
		}
		next := s.syncs.next()
		var wrong string
		err := s.aside(func() (err error) { wrong, err = s.lacking(); return err })
		if wrong == "" || err != nil {
			return err
		}
		select {
		case <-next:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", wrong, context.Cause(ctx))
		}
	}
}

// lacking describes a table that does not hold what the last sync left in it; empty: none.
func (s *inProcess) lacking() (string, error) {
	for _, family := range s.families {
		for table, want := range s.syncs.installed(family) {
			chains, rules, err := s.own(family, table)
			if err != nil {
				return "", err
			}
			switch {
			case s.about.Backend == proxier.Nftables: // whose elements come and go by themselves, with affinity
				if chains < want.Chains {
					return fmt.Sprintf("%s %s has %d chains, not %d", family, table, chains, want.Chains), nil
				}
			case rules != want.Rules:
				return fmt.Sprintf("%s %s has %d rules of the proxier, not %d", family, table, rules, want.Rules), nil
			}
		}
	}
	return "", nil
}

func (s *inProcess) disturbed()   {} // lacking looks
func (s *inProcess) count() error { return s.countTables() }

func (s *inProcess) dispatch(family corev1.IPFamily) ([]iptables.Frontend, int, error) {
	frontends, rules := s.proxier.Dispatch(family)
	return frontends, rules, nil
}

func (s *inProcess) peakRSS() (uint64, error) {
	rss, err := ReadPeakRSS()
	return max(rss, s.peak), err
}

func (s *inProcess) aside(do func() error) error {
	rss, err := ReadPeakRSS()
	if err != nil {
		return err
	}
	s.peak = max(s.peak, rss)
	if err := do(); err != nil {
		return err
	}
	return ResetPeakRSS()
}
