package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	vishnetns "github.com/vishvananda/netns"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"synclab/proxier"
	"synclab/proxier/config"
	"synclab/proxier/conntrack"
)

// Options configures Run.
type Options struct {
	// Client of the API server.
	Client kubernetes.Interface
	// Proxier are the proxier's options. NodeName is the node's name in the API. Run sets NodeIPs and PodCIDRs from the
	// Node, and OnSync. It sets Registry, Conntrack and Addresses where they are nil.
	Proxier proxier.Options
	// SyncLog receives a line for each sync, see proxier.SyncLog; nil: none. If a write fails, Run ends.
	SyncLog io.Writer
	// KeepMemory: do not return the memory of the first full sync to the system.
	KeepMemory bool
	// Listen opens the listeners for metrics and health. nil: net.Listen.
	Listen func(network, address string) (net.Listener, error)
}

const (
	// nodeWait is how long to wait until the Node has addresses, as kube-proxy does.
	nodeWait = 30 * time.Second
	// podCIDRWait is how much longer to wait for the Node's podCIDRs, if detect-local mode NodeCIDR needs them.
	podCIDRWait = 5 * time.Minute
)

func (o *Options) setDefaults() {
	if o.Proxier.Config == nil {
		o.Proxier.Config = config.New()
	}
	if o.Proxier.Clock == nil {
		o.Proxier.Clock = clock.RealClock{}
	}
	if len(o.Proxier.Families) == 0 {
		o.Proxier.Families = []corev1.IPFamily{corev1.IPv4Protocol} // the proxier's default, which Addresses needs here
	}
	if o.Listen == nil {
		o.Listen = net.Listen
	}
	if o.Proxier.Registry == nil {
		o.Proxier.Registry = prometheus.NewRegistry()
		// kube-proxy also reports its memory and CPU time under these names.
		o.Proxier.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	if o.Proxier.Conntrack == nil {
		o.Proxier.Conntrack = func(corev1.IPFamily) (conntrack.Table, error) { return conntrack.NewKernel(vishnetns.None()), nil }
	}
	if o.Proxier.Addresses == nil {
		families := o.Proxier.Families
		o.Proxier.Addresses = func() ([]netip.Addr, error) { return conntrack.NewKernel(vishnetns.None()).LocalAddrs(families...) }
	}
}

// Run runs the proxier until ctx ends, which is no error. The rules stay in place.
func Run(ctx context.Context, o Options) error {
	o.setDefaults()
	defer spareMemory()()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	err := o.run(ctx, fail)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (o *Options) run(ctx context.Context, fail context.CancelCauseFunc) error {
	factory := o.informers()
	defer factory.Shutdown()
	ctx, cancel := context.WithCancel(ctx) // cancel before Shutdown, which waits for the informers
	defer cancel()
	found, err := o.findNode(ctx, factory, fail)
	if err != nil {
		return err
	}
	o.Proxier.NodeIPs, o.Proxier.PodCIDRs = found.ips, found.podCIDRs
	o.Proxier.OnSync = func(proxier.Sync) {}
	if !o.KeepMemory {
		o.Proxier.OnSync = afterFirst()
	}
	if o.SyncLog != nil {
		log, first := proxier.NewSyncLog(o.SyncLog), o.Proxier.OnSync
		o.Proxier.OnSync = func(s proxier.Sync) {
			if err := log.Append(s); err != nil {
				fail(err) // a reader of the log would take the silence for idleness
			}
			first(s)
		}
	}
	p, err := proxier.New(o.Proxier)
	if err != nil {
		return err
	}
	stopServing, err := o.serve(ctx, p.Handler(), fail)
	if err != nil {
		return err
	}
	defer stopServing()
	selectServices(factory)
	if err := p.Watch(ctx, factory); err != nil {
		return err
	}
	klog.InfoS("Services and EndpointSlices are listed, syncing starts", "node", o.Proxier.NodeName, "nodeIPs", o.Proxier.NodeIPs)
	if err := p.Run(ctx); err != nil {
		return fmt.Errorf("proxier: %w", err)
	}
	return nil
}
