package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/bench/lab/netns"
	"synclab/cmd/synclab/terminal"
	"synclab/proxier"
	"synclab/proxier/config"
	"synclab/proxier/daemon"
	"synclab/proxier/iptables"
	"synclab/proxier/runner"
)

// proxyOptions are the options of `synclab proxy`.
type proxyOptions struct {
	config     *v1alpha1.KubeProxyConfiguration
	cluster    clusterFlags
	backend    proxier.BackendKind
	variant    iptables.Variant
	layout     iptables.Layout
	policy     runner.Policy
	burst      int
	keepMemory bool
	families   []corev1.IPFamily
	syncLog    string
	endpoints  string
}

func newProxy(s streams) *cobra.Command {
	var (
		o            proxyOptions
		file         proxyConfigFlag
		policy       string
		returnMemory bool
		rules        backendFlags
		families     []string
		policies     = []string{string(runner.TokenBucket), string(runner.CompletionToStart)}
		familyNames  = []string{string(corev1.IPv4Protocol), string(corev1.IPv6Protocol)}
	)
	cmd := &cobra.Command{
		Use:    "proxy",
		Short:  "Run the proxier as a process with an API server, like kube-proxy",
		Hidden: true, // runs start it
		Long: `Proxy writes the rules of one node for the Services and EndpointSlices of an API
server, until it is interrupted; the rules stay. A run starts it as a subject when
the subjects are processes.

It runs only inside a network namespace that synclab made, and refuses any other: it
never changes host rules.

The node's name is hostnameOverride of the configuration, or else the host's. The
kubeconfig is --kubeconfig, or else clientConnection.kubeconfig of the
configuration, or else $KUBECONFIG. Metrics, /healthz, /livez and /proxyMode are
served at metricsBindAddress and healthzBindAddress.

Backend iptables runs iptables-restore, of either variant; nftables uses netlink.
Backend userspace carries the packets in this process, as kube-proxy did long ago;
iptables-restore writes rules that lead them to it. It is there to be compared with.
Layout classic is kube-proxy's, tree finds a Service by its address's prefixes.`,
		Example: `  synclab proxy --config kube-proxy.yaml
  synclab proxy --config kube-proxy.yaml --kubeconfig front.kubeconfig --variant nft
  synclab proxy --config kube-proxy.yaml --variant nft --layout tree
  synclab proxy --config kube-proxy.yaml --backend nftables
  synclab proxy --config kube-proxy.yaml --backend userspace --endpoint-log endpoints.jsonl
  synclab proxy --config kube-proxy.yaml --families IPv4 --sync-log syncs.jsonl
  synclab proxy --config kube-proxy.yaml --sync-log /dev/fd/3   # to the process that started it`,
		Args: argCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := rules.check(cmd); err != nil {
				return err
			}
			if !slices.Contains(policies, policy) {
				return badUsage(cmd, "--policy %q: want %s", policy, strings.Join(policies, " or "))
			}
			if o.burst < 1 {
				return badUsage(cmd, "--burst %d: want at least 1", o.burst)
			}
			o.keepMemory = !returnMemory
			o.policy, o.families = runner.Policy(policy), nil
			for i, family := range families {
				if !slices.Contains(familyNames, family) || slices.Contains(families[:i], family) {
					return badUsage(cmd, "--families %s: want IPv4, IPv6 or IPv4,IPv6", strings.Join(families, ","))
				}
				o.families = append(o.families, corev1.IPFamily(family))
			}
			var err error
			if o.config, err = file.load(cmd.Context(), s, 0); err != nil {
				return err
			}
			if rules.backend == "" && o.config.Mode == config.ModeIPVS {
				return badInput(fmt.Errorf("%s: mode: ipvs is kube-proxy's alone: want iptables or nftables, or --backend", file.path))
			}
			rules.apply(&o)
			if o.endpoints != "" && o.backend != proxier.Userspace {
				return badUsage(cmd, "--endpoint-log is only for --backend %s: other backends write their endpoints into rules", proxier.Userspace)
			}
			return runProxy(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	file.registerAs(cmd, "config", "`file` with the KubeProxyConfiguration, v1alpha1 (default: kube-proxy's defaults)")
	o.cluster.register(cmd, "of the API server (default: the configuration's, or $KUBECONFIG)")
	rules.register(cmd)
	flags.StringVar(&policy, "policy", policies[0], "policy that limits the rate of syncs: "+strings.Join(policies, " or "))
	flags.IntVar(&o.burst, "burst", runner.DefaultBurst, "`number` of syncs that may follow each other at once (token-bucket)")
	flags.BoolVar(&returnMemory, "return-memory", true, "return memory to the system after the first full sync")
	flags.StringSliceVar(&families, "families", nil, "`list` of IP families (default: those that this machine has)")
	flags.StringVar(&o.syncLog, "sync-log", "", "append a line of JSON for each sync to `file`; /dev/fd/N is an open file descriptor")
	flags.StringVar(&o.endpoints, "endpoint-log", "", "append a line of JSON to `file` for each change of a Service port's endpoints (backend userspace: the kernel does not know them)")
	terminal.Complete(cmd, "policy", policies...)
	terminal.Complete(cmd, "families", append(familyNames, strings.Join(familyNames, ","))...)
	return cmd
}

// runProxy runs the proxier until ctx ends.
func runProxy(ctx context.Context, o proxyOptions) error {
	lab, err := netns.Enter()
	if err != nil {
		return fmt.Errorf("%w; 'synclab proxy' writes rules, so it runs only in a namespace of the lab: use 'synclab run' to start it", err)
	}
	if err := verbosity(o.config); err != nil {
		return err
	}
	options := daemon.Options{KeepMemory: o.keepMemory, Proxier: proxier.Options{
		Config: o.config, Backend: o.backend, Variant: o.variant, Layout: o.layout, Families: o.families, Policy: o.policy, Burst: o.burst,
		LockFile: lab.LockFile, ServeHealthChecks: true, Sysctls: true,
	}}
	if len(o.families) == 0 {
		options.Proxier.Families = machineFamilies()
	}
	if options.Proxier.NodeName, err = nodeNameOf(o.config); err != nil {
		return err
	}
	connection := o.config.ClientConnection
	cluster := o.cluster
	if cluster.kubeconfig == "" {
		cluster.kubeconfig = connection.Kubeconfig
	}
	rest, err := cluster.restConfig()
	if err != nil {
		return err
	}
	rest.QPS, rest.Burst, rest.AcceptContentTypes = connection.QPS, int(connection.Burst), connection.AcceptContentTypes
	if options.Client, err = newClient(rest, connection.ContentType); err != nil {
		return err
	}
	if options.Proxier.Machine, err = proxier.ExamineMachine(o.variant); err != nil {
		return err
	}
	if o.syncLog != "" {
		log, err := openLog(o.syncLog)
		if err != nil {
			return badInput(fmt.Errorf("--sync-log: %w", err))
		}
		defer log.Close()
		options.SyncLog = log
	}
	if o.endpoints != "" {
		log, err := openLog(o.endpoints)
		if err != nil {
			return badInput(fmt.Errorf("--endpoint-log: %w", err))
		}
		defer log.Close()
		options.Proxier.Report = log
	}
	return daemon.Run(ctx, options)
}

// verbosity sets the verbosity of the log on stderr from the configuration.
func verbosity(cfg *v1alpha1.KubeProxyConfiguration) error {
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	return flags.Set("v", strconv.Itoa(int(cfg.Logging.Verbosity)))
}

// nodeNameOf returns this machine's node name in the API.
func nodeNameOf(cfg *v1alpha1.KubeProxyConfiguration) (string, error) {
	name := cfg.HostnameOverride
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return "", fmt.Errorf("node name: %w; set hostnameOverride in the configuration", err)
		}
	}
	return strings.ToLower(strings.TrimSpace(name)), nil
}

