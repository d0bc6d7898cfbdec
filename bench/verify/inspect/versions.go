package inspect

import (
	"maps"
	"slices"
	"strings"

	"synclab/bench/verify/owner"
)

// Proxy is a proxier that a ruleset shows.
type Proxy struct {
	Set    string `json:"ruleset"`
	Mode   string `json:"mode"`
	Layout string `json:"layout"` // what of the layout says the version
}

// family returns the family of its ruleset.
func (p Proxy) family() string {
	family, _, _ := strings.Cut(p.Set, " ")
	return family
}

// modes of proxiers, as Proxy has them.
const (
	modeIptables  = "kube-proxy, mode iptables"
	modeNftables  = "kube-proxy, mode nftables"
	modeIPVS      = "kube-proxy, mode ipvs"
	modeUserspace = "mode userspace"
	modeOwn       = "Synclab"
)

// marks are chains and maps that only some versions of kube-proxy have, the most telling first. They were looked up in the
// sources of v1.23 to v1.37.
var marks = []struct{ mode, chain, layout string }{
	{modeIptables, "KUBE-PROXY-FIREWALL", "1.25 or later: it has KUBE-PROXY-FIREWALL"},
	{modeIptables, "KUBE-EXT-", "1.24: it has KUBE-EXT- chains, but no KUBE-PROXY-FIREWALL"},
	{modeIptables, "KUBE-XLB-", "1.23 or earlier: it has KUBE-XLB- chains"},
	{modeIptables, "", "1.23 or earlier: it has no KUBE-PROXY-FIREWALL"},
	{modeNftables, "@localhost-nodeport-reject-ports", "1.37 or later: it has the map localhost-nodeport-reject-ports"},
	{modeNftables, "@firewall-allow", "1.29 (alpha): it has the map firewall-allow"},
	{modeNftables, "mark-for-masquerade", "1.30 to 1.35: it has the chain mark-for-masquerade"},
	{modeNftables, "@firewall-ips", "1.36 or later: it has no chain mark-for-masquerade"},
	{modeNftables, "", "not known: the table has none of the maps of 1.29 to 1.37"},
}

// proxies finds the proxiers of each ruleset.
func (d *Dump) proxies() (found []Proxy) {
	names := map[string][]string{} // by ruleset and mode, of chains
	for _, t := range d.Tables {
		for name, c := range t.Chains {
			mode := ""
			_, onlyIPVS := owner.OfIPVS(name)
			switch is := owner.Of(t.Name, c.Name); {
			case owner.OfTable(t.Name) == owner.KubeProxy:
				mode = modeNftables
			case is == owner.Synclab:
				mode = modeOwn
			case onlyIPVS:
				mode = modeIPVS
			case owner.OfUserspace(name):
				mode = modeUserspace
			case owner.OfService(name) || name == "KUBE-PROXY-FIREWALL" || name == "KUBE-PROXY-CANARY":
				mode = modeIptables
			default:
				continue
			}
			names[t.Set+"\n"+mode] = append(names[t.Set+"\n"+mode], name)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(names)) {
		set, mode, _ := strings.Cut(key, "\n")
		has := func(prefix string) bool {
			return slices.ContainsFunc(names[key], func(name string) bool {
				return name == prefix || strings.HasSuffix(prefix, "-") && strings.HasPrefix(name, prefix)
			})
		}
		layout := "not known by its chains"
		for _, m := range slices.Backward(marks) {
			if m.mode == mode && (m.chain == "" || has(m.chain)) {
				layout = m.layout
			}
		}
		if mode == modeIptables && !slices.ContainsFunc(d.Tables, func(t *Table) bool { return t.Set == set && t.Name == "filter" }) {
			layout = "not known: the output has no table filter"
		}
		if mode != modeIptables || names[set+"\n"+modeIPVS] == nil || slices.ContainsFunc(names[key], owner.OfService) { // else its KUBE-PROXY-FIREWALL is that of mode ipvs
			found = append(found, Proxy{set, mode, layout})
		}
	}
	return found
}
