package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/bench/subject"
	"synclab/cmd/synclab/terminal"
	"synclab/proxier"
	"synclab/proxier/config"
	"synclab/proxier/iptables"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/world"
)

// rulesOptions are the options of `synclab rules`, read and checked.
type rulesOptions struct {
	scenario *scenarios.Scenario // nil with objects
	objects  *sim.Objects        // nil: the cluster is generated from the scenario's shape
	config   *v1alpha1.KubeProxyConfiguration
	families []corev1.IPFamily
	node     string
	layout   iptables.Layout
}

func newRules(s streams) *cobra.Command {
	var (
		scenario  scenarioFlags
		manifests manifestFlags
		proxy     proxyConfigFlag
		family    string
		layout    string
		o         rulesOptions
	)
	cmd := &cobra.Command{
		Use:   "rules {-f FILE... | SCENARIO}",
		Short: "Print the rules of some Services without touching a kernel",
		Long: `Rules prints, in the format of iptables-save, the rules that the proxier would
install for the objects of the files, or for the first state of a scenario's
cluster. It needs no rights and no iptables.`,
		Example: `  synclab rules -f manifests/ngx.yaml
  kubectl get svc,endpointslices -A -o yaml | synclab rules -f -
  synclab rules -f cluster.yaml --proxy-config kube-proxy.yaml --node node-7
  synclab rules mixed-types --services 5 --family IPv6
  synclab rules steady-churn --services 1000 --layout tree`,
		Args: argCount(0, 1, "a scenario"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if o.families, err = familiesOf(cmd, family); err != nil {
				return err
			}
			if !slices.Contains(layouts, layout) {
				return badUsage(cmd, "--layout %q: want %s", layout, orWords(layouts))
			}
			o.layout = iptables.Layout(layout)
			switch {
			case len(args) == 0 && len(manifests.paths) == 0:
				return badUsage(cmd, "no objects are given: want -f FILE, or a scenario")
			case len(args) > 0 && len(manifests.paths) > 0:
				return badUsage(cmd, "-f and a scenario exclude each other")
			case len(args) > 0:
				o.scenario, err = scenario.load(cmd, args)
			default:
				if flag := scenario.given(cmd); flag != "" {
					return badUsage(cmd, "--%s is for a generated cluster: it has no meaning with -f", flag)
				}
				o.objects, err = manifests.read(cmd.Context(), s)
			}
			if err != nil {
				return err
			}
			proxy.find(s, manifests.paths)
			if o.config, err = proxy.load(cmd.Context(), s, 0); err != nil {
				return err
			}
			if o.config.Mode != config.ModeIPTables {
				fmt.Fprintf(s.err, "note: %s: mode is %s; the rules are those of mode iptables\n", proxy.path, o.config.Mode)
			}
			if err := o.cluster(); err != nil {
				return err
			}
			proxy.chooseNode(s, o.config, o.objects)
			return render(cmd.Context(), s, o)
		},
	}
	scenario.register(cmd)
	manifests.register(cmd)
	proxy.register(cmd)
	cmd.Flags().StringVar(&family, "family", "", "`family`: IPv4 or IPv6 (default: both)")
	cmd.Flags().StringVar(&o.node, "node", "", "`name` of the node that the proxier runs on (default: hostnameOverride of --proxy-config, else the first)")
	cmd.Flags().StringVar(&layout, "layout", layouts[0], "`layout` of the rules: "+orWords(layouts))
	terminal.Complete(cmd, "layout", layouts...)
	terminal.Complete(cmd, "family", string(corev1.IPv4Protocol), string(corev1.IPv6Protocol))
	return cmd
}

// familiesOf reads --family.
func familiesOf(cmd *cobra.Command, family string) ([]corev1.IPFamily, error) {
	both := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	switch {
	case family == "":
		return both, nil
	case slices.Contains(both, corev1.IPFamily(family)):
		return []corev1.IPFamily{corev1.IPFamily(family)}, nil
	default:
		return nil, badUsage(cmd, "--family %q: want IPv4 or IPv6", family)
	}
}

// cluster generates the objects, if none are given, and puts the proxier's node first.
func (o *rulesOptions) cluster() (err error) {
	if o.objects == nil {
		if o.objects, err = world.Generate(o.scenario.Shape, o.scenario.Seed); err != nil {
			return badInput(err)
		}
		o.config = subject.ProxyConfig(o.config, o.scenario, true)
	}
	if o.node == "" || len(o.objects.Nodes) == 0 {
		return nil
	}
	o.config.HostnameOverride = "" // the flag precedes it
	if err := subject.ChooseNode(o.objects, o.node); err != nil {
		return badInput(fmt.Errorf("--node: %w", err))
	}
	return nil
}

// render prints the rules to s.out.
func render(ctx context.Context, s streams, o rulesOptions) error {
	if len(o.objects.Nodes) > 0 {
		o.node = o.objects.Nodes[0].Name
	}
	options := proxier.Options{
		Config: o.config, Layout: o.layout, Families: o.families, NodeName: o.node, // The features of a current kernel.
		Machine: proxier.Machine{RandomFully: true, Accounting: true},
	}
	var node *corev1.Node
	if len(o.objects.Nodes) > 0 {
		node = o.objects.Nodes[0]
		options.NodeIPs, options.PodCIDRs = config.NodeIPs(o.config, node), node.Spec.PodCIDRs
		options.Addresses = func() ([]netip.Addr, error) { return subject.DeviceAddresses(o.config, node), nil }
	}
	tables, err := proxier.Render(ctx, options, o.objects.Services, o.objects.Slices, node)
	if err != nil {
		return err
	}
	for _, t := range tables {
		fmt.Fprintf(s.out, "# %s\n", t.Family())
		if err := t.Save(s.out); err != nil {
			return err
		}
	}
	return nil
}
