package machine

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/iptables"
)

// feature is a match or target that a layout's rules use, with a rule that needs it.
type feature struct {
	name, table, rule string
	// module is the kernel module to load when the rule is refused.
	module string
	// without is what does not work without the feature; empty: nothing works.
	without string
}

func features(family corev1.IPFamily) []feature {
	pod := "10.128.0.1:8080"
	if family == corev1.IPv6Protocol {
		pod = "[fd00:10:128::1]:8080"
	}
	return []feature{
		{name: "comment", table: "nat", rule: `-A OUTPUT -m comment --comment "ns/svc:port" -j RETURN`, module: "xt_comment"},
		{name: "tcp", table: "nat", rule: `-A OUTPUT -p tcp -m tcp --dport 80 -j RETURN`, module: "xt_tcpudp"},
		{name: "udp", table: "nat", rule: `-A OUTPUT -p udp -m udp --dport 80 -j RETURN`, module: "xt_tcpudp"},
		{name: "sctp", table: "nat", rule: `-A OUTPUT -p sctp -m sctp --dport 80 -j RETURN`, module: "xt_sctp",
			without: "Services with protocol SCTP"},
		{name: "statistic", table: "nat", rule: `-A OUTPUT -m statistic --mode random --probability 0.5 -j RETURN`,
			module: "xt_statistic"},
		{name: "recent", table: "nat", module: "xt_recent", without: "session affinity",
			rule: `-A OUTPUT -m recent --name SYNCLAB --rcheck --seconds 10800 --reap -j RETURN`},
		{name: "addrtype", table: "nat", rule: `-A OUTPUT -m addrtype --dst-type LOCAL -j RETURN`, module: "xt_addrtype"},
		{name: "mark", table: "nat", rule: `-A OUTPUT -m mark ! --mark 0x4000/0x4000 -j RETURN`, module: "xt_mark"},
		{name: "physdev", table: "nat", rule: `-A PREROUTING -m physdev --physdev-is-in --physdev-in cni0 -j RETURN`,
			module: "xt_physdev", without: "detectLocalMode BridgeInterface"},
		{name: "conntrack", table: "filter", rule: `-A OUTPUT -m conntrack --ctstate INVALID -j DROP`, module: "xt_conntrack"},
		{name: "MARK", table: "nat", rule: `-A OUTPUT -j MARK --or-mark 0x4000`, module: "xt_mark"},
		{name: "DNAT", table: "nat", rule: `-A OUTPUT -p tcp -m tcp -j DNAT --to-destination ` + pod, module: "xt_nat"},
		{name: "MASQUERADE", table: "nat", rule: `-A POSTROUTING -j MASQUERADE`, module: "xt_MASQUERADE"},
		{name: "MASQUERADE --random-fully", table: "nat", rule: `-A POSTROUTING -j MASQUERADE --random-fully`,
			module: "xt_MASQUERADE", without: "masquerading with random ports"},
		{name: "REJECT", table: "filter", rule: `-A OUTPUT -j REJECT`, module: "ipt_REJECT or ip6t_REJECT",
			without: "refusal of Services without endpoints"},
	}
}

// examineRules tries all matches and targets of the layouts with one variant and family.
func examineRules(ctx context.Context, variant iptables.Variant, family corev1.IPFamily) Check {
	tool := iptables.Binary(variant, family, "restore")
	c := Check{Name: tool, Status: OK}
	path, err := iptables.FindBinary(tool)
	if err != nil {
		c.Status, c.Detail, c.Remedy = Absent, "not found", "install the iptables package"
		return c
	}
	all := features(family)
	var names []string
	for _, f := range all {
		names = append(names, f.name)
	}
	if _, err := TryTool(ctx, restoreText(all...), path); err == nil {
		c.Detail = "accepts " + strings.Join(names, ", ")
		return c
	}
	return examineEach(ctx, c, path, all)
}

// examineEach finds the features that are missing.
func examineEach(ctx context.Context, c Check, path string, all []feature) Check {
	var missing, modules, first []string
	c.Status = Warn
	for _, f := range all {
		out, err := TryTool(ctx, restoreText(f), path)
		if err == nil {
			continue
		}
		line, _, _ := strings.Cut(out, "\n")
		first = append(first, line)
		modules = append(modules, f.module)
		if f.without == "" {
			c.Status = Fail
			missing = append(missing, f.name)
		} else {
			missing = append(missing, fmt.Sprintf("%s (no %s)", f.name, f.without))
		}
	}
	switch len(missing) {
	case 0:
		c.Status, c.Detail = Warn, "accepts each match and target, but not all in one restore"
	case len(all):
		c.Status, c.Detail = Fail, "accepts no rule: "+first[0]
		c.Remedy = "load the kernel modules of this variant (modprobe ip_tables ip6_tables iptable_nat, or nf_tables nft_compat), or use the other variant"
	default:
		c.Detail = "does not accept " + strings.Join(missing, ", ") + ": " + first[0]
		c.Remedy = "modprobe " + strings.Join(modules, " ")
	}
	return c
}

func restoreText(all ...feature) string {
	var b strings.Builder
	for _, table := range []string{"filter", "nat"} {
		fmt.Fprintf(&b, "*%s\n", table)
		for _, f := range all {
			if f.table == table {
				b.WriteString(f.rule + "\n")
			}
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}
