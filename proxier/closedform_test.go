package proxier

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"synclab/proxier/config"
	"synclab/proxier/iptables"
)

// These formulas compute the number of chains and rules of a layout from the sizes alone. There are S Services of one
// port with E ready endpoints each, used from every node. D is 1 if pods can be distinguished from other senders (a
// cluster CIDR). R is the number of source ranges, none of which contains the node.

// shared counts the chains and rules without any Service. nat has the masquerade (3), the mark (1) and the jump to the
// NodePorts (1). filter has KUBE-FORWARD (3: INVALID, marked, established) and KUBE-FIREWALL (1).
func shared() (nat, filter iptables.Count) {
	return iptables.Count{Chains: 4, Rules: 3 + 1 + 1}, iptables.Count{Chains: 6, Rules: 3 + 1}
}

func clusterIPForm(S, E, D, _ int) map[iptables.Table]iptables.Count {
	nat, filter := shared()
	if E == 0 {
		filter.Rules += S // REJECT
	} else {
		nat.Chains += S * (1 + E)          // SVC, SEP
		nat.Rules += S * (1 + D + E + 2*E) // dispatch; cluster IP masquerade; choices; hairpin and DNAT
	}
	return map[iptables.Table]iptables.Count{iptables.NAT: nat, iptables.Filter: filter}
}

func loadBalancerForm(S, E, D, R int) map[iptables.Table]iptables.Count {
	nat, filter := shared()
	F := min(R, 1) // a firewall
	if E == 0 {
		filter.Rules += 3 * S // REJECT for cluster IP, load balancer IP, node port
	} else {
		nat.Chains += S * (2 + F + E)          // SVC, EXT; FW; SEP
		nat.Rules += S * (3 + D + E + 2 + 2*E) // three dispatch rules; masquerade; choices; EXT: masquerade, jump; SEP
		nat.Rules += S * F * (R + 1)           // the ranges, and a rule that is only a comment
		filter.Rules += S * F                  // drops packets from outside the ranges
	}
	return map[iptables.Table]iptables.Count{iptables.NAT: nat, iptables.Filter: filter}
}

// flat is layout tree with match bpf. Endpoints have no chains. Hairpin packets take one rule in nat and one in filter,
// instead of one per endpoint. One rule jumps to each tree chain; branches counts the tree chains by table.
func flat(form map[iptables.Table]iptables.Count, S, E int, branches map[iptables.Table]int) map[iptables.Table]iptables.Count {
	nat, filter := form[iptables.NAT], form[iptables.Filter]
	nat.Chains += branches[iptables.NAT] - S*E
	nat.Rules += branches[iptables.NAT] - 2*S*E + 1
	filter.Chains += branches[iptables.Filter]
	filter.Rules += branches[iptables.Filter] + 1
	return map[iptables.Table]iptables.Count{iptables.NAT: nat, iptables.Filter: filter}
}

func TestClosedForms(t *testing.T) {
	for _, c := range []struct {
		name string
		kind corev1.ServiceType
		form func(S, E, D, R int) map[iptables.Table]iptables.Count
		D, R int
	}{
		{"ClusterIP", corev1.ServiceTypeClusterIP, clusterIPForm, 0, 0},
		{"ClusterIP, cluster CIDR", corev1.ServiceTypeClusterIP, clusterIPForm, 1, 0},
		{"LoadBalancer", corev1.ServiceTypeLoadBalancer, loadBalancerForm, 0, 0},
		{"LoadBalancer, cluster CIDR, source ranges", corev1.ServiceTypeLoadBalancer, loadBalancerForm, 1, 2},
	} {
		for _, S := range []int{0, 1, 10} {
			for _, E := range []int{0, 1, 2, 10} {
				t.Run(fmt.Sprintf("%s/services=%d/endpoints=%d", c.name, S, E), func(t *testing.T) {
					for _, layout := range iptables.Layouts {
						want := c.form(S, E, c.D, c.R)
						installed, text := render(t, layout, c.kind, S, E, c.D, c.R)
						if layout == iptables.Tree {
							want = flat(want, S, E, countBranches(text))
						}
						if diff := cmp.Diff(want, countSaved(text)); diff != "" {
							t.Errorf("%s: rules of the tables (-form +tables):\n%s", layout, diff)
						}
						if diff := cmp.Diff(want, installed); diff != "" {
							t.Errorf("%s: as reported (-form +reported):\n%s", layout, diff)
						}
					}
				})
			}
		}
	}
}

// render returns the proxier's chains and rules by table, as the proxier reports them, and the text of the tables.
func render(t *testing.T, layout iptables.Layout, kind corev1.ServiceType, services, endpoints, clusterCIDR, ranges int) (reported map[iptables.Table]iptables.Count, text string) {
	t.Helper()
	opts := Options{Layout: layout, Machine: Machine{BPF: true}, Config: config.New(), OnSync: func(s Sync) { reported = s.Installed }}
	if clusterCIDR > 0 {
		opts.Config.ClusterCIDR = "10.128.0.0/9"
	}
	var svcs []*corev1.Service
	var slices []*discoveryv1.EndpointSlice
	for i := range services {
		svc := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("svc-%d", i)},
			Spec: corev1.ServiceSpec{Type: kind, ClusterIP: fmt.Sprintf("10.96.0.%d", i+1),
				Ports: []corev1.ServicePort{{Name: "p", Protocol: corev1.ProtocolTCP, Port: 80}}},
		}
		if kind == corev1.ServiceTypeLoadBalancer {
			svc.Spec.Ports[0].NodePort = int32(30000 + i)
			svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: fmt.Sprintf("198.18.0.%d", i+1)}}
		}
		for r := range ranges {
			svc.Spec.LoadBalancerSourceRanges = append(svc.Spec.LoadBalancerSourceRanges, fmt.Sprintf("203.0.%d.0/24", r))
		}
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: svc.Name, Labels: map[string]string{discoveryv1.LabelServiceName: svc.Name}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("p"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)}},
		}
		for e := range endpoints {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.128.%d.%d", i, e+1)}})
		}
		svcs, slices = append(svcs, svc), append(slices, slice)
	}
	models, err := Render(t.Context(), opts, svcs, slices, nil)
	if err != nil {
		t.Fatal(err)
	}
	return reported, saved(t, models[0])
}

// countBranches counts the tree chains by table.
func countBranches(text string) map[iptables.Table]int {
	counts := map[iptables.Table]int{}
	table := iptables.Table("")
	for line := range strings.Lines(text) {
		if line[0] == '*' {
			table = iptables.Table(strings.TrimSpace(line[1:]))
		}
		if strings.HasPrefix(line, ":KUBE-TREE-") {
			counts[table]++
		}
	}
	return counts
}

// countSaved counts chains and rules of the proxier in what iptables-save prints, without canaries.
func countSaved(text string) map[iptables.Table]iptables.Count {
	counts := map[iptables.Table]iptables.Count{}
	table := iptables.Table("")
	for line := range strings.Lines(text) {
		c := counts[table]
		switch {
		case line[0] == '*':
			table = iptables.Table(strings.TrimSpace(line[1:]))
			continue
		case strings.HasPrefix(line, ":KUBE-") && !strings.HasPrefix(line, ":KUBE-PROXY-CANARY"):
			c.Chains++
		case strings.HasPrefix(line, "-A KUBE-"):
			c.Rules++
		default:
			continue
		}
		counts[table] = c
	}
	return counts
}
