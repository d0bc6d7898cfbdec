package conform

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"synclab/proxier/config"
	"synclab/proxier/iptables"
	"synclab/sim"
)

// Setting is everything but the cluster that shapes the rules.
type Setting struct {
	Variant iptables.Variant
	// Families of the cluster, the preferred one first. Both proxiers always write both families' tables.
	Families []corev1.IPFamily
	Config   *v1alpha1.KubeProxyConfiguration

	// tools may change the folder of tools that kube-proxy finds first on its PATH: for tests of faults.
	tools func(dir string) error
}

// Constraint limits which settings are drawn.
type Constraint struct {
	Variant iptables.Variant // empty: either
	Family  corev1.IPFamily  // empty: any of IPv4, IPv6, both
	// Config, when set, is used as it is instead of a drawn one.
	Config *v1alpha1.KubeProxyConfiguration
}

// The configurations that settings are drawn from.
var (
	detectLocals = []func(*v1alpha1.KubeProxyConfiguration){
		func(c *v1alpha1.KubeProxyConfiguration) { c.ClusterCIDR = sim.RandomPods },
		func(c *v1alpha1.KubeProxyConfiguration) { c.ClusterCIDR, _, _ = strings.Cut(sim.RandomPods, ",") },
		func(c *v1alpha1.KubeProxyConfiguration) { c.DetectLocalMode = config.LocalModeNodeCIDR },
		func(c *v1alpha1.KubeProxyConfiguration) {
			c.DetectLocalMode, c.DetectLocal.BridgeInterface = config.LocalModeBridgeInterface, "cbr0"
		},
		func(c *v1alpha1.KubeProxyConfiguration) {
			c.DetectLocalMode, c.DetectLocal.InterfaceNamePrefix = config.LocalModeInterfaceNamePrefix, "veth"
		},
		func(*v1alpha1.KubeProxyConfiguration) {}, // no clusterCIDR: nothing is detected
	}
	nodePortAddresses = [][]string{
		nil, nil, {"primary"}, {"192.0.2.0/24"}, {"fd00:192::/32"}, {"127.0.0.0/8", "192.0.2.0/24"}, {"10.0.0.0/8"}, {"127.0.0.0/8"},
		{"192.0.2.0/24", "fd00:192::/32", "127.0.0.1/32", "::1/128"}, {"0.0.0.0/0"}, {"::/0", "192.0.2.10/32"}, {"::1/128"},
	}
	bindAddresses   = []string{sim.RandomNode4, sim.RandomNode6, "192.0.2.11", "fd00:192:0:2::11", "::"}
	clusterFamilies = [][]corev1.IPFamily{
		{corev1.IPv4Protocol}, {corev1.IPv6Protocol}, {corev1.IPv4Protocol, corev1.IPv6Protocol}, {corev1.IPv6Protocol, corev1.IPv4Protocol},
	}
)

// DrawSetting gives the setting that a seed stands for.
func DrawSetting(seed uint64, limit Constraint) Setting {
	rng := rand.New(rand.NewPCG(seed, 0xc0f))
	cfg := config.New()
	detectLocals[rng.IntN(len(detectLocals))](cfg)
	cfg.IPTables.MasqueradeAll = rng.IntN(4) == 0
	cfg.IPTables.LocalhostNodePorts = ptr.To(rng.IntN(3) > 0)
	cfg.NodePortAddresses = nodePortAddresses[rng.IntN(len(nodePortAddresses))]
	if rng.IntN(4) == 0 {
		cfg.IPTables.MasqueradeBit = ptr.To([]int32{0, 5, 15, 31}[rng.IntN(4)])
	}
	cfg.Conntrack.TCPBeLiberal = rng.IntN(5) == 0
	s := Setting{
		Variant:  []iptables.Variant{iptables.Legacy, iptables.Nft}[rng.IntN(2)],
		Families: clusterFamilies[rng.IntN(len(clusterFamilies))],
		Config:   cfg,
	}
	if rng.IntN(5) == 0 {
		cfg.BindAddress = bindAddresses[rng.IntN(len(bindAddresses))]
	}
	if limit.Variant != "" {
		s.Variant = limit.Variant
	}
	if limit.Family != "" {
		s.Families = []corev1.IPFamily{limit.Family}
	}
	if limit.Config != nil {
		s.Config = limit.Config.DeepCopy()
	}
	s.withinReason()
	return s
}

