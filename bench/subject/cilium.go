package subject

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/bench/lab/cgroup"
	"synclab/bench/subject/visible"
)

// ciliums are the control plane of Cilium's load balancer. It writes BPF maps, over which package socketlb runs Cilium's
// programs. Its process waits for commands.
func ciliums() []Spec {
	return Spec{Proxier: Cilium, OwnOptions: true, Stdin: "hive/start\n", start: startCilium}.with(
		Mode{mode: "lb", Carrier: Sockets, RulesetReader: visible.Cilium, kernel: hasSockets})
}

// hasSockets returns an error if Cilium's programs for sockets cannot run here.
func hasSockets() error {
	if err := visible.HasBPF(); err != nil {
		return err
	}
	return cgroup.MayJoin()
}

// startCilium makes the maps large enough for twice the Services and endpoints that there are: the kernel reserves the
// memory of whole maps, and the default is too small for 10,000 Services. The node's name makes it know which endpoints
// are local.
func startCilium(_ Spec, with Process) (path string, args, env []string) {
	endpoints := map[types.NamespacedName]int{}
	for _, slice := range with.Objects.Slices {
		endpoints[types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}] += len(slice.Endpoints)
	}
	needed := 0
	for _, svc := range with.Objects.Services {
		addresses := 1
		if svc.Spec.Type != corev1.ServiceTypeClusterIP {
			addresses += 2 * (1 + len(svc.Status.LoadBalancer.Ingress)) // for packets of the node, and for others
		}
		addresses += 2 * len(svc.Spec.ExternalIPs)
		needed += len(svc.Spec.Ports) * addresses * (1 + endpoints[types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}])
	}
	entries := 65536
	for entries < 2*needed {
		entries *= 2
	}
	args = []string{"--k8s-kubeconfig-path=" + with.Kubeconfig, fmt.Sprintf("--bpf-lb-map-max=%d", entries)}
	return with.Program, args, []string{"K8S_NODE_NAME=" + with.Node}
}
