package conform

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"synclab/internal/seedstest"
	"synclab/proxier/config"
	"synclab/proxier/iptables"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/manifests"
	"synclab/sim/random"
)

// compared runs a request and fails for each unexplained difference.
func compared(t *testing.T, q *Request) Event {
	t.Helper()
	q.First.KubeProxy, q.KubeProxy, q.Workers = true, kubeProxyCommand(t), 2
	var last Event
	if err := q.Run(t.Context(), func(e Event) {
		last = e
		if f := e.Failure; f != nil {
			t.Errorf("%s: %s\n%s\nagain: %s", f.Batch, f.What, f.Text+f.Error, f.Again)
		}
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d clusters, %d states, explained %v", last.Clusters, last.States, last.Entries)
	return last
}

// variants returns the variants that kube-proxy works with here. If there is only one, limit requires it.
func variants(t *testing.T) (all []iptables.Variant, limit Constraint) {
	t.Helper()
	all, err := Variants()
	if err != nil {
		t.Skip(err)
	}
	if len(all) == 1 {
		limit.Variant = all[0]
	}
	return all, limit
}

// Random clusters over all settings; flags -seed and -seeds choose other clusters.
func TestRandomClustersConform(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	all := seedstest.Several(t, 100)
	clusters := len(all)
	_, limit := variants(t)
	if e := compared(t, &Request{Clusters: clusters, Seed: all[0], Limit: limit}); e.Clusters != clusters && !t.Failed() {
		t.Errorf("%d clusters compared, want %d", e.Clusters, clusters)
	}
}

// The cluster of every scenario of the library, at a small size, with the changes of its steps.
func TestScenariosConform(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	var q Request
	all, _ := variants(t)
	for i, s := range scenarios.List() {
		small, err := scenarios.Load(s.Name, nil, scenarios.Sizes{Services: 30, Endpoints: 3})
		if err != nil {
			t.Fatal(err)
		}
		cfg := config.New()
		cfg.ClusterCIDR = strings.Join(small.Shape.PodCIDRs, ",")
		if small.Proxy.NodePortAddresses != nil {
			cfg.NodePortAddresses = small.Proxy.NodePortAddresses
		}
		chosen := all
		if s.Name != "mixed-types" {
			chosen = all[i%len(all):][:1]
		}
		for _, variant := range chosen {
			q.Scenarios = append(q.Scenarios, ScenarioRequest{Scenario: small, Config: cfg, Variant: variant})
		}
	}
	if e := compared(t, &q); e.States < 2*len(q.Scenarios) {
		t.Errorf("%d states of %d scenarios", e.States, len(q.Scenarios))
	}
}

// The manifests and dumps of sim's tests.
func TestManifestsConform(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	for _, path := range []string{
		"everything.yaml", "nginx-demo.yaml", "ngx.yaml", "whoami-nodeport.yaml", "whoami.yaml", "../dumps/kubectl.json", "../dumps/legacy.yaml",
	} {
		t.Run(path, func(t *testing.T) {
			o, err := manifests.ReadObjects([]string{"../../../sim/manifests/testdata/manifests/" + path}, nil, manifests.ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			cfg := config.New()
			cfg.ClusterCIDR = "10.128.0.0/9"
			compared(t, &Request{Objects: o, Name: path, Setting: Setting{Variant: iptables.Legacy, Families: both, Config: cfg}})
		})
	}
}

// The same seed gives the same batch: the same settings and the same steps.
func TestRandomBatchIsDeterministic(t *testing.T) {
	textOf := func(seed uint64) string {
		b := RandomBatch(seed, 2, Constraint{})
		text := b.Name
		for {
			step, more, err := b.Next()
			if err != nil {
				t.Fatal(err)
			}
			if !more {
				return text
			}
			text += step.What
			if step.Objects != nil {
				text += yamlOf(step.Objects)
			}
			for _, c := range step.Trace {
				text += fmt.Sprintf("%s %v", c.Op, c.Object)
			}
		}
	}
	for seed := range uint64(5) {
		if first, again := textOf(seed), textOf(seed); first != again {
			t.Errorf("seed %d gave two batches", seed)
		}
	}
	seen := map[string]bool{}
	for seed := range uint64(40) {
		for _, word := range strings.Split(DrawSetting(seed, Constraint{}).String(), "; ") {
			seen[word] = true
		}
	}
	for _, word := range []string{
		"iptables-legacy", "iptables-nft", "[IPv4]", "[IPv6]", "[IPv4 IPv6]", "[IPv6 IPv4]", "detect NodeCIDR", "detect BridgeInterface",
		"detect InterfaceNamePrefix", "detect nothing", "detect ClusterCIDR " + random.RandomPods, "masqueradeAll", "tcpBeLiberal",
		"no localhostNodePorts", "nodePortAddresses primary",
	} {
		if !seen[word] {
			t.Errorf("no setting of 40 has %q", word)
		}
	}
	if s := DrawSetting(3, Constraint{Variant: iptables.Nft, Family: both[1]}); s.Variant != iptables.Nft || len(s.Families) != 1 || s.Families[0] != both[1] {
		t.Errorf("constraint: %s", s)
	}
}

// Random clusters for an old kube-proxy have nothing that it takes in another way or that ends it; those for the newest do.
func TestOldKubeProxyIsExempt(t *testing.T) {
	type counts struct{ primary, unnumbered, open, spelled, proxies int }
	count := func(minor int) (n counts) {
		for seed := range uint64(20) {
			b := RandomBatch(seed, 3, Constraint{Minor: minor})
			if slices.Contains(b.Setting.Config.NodePortAddresses, "primary") {
				n.primary++
			}
			for step, more, err := b.Next(); more || err != nil; step, more, err = b.Next() {
				if err != nil {
					t.Fatal(err)
				}
				objects := sim.Objects{}
				if step.Objects != nil {
					objects = *step.Objects
				}
				for _, change := range step.Trace {
					switch object := change.Object.(type) {
					case *discoveryv1.EndpointSlice:
						objects.Slices = append(objects.Slices, object)
					case *corev1.Service:
						objects.Services = append(objects.Services, object)
					}
				}
				for _, slice := range objects.Slices {
					if slices.ContainsFunc(slice.Ports, func(p discoveryv1.EndpointPort) bool { return p.Port == nil }) {
						n.unnumbered++
					}
				}
				for _, svc := range objects.Services {
					for _, text := range svc.Spec.LoadBalancerSourceRanges {
						if r, ok := sim.ParsePrefix(text); ok && r.Bits() == 0 {
							n.open++
						} else if ok && r.Masked().String() != text {
							n.spelled++
						}
					}
					for _, ingress := range svc.Status.LoadBalancer.Ingress {
						if ptr.Deref(ingress.IPMode, "") == corev1.LoadBalancerIPModeProxy {
							n.proxies++
						}
					}
				}
			}
		}
		return n
	}
	if n := count(robust - 1); n != (counts{}) {
		t.Errorf("old: %+v", n)
	}
	if n := count(openRanges - 1); n.primary*n.unnumbered*n.spelled*n.proxies == 0 || n.open > 0 {
		t.Errorf("not so old: %+v", n)
	}
	if n := count(0); n.primary*n.unnumbered*n.spelled*n.proxies*n.open == 0 {
		t.Errorf("new: %+v", n)
	}
}
