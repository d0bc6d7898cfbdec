package owner

import "testing"

// Names of real nodes. Chains that begin like kube-proxy's are not all its own.
func TestOf(t *testing.T) {
	for _, c := range [][3]string{
		{"nat", "KUBE-SVC-NPX46M4PTMTKRN6Y", KubeProxy}, {"filter", "KUBE-FIREWALL", Kubelet}, {"nat", "KUBE-MARK-DROP", Kubelet}, {"mangle", "KUBE-IPTABLES-HINT", Kubelet},
		{"filter", "KUBE-ROUTER-FORWARD", "kube-router"}, {"filter", "KUBE-POD-FW-AAAA", "kube-router"}, {"filter", "KUBE-NWPLCY-DEFAULT", "kube-router"},
		{"nat", "cali-PREROUTING", "Calico"}, {"nat", "OLD_CILIUM_POST_nat", "Cilium"}, {"nat", "FLANNEL-POSTRTG", "flannel"}, {"nat", "AWS-SNAT-CHAIN-0", "Amazon VPC CNI"},
		{"nat", "CNI-HOSTPORT-DNAT", "CNI plugins"}, {"filter", "DOCKER-USER", "Docker"}, {"nat", "ISTIO_OUTPUT", "Istio"}, {"filter", "WEAVE-NPC", "Weave Net"},
		{"raw", "PREROUTING_ZONES", "firewalld"}, {"raw", "PREROUTING", Others}, {"nat", "POSTROUTING", Others}, {"filter", "FORWARD", Others},
		{"kube-proxy", "services", KubeProxy}, {"synclab-2", "x", Synclab}, {"flannel-ipv4", "postrtg", "flannel"}, {"nat", "KUBE-TREE-X", Synclab},
	} {
		if got := Of(c[0], c[1]); got != c[2] {
			t.Errorf("%s %s: got %s, want %s", c[0], c[1], got, c[2])
		}
	}
	if !OfProxy("KUBE-FIREWALL") || OfProxy("KUBE-KUBELET-CANARY") || OfProxy("KUBE-ROUTER-INPUT") || !OfProxy("KUBE-TREE-X") {
		t.Error("OfProxy: want the chains that a proxier writes, with KUBE-FIREWALL")
	}
}