// withinReason takes back what kube-proxy refuses to start with: the bindAddress decides which family is primary, and with
// detect-local mode NodeCIDR the node needs pods of that family.
func (s Setting) withinReason() {
	bind, err := netip.ParseAddr(s.Config.BindAddress)
	if err != nil || s.Config.DetectLocalMode != config.LocalModeNodeCIDR {
		return
	}
	family := corev1.IPv6Protocol
	if bind.Is4() {
		family = corev1.IPv4Protocol
	}
	if !slices.Contains(s.Families, family) {
		s.Config.BindAddress = config.New().BindAddress
	}
}

// String names what differs from kube-proxy's defaults.
func (s Setting) String() string {
	c := s.Config
	words := []string{"iptables-" + string(s.Variant), fmt.Sprint(s.Families)}
	detect := string(c.DetectLocalMode)
	switch {
	case c.DetectLocalMode == config.LocalModeClusterCIDR && c.ClusterCIDR == "":
		detect = "nothing"
	case c.DetectLocalMode == config.LocalModeClusterCIDR:
		detect += " " + c.ClusterCIDR
	}
	words = append(words, "detect "+detect)
	if len(c.NodePortAddresses) > 0 {
		words = append(words, "nodePortAddresses "+strings.Join(c.NodePortAddresses, ","))
	}
	if bind := c.BindAddress; bind != "" && bind != "0.0.0.0" {
		words = append(words, "bindAddress "+bind)
	}
	for text, said := range map[string]bool{
		"masqueradeAll": c.IPTables.MasqueradeAll, "tcpBeLiberal": c.Conntrack.TCPBeLiberal,
		"no localhostNodePorts": !ptr.Deref(c.IPTables.LocalhostNodePorts, true),
	} {
		if said {
			words = append(words, text)
		}
	}
	slices.Sort(words[3:])
	if bit := ptr.Deref(c.IPTables.MasqueradeBit, 14); bit != 14 {
		words = append(words, fmt.Sprint("masqueradeBit ", bit))
	}
	return strings.Join(words, "; ")
}

// kubeProxyConfig is the file that kube-proxy gets: the setting, and what it takes to run in a namespace and quickly.
func (s Setting) kubeProxyConfig(node, kubeconfig string) ([]byte, error) {
	c := s.Config.DeepCopy()
	c.TypeMeta = metav1.TypeMeta{APIVersion: "kubeproxy.config.k8s.io/v1alpha1", Kind: "KubeProxyConfiguration"}
	if c.Mode != config.ModeNFTables {
		c.Mode = config.ModeIPTables
	}
	c.HostnameOverride, c.ClientConnection.Kubeconfig = node, kubeconfig
	c.HealthzBindAddress, c.MetricsBindAddress = "127.0.0.1:10256", "127.0.0.1:10249"
	// The size of the conntrack table is the machine's: a namespace cannot set it.
	c.Conntrack.MaxPerCore, c.Conntrack.Min = ptr.To[int32](0), ptr.To[int32](0)
	// A sync at once (0 would mean the default, 1 s), and another soon after one that failed.
	c.IPTables.MinSyncPeriod.Duration, c.IPTables.SyncPeriod.Duration = time.Millisecond, 2*time.Second
	// Mode nftables has the same settings under other names.
	c.NFTables = v1alpha1.KubeProxyNFTablesConfiguration{
		MasqueradeBit: c.IPTables.MasqueradeBit, MasqueradeAll: c.IPTables.MasqueradeAll,
		MinSyncPeriod: c.IPTables.MinSyncPeriod, SyncPeriod: c.IPTables.SyncPeriod,
	}
	return yaml.Marshal(c)
}

// nodeIPs are the addresses of a node object.
func nodeIPs(node *corev1.Node) []netip.Addr {
	var addrs []netip.Addr
	for _, a := range node.Status.Addresses {
		if a.Type != corev1.NodeInternalIP && a.Type != corev1.NodeExternalIP {
			continue
		}
		addr, ok := sim.ParseAddr(a.Address)
		if ok && !slices.ContainsFunc(addrs, func(b netip.Addr) bool { return b.Is4() == addr.Is4() }) {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}
