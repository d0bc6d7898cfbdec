package iptables

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/proxier/tracker"
)

func portName(namespace, name, port string, protocol corev1.Protocol) tracker.ServicePortName {
	return tracker.ServicePortName{
		NamespacedName: types.NamespacedName{Namespace: namespace, Name: name},
		PortKey:        tracker.PortKey{Name: port, Protocol: protocol},
	}
}

// Names that kube-proxy uses: from its tests, and from published descriptions of clusters.
func TestServiceHash(t *testing.T) {
	for _, c := range []struct {
		name tracker.ServicePortName
		want string
	}{
		{portName("ns1", "svc1", "p80", corev1.ProtocolTCP), "XPGD46QRK7WJZT7O"},
		{portName("ns5", "svc5", "p80", corev1.ProtocolTCP), "NUKIZ6OKUXPJNT4C"},
		{portName("default", "ngx-svc", "", corev1.ProtocolTCP), "DQYKF4NVSQPF2JO7"},
	} {
		if got := serviceHash(c.name); got != c.want {
			t.Errorf("%v: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestEndpointHash(t *testing.T) {
	for _, c := range []struct{ servicePort, protocol, endpoint, want string }{
		{"ns1/svc1:p80", "tcp", "10.180.0.1:80", "SXIVWICOYRO3J4NJ"},
		{"ns4/svc4:p80", "tcp", "10.180.0.5:80", "C6EBXVWJJZMIWKLZ"},
		{"default/ngx-svc", "tcp", "10.42.0.148:80", "WHP752REJFIVTA3A"},
		{"default/ngx-svc", "tcp", "10.42.0.149:80", "KOUJFWPU7NB2K4H6"},
	} {
		if got := endpointHash(c.servicePort, c.protocol, c.endpoint); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.servicePort, c.endpoint, got, c.want)
		}
	}
}

// kube-proxy once hashed the colon of a nameless port too. Descriptions of clusters from that time have the old names.
func TestOldSpelling(t *testing.T) {
	for _, c := range []struct{ service, old, today string }{
		{"default/whoami", "OQCLJJ5GLLNFY3XB", "DC3OOLRZIWFKJHLB"},
		{"default/nginx-demo-1", "JKOCBQALQGD3X3RT", "ZY4BE2BR2EQQGD2J"},
		{"default/nginx-demo-2", "6JCCLZMUQSW27LLD", "ZOX6RBMDHRTFI74F"},
	} {
		if got := hash(c.service+":", "tcp"); got != c.old {
			t.Errorf("%s with a colon: %s, want %s", c.service, got, c.old)
		}
		if got := hash(c.service, "tcp"); got != c.today {
			t.Errorf("%s: %s, want %s", c.service, got, c.today)
		}
	}
}

// Ports of one number and different protocols are different Service ports; so are names of different case.
func TestHashTellsApart(t *testing.T) {
	seen := map[string]tracker.ServicePortName{}
	for _, name := range []tracker.ServicePortName{
		portName("ns", "svc", "dns", corev1.ProtocolTCP), portName("ns", "svc", "dns", corev1.ProtocolUDP),
		portName("ns", "svc", "dns", corev1.ProtocolSCTP), portName("ns", "svc", "", corev1.ProtocolTCP),
		portName("ns", "svd", "dns", corev1.ProtocolTCP), portName("nt", "svc", "dns", corev1.ProtocolTCP),
	} {
		h := serviceHash(name)
		if other, taken := seen[h]; taken {
			t.Errorf("%v and %v share %s", name, other, h)
		}
		seen[h] = name
		if n := len(prefixCluster + h); n > 28 {
			t.Errorf("%s has %d characters, iptables takes 28", prefixCluster+h, n)
		}
	}
}

func TestIsServiceChain(t *testing.T) {
	for chain, want := range map[string]bool{
		"KUBE-SVC-XPGD46QRK7WJZT7O": true, "KUBE-SVL-X": true, "KUBE-SEP-X": true, "KUBE-FW-X": true, "KUBE-EXT-X": true,
		"KUBE-FIREWALL": false, "KUBE-SERVICES": false, "KUBE-EXTERNAL-SERVICES": false, "KUBE-NODEPORTS": false,
		"KUBE-MARK-MASQ": false, "KUBE-PROXY-CANARY": false, "KUBE-PROXY-FIREWALL": false, "KUBE-KUBELET-CANARY": false,
		"OUTPUT": false, "": false, "SVC-X": false,
	} {
		if got := IsServiceChain(chain); got != want {
			t.Errorf("%s: %v", chain, got)
		}
	}
}
