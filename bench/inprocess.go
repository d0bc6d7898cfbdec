package bench

import (
	"context"
	"fmt"
	"net/netip"
	"os"

	vishnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"synclab/proxier"
	"synclab/proxier/conntrack"
	"synclab/proxier/iptables"
)

// inProcess is the lab's own proxier, in this process, on the cluster's informers. Durations of syncs are its own report;
// when a change is visible is read from the kernel.
type inProcess struct {
	*repetition
	proxier *proxier.Proxier
	cancel  context.CancelFunc
	done    chan error
}

// startInProcess makes a proxier, waits until its handlers have everything, and lets it sync. Metric load is how long
// they had to be waited for, and what it took before to make the cluster.
func (r *repetition) startInProcess(ctx context.Context, made float64) (subject, error) {
	if r.tunnel == nil {
		if err := r.watchKernel(); err != nil {
			return nil, err
		}
		if err := r.beginAPIFaults(ctx); err != nil {
			return nil, err
		}
		r.expectAll(r.clock.Now())
		r.tunnel.cold.began = r.clock.Now()
	}
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
		Config: r.config, Backend: r.about.Backend, Variant: r.variant, Layout: r.layout, Families: r.families, NodeName: nodeName(objects), NodeIPs: r.node, PodCIDRs: podCIDRs,
		Addresses: r.addresses, Machine: machine, Policy: r.policy(), Burst: r.Scenario.Proxy.Burst,
		LockFile: r.lab.LockFile, Clock: r.clock, OnSync: r.onSync, Conntrack: kernelConntrack, ServeHealthChecks: true, Sysctls: true,
		Restorer: iptables.RestorerOptions{Prepare: r.faults.prepare, Started: r.toolStarted},
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

// toolStarted follows a tool to its end, by when it may have committed something.
func (r *repetition) toolStarted(p *os.Process) {
	r.faults.started(p)
	go func() {
		// It stays for the proxier to reap. One that is reaped already has ended.
		for unix.Waitid(unix.P_PID, p.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
		r.tunnel.visible.ToolEnded(r.clock.Now())
	}()
}

func (s *inProcess) stop() error { s.cancel(); return <-s.done }

// inSync waits until every change is visible in the kernel, and its handlers have seen them and nothing is pending.
func (s *inProcess) inSync(ctx context.Context) error {
	services, slices := s.cluster.Version(&corev1.Service{}), s.cluster.Version(&discoveryv1.EndpointSlice{})
	return s.converged(ctx, func(ctx context.Context) error {
		if err := s.proxier.WaitSeen(ctx, services, slices); err != nil {
			return err
		}
		return s.proxier.WaitIdle(ctx)
	})
}

func (s *inProcess) disturbed()   { s.tunnel.visible.Recheck() }
func (s *inProcess) count() error { return s.countTables() }

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
