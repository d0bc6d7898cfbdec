package world

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"synclab/internal/inet"
	"synclab/scenarios"
	"synclab/sim"
)

// mixed is a shape with some of everything.
func mixed(services int, families ...string) scenarios.Shape {
	return scenarios.Shape{
		Services:  services,
		Nodes:     7,
		Ports:     2,
		Families:  families,
		Endpoints: scenarios.Endpoints{Distribution: "uniform", Min: 0, Max: 240},
		Types:     map[string]float64{"NodePort": 0.2, "LoadBalancer": 0.3, "Headless": 0.1, "ExternalName": 0.1},
		Protocols: map[string]float64{"UDP": 0.2, "SCTP": 0.1},

		ExternalIPs: 0.2, SourceRanges: 0.5, Affinity: 0.3, InternalLocal: 0.2, ExternalLocal: 0.4,
		WithoutEndpoint: 0.1, NotReady: 0.1, Terminating: 0.1, TopologyHints: 0.3,
	}
}

func generate(t *testing.T, shape scenarios.Shape, seed uint64) *sim.Objects {
	t.Helper()
	o, err := Generate(shape, seed)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func asJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGenerateIsDeterministic(t *testing.T) {
	one := asJSON(t, generate(t, mixed(60, "IPv4", "IPv6"), 7))
	if !bytes.Equal(one, asJSON(t, generate(t, mixed(60, "IPv4", "IPv6"), 7))) {
		t.Error("the same seed gives different objects")
	}
	if bytes.Equal(one, asJSON(t, generate(t, mixed(60, "IPv4", "IPv6"), 8))) {
		t.Error("another seed gives the same objects")
	}
}

func TestGenerateKeepsServicesWhenMoreFollow(t *testing.T) {
	large := map[string][]byte{}
	o := generate(t, mixed(90, "IPv4"), 7)
	for _, s := range o.Services {
		large[s.Name] = asJSON(t, s)
	}
	for _, s := range o.Slices {
		large[s.Name] = asJSON(t, s)
	}
	o = generate(t, mixed(40, "IPv4"), 7)
	for _, s := range o.Services {
		if diff := cmp.Diff(string(asJSON(t, s)), string(large[s.Name])); diff != "" {
			t.Fatalf("service %s differs among 40 and 90 (-40 +90):\n%s", s.Name, diff)
		}
	}
	for _, s := range o.Slices {
		if !bytes.Equal(asJSON(t, s), large[s.Name]) {
			t.Fatalf("slice %s differs among 40 and 90", s.Name)
		}
	}
}

// TestGeneratedObjectsAreValid checks generated objects with the API's defaulting and validation.
func TestGeneratedObjectsAreValid(t *testing.T) {
	for _, families := range [][]string{{"IPv4"}, {"IPv6"}, {"IPv4", "IPv6"}} {
		t.Run(strings.Join(families, "+"), func(t *testing.T) {
			o := generate(t, mixed(100, families...), 3)
			for _, s := range o.Services {
				defaulted := s.DeepCopy()
				sim.DefaultService(defaulted)
				if diff := cmp.Diff(s, defaulted); diff != "" {
					t.Fatalf("%s lacks a default (-generated +defaulted):\n%s", s.Name, diff)
				}
				if errs := sim.CheckService(s, nil); len(errs) > 0 {
					t.Fatalf("%s: %v", s.Name, errs.ToAggregate())
				}
			}
			for _, s := range o.Slices {
				defaulted := s.DeepCopy()
				sim.DefaultEndpointSlice(defaulted)
				if diff := cmp.Diff(s, defaulted); diff != "" {
					t.Fatalf("%s lacks a default (-generated +defaulted):\n%s", s.Name, diff)
				}
				if errs := sim.CheckEndpointSlice(s, nil); len(errs) > 0 {
					t.Fatalf("%s: %v", s.Name, errs.ToAggregate())
				}
			}
		})
	}
}

// checkInvariants checks what must be true in every state of every world.
func checkInvariants(t *testing.T, o *sim.Objects) {
	t.Helper()
	owner := map[string]string{}
	claim := func(what, by string) {
		if other, ok := owner[what]; ok {
			t.Fatalf("%s has %s, and so has %s", by, what, other)
		}
		owner[what] = by
	}
	services := map[string]*corev1.Service{}
	for _, s := range o.Services {
		services[s.Namespace+"/"+s.Name] = s
		if s.UID != "" {
			claim("UID "+string(s.UID), s.Name)
		}
		for _, a := range s.Spec.ClusterIPs {
			if a != corev1.ClusterIPNone {
				claim("address "+a, s.Name)
			}
		}
		for _, a := range s.Spec.ExternalIPs {
			claim("address "+a, s.Name)
		}
		for _, in := range s.Status.LoadBalancer.Ingress {
			claim("address "+in.IP, s.Name)
		}
		ports := []int32{s.Spec.HealthCheckNodePort}
		for _, p := range s.Spec.Ports {
			ports = append(ports, p.NodePort)
		}
		for _, p := range ports {
			if p != 0 {
				claim(fmt.Sprintf("node port %d", p), s.Name)
			}
		}
	}
	sliced := map[string]bool{}
	for _, s := range o.Slices {
		svc := services[s.Namespace+"/"+s.Labels[discoveryv1.LabelServiceName]]
		if svc == nil {
			t.Fatalf("slice %s/%s has no Service", s.Namespace, s.Name)
		}
		sliced[svc.Name] = true
		claim("name "+s.Namespace+"/"+s.Name, "slice "+s.Name)
		if len(s.Endpoints) > maxEndpointsPerSlice || (len(s.Ports) == 0) != (len(s.Endpoints) == 0) {
			t.Fatalf("slice %s has %d endpoints and %d ports", s.Name, len(s.Endpoints), len(s.Ports))
		}
		for _, e := range s.Endpoints {
			addr := netip.MustParseAddr(e.Addresses[0])
			by := "a pod without a name"
			if e.TargetRef != nil {
				by = e.TargetRef.Name
			}
			if strings.HasPrefix(by, "shared-") { // many Services may have the pod, each once
				claim("address "+addr.String()+" in "+svc.Name, by)
				if other, ok := owner["address "+addr.String()]; ok && other != by {
					t.Fatalf("%s and %s have %s", other, by, addr)
				}
				owner["address "+addr.String()] = by
			} else {
				claim("address "+addr.String(), by)
			}
			if string(s.AddressType) != string(inet.FamilyOf(addr)) {
				t.Fatalf("slice %s of %s has %s", s.Name, s.AddressType, addr)
			}
			if last := addr.AsSlice()[len(addr.AsSlice())-1]; last == 0 || last == 255 {
				t.Fatalf("pod %s has %s", by, addr)
			}
			if *e.Conditions.Ready && (*e.Conditions.Terminating || !*e.Conditions.Serving) {
				t.Fatalf("pod %s is ready, but terminating %v, serving %v", by, *e.Conditions.Terminating, *e.Conditions.Serving)
			}
		}
	}
	for _, s := range o.Services {
		if s.Spec.Type != corev1.ServiceTypeExternalName && !sliced[s.Name] {
			t.Fatalf("service %s has no slice, not even an empty one", s.Name)
		}
	}
}

func TestGeneratedObjectsShareNothing(t *testing.T) {
	for _, families := range [][]string{{"IPv4"}, {"IPv6"}, {"IPv6", "IPv4"}} {
		checkInvariants(t, generate(t, mixed(120, families...), 11))
	}
}

// TestSharesAreExact: the traits of few Services already have their shares, and every kind that the shape requests
// occurs.
func TestSharesAreExact(t *testing.T) {
	const n = 200
	o := generate(t, mixed(n, "IPv4"), 5)
	count := map[string]int{}
	for _, s := range o.Services {
		kind := string(s.Spec.Type)
		if s.Spec.ClusterIP == corev1.ClusterIPNone {
			kind = "Headless"
		}
		count[kind]++
		count["affinity"] += one(s.Spec.SessionAffinityConfig != nil)
		count["ranges"] += one(len(s.Spec.LoadBalancerSourceRanges) > 0)
		count["health"] += one(s.Spec.HealthCheckNodePort != 0)
		count["external"] += one(len(s.Spec.ExternalIPs) > 0)
		count["hints"] += one(s.Spec.TrafficDistribution != nil)
		if len(s.Spec.Ports) > 0 {
			count[string(s.Spec.Ports[0].Protocol)]++
		}
	}
	for what, want := range map[string]int{
		"NodePort": 40, "LoadBalancer": 60, "Headless": 20, "ExternalName": 20, "ClusterIP": 60,
		"affinity": 48, "ranges": 30, "health": 24, "external": 32, "hints": 54,
		"UDP": 36, "SCTP": 18, "TCP": 126,
	} {
		if got := count[what]; got < want-5 || got > want+5 {
			t.Errorf("%d of %d Services with %s, want about %d", got, n, what, want)
		}
	}
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func TestEndpointCounts(t *testing.T) {
	tests := []struct {
		name           string
		spec           scenarios.Endpoints
		total          int // for 1,000 Services
		least, most    int
		tenLargest     int // endpoints of the ten largest Services, at least
		servicesAtMost int // Services with the smallest count, at least
	}{
		{"fixed", scenarios.Endpoints{Distribution: "fixed", Count: 10}, 10_000, 10, 10, 100, 1000},
		{"uniform", scenarios.Endpoints{Distribution: "uniform", Min: 5, Max: 15}, 10_000, 5, 15, 150, 80},
		{"zipf", scenarios.Endpoints{Distribution: "zipf", Count: 10, Max: 1000, Skew: 1.5}, 10_000, 1, 1000, 2500, 100},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := newEndpointCounts(tt.spec)
			if err != nil {
				t.Fatal(err)
			}
			total, least, most, smallest := 0, 1<<30, 0, 0
			for i := range 1000 {
				n := c.of(draw(42, traitEndpoints, i))
				total += n
				least, most = min(least, n), max(most, n)
				smallest += one(n == tt.least)
			}
			if total < tt.total*95/100 || total > tt.total*105/100 {
				t.Errorf("%d endpoints, want %d ± 5 %%", total, tt.total)
			}
			if least != tt.least || most > tt.most || most*10 < tt.tenLargest {
				t.Errorf("%d to %d endpoints a Service, want %d to at most %d", least, most, tt.least, tt.most)
			}
			if smallest < tt.servicesAtMost {
				t.Errorf("%d Services have %d endpoints, want at least %d", smallest, tt.least, tt.servicesAtMost)
			}
		})
	}
}

