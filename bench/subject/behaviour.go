package subject

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/internal/inet"
	"synclab/proxier"
	"synclab/sim"
)

// Behaviour is something that clients or operators can notice, and that modes of kube-proxy do differently with its
// default settings. docs/migrate.md has the same list.
type Behaviour struct {
	// ID names the behaviour in records and in docs/differences.md.
	ID string
	// In says what each mode does; a mode is missing if that is not known.
	In map[proxier.BackendKind]string
	// Concerns reports whether a Service with a cluster IP is affected. n is the number of its ready endpoints.
	Concerns func(c *Cluster, svc *corev1.Service, n int) bool
	// Own: Synclab's proxier, too, differs in this between its backends.
	Own bool
	// Source is where this is documented, the entry of another table in docs/differences.md, or the files of kube-proxy v1.37.2
	// (pkg/proxy) that show it.
	Source string
}

// IDs of Behaviours that concern packets of a verdict probe.
const (
	LocalWithoutEndpoint = "local-without-endpoint"
	ClusterIPOnNode      = "cluster-ip-on-node"
)

// Cluster is what behaviours may concern.
type Cluster struct {
	Objects *sim.Objects
	Config  *v1alpha1.KubeProxyConfiguration
	shared  map[frontend]int // Services by frontend
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
		Concerns: func(c *Cluster, svc *corev1.Service, n int) bool {
			return (c.Config.IPTables.LocalhostNodePorts == nil || *c.Config.IPTables.LocalhostNodePorts) && hasNodePort(c, svc, n)
		}, Source: virtualIPs,
	},
	{
		ID: "nodeport-addresses",
		In: map[proxier.BackendKind]string{
			proxier.Iptables: "NodePorts answer on every address of the node", IPVS: "NodePorts answer on every address of the node",
			proxier.Nftables: "NodePorts answer on the node's primary addresses only (nodePortAddresses: primary)",
		},
		Concerns: func(c *Cluster, svc *corev1.Service, n int) bool {
			return len(c.Config.NodePortAddresses) == 0 && hasNodePort(c, svc, n)
		}, Source: virtualIPs,
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
		ID: LocalWithoutEndpoint,
		In: map[proxier.BackendKind]string{
			proxier.Iptables: "a traffic policy Local drops packets on a node without endpoints",
			proxier.Nftables: "a traffic policy Local drops packets on a node without endpoints",
			IPVS:             "a traffic policy Local means nothing on a node without endpoints",
		},
		Concerns: func(_ *Cluster, svc *corev1.Service, _ int) bool {
			inside := svc.Spec.InternalTrafficPolicy
			return svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal || inside != nil && *inside == corev1.ServiceInternalTrafficPolicyLocal
		},
		Source: "k/k#97081, ipvs/proxier.go",
	},
	{
		ID: ClusterIPOnNode,
		In: map[proxier.BackendKind]string{
			proxier.Iptables: "cluster IPs are on no device", proxier.Nftables: "cluster IPs are on no device",
			IPVS: "all addresses of Services are addresses of the node (kube-ipvs0)",
		},
		Concerns: every, Source: virtualIPs,
	},
	{
		ID: "cluster-ip-other-ports",
		In: map[proxier.BackendKind]string{
			proxier.Iptables: "other ports of a cluster IP do not answer", proxier.Nftables: "other ports of a cluster IP are rejected",
			IPVS: "other ports of a cluster IP are rejected",
		},
		Concerns: every, Source: "ipvs/proxier.go, nftables/proxier.go",
	},
	{
		ID: "balancing",
		In: map[proxier.BackendKind]string{
			proxier.Iptables: "endpoints are drawn at random", proxier.Nftables: "endpoints are drawn at random",
			IPVS: "endpoints take turns (scheduler rr)",
		},
		Concerns: func(_ *Cluster, _ *corev1.Service, n int) bool { return n > 1 }, Source: virtualIPs,
	},
	{
		ID: "session-affinity",
		In: map[proxier.BackendKind]string{
			proxier.Iptables: "the endpoints of clients are in lists of xt_recent", proxier.Nftables: "the endpoints of clients are in sets of nf_tables",
			IPVS: "the endpoints of clients are in templates of IPVS",
		},
		Concerns: func(_ *Cluster, svc *corev1.Service, n int) bool {
			return svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP && n > 1
		}, Source: "iptables/proxier.go, ipvs/proxier.go, nftables/proxier.go",
	},
	{
		ID: "health-check-firewall",
		In: map[proxier.BackendKind]string{
			proxier.Iptables: "health check NodePorts are accepted in INPUT", IPVS: "health check NodePorts are accepted in INPUT",
			proxier.Nftables: "the node's firewall must allow health check NodePorts itself",
		},
		Concerns: func(_ *Cluster, svc *corev1.Service, _ int) bool { return svc.Spec.HealthCheckNodePort > 0 },
		Source:   "iptables/proxier.go, ipvs/proxier.go, nftables/proxier.go",
	},
	{
		ID: "refuses-the-node",
		In: map[proxier.BackendKind]string{
			proxier.Iptables: "external addresses without endpoints reject packets from outside only",
			proxier.Nftables: "external addresses without endpoints reject packets from the node too",
		},
		Concerns: func(_ *Cluster, svc *corev1.Service, n int) bool { return n == 0 && len(externalAddresses(svc)) > 0 },
		Source:   "mode: refuses the node",
	},
	{
		ID: "source-ranges-first",
		In: map[proxier.BackendKind]string{
			proxier.Iptables: "without endpoints, clients outside of the source ranges are rejected",
			proxier.Nftables: "without endpoints, packets of clients outside of the source ranges are dropped",
		},
		Concerns: func(_ *Cluster, svc *corev1.Service, n int) bool {
			return n == 0 && svc.Spec.Type == corev1.ServiceTypeLoadBalancer && len(svc.Spec.LoadBalancerSourceRanges) > 0
		}, Source: "mode: source ranges first",
	},
	{
		ID: "one-owner",
		In: map[proxier.BackendKind]string{
			proxier.Iptables: "if Services share an address and port, the next one gets what the first has no endpoint for",
			proxier.Nftables: "if Services share an address and port, one of them gets all packets",
		},
		Concerns: (*Cluster).shares, Source: "mode: one owner",
	},
	{
		ID: "hairpin",
		In: map[proxier.BackendKind]string{
			proxier.Iptables: "packets from an endpoint to itself are masqueraded on every node",
			proxier.Nftables: "packets from an endpoint to itself are masqueraded on its node", IPVS: "packets from an endpoint to itself are masqueraded on its node",
		},
		Concerns: func(_ *Cluster, _ *corev1.Service, n int) bool { return n > 0 }, Own: true, Source: "mode: hairpin",
	},
	{
		ID: "invalid-packets",
		In: map[proxier.BackendKind]string{
			proxier.Iptables: "packets that conntrack calls invalid are dropped, which hides a fault of kernels before 6.1",
			proxier.Nftables: "invalid packets are not dropped: on kernels before 6.1, set conntrack.tcpBeLiberal",
		},
		Concerns: func(c *Cluster, svc *corev1.Service, _ int) bool {
			return !c.Config.Conntrack.TCPBeLiberal && slices.ContainsFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool {
				return p.Protocol == "" || p.Protocol == corev1.ProtocolTCP
			})
		}, Source: virtualIPs,
	},
}

