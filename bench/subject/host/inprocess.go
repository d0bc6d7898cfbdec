package host

import (
	"cmp"
	"context"
	"fmt"
	"os"

	vishnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"synclab/bench/lab/machine"
	"synclab/bench/lab/process"
	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/proxier"
	"synclab/proxier/conntrack"
	"synclab/proxier/iptables"
	"synclab/proxier/runner"
)

// inProcess is the lab's own proxier, in this process, on the cluster's informers. The proxier reports the durations of
// its syncs. The kernel shows when a change is visible.
type inProcess struct {
	*Host
	proxier *proxier.Proxier
	cancel  context.CancelFunc
	done    chan error
}

// startInProcess makes a proxier, waits until its handlers have all objects, and starts its syncs. Metric load is this
// wait plus made, the time for making the cluster.
func (r *Host) startInProcess(ctx context.Context, made float64) (Subject, error) {
	if r.Harness == nil {
		if err := r.watchKernel(ctx); err != nil {
			return nil, err
		}
		if err := r.open(ctx); err != nil {
			return nil, err
		}
		r.expectAll(r.Clock.Now())
		r.Harness.cold.began = r.Clock.Now()
	}
	machine, err := proxier.ExamineMachine(r.About.Variant)
	if err != nil {
		return nil, err
	}
	objects := r.World.Objects()
	var podCIDRs []string
	if len(objects.Nodes) > 0 {
		podCIDRs = objects.Nodes[0].Spec.PodCIDRs
	}
	p, err := proxier.New(proxier.Options{
		Config: r.Config, Backend: r.About.Backend, Variant: r.About.Variant, Layout: r.Layout, Families: r.Families, NodeName: pass.NodeName(objects), NodeIPs: r.NodeIPs, PodCIDRs: podCIDRs,
		Addresses: r.Addresses, Machine: machine, Policy: r.policy(), Burst: r.Scenario.Proxy.Burst,
		LockFile: r.Lab.LockFile, Clock: r.Clock, OnSync: r.onSync, Conntrack: kernelConntrack, ServeHealthChecks: true, Sysctls: true,
		Restorer: iptables.RestorerOptions{Prepare: r.PrepareTool, Started: r.awaitTool},
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	begin := r.Clock.Now()
	if err := p.Watch(ctx, r.Cluster.NewInformers()); err != nil {
		cancel()
		return nil, err
	}
	r.Record(raw.Record{Metric: raw.Load, Value: made + r.Clock.Since(begin).Seconds()})
	s := &inProcess{Host: r, proxier: p, cancel: cancel, done: make(chan error, 1)}
	go func() {
		err := p.Run(ctx)
		if err != nil {
			r.Fail(fmt.Errorf("proxier: %w", err)) // without it, no settle step would end
		}
		s.done <- err
	}()
	return s, nil
}

// policy returns the runner's policy. The scenario's, which it may sweep, overrides the subject's.
func (r *Host) policy() runner.Policy {
	return cmp.Or(runner.Policy(r.Scenario.Proxy.Policy), r.About.Policy)
}

func kernelConntrack(corev1.IPFamily) (conntrack.Table, error) {
	return conntrack.NewKernel(vishnetns.None()), nil
}

// awaitTool waits for the end of a tool: by then it may have committed something.
func (r *Host) awaitTool(p *os.Process) {
	r.ToolStarted(p)
	go func() {
		// WNOWAIT leaves the process for the proxier to reap. If it is reaped already, it has ended.
		for unix.Waitid(unix.P_PID, p.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
		r.Harness.Watcher.ToolEnded(r.Clock.Now())
	}()
}

func (s *inProcess) stop() error { s.cancel(); return <-s.done }

// InSync waits until every change is visible in the kernel, the handlers have seen all changes, and nothing is pending.
func (s *inProcess) InSync(ctx context.Context) error {
	services, slices := s.Cluster.Version(&corev1.Service{}), s.Cluster.Version(&discoveryv1.EndpointSlice{})
	return s.converged(ctx, func(ctx context.Context) error {
		if err := s.proxier.WaitSeen(ctx, services, slices); err != nil {
			return err
		}
		return s.proxier.WaitIdle(ctx)
	})
}

func (s *inProcess) running() *process.Process { return nil }

func (s *inProcess) Disturbed() { s.Harness.Watcher.Recheck() }

func (s *inProcess) peakRSS() (uint64, error) {
	rss, err := machine.ReadPeakRSS()
	return max(rss, s.peak), err
}

func (s *inProcess) Aside(do func() error) error {
	rss, err := machine.ReadPeakRSS()
	if err != nil {
		return err
	}
	s.peak = max(s.peak, rss)
	if err := do(); err != nil {
		return err
	}
	return machine.ResetPeakRSS()
}
