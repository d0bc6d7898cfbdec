package subject

import (
	corev1 "k8s.io/api/core/v1"

	"synclab/proxier"
)

// Behaviour is something that clients or operators can notice, and that modes of kube-proxy do differently with its
// default settings. docs/migrate.md has the same list.
type Behaviour struct {
	// ID names the behaviour in records and in docs/migrate.md.
	ID string
	// In says what each mode does.
	In map[proxier.BackendKind]string
	// Concerns reports whether a Service is affected. nil: all are, with the node.
	Concerns func(*corev1.Service) bool
	// Source is where this is documented.
	Source string
}

// virtualIPs is Kubernetes' page on the modes of kube-proxy.
const virtualIPs = "https://kubernetes.io/docs/reference/networking/virtual-ips/"

// Behaviours are the differences between modes of kube-proxy that migrations must look at.
var Behaviours = []Behaviour{
	{
		ID: "nodeport-localhost",
		In: map[proxier.BackendKind]string{
			proxier.Iptables: "NodePorts answer on 127.0.0.1", proxier.Nftables: "NodePorts do not answer on 127.0.0.1",
			IPVS: "NodePorts do not answer on 127.0.0.1",
		},
		Concerns: hasNodePort, Source: virtualIPs,
	},
	{
		ID: "nodeport-addresses",
		In: map[proxier.BackendKind]string{
			proxier.Iptables: "NodePorts answer on every address of the node", IPVS: "NodePorts answer on every address of the node",
			proxier.Nftables: "NodePorts answer on the node's primary addresses only (nodePortAddresses: primary)",
		},
		Concerns: hasNodePort, Source: virtualIPs,
	},
	{
		ID: "nodeport-firewall",
		In: map[proxier.BackendKind]string{
			proxier.Iptables: "NodePorts are accepted in front of the node's firewall", IPVS: "NodePorts are accepted in front of the node's firewall",
			proxier.Nftables: "the node's firewall must allow NodePorts itself",
		},
		Concerns: hasNodePort, Source: virtualIPs,
	},
	{
		ID: "local-without-endpoint",
		In: map[proxier.BackendKind]string{
			proxier.Iptables: "externalTrafficPolicy Local drops packets on a node without endpoints",
			proxier.Nftables: "externalTrafficPolicy Local drops packets on a node without endpoints",
			IPVS:             "externalTrafficPolicy Local sends packets from the node itself to any endpoint",
		},
		Concerns: func(s *corev1.Service) bool {
			return s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
		},
		Source: "k/k#97081",
	},
	{
		ID: "cluster-ip-on-node",
		In: map[proxier.BackendKind]string{
			proxier.Iptables: "cluster IPs are on no device", proxier.Nftables: "cluster IPs are on no device; their other ports are refused",
			IPVS: "cluster IPs are addresses of the node (kube-ipvs0), and answer ping",
		},
		Concerns: func(s *corev1.Service) bool {
			return s.Spec.ClusterIP != corev1.ClusterIPNone && s.Spec.ClusterIP != ""
		}, Source: virtualIPs,
	},
	{
		ID: "balancing",
		In: map[proxier.BackendKind]string{
			proxier.Iptables: "endpoints are drawn at random", proxier.Nftables: "endpoints are drawn at random",
			IPVS: "endpoints take turns (scheduler rr)",
		},
		Source: virtualIPs,
	},
	{
		ID: "invalid-packets",
		In: map[proxier.BackendKind]string{
			proxier.Iptables: "packets that conntrack calls invalid are dropped, which hides a fault of kernels before 6.1",
			proxier.Nftables: "invalid packets are not dropped: on kernels before 6.1, set conntrack.tcpBeLiberal",
		},
		Source: virtualIPs,
	},
}

func hasNodePort(s *corev1.Service) bool {
	for _, port := range s.Spec.Ports {
		if port.NodePort > 0 {
			return true
		}
	}
	return false
}

// BehaviourOf returns a behaviour by its ID.
func BehaviourOf(id string) (Behaviour, bool) {
	for _, b := range Behaviours {
		if b.ID == id {
			return b, true
		}
	}
	return Behaviour{}, false
}

// Differs reports whether two modes differ in the behaviour.
func (b *Behaviour) Differs(from, to proxier.BackendKind) bool {
	return b.In[from] != "" && b.In[to] != "" && b.In[from] != b.In[to]
}

// Affected counts the Services that the behaviour concerns.
func (b *Behaviour) Affected(services []*corev1.Service) int {
	n := 0
	for _, svc := range services {
		if b.Concerns == nil || b.Concerns(svc) {
			n++
		}
	}
	return n
}
