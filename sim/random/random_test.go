package random

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"synclab/sim"
	"synclab/sim/manifests"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilnet "k8s.io/utils/net"
)

// written returns all states of a cluster, as text.
func written(t *testing.T, seed uint64, steps int) string {
	t.Helper()
	c := New(Options{Seed: seed})
	var b bytes.Buffer
	if err := manifests.WriteObjects(&b, c.Objects()); err != nil {
		t.Fatal(err)
	}
	for range steps {
		for _, change := range c.Next() {
			fmt.Fprintf(&b, "%s %s %+v\n", change.Op, sim.KindAndName(change.Object), change.Object)
		}
	}
	if err := manifests.WriteObjects(&b, c.Objects()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestRandomClusterIsDeterministic(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	for seed := range uint64(20) {
		if first, again := written(t, seed, 5), written(t, seed, 5); first != again {
			t.Fatalf("seed %d gave two clusters", seed)
		}
	}
	if written(t, 1, 0) == written(t, 2, 0) {
		t.Error("two seeds gave the same cluster")
	}
}

// Objects that an API server refuses are useless here. It keeps old spellings of addresses, though.
func TestRandomClusterIsValid(t *testing.T) {
	check := func(seed uint64, o *sim.Objects) {
		var errs field.ErrorList
		for _, svc := range o.Services {
			errs = append(errs, sim.CheckService(svc, nil)...)
		}
		for _, s := range o.Slices {
			errs = append(errs, sim.CheckEndpointSlice(s, nil)...)
		}
		for _, n := range o.Nodes {
			errs = append(errs, sim.CheckNode(n, nil)...)
		}
		for _, err := range errs {
			text, _ := err.BadValue.(string)
			if strings.HasPrefix(err.Field, "spec.podCIDRs") {
				t.Errorf("seed %d: %v", seed, err)
			}
			_, _, cidr := utilnet.ParseCIDRSloppy(strings.TrimSpace(text))
			if utilnet.ParseIPSloppy(text) == nil && cidr != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		}
	}
	for seed := range uint64(200) {
		c := New(Options{Seed: seed})
		check(seed, c.Objects())
		for range 4 {
			c.Next()
		}
		check(seed, c.Objects())
	}
}

// A trace is the whole difference between two states, each change fits the state before, and no object is written to.
// Over days, objects come and go, and names do not run out.
func TestRandomClusterStaysSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	c := New(Options{Seed: 1})
	for range 20_000 {
		c.Next()
		if o := c.Objects(); len(o.Services) > mostServices || len(o.Slices) > mostSlices+10 {
			t.Fatalf("%d Services, %d EndpointSlices", len(o.Services), len(o.Slices))
		}
	}
}

func TestRandomClusterTrace(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	for seed := range uint64(50) {
		c := New(Options{Seed: seed})
		text := func(o any) string { return fmt.Sprintf("%+v", o) }
		all := func(o *sim.Objects) map[string]string {
			m := map[string]string{}
			for _, s := range o.Services {
				m[sim.KindAndName(s)] = text(s)
			}
			for _, s := range o.Slices {
				m[sim.KindAndName(s)] = text(s)
			}
			for _, n := range o.Nodes {
				m[sim.KindAndName(n)] = text(n)
			}
			return m
		}
		state := all(c.Objects())
		for range 20 {
			for _, change := range c.Next() {
				name := sim.KindAndName(change.Object)
				_, there := state[name]
				if there == (change.Op == sim.Add) {
					t.Fatalf("seed %d: %s %s: was there: %t", seed, change.Op, name, there)
				}
				if change.Op == sim.Delete {
					delete(state, name)
				} else {
					state[name] = text(change.Object)
				}
			}
			for name, want := range all(c.Objects()) {
				if state[name] != want {
					t.Fatalf("seed %d: %s differs from what the traces say", seed, name)
				}
				delete(state, name)
			}
			if len(state) > 0 {
				t.Fatalf("seed %d: traces leave %v", seed, state)
			}
			state = all(c.Objects())
		}
	}
}

// surface names the features that the API allows and a proxier reads.
func surface(o *sim.Objects) map[string]bool {
	found := map[string]bool{}
	addresses := map[string]int{}
	for _, svc := range o.Services {
		s := &svc.Spec
		found["type "+string(s.Type)] = true
		found["headless"] = found["headless"] || s.ClusterIP == corev1.ClusterIPNone
		found["no selector"] = found["no selector"] || len(s.Selector) == 0
		found[fmt.Sprint("ports ", len(s.Ports))] = true
		found[fmt.Sprint("families ", s.IPFamilies)] = true
		_, foreign := svc.Labels[labelProxyName]
		found["foreign proxy"] = found["foreign proxy"] || foreign
		found["long name"] = found["long name"] || len(svc.Name) == 63 && len(svc.Namespace) == 63
		found["not ready addresses"] = found["not ready addresses"] || s.PublishNotReadyAddresses
		found["affinity"] = found["affinity"] || s.SessionAffinity == corev1.ServiceAffinityClientIP
		found["distribution"] = found["distribution"] || s.TrafficDistribution != nil
		found["internal local"] = found["internal local"] || s.InternalTrafficPolicy != nil && *s.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal
		found["external local"] = found["external local"] || s.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
		found["health check"] = found["health check"] || s.HealthCheckNodePort != 0
		found["no node ports"] = found["no node ports"] || s.AllocateLoadBalancerNodePorts != nil && !*s.AllocateLoadBalancerNodePorts
		for _, port := range s.Ports {
			found["protocol "+string(port.Protocol)] = true
			found["long port"] = found["long port"] || len(port.Name) == 63
		}
		for _, ip := range s.ExternalIPs {
			addresses[ip]++
			found["shared external IP"] = found["shared external IP"] || addresses[ip] > 1
			found["old spelling"] = found["old spelling"] || strings.Contains(ip, ".00")
		}
		for _, ingress := range svc.Status.LoadBalancer.Ingress {
			found["ingress"] = true
			found["ingress host"] = found["ingress host"] || ingress.IP == ""
			found["ingress without mode"] = found["ingress without mode"] || ingress.IP != "" && ingress.IPMode == nil
			found["ingress proxy"] = found["ingress proxy"] || ingress.IPMode != nil && *ingress.IPMode == corev1.LoadBalancerIPModeProxy
		}
		for _, r := range s.LoadBalancerSourceRanges {
			found["range "+r] = true
		}
	}
	for _, s := range o.Slices {
		found["addresses "+string(s.AddressType)] = true
		found[fmt.Sprint("slice ports ", min(len(s.Ports), 3))] = true
		_, owned := s.Labels[discoveryv1.LabelServiceName]
		found["stray slice"] = found["stray slice"] || !owned
		found["headless slice"] = found["headless slice"] || has(s.Labels, corev1.IsHeadlessService)
		for _, p := range s.Ports {
			found["port without number"] = found["port without number"] || p.Port == nil
		}
		for _, ep := range s.Endpoints {
			c := ep.Conditions
			found[fmt.Sprint("conditions ", three(c.Ready), three(c.Serving), three(c.Terminating))] = true
			found["no node"] = found["no node"] || ep.NodeName == nil
			if ep.Hints != nil {
				found[fmt.Sprint("hints ", len(ep.Hints.ForZones) > 0, len(ep.Hints.ForNodes) > 0)] = true
			}
		}
	}
	return found
}

func has(labels map[string]string, name string) bool { _, ok := labels[name]; return ok }

func three(b *bool) string {
	if b == nil {
		return "?"
	}
	return fmt.Sprint(*b)
}

func TestRandomClustersCoverTheAPI(t *testing.T) {
	want := []string{
		"type ClusterIP", "type NodePort", "type LoadBalancer", "type ExternalName", "headless", "no selector",
		"ports 0", "ports 1", "ports 2", "ports 3", "ports 4", "ports 5", "families []", "families [IPv4]", "families [IPv6]",
		"families [IPv4 IPv6]", "families [IPv6 IPv4]", "foreign proxy", "long name", "long port", "not ready addresses", "affinity",
		"distribution", "internal local", "external local", "health check", "no node ports", "protocol TCP", "protocol UDP", "protocol SCTP",
		"shared external IP", "old spelling", "ingress", "ingress host", "ingress without mode", "ingress proxy",
		"range 0.0.0.0/0", "range ::/0", "range  198.51.100.0/25", "range " + RandomNode4 + "/32", "addresses IPv4", "addresses IPv6", "addresses FQDN",
		"slice ports 0", "slice ports 3", "stray slice", "headless slice", "port without number", "no node",
		"hints true false", "hints false true", "hints true true",
	}
	for _, ready := range []string{"?", "true", "false"} {
		for _, serving := range []string{"?", "true", "false"} {
			for _, terminating := range []string{"?", "true", "false"} {
				want = append(want, "conditions "+ready+serving+terminating)
			}
		}
	}
	seen := map[string]int{}
	for seed := range uint64(300) {
		for feature, there := range surface(New(Options{Seed: seed}).Objects()) {
			if there {
				seen[feature]++
			}
		}
	}
	for _, feature := range want {
		if seen[feature] < 3 {
			t.Errorf("%q occurs in %d of 300 clusters: want at least 3", feature, seen[feature])
		}
	}
	if families := New(Options{Families: []corev1.IPFamily{corev1.IPv6Protocol}}).families; !slices.Equal(families, []corev1.IPFamily{corev1.IPv6Protocol}) {
		t.Errorf("families %v", families)
	}
}