func TestGenerateRefuses(t *testing.T) {
	tests := []struct {
		shape scenarios.Shape
		want  string
	}{
		{scenarios.Shape{Services: 3000, Types: map[string]float64{"NodePort": 1}}, "node ports: all 2768"},
		{scenarios.Shape{Services: 300, ServiceCIDRs: []string{"10.0.0.0/24"}}, "service range 10.0.0.0/24: all 254 usable addresses are in use"},
		{scenarios.Shape{Services: 300, PodCIDRs: []string{"10.0.0.0/24"}}, "pod range 10.0.0.0/24"},
		{scenarios.Shape{Services: 1, Families: []string{"IPv6"}, PodCIDRs: []string{"10.0.0.0/8"}}, "no IPv6 range"},
		{scenarios.Shape{Services: 1, Families: []string{"IPv5"}}, "families"},
		{scenarios.Shape{Services: 1, Types: map[string]float64{"Ingress": 1}}, `unknown type "Ingress"`},
		{scenarios.Shape{Services: 1, Protocols: map[string]float64{"QUIC": 1}}, `unknown protocol "QUIC"`},
		{scenarios.Shape{Services: -1}, "services is -1"},
		{scenarios.Shape{Services: 1, PodCIDRs: []string{"10.96.0.0/16"}}, "overlap"},
		{scenarios.Shape{Services: 1, Endpoints: scenarios.Endpoints{Distribution: "zipf", Count: 60, Max: 100}}, "zipf"},
	}
	for _, tt := range tests {
		_, err := Generate(tt.shape, 1)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: error %v, want one with %q", tt.shape, err, tt.want)
		}
	}
}

