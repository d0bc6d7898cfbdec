package invariants

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"synclab/bench/lab/process"
	"synclab/bench/subject"
	"synclab/bench/verify/walk"
	"synclab/proxier"
	"synclab/proxier/config"
	"synclab/proxier/conntrack"
	"synclab/proxier/iptables/rule"
	"synclab/proxier/nftables"
	"synclab/sim"
	"synclab/sim/random"
)

const ipv4 = corev1.IPv4Protocol

// The subjects with rules that can be rendered.
var subjects = map[string]Subject{
	"classic": known("synclab/iptables-legacy"), "tree": known("synclab/iptables-legacy-tree"), "nftables": known("synclab/nftables"),
	"kube-proxy": known("kube-proxy/iptables-legacy"),
}

func known(name string) Subject {
	about, err := subject.Parse(name)
	if err != nil {
		panic(err)
	}
	return Subject{Spec: about}
}

// manifest returns a small cluster with five Services: web has three endpoints, and dns is a UDP Service with a
// NodePort. none has no endpoints. local has a local traffic policy and no endpoint on this node. edge has a health
// check NodePort, and three endpoints on this node, of which two are ready.
func manifest() *sim.Objects {
	o := &sim.Objects{Nodes: []*corev1.Node{{
		ObjectMeta: metav1.ObjectMeta{Name: "node-0"},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: random.RandomNode4}}},
	}}}
	add := func(name, ip string, protocol corev1.Protocol, edit func(*corev1.Service), endpoints ...string) {
		svc := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: "1"},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip}, IPFamilies: []corev1.IPFamily{ipv4},
				Ports: []corev1.ServicePort{{Name: "p", Protocol: protocol, Port: 80}},
			},
		}
		if edit != nil {
			edit(svc)
		}
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}, ResourceVersion: "1"},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("p"), Protocol: ptr.To(protocol), Port: ptr.To(int32(8080))}},
		}
		for _, addr := range endpoints {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{addr}, NodeName: ptr.To("node-1")})
		}
		o.Services, o.Slices = append(o.Services, svc), append(o.Slices, slice)
	}
	add("web", "10.96.0.10", corev1.ProtocolTCP, nil, "10.128.0.1", "10.128.0.2", "10.128.0.3")
	add("dns", "10.96.0.11", corev1.ProtocolUDP, func(svc *corev1.Service) {
		svc.Spec.Type, svc.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30053
	}, "10.128.0.4", "10.128.0.5")
	add("none", "10.96.0.12", corev1.ProtocolUDP, nil)
	add("local", "10.96.0.13", corev1.ProtocolTCP, func(svc *corev1.Service) {
		svc.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
	}, "10.128.0.6")
	add("edge", "10.96.0.14", corev1.ProtocolTCP, func(svc *corev1.Service) {
		svc.Spec.Type, svc.Spec.ExternalTrafficPolicy, svc.Spec.HealthCheckNodePort = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal, 30100
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.18.0.14"}}
	}, "10.128.0.20", "10.128.0.21", "10.128.0.22", "10.128.0.23")
	edge := o.Slices[len(o.Slices)-1].Endpoints
	for i := range edge[:3] {
		edge[i].NodeName = ptr.To("node-0")
	}
	edge[2].Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true)}
	return o
}

