// Package owner says which program a chain or a table of netfilter belongs to, by its name. It knows names only: a chain of
// another program with such a name would count as the known program's.
package owner

import (
	"slices"
	"strings"
)

// The owners that other packages ask for. The other programs are in the tables below.
const (
	KubeProxy = "kube-proxy" // also Synclab's backends iptables and userspace, whose chains have the same names
	Kubelet   = "kubelet"
	Synclab   = "Synclab"
	Others    = "others"
)

// chains are the beginnings of the names of chains. The first that fits counts.
var chains = []struct{ prefix, owner string }{
	{"KUBE-KUBELET-CANARY", Kubelet}, {"KUBE-IPTABLES-HINT", Kubelet}, {"KUBE-MARK-DROP", Kubelet}, {"KUBE-FIREWALL", Kubelet},
	{"KUBE-ROUTER-", "kube-router"}, {"KUBE-NWPLCY-", "kube-router"}, {"KUBE-POD-FW-", "kube-router"}, {"KUBE-NETWORK-POLICY", "kube-router"},
	{"KUBE-TREE-", Synclab}, {"KUBE-", KubeProxy},
	{"cali-", "Calico"}, {"felix-", "Calico"}, {"CILIUM_", "Cilium"}, {"OLD_CILIUM_", "Cilium"}, {"FLANNEL-", "flannel"}, {"WEAVE", "Weave Net"},
	{"ANTREA-", "Antrea"}, {"OVN-KUBE-", "OVN-Kubernetes"}, {"KIND-MASQ-AGENT", "kindnet"}, {"IP-MASQ", "ip-masq-agent"},
	{"AWS-", "Amazon VPC CNI"}, {"CNI-", "CNI plugins"}, {"CNI_", "CNI plugins"}, {"NETAVARK", "Podman"}, {"ISTIO_", "Istio"}, {"PROXY_INIT_", "Linkerd"},
	{"DOCKER", "Docker"}, {"LIBVIRT_", "libvirt"}, {"ufw", "ufw"}, {"f2b-", "fail2ban"}, {"ts-", "Tailscale"},
	{"FWD_", "firewalld"}, {"FWDI_", "firewalld"}, {"FWDO_", "firewalld"}, {"IN_", "firewalld"}, {"POST_", "firewalld"}, {"PRE_", "firewalld"},
	{"FORWARD_", "firewalld"}, {"INPUT_", "firewalld"}, {"OUTPUT_", "firewalld"}, {"POSTROUTING_", "firewalld"}, {"PREROUTING_", "firewalld"},
}

// tables are the beginnings of the names of tables of nf_tables that belong to one program as a whole.
var tables = []struct{ prefix, owner string }{
	{"kube-proxy", KubeProxy}, {"synclab", Synclab}, {"flannel-", "flannel"}, {"calico", "Calico"}, {"kindnet", "kindnet"}, {"kube-network-policies", "kindnet"},
	{"antrea", "Antrea"}, {"ovn-kube", "OVN-Kubernetes"}, {"cni_", "CNI plugins"}, {"netavark", "Podman"}, {"docker", "Docker"}, {"istio", "Istio"},
	{"libvirt", "libvirt"}, {"firewalld", "firewalld"}, {"f2b-", "fail2ban"},
}

// comments are the beginnings of comments of rules that programs put into chains of others.
var comments = []struct{ prefix, owner string }{
	{"kubernetes ", KubeProxy}, {"cali:", "Calico"}, {"cilium", "Cilium"}, {"flanneld ", "flannel"}, {"kube-router ", "kube-router"},
	{"Antrea: ", "Antrea"}, {"AWS", "Amazon VPC CNI"}, {"CNI ", "CNI plugins"}, {"name: \"", "CNI plugins"}, {"kind-masq-agent", "kindnet"},
}

func find(known []struct{ prefix, owner string }, name string) string {
	for _, k := range known {
		if strings.HasPrefix(name, k.prefix) {
			return k.owner
		}
	}
	return Others
}

// OfChain returns the owner of a chain, of iptables or in a table that nft shows of iptables-nft.
func OfChain(name string) string { return find(chains, name) }

// OfTable returns the owner of a table of nf_tables; Others also for those of iptables-nft, whose chains have owners.
func OfTable(name string) string { return find(tables, name) }

// Of returns the owner of a chain in a table: of the table, if one program has all of it.
func Of(table, chain string) string {
	if is := OfTable(table); is != Others {
		return is
	}
	return OfChain(chain)
}

// OfComment returns the owner of a rule by its comment.
func OfComment(text string) string { return find(comments, text) }

// OfProxy reports whether a chain belongs to a Service proxier with kube-proxy's names. KUBE-FIREWALL does too: kubelet and
// proxier write rules into it.
func OfProxy(chain string) bool {
	is := OfChain(chain)
	return is == KubeProxy || is == Synclab || chain == "KUBE-FIREWALL"
}

// OfService reports whether a chain belongs to one Service port of mode iptables, in any version.
func OfService(chain string) bool {
	return slices.ContainsFunc([]string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-", "KUBE-XLB-"}, func(p string) bool { return strings.HasPrefix(chain, p) })
}

// Chains of kube-proxy's mode ipvs (pkg/proxy/ipvs/proxier.go), alone and together with mode iptables.
var (
	ipvsChains = []string{"KUBE-NODE-PORT", "KUBE-LOAD-BALANCER", "KUBE-SOURCE-RANGES-FIREWALL", "KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER"}
	bothChains = []string{"KUBE-SERVICES", "KUBE-POSTROUTING", "KUBE-MARK-MASQ", "KUBE-FORWARD", "KUBE-PROXY-FIREWALL"}
)

// OfIPVS reports whether a chain is one of mode ipvs. only: mode iptables has none of that name.
func OfIPVS(chain string) (is, only bool) {
	only = slices.Contains(ipvsChains, chain)
	return only || slices.Contains(bothChains, chain), only
}

// OfUserspace reports whether a chain belongs to mode userspace, of kube-proxy or of Synclab.
func OfUserspace(chain string) bool {
	return strings.HasPrefix(chain, "KUBE-PORTALS-") || strings.HasPrefix(chain, "KUBE-NODEPORT-")
}
