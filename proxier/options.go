package proxier

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/clock"

	"synclab/proxier/config"
	"synclab/proxier/conntrack"
	"synclab/proxier/iptables"
	"synclab/proxier/nftables"
	"synclab/proxier/runner"
	"synclab/proxier/tracker"
)

// Options configures a Proxier. Each field describes its zero value.
type Options struct {
	// Config is kube-proxy's configuration. nil: all defaults.
	Config *v1alpha1.KubeProxyConfiguration
	// Backend writes the rules. Default Iptables.
	Backend BackendKind
	// Variant of iptables, of backends Iptables and Userspace. Default legacy.
	Variant iptables.Variant
	// Layout of the iptables rules, of backend Iptables. Default classic.
	Layout iptables.Layout
	// Report takes the endpoints of backend Userspace, which the kernel does not know, as lines of JSON: userspace.Line.
	// nil: none.
	Report io.Writer
	// Batch bounds the chain names, jump targets included, in one iptables-nft-restore of a sync that is split. 0: the
	// measured default, see package iptables.
	Batch int
	// Families to serve. Default IPv4.
	Families []corev1.IPFamily
	// NodeName is the node's name; endpoints on this node are local. Default "node-0".
	NodeName string
	// NodeIPs are the node's main addresses, at most one per family: those of config.NodeIPs.
	NodeIPs []netip.Addr
	// Addresses returns all addresses of the node, for NodePorts. It is called at every full sync and once per sync
	// period. nil: NodeIPs.
	Addresses func() ([]netip.Addr, error)
	// PodCIDRs are the Node's pod CIDRs, for detect-local mode NodeCIDR.
	PodCIDRs []string
	// Machine lists the features of iptables and of the kernel. ExamineMachine fills it; the zero value has none of
	// them.
	Machine Machine
	// Conntrack returns a family's conntrack table, for the cleanup of stale UDP flows. nil: no cleanup.
	Conntrack func(corev1.IPFamily) (conntrack.Table, error)
	// Policy and Burst configure the runner. Default: token bucket, 2.
	Policy runner.Policy
	Burst  int
	// RetryInterval is the longest time between two attempts of a failing sync. Default: the configuration's
	// syncPeriod.
	RetryInterval time.Duration
	// LockFile is the path of the xtables lock; empty: the environment's.
	LockFile string
	// Clock; nil: the real clock.
	Clock clock.WithTicker
	// Registry takes the metrics, under kube-proxy's names. Each Proxier needs a separate one. nil: a new registry.
	Registry *prometheus.Registry
	// ServeHealthChecks opens the health check node ports of Services, in the namespace of the thread that syncs.
	ServeHealthChecks bool
	// Sysctls writes the sysctls that the configuration asks for, if they belong to the network namespace.
	Sysctls bool
	// OnSync is called after every sync, successful or failed, from the goroutine that syncs.
	OnSync func(Sync)
	// Restorer sets how iptables-restore runs: faults, deadline.
	Restorer iptables.RestorerOptions
	// Tables replaces the kernel's iptables tables, by family. nil: the kernel's.
	Tables func(corev1.IPFamily) (iptables.Tables, error)
	// Model replaces the kernel's tables of backend Nftables, by family. nil: the kernel's.
	Model func(corev1.IPFamily) *nftables.Model

	// settings are those of the backend's section of Config.
	settings config.Settings
}

// fullSyncInterval is how often a full sync runs without a cause, as in kube-proxy. Large clusters have none, because
// there it disrupts more than it repairs (k/k#137085); the drift check has to be enough.
const fullSyncInterval = time.Hour

func (o *Options) setDefaults() {
	if o.Config == nil {
		o.Config = config.New()
	}
	o.Backend = cmp.Or(o.Backend, Iptables)
	o.Layout = cmp.Or(o.Layout, iptables.Classic)
	o.Variant = cmp.Or(o.Variant, iptables.Legacy)
	if len(o.Families) == 0 {
		o.Families = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	o.NodeName = cmp.Or(o.NodeName, "node-0")
	o.settings = config.SettingsOf(o.Config, v1alpha1.ProxyMode(o.Backend))
	if o.Addresses == nil {
		o.Addresses = func() ([]netip.Addr, error) { return o.NodeIPs, nil }
	}
	o.RetryInterval = cmp.Or(o.RetryInterval, o.settings.SyncPeriod)
	o.Clock = cmp.Or[clock.WithTicker](o.Clock, clock.RealClock{})
	o.Restorer.Commits = cmp.Or(o.Restorer.Commits, &iptables.Commits{}) // of both families
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	o.Machine.Liberal = o.Machine.Liberal || o.Config.Conntrack.TCPBeLiberal
}

// Digester returns what makes the digests of Services and EndpointSlices for this proxier. All feeds use it: it is the
// only place that applies feature gates to objects.
func (o *Options) Digester() tracker.Digester {
	return tracker.Digester{NodeName: o.NodeName, Families: o.Families, NoExternalIPs: !config.ExternalIPs(o.Config)}
}

func (o *Options) validate() error {
	var errs []error
	errs = append(errs, o.validateBackend())
	for _, family := range o.Families {
		if family != corev1.IPv4Protocol && family != corev1.IPv6Protocol {
			errs = append(errs, fmt.Errorf("family %q: want IPv4 or IPv6", family))
		}
	}
	if len(o.Families) > 2 || (len(o.Families) == 2 && o.Families[0] == o.Families[1]) {
		errs = append(errs, fmt.Errorf("families %v: each at most once", o.Families))
	}
	if err := config.ValidateFor(o.Config, v1alpha1.ProxyMode(o.Backend)); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// nodeIP returns the node's main address of a family, or the loopback address as in kube-proxy.
func (o *Options) nodeIP(family corev1.IPFamily) netip.Addr {
	i := slices.IndexFunc(o.NodeIPs, func(a netip.Addr) bool { return a.Is4() == (family == corev1.IPv4Protocol) })
	switch {
	case i >= 0:
		return o.NodeIPs[i]
	case family == corev1.IPv4Protocol:
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}
