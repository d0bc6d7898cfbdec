package conform

import (
	"cmp"
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
	"synclab/sim/random"
)

// Setting has all inputs of the rules except the cluster.
type Setting struct {
	Variant iptables.Variant
	// Families of the cluster, the preferred family first. Both proxiers always write the tables of both families.
	Families []corev1.IPFamily
	Config   *v1alpha1.KubeProxyConfiguration
	// MaxTime is the longest wait for kube-proxy; 0: a minute.
	MaxTime time.Duration
	// Unaccounted: Synclab's rules have no nfacct either, as those of an old kube-proxy.
	Unaccounted bool

	// tools, if set, may change the folder of tools that is first on kube-proxy's PATH. Only tests of faults set it.
	tools func(dir string) error
}

// Constraint limits the settings that DrawSetting returns.
type Constraint struct {
	Variant iptables.Variant // empty: either
	Family  corev1.IPFamily  // empty: any of IPv4, IPv6, both
	// Config, if set, replaces the random configuration.
	Config *v1alpha1.KubeProxyConfiguration
	// Minor of kube-proxy's version: older ones refuse some settings and crash with some objects. 0: the newest.
	Minor int
}

// robust is the first minor from which kube-proxy takes what the older ones (1.29.6 and 1.30.4) do not: nodePortAddresses
// "primary", several ports of a slice of which one has no number, and addresses in old spellings. It also counts packets
// with nfacct then. 1.31 and 1.32 were not tried.
const robust = 31

// openRanges is the first minor that writes no firewall for a load balancer with a source range of all addresses.
const openRanges = 34

func isOld(minor int) bool { return 0 < minor && minor < robust }

// The values that DrawSetting chooses from.
var (
	detectLocals = []func(*v1alpha1.KubeProxyConfiguration){
		func(c *v1alpha1.KubeProxyConfiguration) { c.ClusterCIDR = random.RandomPods },
		func(c *v1alpha1.KubeProxyConfiguration) { c.ClusterCIDR, _, _ = strings.Cut(random.RandomPods, ",") },
		func(c *v1alpha1.KubeProxyConfiguration) { c.DetectLocalMode = config.LocalModeNodeCIDR },
		func(c *v1alpha1.KubeProxyConfiguration) {
			c.DetectLocalMode, c.DetectLocal.BridgeInterface = config.LocalModeBridgeInterface, "cbr0"
		},
		func(c *v1alpha1.KubeProxyConfiguration) {
			c.DetectLocalMode, c.DetectLocal.InterfaceNamePrefix = config.LocalModeInterfaceNamePrefix, "veth"
		},
		func(*v1alpha1.KubeProxyConfiguration) {}, // no clusterCIDR: local traffic is not detected
	}
	nodePortAddresses = [][]string{
		nil, nil, {"primary"}, {"192.0.2.0/24"}, {"fd00:192::/32"}, {"127.0.0.0/8", "192.0.2.0/24"}, {"10.0.0.0/8"}, {"127.0.0.0/8"},
		{"192.0.2.0/24", "fd00:192::/32", "127.0.0.1/32", "::1/128"}, {"0.0.0.0/0"}, {"::/0", "192.0.2.10/32"}, {"::1/128"},
	}
	bindAddresses   = []string{random.RandomNode4, random.RandomNode6, "192.0.2.11", "fd00:192:0:2::11", "::"}
	clusterFamilies = [][]corev1.IPFamily{
		{corev1.IPv4Protocol}, {corev1.IPv6Protocol}, {corev1.IPv4Protocol, corev1.IPv6Protocol}, {corev1.IPv6Protocol, corev1.IPv4Protocol},
	}
)

// DrawSetting returns the setting of a seed.
func DrawSetting(seed uint64, limit Constraint) Setting {
	rng := rand.New(rand.NewPCG(seed, 0xc0f))
	cfg := config.New()
	detectLocals[rng.IntN(len(detectLocals))](cfg)
	cfg.IPTables.MasqueradeAll = rng.IntN(4) == 0
	cfg.IPTables.LocalhostNodePorts = ptr.To(rng.IntN(3) > 0)
	cfg.NodePortAddresses = nodePortAddresses[rng.IntN(len(nodePortAddresses))]
	if isOld(limit.Minor) && slices.Contains(cfg.NodePortAddresses, "primary") {
		cfg.NodePortAddresses = nil
	}
	if rng.IntN(4) == 0 {
		cfg.IPTables.MasqueradeBit = ptr.To([]int32{0, 5, 15, 31}[rng.IntN(4)])
	}
	cfg.Conntrack.TCPBeLiberal = rng.IntN(5) == 0
	s := Setting{
		Variant:  cmp.Or(limit.Variant, []iptables.Variant{iptables.Legacy, iptables.Nft}[rng.IntN(2)]),
		Families: clusterFamilies[rng.IntN(len(clusterFamilies))],
		Config:   cfg,
	}
	if rng.IntN(5) == 0 {
		cfg.BindAddress = bindAddresses[rng.IntN(len(bindAddresses))]
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

// withinReason resets a bindAddress with which kube-proxy does not start. The bindAddress decides which family is
// primary. In detect-local mode NodeCIDR, the node needs a pod CIDR of the primary family.
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

// String names the fields that differ from kube-proxy's defaults.
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

// kubeProxyConfig returns kube-proxy's configuration file: the setting, adapted to run in a namespace and to sync
// quickly.
func (s Setting) kubeProxyConfig(node, kubeconfig string) ([]byte, error) {
	c := s.Config.DeepCopy()
	c.TypeMeta = metav1.TypeMeta{APIVersion: "kubeproxy.config.k8s.io/v1alpha1", Kind: "KubeProxyConfiguration"}
	if c.Mode != config.ModeNFTables {
		c.Mode = config.ModeIPTables
	}
	c.HostnameOverride, c.ClientConnection.Kubeconfig = node, kubeconfig
	c.HealthzBindAddress, c.MetricsBindAddress = "127.0.0.1:10256", "127.0.0.1:10249"
	// The size of the conntrack table belongs to the machine: a namespace cannot set it.
	c.Conntrack.MaxPerCore, c.Conntrack.Min = ptr.To[int32](0), ptr.To[int32](0)
	// Sync at once (0 would mean the default, 1 s), and retry soon after a failed sync. All modes have the same settings.
	same := config.SettingsOf(c, config.ModeIPTables)
	same.MinSyncPeriod, same.SyncPeriod = time.Millisecond, 2*time.Second
	config.Change(c, func(s *config.Settings) { *s = same })
	return yaml.Marshal(c)
}