// machineFamilies returns the IP families of the kernel and of this namespace.
func machineFamilies() []corev1.IPFamily {
	families := []corev1.IPFamily{corev1.IPv4Protocol}
	disabled, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/disable_ipv6")
	if err == nil && strings.TrimSpace(string(disabled)) == "0" {
		families = append(families, corev1.IPv6Protocol)
	}
	return families
}

// openLog opens a file for appending. It uses an open descriptor of the parent directly, so that sockets and pipes of
// other users work too. The proxier's tools do not inherit it.
func openLog(path string) (io.WriteCloser, error) {
	number, isDescriptor := strings.CutPrefix(filepath.Clean(path), "/dev/fd/")
	if !isDescriptor {
		return os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	}
	fd, err := strconv.ParseUint(number, 10, 31)
	if err != nil {
		return nil, fmt.Errorf("%s: want /dev/fd/ and a number", path)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil {
		return nil, fmt.Errorf("%s: not an open file: %w", path, err)
	}
	unix.CloseOnExec(int(fd))
	return os.NewFile(uintptr(fd), path), nil
}

var (
	backends = []string{string(proxier.Iptables), string(proxier.Nftables), string(proxier.Userspace)}
	variants = []string{string(iptables.Legacy), string(iptables.Nft)}
	layouts  = []string{string(iptables.Classic), string(iptables.Tree)}
)

// backendFlags choose the backend, variant and layout of the rules.
type backendFlags struct{ backend, variant, layout string }

func (f *backendFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.backend, "backend", "", "`backend` that writes rules: "+orWords(backends)+" (default: nftables if the configuration's mode is nftables, else iptables)")
	flags.StringVar(&f.variant, "variant", variants[0], "`variant` of iptables: "+strings.Join(variants, " or "))
	flags.StringVar(&f.layout, "layout", layouts[0], "`layout` of the iptables rules: "+strings.Join(layouts, " or "))
	terminal.Complete(cmd, "backend", backends...)
	terminal.Complete(cmd, "variant", variants...)
	terminal.Complete(cmd, "layout", layouts...)
}

func (f *backendFlags) check(cmd *cobra.Command) error {
	for _, one := range []struct {
		flag, value string
		known       []string
	}{{"backend", f.backend, backends}, {"variant", f.variant, variants}, {"layout", f.layout, layouts}} {
		if one.value != "" && !slices.Contains(one.known, one.value) {
			return badUsage(cmd, "--%s %q: want %s", one.flag, one.value, orWords(one.known))
		}
	}
	if f.backend == string(proxier.Userspace) && f.layout != string(iptables.Classic) {
		return badUsage(cmd, "--layout %s is only for --backend iptables", f.layout)
	}
	for _, flag := range []string{"variant", "layout"} {
		if f.backend == string(proxier.Nftables) && cmd.Flags().Changed(flag) {
			return badUsage(cmd, "--%s is only for iptables: it has no meaning with --backend %s", flag, f.backend)
		}
	}
	return nil
}

// apply sets the backend, variant and layout of o, whose configuration is read already.
func (f *backendFlags) apply(o *proxyOptions) {
	o.backend = proxier.BackendKind(f.backend)
	if o.backend == "" {
		o.backend = proxier.Iptables
		if string(o.config.Mode) == string(proxier.Nftables) {
			o.backend = proxier.Nftables
		}
	}
	if o.backend != proxier.Nftables {
		o.variant, o.layout = iptables.Variant(f.variant), iptables.Layout(f.layout)
	}
}

// orWords returns "a or b", or "a, b or c".
func orWords(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
