package bench

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/template"

	"k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"

	"synclab/proxier"
	"synclab/sim/front"
)

// Where subjects serve, inside their namespace.
const (
	metricsAddress = "127.0.0.1:10249"
	healthAddress  = "127.0.0.1:10256"
	metricsURL     = "http://" + metricsAddress + "/metrics"
)

// command is how the subject's process is started: one configuration, from which all subjects of a run get the same
// settings, a kubeconfig that leads to the front, and PATH with the shim first.
func (r *repetition) command() (path string, args, env []string, err error) {
	kubeconfig, err := front.Kubeconfig(r.tunnel.server, nil)
	if err != nil {
		return "", nil, nil, err
	}
	kubeconfigFile, err := r.writeFile("kubeconfig", kubeconfig)
	if err != nil {
		return "", nil, nil, err
	}
	cfg := r.outsideConfig(kubeconfigFile)
	content, err := r.renderConfig(cfg)
	if err != nil {
		return "", nil, nil, err
	}
	configFile, err := r.writeFile("config.yaml", content)
	if err != nil {
		return "", nil, nil, err
	}
	env = slices.DeleteFunc(os.Environ(), func(set string) bool { return strings.HasPrefix(set, "GOMEMLIMIT=") })
	env = append(env, fmt.Sprintf("GOGC=%d", r.about.GOGC), "PATH="+r.shim.Path()+":"+os.Getenv("PATH"),
		"KUBECONFIG="+kubeconfigFile, "NODE_NAME="+cfg.HostnameOverride)
	switch r.about.Proxier {
	case KubeProxy:
		return r.Tools.KubeProxy, []string{"--config=" + configFile}, env, nil
	case Synclab:
		return r.ownCommand(configFile, env)
	}
	words := make([]string, len(r.about.Command))
	replace := strings.NewReplacer("{config}", configFile, "{kubeconfig}", kubeconfigFile, "{node}", cfg.HostnameOverride)
	for i, word := range r.about.Command {
		words[i] = replace.Replace(word)
	}
	return words[0], words[1:], env, nil
}

// ownCommand is this program, as the lab's proxier.
func (r *repetition) ownCommand(configFile string, env []string) (string, []string, []string, error) {
	args := append([]string{}, r.ProxyArgs...)
	var families []string
	for _, family := range r.served {
		families = append(families, string(family))
	}
	args = append(args, "--config="+configFile, "--backend="+string(r.about.Backend), "--families="+strings.Join(families, ","),
		"--sync-log="+r.syncLogFile())
	if r.variant != "" {
		args = append(args, "--variant="+string(r.variant))
	}
	if r.layout != "" {
		args = append(args, "--layout="+string(r.layout))
	}
	args = append(args, "--policy="+string(r.policy()), fmt.Sprintf("--return-memory=%t", r.about.ReturnMemory))
	if burst := r.Scenario.Proxy.Burst; burst > 0 {
		args = append(args, fmt.Sprintf("--burst=%d", burst))
	}
	return "/proc/self/exe", args, env, nil
}

// outsideConfig is the run's configuration as a process in a namespace needs it.
func (r *repetition) outsideConfig(kubeconfig string) *v1alpha1.KubeProxyConfiguration {
	cfg := r.config.DeepCopy()
	switch r.about.Backend {
	case proxier.Nftables:
		cfg.Mode = v1alpha1.ProxyMode(proxier.Nftables)
	case proxier.Iptables, proxier.Direct:
		cfg.Mode = v1alpha1.ProxyMode(proxier.Iptables)
	}
	cfg.HostnameOverride = nodeName(r.world.Objects())
	cfg.ClientConnection.Kubeconfig = kubeconfig
	cfg.MetricsBindAddress, cfg.HealthzBindAddress = metricsAddress, healthAddress
	// The size of the conntrack table is the machine's: a namespace cannot set it, and kube-proxy ends when it fails to.
	var zero int32
	cfg.Conntrack.MaxPerCore, cfg.Conntrack.Min = &zero, &zero
	return cfg
}

// configValues are what the template of an exec subject's configuration can use.
type configValues struct {
	Kubeconfig, NodeName, ClusterCIDR      string
	MinSyncPeriod, SyncPeriod              string
	MasqueradeAll                          bool
	MetricsBindAddress, HealthzBindAddress string
	// KubeProxyConfiguration is all of it, as YAML.
	KubeProxyConfiguration string
}

// renderConfig is the KubeProxyConfiguration as YAML, or, for an exec subject with a template, what that makes of it.
func (r *repetition) renderConfig(cfg *v1alpha1.KubeProxyConfiguration) ([]byte, error) {
	cfg.APIVersion, cfg.Kind = v1alpha1.SchemeGroupVersion.String(), "KubeProxyConfiguration"
	text, err := yaml.Marshal(cfg)
	if err != nil || r.about.Proxier != Exec || r.ExecConfig == "" {
		return text, err
	}
	parsed, err := template.New("exec config").Option("missingkey=error").Parse(r.ExecConfig)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, configValues{
		Kubeconfig: cfg.ClientConnection.Kubeconfig, NodeName: cfg.HostnameOverride, ClusterCIDR: cfg.ClusterCIDR,
		MinSyncPeriod: cfg.IPTables.MinSyncPeriod.Duration.String(), SyncPeriod: cfg.IPTables.SyncPeriod.Duration.String(),
		MasqueradeAll: cfg.IPTables.MasqueradeAll, MetricsBindAddress: metricsAddress, HealthzBindAddress: healthAddress,
		KubeProxyConfiguration: string(text),
	})
	return out.Bytes(), err
}
