package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"synclab/bench/outfile"
	"synclab/bench/subject"
	"synclab/bench/verify/inspect"
	"synclab/cmd/synclab/terminal"
	"synclab/proxier/config"
	page "synclab/reports/inspect"
	"synclab/sim/manifests"
)

// inspectFlags are the flags of `synclab inspect`.
type inspectFlags struct {
	manifests manifestFlags
	proxy     proxyConfigFlag
	node      string
	anonymize bool
	format    terminal.Format
}

func newInspect(s streams) *cobra.Command {
	f := &inspectFlags{}
	cmd := &cobra.Command{
		Use:   "inspect FILE|-",
		Short: "Say what is in the rules of a real node, what is wrong with them, and whether they are in sync",
		Long: `Inspect reads the output of iptables-save, ip6tables-save, 'nft list ruleset' or
'nft -j list ruleset' of a node, or several of them in one file, packed with gzip or
not. Other lines between them are skipped with a note. It needs no rights, and changes
nothing.

It counts rules by owner: kube-proxy with its mode and the range of versions that its
chains show, CNI plugins, firewalls. It lists the largest Services, what is left of
other modes and versions, and rules that point at nothing.

With -f, the API's objects, and --node, it says which Services differ on that node:
addresses that are missing or extra, and endpoints. Given kube-proxy's configuration
too, rules of mode iptables since 1.25 are compared rule for rule.

The exit status is

  0  nothing is broken; leftovers and waste are not
  1  rules lose or mislead packets, or are out of sync with the objects of -f
  2  bad input`,
		Example: `  iptables-save | synclab inspect -
  synclab inspect node.txt      # of: (iptables-save; ip6tables-save; nft list ruleset) > node.txt
  synclab inspect node.txt --anonymize --format github   # for an issue
  synclab inspect node.txt -f dump.yaml --node node-7 --proxy-config kube-proxy.yaml
  synclab inspect node.txt -o json | jq '.findings[] | select(.broken)'`,
		Args: argCount(1, 1, "FILE, or - for stdin"),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0], s) },
	}
	f.manifests.register(cmd)
	f.proxy.register(cmd)
	f.format.Register(cmd, terminal.GitHub)
	flags := cmd.Flags()
	flags.StringVar(&f.node, "node", "", "`name` of the node that the rules are of, in -f (default: hostnameOverride of --proxy-config, or the only one)")
	flags.BoolVar(&f.anonymize, "anonymize", false, "replace addresses, Services and their chains, irreversibly; ports stay, and comments of rules are left out")
	return cmd
}

func (f *inspectFlags) run(cmd *cobra.Command, name string, s streams) error {
	ctx := cmd.Context()
	if f.node != "" && len(f.manifests.paths) == 0 {
		return badUsage(cmd, "--node needs -f, the API's objects")
	}
	var in io.Reader = outfile.Interruptible(ctx, s.in)
	if name != "-" {
		if err := manifests.RefuseURL(name); err != nil {
			return badInput(err)
		}
		file, err := outfile.OpenInput(ctx, name)
		if err != nil {
			return badInput(err)
		}
		defer file.Close()
		in = file
	}
	dump, err := inspect.Read(name, in)
	if err != nil {
		return badInput(err)
	}
	report := dump.Examine()
	if err := f.compare(cmd, s, dump, report); err != nil {
		return err
	}
	measure := report.Measure(f.manifests.paths)
	if f.anonymize {
		if err := report.Anonymize(rand.Reader); err != nil {
			return err
		}
	}
	document := page.Document(report, measure)
	if err := f.format.Write(s.out, report, f.format.Text(document.Text, document.Markdown)); err != nil {
		return err
	}
	if report.Broken() {
		return errors.New("the rules are broken or out of sync: see above")
	}
	return nil
}

// compare compares with the objects of -f, if they are given.
func (f *inspectFlags) compare(cmd *cobra.Command, s streams, dump *inspect.Dump, report *inspect.Report) error {
	objects, err := f.manifests.read(cmd.Context(), s)
	if objects == nil || err != nil {
		return err
	}
	f.proxy.find(s, f.manifests.paths)
	cfg, err := f.proxy.load(cmd.Context(), s, 0)
	if err != nil {
		return err
	}
	node := f.node
	if node == "" {
		node = cfg.HostnameOverride
	}
	switch {
	case node == "" && len(objects.Nodes) != 1:
		return badUsage(cmd, "-f has %d Nodes: --node says which one the rules are of", len(objects.Nodes))
	case node != "":
		if err := subject.ChooseNode(objects, node); err != nil {
			return badInput(fmt.Errorf("--node: %w", err))
		}
	}
	cfg.Mode, cfg.HostnameOverride = config.ModeIPTables, ""
	report.Sync, err = dump.Compare(cmd.Context(), objects, cfg, f.proxy.path != "")
	return err
}
