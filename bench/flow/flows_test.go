package flow

import (
	"context"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"synclab/bench/netns"
	"synclab/bench/pass"
	"synclab/bench/rig"
	"synclab/bench/subject"
	"synclab/bench/traffic"
	"synclab/scenarios"
)

// Real rules spread new flows of a client pod over the endpoints of their Service, and over no others.
func TestFlowsAreSpread(t *testing.T) {
	for _, name := range []string{"synclab/nftables", "synclab/iptables-legacy-tree"} {
		t.Run(name, func(t *testing.T) {
			about, err := subject.Parse(name)
			if err != nil || about.Available() != nil {
				t.Skipf("%v %v", err, about.Available())
			}
			netns.Fresh(t)
			world := rig.World(t, scenarios.Shape{Services: 50, Protocols: map[string]float64{"UDP": 0.3}})
			made := rig.New(t, world, about, nil)
			r := &Flows{Env: &pass.Env{Lab: &netns.Lab{}, World: world, Families: []corev1.IPFamily{corev1.IPv4Protocol}}}
			r.Scenario = scenarios.Scenario{Shape: scenarios.Shape{PodCIDRs: []string{"10.128.0.0/9"}}}
			r.FindNode()
			if err := r.ConnectPods(world.Objects(), pass.Sinks(r.Scenario.Shape, world.Objects(), r.Families)); err != nil {
				t.Fatal(err)
			}
			made.Sync(t)
			if err := r.StartPods(context.Background()); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}()
			var targets []traffic.Target
			for at, name := range portsByAddress(world.Objects().Services, corev1.IPv4Protocol) {
				if len(targets) < 2 && (len(targets) == 0 || targets[0].Protocol != at.protocol) {
					targets = append(targets, traffic.Target{Service: name, Family: corev1.IPv4Protocol, Protocol: at.protocol, Addr: at.addr})
				}
			}
			const flows = 100 * rig.Endpoints // of each
			reached := []map[netip.AddrPort]int{{}, {}}
			done := make(chan struct{})
			n := 0
			err = r.pods.Begin(traffic.Stream{Rate: 1000, Targets: targets, Clients: r.Clients, Seed: 1}, func(result traffic.Result) {
				if n++; n <= flows*2 {
					reached[result.Target][result.By]++
				}
				if n == flows*2 {
					close(done)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			<-done
			if err := r.pods.End(); err != nil {
				t.Fatal(err)
			}
			for i, counts := range reached {
				if len(counts) != rig.Endpoints {
					t.Errorf("%s %s: reached %v, want %d endpoints", targets[i].Protocol, targets[i].Service, counts, rig.Endpoints)
				}
				for by, count := range counts {
					if count < 40 || count > 180 { // 100 ± six standard deviations
						t.Errorf("%s %s: %s was reached %d times of %d", targets[i].Protocol, targets[i].Service, by, count, flows)
					}
				}
			}
		})
	}
}

// Pods answer on a port once it is known, and each port is reported once.
func TestPortsAreListenedOn(t *testing.T) {
	r := &Flows{Env: &pass.Env{Families: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}}}
	slice := &discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{{Port: ptr.To[int32](80)}, {Port: ptr.To[int32](80)}, {}}}
	if n := len(r.newPorts(slice)); n != 4 {
		t.Errorf("%d ports of one number, want 4: two families, two protocols", n)
	}
	slice.Ports[0].Port = ptr.To[int32](81)
	if ports := r.newPorts(slice); len(ports) != 4 || ports[0].Number != 81 {
		t.Errorf("new ports %v, want those of 81", ports)
	}
	if ports := r.newPorts(slice); len(ports) != 0 {
		t.Errorf("reported again: %v", ports)
	}
}