// good returns evidence of a subject without violations.
func good(t *testing.T, subject Subject) *Evidence {
	t.Helper()
	subject.Serves, subject.HealthPorts = true, true
	o := manifest()
	cfg := config.New()
	cfg.ClusterCIDR = random.RandomPods
	node := netip.MustParseAddr(random.RandomNode4)
	e := &Evidence{
		Subject: subject, Seed: 1, Families: []corev1.IPFamily{ipv4}, Objects: o, Node: []netip.Addr{node}, SyncPeriod: time.Second, Syncs: 10,
		Options: proxier.Options{
			Config: cfg, NodeName: "node-0", NodeIPs: []netip.Addr{node}, Machine: proxier.Machine{RandomFully: true, BPF: true},
			Addresses: func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("127.0.0.1"), node}, nil },
		},
		Planted: &Sentinels{Rules: map[corev1.IPFamily]map[string][]PlantedRule{ipv4: {}}, Nft: map[corev1.IPFamily][]string{ipv4: {"table foreign", "rule 3"}}},
		Health:  http.StatusOK, Metrics: process.Samples{}, Injected: map[corev1.IPFamily]int{ipv4: 2},
		ForeignNft: map[corev1.IPFamily][]string{ipv4: {"table foreign", "rule 3"}},
	}
	x, err := e.render(t.Context(), e.Options.Machine, o)
	if err != nil {
		t.Fatal(err)
	}
	e.Rules = maps.Clone(x.rules)
	if subject.Nftables() {
		e.Nft = map[corev1.IPFamily]*NftTable{ipv4: x.nft[ipv4].Clone()}
	} else {
		e.Saved = map[corev1.IPFamily]Saved{ipv4: plant(x.saved[ipv4].Clone(), e.Planted)}
	}
	e.plantTestFlows()
	e.gauges()
	e.HealthAnswers = []HealthAnswer{{
		HealthPort: HealthPort{types.NamespacedName{Namespace: "ns", Name: "edge"}, netip.AddrPortFrom(node, 30100), 2},
		Status:     http.StatusOK, Header: http.Header{weightHeader: {"2"}},
		Body: []byte(`{"service": {"namespace": "ns", "name": "edge"}, "localEndpoints": 2, "serviceProxyHealthy": true}`),
	}}
	return e
}

// plant adds the sentinels.
func plant(s Saved, planted *Sentinels) Saved {
	for table := range foreignHooks {
		rules := foreignRules(ipv4, table)
		planted.Rules[ipv4][table] = rules
		s[table][foreignChain] = &rule.Chain{Policy: "-"}
		for _, r := range rules {
			c := s[table][r.Chain]
			c.Rules = append(c.Rules, r.Rule)
		}
	}
	return s
}

func flow(src, dst, at string) conntrack.Flow {
	f := conntrack.Flow{Src: netip.MustParseAddrPort(src), Dst: netip.MustParseAddrPort(dst), ReplySrc: netip.MustParseAddrPort(at)}
	f.ReplyDst = f.Src
	return f
}

func (e *Evidence) plantTestFlows() {
	foreign := flow("198.18.0.251:40007", "198.18.0.252:30053", "198.18.0.252:30053")
	served := flow("10.128.0.9:5000", "10.96.0.11:80", "10.128.0.4:8080")
	e.Planted.Flows = map[corev1.IPFamily][]conntrack.Flow{ipv4: {foreign}}
	e.Flows = map[corev1.IPFamily][]conntrack.Flow{ipv4: {foreign, served, flow("10.128.0.9:5001", "192.0.2.10:30053", "10.128.0.5:8080")}}
	e.Refused = []Refused{{Service: "ns/none:p", To: netip.MustParseAddrPort("10.96.0.12:80"), Err: unix.ECONNREFUSED}}
	e.Restarted = &Restarted{Objects: Digest(e.Objects), Flows: map[corev1.IPFamily][]conntrack.Flow{ipv4: {served}}}
	if e.Nft != nil {
		e.Restarted.Nft = map[corev1.IPFamily]*NftTable{ipv4: e.Nft[ipv4].Clone()}
	} else {
		e.Restarted.Saved = map[corev1.IPFamily]Saved{ipv4: e.Saved[ipv4].Clone()}
	}
	e.Traffic = &Traffic{Flows: 1000, LongLived: 5, Reached: map[string]map[netip.AddrPort]int{
		"ns/web:p": {netip.MustParseAddrPort("10.128.0.1:8080"): 330, netip.MustParseAddrPort("10.128.0.2:8080"): 340, netip.MustParseAddrPort("10.128.0.3:8080"): 330},
	}}
}

