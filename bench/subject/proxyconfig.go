package subject

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/bench/lab/upstream"
	"synclab/proxier/config"
	"synclab/proxier/runner"
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
	Program, Version     string // path and version of its build; empty: this program
	Node                 string
	Config, Kubeconfig   string // files
	Metrics, Health      string // addresses
	Profiling            bool   // it serves profiles of itself, if it can
	Objects              *sim.Objects
	SyncLog, EndpointLog string   // files of Synclab's own proxier, as the rest
	Args                 []string // further arguments
	Families             []corev1.IPFamily
	Policy               runner.Policy
	Burst                int // of the policy; 0: the default
}

// Starts returns the program of the subject's process, its arguments, and what it needs in its environment.
func (s Spec) Starts(with Process) (path string, args, env []string) { return s.start(s, with) }

// startCommand starts the command of an Exec subject.
func startCommand(s Spec, with Process) (path string, args, env []string) {
	words := make([]string, len(s.Command))
	replace := strings.NewReplacer("{config}", with.Config, "{kubeconfig}", with.Kubeconfig, "{node}", with.Node)
	for i, word := range s.Command {
		words[i] = replace.Replace(word)
	}
	return words[0], words[1:], nil
}

// setByLab are the fields that ForProcess sets whatever the configuration says.
var setByLab = []string{"clientConnection.kubeconfig", "conntrack.maxPerCore", "conntrack.min", "healthzBindAddress", "metricsBindAddress"}

// ForProcess returns the configuration for a process in a namespace of the lab.
func (s Spec) ForProcess(cfg *v1alpha1.KubeProxyConfiguration, p Process) *v1alpha1.KubeProxyConfiguration {
	cfg = cfg.DeepCopy()
	cfg.APIVersion, cfg.Kind = v1alpha1.SchemeGroupVersion.String(), "KubeProxyConfiguration"
	cfg.Mode = cmp.Or(v1alpha1.ProxyMode(s.ConfigMode()), cfg.Mode)
	gate, gates := s.Gate(p.Version), s.GateValues()
	if cfg.FeatureGates == nil && (gate != "" || len(gates) > 0) {
		cfg.FeatureGates = map[string]bool{}
	}
	if gate != "" {
		cfg.FeatureGates[gate] = true
	}
	maps.Copy(cfg.FeatureGates, gates)
	cfg.HostnameOverride, cfg.ClientConnection.Kubeconfig = p.Node, p.Kubeconfig
	cfg.MetricsBindAddress, cfg.HealthzBindAddress = p.Metrics, p.Health
	cfg.EnableProfiling = cfg.EnableProfiling || p.Profiling
	// The size of the conntrack table belongs to the machine. A namespace cannot set it, and kube-proxy exits if it
	// fails to.
	var zero int32
	cfg.Conntrack.MaxPerCore, cfg.Conntrack.Min = &zero, &zero
	return cfg
}

// ConfigMode returns the mode in which a subject reads its configuration; empty: the configuration's.
func (s Spec) ConfigMode() string {
	if s.Carrier == Relay {
		return ""
	}
	return string(s.Backend)
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
		mode := cmp.Or(s.ConfigMode(), string(file.Mode))
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
