package host

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"

	"k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"

	"synclab/bench/lab/netns"
	"synclab/bench/lab/process"
	"synclab/bench/pass"
	"synclab/bench/subject"
	"synclab/proxier/config"
	"synclab/proxier/iptables"
	"synclab/sim/front"
)

// Where subjects serve metrics and health, inside their namespace.
const (
	metricsAddress = "127.0.0.1:10249"
	HealthAddress  = "127.0.0.1:10256"
	MetricsURL     = "http://" + metricsAddress + "/metrics"
)

// command returns the command line of the subject's process. One configuration gives all subjects of a run the same
// settings. The kubeconfig names the fake API server, and PATH starts with the shim.
func (r *Host) command() (path string, args, env []string, err error) {
	kubeconfig, err := front.Kubeconfig(r.Harness.server, nil)
	if err != nil {
		return "", nil, nil, err
	}
	kubeconfigFile, err := r.writeFile("kubeconfig", kubeconfig)
	if err != nil {
		return "", nil, nil, err
	}
	build := r.Tools.Programs[r.About.Program()]
	p := subject.Process{
		Program: build.Path, Version: build.Version, Node: pass.NodeName(r.World.Objects()), Kubeconfig: kubeconfigFile,
		Metrics: metricsAddress, Health: HealthAddress, Profiling: r.ProfileFile != "", Objects: r.World.Objects(), SyncLog: r.syncLogFile(), EndpointLog: r.endpointLog(),
		Args: r.ProxyArgs, Families: r.Served, Policy: r.policy(), Burst: r.Scenario.Proxy.Burst,
	}
	cfg := r.About.ForProcess(r.Config, p)
	content, err := r.renderConfig(cfg)
	if err != nil {
		return "", nil, nil, err
	}
	if p.Config, err = r.writeFile("config.yaml", content); err != nil {
		return "", nil, nil, err
	}
	var others []string
	if len(r.About.Command) > 0 {
		others = r.ExecEnv
	}
	env = append(process.Environment(others), fmt.Sprintf("GOGC=%d", r.About.GOGC), "PATH="+r.Shim.Path()+":"+os.Getenv("PATH")+":/usr/sbin:/sbin",
		"KUBECONFIG="+kubeconfigFile, "NODE_NAME="+cfg.HostnameOverride)
	if _, root, set := strings.Cut(os.Getenv(iptables.EnvTools), ":"); set { // the same tools, behind this shim
		env = append(env, iptables.EnvTools+"="+r.Shim.Path()+":"+root)
	}
	path, args, needed := r.Current().Starts(p)
	if path == "" && r.About.Own {
		path = "/proc/self/exe"
		if r.ProfileFile != "" { // started by a shell, whose own program this would be
			path, err = os.Executable()
		}
	}
	return path, args, append(env, needed...), err
}

// kept returns the files and folders that a subject sees in spite of its confinement: the run's private folder; to read,
// its program with its folder, the tools on PATH or of another system, and what the command of an exec subject names.
func (r *Host) kept(program string) netns.Kept {
	kept := netns.Kept{Write: []string{r.Lab.Dir}, Read: filepath.SplitList(os.Getenv("XTABLES_LIBDIR"))}
	if path, err := exec.LookPath(program); err == nil {
		real, _ := filepath.EvalSymlinks(path)
		kept.Read = append(kept.Read, path, filepath.Dir(path), filepath.Dir(real))
	}
	kept.Read = append(kept.Read, filepath.SplitList(os.Getenv("PATH"))...)
	if tools, root, set := strings.Cut(os.Getenv(iptables.EnvTools), ":"); set {
		kept.Read = append(kept.Read, root, filepath.Dir(tools)) // beside them are the links to what they run
	}
	for _, word := range r.About.Command {
		_, value, _ := strings.Cut(word, "=")
		kept.Read = append(kept.Read, word, value)
	}
	for i, path := range kept.Read {
		if path != "" {
			kept.Read[i], _ = filepath.Abs(path)
		}
	}
	return kept
}

// configValues are the fields for the configuration template of an exec subject.
type configValues struct {
	Kubeconfig, NodeName, ClusterCIDR      string
	MinSyncPeriod, SyncPeriod              string
	MasqueradeAll                          bool
	MetricsBindAddress, HealthzBindAddress string
	// KubeProxyConfiguration is the whole configuration, as YAML.
	KubeProxyConfiguration string
}

// renderConfig returns the KubeProxyConfiguration as YAML, or executes the template of an exec subject.
func (r *Host) renderConfig(cfg *v1alpha1.KubeProxyConfiguration) ([]byte, error) {
	text, err := yaml.Marshal(cfg)
	if err != nil || len(r.About.Command) == 0 || r.ExecConfig == "" {
		return text, err
	}
	parsed, err := template.New("exec config").Option("missingkey=error").Parse(r.ExecConfig)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	own := config.SettingsOf(cfg, cfg.Mode)
	err = parsed.Execute(&out, configValues{
		Kubeconfig: cfg.ClientConnection.Kubeconfig, NodeName: cfg.HostnameOverride, ClusterCIDR: cfg.ClusterCIDR,
		MinSyncPeriod: own.MinSyncPeriod.String(), SyncPeriod: own.SyncPeriod.String(),
		MasqueradeAll: own.MasqueradeAll, MetricsBindAddress: metricsAddress, HealthzBindAddress: HealthAddress,
		KubeProxyConfiguration: string(text),
	})
	return out.Bytes(), err
}
