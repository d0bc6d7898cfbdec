package proxier

import (
	"errors"
	"fmt"
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
)

// Options of a Proxier. Zero values mean what the fields say.
type Options struct {
	// Config as kube-proxy takes it. nil: all defaults.
	Config *v1alpha1.KubeProxyConfiguration
	// Backend writes the rules. Default Iptables.
	Backend BackendKind
	// Variant of iptables, of backend Iptables. Default legacy.
	Variant iptables.Variant
	// Layout of the iptables rules, of backends Iptables and Direct. Default classic.
	Layout iptables.Layout
	// Batch is how many names of chains, those they jump to included, one of several iptables-nft-restores of a sync
	// takes. 0: as measured, see package iptables.
	Batch int
	// Families to serve. Default IPv4.
	Families []corev1.IPFamily
	// NodeName says which endpoints are local. Default "node-0".
	NodeName string
	// NodeIPs are the node's main addresses, at most one a family. A bindAddress that is one address comes before them.
	NodeIPs []netip.Addr
	// Addresses gives all addresses of the node, for NodePort addresses; asked at every full sync and once a sync period. nil: NodeIPs.
	Addresses func() ([]netip.Addr, error)
	// PodCIDRs of the Node, for detect-local mode NodeCIDR.
	PodCIDRs []string
	// Machine is what iptables and the kernel can do. Examine fills it; the zero value is a modest machine.
	Machine Machine
	// Conntrack gives the table whose stale UDP flows are cleaned, by family. nil: flows are left alone.
	Conntrack func(corev1.IPFamily) (conntrack.Table, error)
	// Policy and Burst of the runner. Default token bucket, 2.
	Policy runner.Policy
	Burst  int
	// RetryInterval is the longest time between two tries of a failing sync. Default: the configuration's syncPeriod.
	RetryInterval time.Duration
	// LockFile is the xtables lock; empty: the environment's.
	LockFile string
	// Clock; default the real one.
	Clock clock.WithTicker
	// Registry takes the metrics, under kube-proxy's names; one a Proxier. nil: one of its own.
	Registry *prometheus.Registry
	// ServeHealthChecks opens the health check node ports of Services, in the namespace of the thread that syncs.
	ServeHealthChecks bool
	// Sysctls makes the settings that the configuration asks for, as far as a namespace has them of its own.
	Sysctls bool
	// OnSync is called after every sync, failed ones too, from the goroutine that syncs.
	OnSync func(Sync)
	// Restorer adds to how iptables-restore is run: faults, deadline.
	Restorer iptables.RestorerOptions
	// Tables replaces the kernel's iptables tables, by family. nil: the kernel's.
	Tables func(corev1.IPFamily) (iptables.Tables, error)
	// Model replaces the kernel's tables of backend Nftables, by family. nil: the kernel's.
	Model func(corev1.IPFamily) *nftables.Model
}

// fullSyncInterval is how often everything is written anew although nothing asked for it, as in kube-proxy; not in
// large clusters, where that disrupts more than it mends (k/k#137085): there the check for drift has to do.
const fullSyncInterval = time.Hour

func (o *Options) setDefaults() {
	if o.Config == nil {
		o.Config = config.New()
	}
	if o.Backend == "" {
		o.Backend = Iptables
	}
	if o.Layout == "" {
		o.Layout = iptables.Classic
	}
	if o.Variant == "" {
		o.Variant = iptables.Legacy
	}
	if len(o.Families) == 0 {
		o.Families = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	if o.NodeName == "" {
		o.NodeName = "node-0"
	}
	o.ownSection()
	o.bindAddress()
	if o.Addresses == nil {
		o.Addresses = func() ([]netip.Addr, error) { return o.NodeIPs, nil }
	}
	if o.RetryInterval == 0 {
		o.RetryInterval = o.Config.IPTables.SyncPeriod.Duration
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Restorer.Commits == nil {
		o.Restorer.Commits = &iptables.Commits{} // of both families
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	o.Machine.Liberal = o.Machine.Liberal || o.Config.Conntrack.TCPBeLiberal
}

// bindAddress takes the configuration's bindAddress for the node's main address of its family, as kube-proxy does.
func (o *Options) bindAddress() {
	bind, err := netip.ParseAddr(o.Config.BindAddress)
	if err != nil || bind.IsUnspecified() {
		return
	}
	others := slices.DeleteFunc(slices.Clone(o.NodeIPs), func(a netip.Addr) bool { return a.Is4() == bind.Is4() })
	o.NodeIPs = append([]netip.Addr{bind}, others...)
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
	if err := config.Validate(o.Config); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// nodeIP of a family; kube-proxy's last resort is the loopback address.
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
