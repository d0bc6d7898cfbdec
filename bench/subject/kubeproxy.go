package subject

import (
	"synclab/bench/lab/upstream"
	"synclab/bench/subject/visible"
	"synclab/proxier"
	"synclab/proxier/iptables"
)

// kubeProxies are an unmodified kube-proxy in its modes.
func kubeProxies() []Spec {
	legacy, nft := iptablesRules(iptables.Legacy), iptablesRules(iptables.Nft)
	legacy.CanaryLocks, nft.Superlinear = true, true
	return Spec{Proxier: KubeProxy, HasMetrics: true, start: startKubeProxy}.with(legacy, nft,
		Mode{
			mode: "nftables", Backend: proxier.Nftables, Carrier: Rules, Tables: []string{"kube-proxy"}, RulesetReader: visible.Nftables,
			Tool: "nft", FullSyncHourly: true,
		},
		Mode{mode: "ipvs", Backend: IPVS, Carrier: VirtualServers, RulesetReader: visible.IPVS, Tool: "ipset", kernel: visible.HasIPVS})
}

func startKubeProxy(_ Spec, with Process) (path string, args, env []string) {
	return with.Program, []string{"--config=" + with.Config}, nil
}

// Gate returns the feature gate that a version of kube-proxy needs for the subject's mode; empty: none. Mode nftables was
// behind a gate before 1.31. Later versions may refuse the gate.
func (s Spec) Gate(version string) string {
	minor := upstream.Minor(version)
	if s.Proxier == KubeProxy && s.Backend == proxier.Nftables && minor > 0 && minor < 31 {
		return "NFTablesProxyMode"
	}
	return ""
}