// gauges sets the correct values.
func (e *Evidence) gauges() {
	for _, table := range []string{"nat", "filter"} {
		rules := 0
		for name, c := range e.Saved[ipv4][table] {
			if ownChain(name) {
				rules += len(c.Rules)
			}
		}
		e.gauge(rulesTotal, float64(rules), "table", table, "ip_family", string(ipv4))
	}
	for _, name := range []string{servicesPending, slicesPending} {
		e.gauge(name, 0)
	}
	for _, name := range []string{restoreFailures, nftFailures} {
		e.gauge(name, 2, "ip_family", string(ipv4))
	}
}

// gauge sets one series of a metric.
func (e *Evidence) gauge(name string, value float64, labels ...string) {
	m := &dto.Metric{Gauge: &dto.Gauge{Value: &value}}
	for pair := range slices.Chunk(labels, 2) {
		m.Label = append(m.Label, &dto.LabelPair{Name: &pair[0], Value: &pair[1]})
	}
	if e.Metrics[name] == nil {
		e.Metrics[name] = &dto.MetricFamily{Name: &name}
	}
	e.Metrics[name].Metric = append(slices.DeleteFunc(e.Metrics[name].Metric, func(old *dto.Metric) bool {
		return fmt.Sprint(old.Label) == fmt.Sprint(m.Label)
	}), m)
}

// recompile rebuilds the evaluator's rules from the changed tables.
func (e *Evidence) recompile(t *testing.T) {
	t.Helper()
	var err error
	if e.Rules[ipv4], err = e.Saved[ipv4].Compile(ipv4); err != nil {
		t.Fatal(err)
	}
}

// drop deletes a rule that contains a text.
func (e *Evidence) drop(t *testing.T, table, text string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(e.Saved[ipv4][table])) {
		c := e.Saved[ipv4][table][name]
		if i := slices.IndexFunc(c.Rules, func(r rule.Rule) bool { return strings.Contains(r.Line(name), text) }); i >= 0 {
			c.Rules = slices.Delete(c.Rules, i, i+1)
			return
		}
	}
	t.Fatalf("table %s has no rule with %q", table, text)
}

func parsed(t *testing.T, line string) rule.Rule {
	t.Helper()
	_, r, err := rule.Parse(ipv4, line)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// replace replaces a text in all rules of a table.
func (e *Evidence) replace(t *testing.T, table, old, by string) {
	t.Helper()
	n := 0
	for name, c := range e.Saved[ipv4][table] {
		for i := range c.Rules {
			if line := c.Rules[i].Line(name); strings.Contains(line, old) {
				c.Rules[i] = parsed(t, strings.ReplaceAll(line, old, by))
				n++
			}
		}
	}
	if n == 0 {
		t.Fatalf("table %s has no rule with %q", table, old)
	}
}

// nftRules changes a model, and takes its rules as evidence.
func (e *Evidence) nftRules(t *testing.T, change func(*nftables.Model)) {
	t.Helper()
	opts := e.Options
	opts.Families, opts.Backend = e.Families, proxier.Nftables
	var m *nftables.Model
	opts.Model = func(family corev1.IPFamily) *nftables.Model { m = nftables.NewModel(family); return m }
	if _, err := proxier.Render(t.Context(), opts, e.Objects.Services, e.Objects.Slices, e.Objects.Nodes[0]); err != nil {
		t.Fatal(err)
	}
	change(m)
	e.Nft[ipv4] = nftOfModel(m)
	rules, err := walk.CompileNftables(m.Family, &m.Table)
	if err != nil {
		t.Fatal(err)
	}
	e.Rules[ipv4] = rules
}

func findings(t *testing.T, e *Evidence, names ...string) map[string][]Finding {
	t.Helper()
	results, err := Check(t.Context(), e, names)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]Finding{}
	for _, r := range results {
		if len(r.Findings) > 0 {
			found[r.Invariant] = r.Findings
		}
		for _, f := range r.Findings {
			if f.Invariant != r.Invariant || f.Text == "" {
				t.Errorf("%s: %+v", r.Invariant, f)
			}
		}
	}
	return found
}

