package conform

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"synclab/proxier/config"
	"synclab/proxier/iptables"
	"synclab/sim"
)

// nodeStates are states of a cluster whose node changes: its podCIDRs, then its address, then something else.
func nodeStates() []*sim.Objects {
	states := make([]*sim.Objects, 4)
	for i := range states {
		n := plainNode()
		n.Spec.PodCIDRs = []string{"10.1.0.0/24"}
		if i > 0 {
			n.Spec.PodCIDRs = []string{"10.2.0.0/24"}
		}
		if i > 1 {
			n.Status.Addresses[0].Address = "192.0.2.77"
		}
		if i > 2 {
			n.Labels = map[string]string{corev1.LabelTopologyZone: "north"}
		}
		states[i] = &sim.Objects{Nodes: []*corev1.Node{n}, Services: []*corev1.Service{plainService("web", "10.96.0.7")}}
	}
	return states
}

func TestNodeChangesThatEndAProxier(t *testing.T) {
	var nodes []*corev1.Node
	for _, o := range nodeStates() {
		nodes = append(nodes, o.Nodes[0])
	}
	byNode, byRange := config.New(), config.New()
	byNode.DetectLocalMode = config.LocalModeNodeCIDR
	for _, c := range []struct {
		cluster Setting
		from    int
		minor   int
		want    string
	}{
		{Setting{Config: byNode}, 0, 30, "podCIDRs of node node-0 changed from [10.1.0.0/24] to [10.2.0.0/24]"},
		{Setting{Config: byRange}, 0, 37, ""},
		{Setting{Config: byRange}, 1, 37, "addresses of node node-0 changed from [192.0.2.10] to [192.0.2.77]"},
		{Setting{Config: byRange}, 1, 0, "addresses of node node-0 changed from [192.0.2.10] to [192.0.2.77]"},
		{Setting{Config: byRange}, 1, 36, ""},
		{Setting{Config: byNode}, 2, 37, ""},
	} {
		if got := c.cluster.endsWith(nodes[c.from], nodes[c.from+1], c.minor); got != c.want {
			t.Errorf("state %d, 1.%d: %q, want %q", c.from, c.minor, got, c.want)
		}
	}
}

// kube-proxy exits when the podCIDRs or addresses of its node change. A comparison starts it again, and goes on.
func TestKubeProxyExitsWhenItsNodeChanges(t *testing.T) {
	cfg := config.New()
	cfg.DetectLocalMode, cfg.NodePortAddresses = config.LocalModeNodeCIDR, []string{"primary"}
	states := nodeStates()
	q := &Request{Objects: states[0], Then: states[1:], Name: "node", Setting: Setting{Variant: iptables.Legacy, Families: both[:1], Config: cfg}}
	if e := compared(t, q); e.Entries[EntryNode] != 2 || e.States != 4 || e.Clusters != 1 {
		t.Errorf("%+v, want 2 exits in 4 states of 1 cluster", e)
	}
}

// A proxier reads addresses at its start: until it is started again, its rules have the old ones.
func TestRenderedKeepsTheAddressesOfItsStart(t *testing.T) {
	cfg := config.New()
	cfg.NodePortAddresses = []string{"192.0.2.0/24"}
	before, after := nodeStates()[1].Nodes[0], nodeStates()[2].Nodes[0]
	svc := plainService("web", "10.96.0.7")
	svc.Spec.Type, svc.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30080
	rules := func(start, now *corev1.Node) Grouped {
		r := &rendered{setting: Setting{Variant: iptables.Legacy, Config: cfg}, node: start}
		all, err := r.renderObjects(t.Context(), []*corev1.Service{svc}, nil, []*corev1.Node{now})
		if err != nil {
			t.Fatal(err)
		}
		return all[corev1.IPv4Protocol]
	}
	if d := Diff(corev1.IPv4Protocol, rules(before, before), rules(before, after)); len(d) > 0 {
		t.Errorf("without a new start: %v", d)
	}
	if d := Diff(corev1.IPv4Protocol, rules(before, before), rules(after, after)); len(d) == 0 {
		t.Error("a new start changes nothing: these rules do not show addresses")
	}
}

// No proxy reads slices of names. There is nothing to churn then, which is no failure.
func TestNamesAreNoEndpoints(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeFQDN, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"web.example.org"}}}}
	slice.Name, slice.Namespace, slice.Labels = "web-names", "default", map[string]string{discoveryv1.LabelServiceName: "web"}
	o := &sim.Objects{Nodes: []*corev1.Node{plainNode()}, Services: []*corev1.Service{plainService("web", "10.96.0.7")}, Slices: []*discoveryv1.EndpointSlice{slice}}
	var last Event
	q := &Request{Objects: o, Name: "names", Setting: Setting{Variant: iptables.Legacy, Families: both[:1], Config: config.New()}}
	if err := q.Run(t.Context(), func(e Event) { last = e }); err != nil || last.States != 1 || last.NotCompared != 0 {
		t.Errorf("%v, %+v", err, last)
	}
}

// A comparison that fails is no difference, and counts as no state.
func TestFailedComparisonIsNoDifference(t *testing.T) {
	o := &sim.Objects{Services: []*corev1.Service{plainService("web", "10.96.0.7")}} // without a node
	var last Event
	q := &Request{Objects: o, Name: "no node", Setting: Setting{Variant: iptables.Legacy, Families: both[:1], Config: config.New()}}
	if err := q.Run(t.Context(), func(e Event) { last = e }); err != nil {
		t.Fatal(err)
	}
	if last.NotCompared != 1 || last.Unexplained != 0 || last.States != 0 || last.Failure == nil || last.Failure.Text != "" || !strings.Contains(last.Failure.Error, "is not in the cluster") {
		t.Errorf("%+v, %+v", last, last.Failure)
	}
}
