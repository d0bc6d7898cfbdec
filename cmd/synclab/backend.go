package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"synclab/cmd/synclab/terminal"
	"synclab/proxier"
	"synclab/proxier/iptables"
)

var (
	backends = []string{string(proxier.Iptables), string(proxier.Nftables)}
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
