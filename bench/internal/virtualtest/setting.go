package virtualtest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/proxier"
	"synclab/proxier/config"
	"synclab/proxier/iptables"
	"synclab/proxier/runner"
	"synclab/sim/random"
)

// Setting has all choices of a seed that are made before the run.
type Setting struct {
	Seed     uint64
	Backend  proxier.BackendKind
	Variant  iptables.Variant
	Layout   iptables.Layout
	Flat     bool // the kernel has match bpf
	Families []corev1.IPFamily
	// World: the cluster is realistic (sim/world). Otherwise it is one of sim/random, with any valid objects.
	World    bool
	Services int
	Policy   runner.Policy
	// MinSync is minSyncPeriod.
	MinSync time.Duration
	// Watches are disturbed. Events that they deliver at one time reach the proxier in random order, and a sync that
	// starts then takes a random part of them. Only without this are all syncs of a seed the same each time.
	Watches bool
	// Forgets: events that watches missed may be lost, so that informers list again.
	Forgets bool
	// NodePorts are open only on some of the node's addresses.
	NodePorts bool
}

// backends take turns by seed.
var backends = []Setting{
	{Backend: proxier.Iptables, Variant: iptables.Legacy, Layout: iptables.Classic},
	{Backend: proxier.Nftables, Variant: iptables.Legacy, Layout: iptables.Classic},
	{Backend: proxier.Iptables, Variant: iptables.Nft, Layout: iptables.Tree, Flat: true},
	{Backend: proxier.Iptables, Variant: iptables.Nft, Layout: iptables.Classic},
	{Backend: proxier.Iptables, Variant: iptables.Legacy, Layout: iptables.Tree, Flat: true},
	{Backend: proxier.Iptables, Variant: iptables.Nft, Layout: iptables.Tree},
}

// families take turns with each round of backends.
var families = [][]corev1.IPFamily{
	{corev1.IPv4Protocol}, {corev1.IPv4Protocol, corev1.IPv6Protocol}, {corev1.IPv6Protocol},
}

// SettingOf returns the setting of a seed.
func SettingOf(seed uint64) Setting {
	rng := rand.New(rand.NewPCG(seed, 0x5e771))
	s := backends[seed%uint64(len(backends))]
	s.Seed = seed
	s.Families = families[seed/uint64(len(backends))%uint64(len(families))]
	s.World = rng.IntN(2) == 0
	s.Services = 20 + rng.IntN(41)
	if s.Policy = runner.TokenBucket; rng.IntN(4) == 0 {
		s.Policy = runner.CompletionToStart
	}
	s.MinSync = []time.Duration{time.Second, time.Second, 100 * time.Millisecond, 5 * time.Second}[rng.IntN(4)]
	s.NodePorts = rng.IntN(3) == 0
	s.Watches = rng.IntN(2) == 0
	s.Forgets = s.Watches && rng.IntN(2) == 0
	return s
}

// String formats the subject and the other important choices.
func (s Setting) String() string {
	name := string(s.Backend)
	if s.Backend != proxier.Nftables {
		name = fmt.Sprintf("iptables-%s %s", s.Variant, s.Layout)
		if s.Flat {
			name += " flat"
		}
	}
	var of []string
	for _, f := range s.Families {
		of = append(of, string(f))
	}
	cluster := "any objects"
	if s.World {
		cluster = "a world"
	}
	if s.Watches {
		cluster += " with bad watches"
	}
	return fmt.Sprintf("%s %s, %d Services of %s, %s %v", name, strings.Join(of, "+"), s.Services, cluster, s.Policy, s.MinSync)
}

// syncPeriod is the configuration's default.
const syncPeriod = 30 * time.Second

func (s Setting) config() *v1alpha1.KubeProxyConfiguration {
	cfg := config.New()
	cfg.ClusterCIDR = random.RandomPods
	config.Change(cfg, func(of *config.Settings) { of.MinSyncPeriod, of.SyncPeriod = s.MinSync, syncPeriod })
	if s.NodePorts {
		cfg.NodePortAddresses = []string{"192.0.2.0/24", "fd00:192:0:2::/64"}
	}
	return cfg
}