// Correct evidence has no findings, and everything that applies is checked.
func TestGoodEvidence(t *testing.T) {
	for name, subject := range subjects {
		t.Run(name, func(t *testing.T) {
			e := good(t, subject)
			if found := findings(t, e); len(found) > 0 {
				t.Errorf("found %+v", found)
			}
			results, err := Check(context.Background(), e, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := 14
			if subject.Nftables() || !subject.Own {
				want-- // I5
			}
			if len(results) != want {
				t.Errorf("%d invariants were checked, want %d", len(results), want)
			}
			for _, r := range results {
				t.Logf("%s: %d checks", r.Invariant, r.Checked)
				if r.Checked == 0 {
					t.Errorf("%s: no evidence was checked", r.Invariant)
				}
			}
		})
	}
}

// A flow goes to an endpoint to which rules DNAT; the cluster may be ahead of the rules.
func TestServingFollowsRules(t *testing.T) {
	for name, subject := range subjects {
		t.Run(name, func(t *testing.T) {
			e := good(t, subject)
			var at []string
			for range 3 {
				flows := e.Serving(ipv4, 0, 5)
				if len(flows) == 0 {
					break
				}
				ep := flows[0].ReplySrc
				at = append(at, ep.String())
				for _, c := range e.Saved[ipv4]["nat"] {
					c.Rules = slices.DeleteFunc(c.Rules, func(r rule.Rule) bool { return r.Target.To == ep })
				}
				if e.Nft != nil {
					maps.DeleteFunc(e.Nft[ipv4].Sets[endpointSets[0]], func(_, value string) bool { return strings.Contains(value, string(ep.Addr().AsSlice())) })
				}
			}
			if want := []string{"10.128.0.4:8080", "10.128.0.5:8080"}; !slices.Equal(at, want) {
				t.Errorf("flows at %v, want %v", at, want)
			}
		})
	}
}

// Flows of two restarts have different clients: of two flows with one client, the kernel keeps the older.
func TestServingClientsDiffer(t *testing.T) {
	e := good(t, subjects["classic"])
	if first, second := e.Serving(ipv4, 0, 1), e.Serving(ipv4, 1, 1); first[0].Src == second[0].Src || first[0].ReplySrc != second[0].ReplySrc {
		t.Errorf("%v and %v", first, second)
	}
}

// A detected kernel feature may not work in one family, and work in the other.
func TestClosestByFamily(t *testing.T) {
	e := good(t, subjects["classic"])
	e.Families = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	with := e.Options.Machine
	with.Accounting = true
	without := with
	without.Accounting = false
	for family, machine := range map[corev1.IPFamily]proxier.Machine{corev1.IPv4Protocol: without, corev1.IPv6Protocol: with} {
		x, err := e.render(t.Context(), machine, e.Objects)
		if err != nil {
			t.Fatal(err)
		}
		e.Saved[family] = x.saved[family].Clone()
	}
	e.Options.Machine = with
	x, err := e.closest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range e.Families {
		if d := differences(x.saved[family], e.Saved[family]); len(d) > 0 {
			t.Errorf("%s: %v", family, d)
		}
	}
}

// Clone is rule.Tables.Clone.
func (s Saved) Clone() Saved { return Saved(rule.Tables(s).Clone()) }

// Clone returns a deep copy.
func (t *NftTable) Clone() *NftTable {
	c := *t
	c.Sets, c.Rules = map[string]map[string]string{}, map[string]int{}
	for name, elements := range t.Sets {
		c.Sets[name] = map[string]string{}
		for key, value := range elements {
			c.Sets[name][key] = value
		}
	}
	for chain, n := range t.Rules {
		c.Rules[chain] = n
	}
	return &c
}