func every(*Cluster, *corev1.Service, int) bool { return true }

func hasNodePort(_ *Cluster, svc *corev1.Service, _ int) bool {
	return slices.ContainsFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort > 0 })
}

// frontend is an address, protocol and port.
type frontend struct {
	addr     netip.Addr
	protocol corev1.Protocol
	port     int32
}

func externalAddresses(svc *corev1.Service) []netip.Addr {
	texts := slices.Clone(svc.Spec.ExternalIPs)
	for _, ingress := range svc.Status.LoadBalancer.Ingress {
		texts = append(texts, ingress.IP)
	}
	var addrs []netip.Addr
	for _, text := range texts {
		if addr, ok := inet.ParseAddr(text); ok && !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

func frontends(svc *corev1.Service) []frontend {
	var all []frontend
	for _, addr := range externalAddresses(svc) {
		for i := range svc.Spec.Ports {
			all = append(all, frontend{addr, svc.Spec.Ports[i].Protocol, svc.Spec.Ports[i].Port})
		}
	}
	return all
}

// shares reports whether another Service has an external address and port of the Service.
func (c *Cluster) shares(svc *corev1.Service, _ int) bool {
	if c.shared == nil {
		c.shared = map[frontend]int{}
		for _, svc := range c.Objects.Services {
			for _, f := range frontends(svc) {
				c.shared[f]++
			}
		}
	}
	return slices.ContainsFunc(frontends(svc), func(f frontend) bool { return c.shared[f] > 1 })
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

// Of returns what a subject does; empty: not known.
func (b *Behaviour) Of(s Spec) string {
	if s.Own && s.Carrier == Rules && !b.Own {
		return b.In[proxier.Iptables]
	}
	return b.In[s.Backend]
}

// Differs reports whether two subjects differ in the behaviour.
func (b *Behaviour) Differs(from, to Spec) bool {
	return b.Of(from) != "" && b.Of(to) != "" && b.Of(from) != b.Of(to)
}

// Affected counts the Services that the behaviour concerns.
func (b *Behaviour) Affected(c *Cluster) int {
	ready := map[types.NamespacedName]int{}
	for _, slice := range c.Objects.Slices {
		name := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
		for i := range slice.Endpoints {
			if is := slice.Endpoints[i].Conditions.Ready; is == nil || *is {
				ready[name]++
			}
		}
	}
	n := 0
	for _, svc := range c.Objects.Services {
		has := svc.Spec.ClusterIP != "" && svc.Spec.ClusterIP != corev1.ClusterIPNone
		if has && b.Concerns(c, svc, ready[types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}]) {
			n++
		}
	}
	return n
}
