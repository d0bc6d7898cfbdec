package pass

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/subject"
	"synclab/proxier/config"
	"synclab/sim"
	"synclab/sim/world"
)

// The node of a cluster from files: every internal address is on the device, one per family is what proxies use, and an
// external address that the Node lists first is neither.
func TestFindNode(t *testing.T) {
	node := &corev1.Node{}
	node.Name = "juniper"
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeExternalIP, Address: "203.0.113.4"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.4"},
		{Type: corev1.NodeInternalIP, Address: "192.0.2.5"}, {Type: corev1.NodeInternalIP, Address: "2001:db8::4"},
	}
	e := &Env{Config: config.New(), World: world.WorldOf(&sim.Objects{Nodes: []*corev1.Node{node}}, 1), Families: []corev1.IPFamily{corev1.IPv4Protocol}}
	e.FindNode()
	if got := fmt.Sprint(e.Node, e.NodeIPs, e.NodeAddress(corev1.IPv4Protocol)); got != "[192.0.2.4 192.0.2.5] [192.0.2.4] 192.0.2.4" {
		t.Errorf("device, node IPs, main address: %s", got)
	}
}

// Checks expect what the subject's own section says, whatever the other sections say.
func TestSameForAll(t *testing.T) {
	e := &Env{Config: config.New()}
	e.Config.NFTables.MasqueradeAll = true
	for name, want := range map[string]bool{"kube-proxy/nftables": true, "kube-proxy/iptables-nft": false, "kube-proxy/ipvs": false} {
		var err error
		if e.About, err = subject.Parse(name); err != nil {
			t.Fatal(err)
		}
		if got := e.SameForAll(); got.IPTables.MasqueradeAll != want || got.NFTables.MasqueradeAll != want {
			t.Errorf("%s: masqueradeAll %v, %v; want %v", name, got.IPTables.MasqueradeAll, got.NFTables.MasqueradeAll, want)
		}
	}
}
