package subject

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/subject/visible"
	"synclab/proxier"
	"synclab/proxier/iptables"
)

// synclabs are Synclab's own proxier with its backends. With nftables it needs no tool, because it uses netlink. It has two
// tables there: it fills one while packets still traverse the other.
func synclabs() []Spec {
	tree := func(variant iptables.Variant) Mode {
		m := iptablesRules(variant)
		m.mode, m.Layout = m.mode+"-tree", iptables.Tree
		return m
	}
	return Spec{Proxier: Synclab, Own: true, HasMetrics: true, start: startSynclab}.with(
		iptablesRules(iptables.Legacy), iptablesRules(iptables.Nft), tree(iptables.Legacy), tree(iptables.Nft),
		Mode{mode: "nftables", Backend: proxier.Nftables, Carrier: Rules, Tables: []string{"synclab", "synclab-2"}, RulesetReader: visible.SynclabNftables},
		Mode{
			mode: "userspace", Backend: proxier.Userspace, Variant: iptables.Legacy, Carrier: Relay, RulesetReader: visible.Userspace,
			Tool: iptables.Binary(iptables.Legacy, corev1.IPv4Protocol, "restore"),
		})
}

func startSynclab(s Spec, with Process) (path string, args, env []string) {
	var families []string
	for _, family := range with.Families {
		families = append(families, string(family))
	}
	args = append(append(args, with.Args...), "--config="+with.Config, "--backend="+string(s.Backend), "--families="+strings.Join(families, ","),
		"--sync-log="+with.SyncLog)
	if s.Variant != "" {
		args = append(args, "--variant="+string(s.Variant))
	}
	if s.Layout != "" {
		args = append(args, "--layout="+string(s.Layout))
	}
	if s.Carrier == Relay {
		args = append(args, "--endpoint-log="+with.EndpointLog)
	}
	args = append(args, "--policy="+string(with.Policy), fmt.Sprintf("--return-memory=%t", s.ReturnMemory))
	if with.Burst > 0 {
		args = append(args, fmt.Sprintf("--burst=%d", with.Burst))
	}
	return with.Program, args, nil
}