func TestNodes(t *testing.T) {
	o := generate(t, scenarios.Shape{Services: 20, Nodes: 5, Zones: 2, Families: []string{"IPv4", "IPv6"}}, 1)
	ranges := map[string][]netip.Prefix{}
	zones := map[string]string{}
	for _, n := range o.Nodes {
		zones[n.Name] = n.Labels[corev1.LabelTopologyZone]
		for _, c := range n.Spec.PodCIDRs {
			ranges[n.Name] = append(ranges[n.Name], netip.MustParsePrefix(c))
		}
	}
	if len(zones) != 5 || zones["node-0"] != "zone-0" || zones["node-1"] != "zone-1" {
		t.Errorf("zones of nodes: %v", zones)
	}
	perNode := map[string]int{}
	for _, s := range o.Slices {
		for _, e := range s.Endpoints {
			perNode[*e.NodeName]++
			if *e.Zone != zones[*e.NodeName] {
				t.Errorf("pod %s on %s has zone %s", e.TargetRef.Name, *e.NodeName, *e.Zone)
			}
			addr := netip.MustParseAddr(e.Addresses[0])
			if r := ranges[*e.NodeName]; !r[0].Contains(addr) && !r[1].Contains(addr) {
				t.Errorf("pod %s has %s, %s has %v", e.TargetRef.Name, addr, *e.NodeName, r)
			}
		}
	}
	for i := range 5 {
		if got := perNode[fmt.Sprintf("node-%d", i)]; got != 2*20*10/5 {
			t.Errorf("node-%d has %d endpoints, want its share, 80", i, got)
		}
	}
}
