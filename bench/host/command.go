package host

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"

	"synclab/bench/netns"
	"synclab/bench/pass"
	"synclab/bench/process"
	"synclab/bench/subject"
	"synclab/proxier"
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
	cfg := r.outsideConfig(kubeconfigFile)
	content, err := r.renderConfig(cfg)
	if err != nil {
		return "", nil, nil, err
	}
	configFile, err := r.writeFile("config.yaml", content)
	if err != nil {
		return "", nil, nil, err
	}
	var others []string
	if r.About.Proxier == subject.Exec {
		others = r.ExecEnv
	}
	env = append(process.Environment(others), fmt.Sprintf("GOGC=%d", r.About.GOGC), "PATH="+r.Shim.Path()+":"+os.Getenv("PATH")+":/usr/sbin:/sbin",
		"KUBECONFIG="+kubeconfigFile, "NODE_NAME="+cfg.HostnameOverride)
	if _, root, set := strings.Cut(os.Getenv(iptables.EnvTools), ":"); set { // the same tools, behind this shim
		env = append(env, iptables.EnvTools+"="+r.Shim.Path()+":"+root)
	}
	switch r.About.Proxier {
	case subject.KubeProxy:
		return r.Tools.Programs[r.About.Program()].Path, []string{"--config=" + configFile}, env, nil
	case subject.Synclab:
		return r.ownCommand(configFile, env)
	case subject.Cilium:
		// The name makes it know which endpoints are local.
		return r.Tools.Programs[r.About.Program()].Path, r.ciliumArgs(kubeconfigFile), append(env, "K8S_NODE_NAME="+cfg.HostnameOverride), nil
	}
	words := make([]string, len(r.About.Command))
	replace := strings.NewReplacer("{config}", configFile, "{kubeconfig}", kubeconfigFile, "{node}", cfg.HostnameOverride)
	for i, word := range r.About.Command {
		words[i] = replace.Replace(word)
	}
	return words[0], words[1:], env, nil
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

// ciliumArgs makes the maps large enough for twice the Services and endpoints that there are: the kernel reserves the
// memory of whole maps, and the default is too small for 10,000 Services.
func (r *Host) ciliumArgs(kubeconfig string) []string {
	objects := r.World.Objects()
	endpoints := map[types.NamespacedName]int{}
	for _, slice := range objects.Slices {
		endpoints[types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}] += len(slice.Endpoints)
	}
	needed := 0
	for _, svc := range objects.Services {
		addresses := 1
		if svc.Spec.Type != corev1.ServiceTypeClusterIP {
			addresses += 2 * (1 + len(svc.Status.LoadBalancer.Ingress)) // for packets of the node, and for others
		}
		addresses += 2 * len(svc.Spec.ExternalIPs)
		needed += len(svc.Spec.Ports) * addresses * (1 + endpoints[types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}])
	}
	entries := 65536
	for entries < 2*needed {
		entries *= 2
	}
	return []string{"--k8s-kubeconfig-path=" + kubeconfig, fmt.Sprintf("--bpf-lb-map-max=%d", entries)}
}

// ownCommand runs this program, or the subject's build of it, as the lab's proxier.
func (r *Host) ownCommand(configFile string, env []string) (string, []string, []string, error) {
	args := append([]string{}, r.ProxyArgs...)
	var families []string
	for _, family := range r.Served {
		families = append(families, string(family))
	}
	args = append(args, "--config="+configFile, "--backend="+string(r.About.Backend), "--families="+strings.Join(families, ","),
		"--sync-log="+r.syncLogFile())
	if r.Variant != "" {
		args = append(args, "--variant="+string(r.Variant))
	}
	if r.Layout != "" {
		args = append(args, "--layout="+string(r.Layout))
	}
	if r.About.Backend == proxier.Userspace {
		args = append(args, "--endpoint-log="+r.endpointLog())
	}
	args = append(args, "--policy="+string(r.policy()), fmt.Sprintf("--return-memory=%t", r.About.ReturnMemory))
	if burst := r.Scenario.Proxy.Burst; burst > 0 {
		args = append(args, fmt.Sprintf("--burst=%d", burst))
	}
	if build, there := r.Tools.Programs[r.About.Program()]; there {
		return build.Path, args, env, nil
	}
	if r.ProfileFile != "" { // started by a shell, whose own program this would be
		path, err := os.Executable()
		return path, args, env, err
	}
	return "/proc/self/exe", args, env, nil
}

// outsideConfig adapts the run's configuration to a process in a namespace.
func (r *Host) outsideConfig(kubeconfig string) *v1alpha1.KubeProxyConfiguration {
	return subject.ForProcess(r.Config, subject.Process{
		Mode: r.About.Mode(), Node: pass.NodeName(r.World.Objects()), Kubeconfig: kubeconfig,
		Metrics: metricsAddress, Health: HealthAddress, Gate: r.About.Gate(r.Tools.Programs[r.About.Program()].Version), Gates: r.About.GateValues(),
	})
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
	if err != nil || r.About.Proxier != subject.Exec || r.ExecConfig == "" {
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
