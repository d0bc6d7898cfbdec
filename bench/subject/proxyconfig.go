package subject

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/bench/upstream"
	"synclab/proxier"
	"synclab/proxier/config"
	"synclab/scenarios"
	"synclab/sim"
)

// ProxyConfig returns cfg, or kube-proxy's defaults if cfg is nil, with the scenario's overrides for the subjects of all
// modes. For a generated cluster it adds the pods' ranges for detect-local.
func ProxyConfig(cfg *v1alpha1.KubeProxyConfiguration, s *scenarios.Scenario, generated bool) *v1alpha1.KubeProxyConfiguration {
	if cfg == nil {
		cfg = config.New()
	}
	cfg = cfg.DeepCopy()
	p := &s.Proxy
	config.Change(cfg, func(of *config.Settings) {
		if p.MinSyncPeriod > 0 {
			of.MinSyncPeriod = p.MinSyncPeriod
		}
		if p.SyncPeriod > 0 {
			of.SyncPeriod = p.SyncPeriod
		}
		if p.MinSyncPeriod > 0 || p.SyncPeriod > 0 {
			of.SyncPeriod = max(of.SyncPeriod, of.MinSyncPeriod)
		}
		of.MasqueradeAll = of.MasqueradeAll || p.MasqueradeAll
	})
	if p.NodePortAddresses != nil {
		cfg.NodePortAddresses = p.NodePortAddresses
	}
	if p.LocalhostNodePorts != nil {
		cfg.IPTables.LocalhostNodePorts = p.LocalhostNodePorts
	}
	if cfg.ClusterCIDR == "" && generated {
		cfg.ClusterCIDR = strings.Join(s.Shape.PodCIDRs, ",")
	}
	return cfg
}

// Process is what the lab decides for a subject's process.
type Process struct {
	Mode, Node, Kubeconfig string // an empty mode: the configuration's
	Metrics, Health        string // addresses
	Gate                   string // a feature gate that the mode needs; empty: none
	Gates                  map[string]bool
}

// setByLab are the fields that ForProcess sets whatever the configuration says.
var setByLab = []string{"clientConnection.kubeconfig", "conntrack.maxPerCore", "conntrack.min", "healthzBindAddress", "metricsBindAddress"}

// ForProcess returns the configuration for a process in a namespace of the lab.
func ForProcess(cfg *v1alpha1.KubeProxyConfiguration, p Process) *v1alpha1.KubeProxyConfiguration {
	cfg = cfg.DeepCopy()
	cfg.APIVersion, cfg.Kind = v1alpha1.SchemeGroupVersion.String(), "KubeProxyConfiguration"
	if p.Mode != "" {
		cfg.Mode = v1alpha1.ProxyMode(p.Mode)
	}
	if cfg.FeatureGates == nil && (p.Gate != "" || len(p.Gates) > 0) {
		cfg.FeatureGates = map[string]bool{}
	}
	if p.Gate != "" {
		cfg.FeatureGates[p.Gate] = true
	}
	maps.Copy(cfg.FeatureGates, p.Gates)
	cfg.HostnameOverride, cfg.ClientConnection.Kubeconfig = p.Node, p.Kubeconfig
	cfg.MetricsBindAddress, cfg.HealthzBindAddress = p.Metrics, p.Health
	// The size of the conntrack table belongs to the machine. A namespace cannot set it, and kube-proxy exits if it
	// fails to.
	var zero int32
	cfg.Conntrack.MaxPerCore, cfg.Conntrack.Min = &zero, &zero
	return cfg
}

// Mode returns the mode in which a subject reads its configuration; empty: the configuration's.
func (s Spec) Mode() string {
	switch s.Backend {
	case proxier.Nftables, proxier.Iptables, IPVS:
		return string(s.Backend)
	}
	return ""
}

// CheckConfig checks a configuration of a run for the modes and versions of its subjects. It returns what they do
// otherwise than the file says. version is that of kube-proxy, where a subject's name has none; empty: unknown.
func CheckConfig(file, run *v1alpha1.KubeProxyConfiguration, names []string, version string) (notes []string, err error) {
	var others []string
	for _, name := range names {
		s, err := Parse(name)
		if err != nil {
			return nil, err
		}
		mode := cmp.Or(s.Mode(), string(file.Mode))
		if mode != string(file.Mode) {
			others = append(others, s.Name)
		}
		problem := config.ValidateFor(run, v1alpha1.ProxyMode(mode))
		if s.Proxier == KubeProxy {
			problem = errors.Join(problem, config.CheckHiddenMetrics(run, upstream.Minor(cmp.Or(s.Version, version))))
		}
		if problem != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, problem)
		}
		same, own := config.SettingsOf(run, file.Mode), config.SettingsOf(run, v1alpha1.ProxyMode(mode))
		if own != same {
			notes = append(notes, fmt.Sprintf("%s has %s, its section's; section %s: %s", s.Name, &own, file.Mode, &same))
		}
	}
	if len(others) > 0 {
		notes = append(notes, fmt.Sprintf("mode is %s, but subjects run in the mode of their names: %s", file.Mode, strings.Join(others, ", ")))
	}
	changed := config.Changed(file)
	among := func(fields []string) string {
		return strings.Join(slices.DeleteFunc(fields, func(field string) bool { return !slices.Contains(changed, field) }), ", ")
	}
	if set := among(config.Differing(file, run)); set != "" {
		notes = append(notes, set+": the scenario sets it otherwise")
	}
	if set := among(slices.Clone(setByLab)); set != "" {
		notes = append(notes, set+": the lab sets it itself for its namespaces")
	}
	return notes, nil
}

// ErrNoNode: there is no node with the name.
var ErrNoNode = errors.New("no such node")

// ChooseNode makes the node with a name the first one, on which proxies run.
func ChooseNode(o *sim.Objects, name string) error {
	var names []string
	for i, node := range o.Nodes {
		if node.Name == name {
			o.Nodes = slices.Insert(slices.Delete(slices.Clone(o.Nodes), i, i+1), 0, node)
			return nil
		}
		names = append(names, node.Name)
	}
	const most = 10
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("and %d more", len(o.Nodes)-most))
	}
	return fmt.Errorf("%w %q; there are: %s", ErrNoNode, name, strings.Join(names, ", "))
}
