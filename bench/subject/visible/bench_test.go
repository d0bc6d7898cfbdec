package visible

import (
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"synclab/bench/lab/netns"
	"synclab/bench/mirror"
	"synclab/proxier"
	"synclab/proxier/config"
	"synclab/proxier/iptables"
	"synclab/proxier/tracker"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/api"
	"synclab/sim/world"
)

// BenchmarkRulesetReader measures the cost of watching, by reader and size of the ruleset. Poll runs a thousand times a
// second while anything is pending. Snapshot starts each read after a commit (in variant legacy it copies the table). Port
// is one lookup in it. Shared is the extra cost of the first Dispatched of a Snapshot. Installing 10,000 Services takes up
// to half a minute on an idle machine.
func BenchmarkRulesetReader(b *testing.B) {
	for _, name := range []string{IptablesLegacy, IptablesNft, Nftables} {
		b.Run(fmt.Sprintf("reader=%s/services=%d/endpoints=10", name, *servicesFlag), func(b *testing.B) {
			netns.Fresh(b)
			objects := clusterOf(b, *servicesFlag)
			install(b, name, objects)
			d, err := NewRulesetReader(name, bothFamilies[:1])
			if err != nil {
				b.Fatal(err)
			}
			defer d.Close()
			benchmarkRulesetReader(b, d, objects)
		})
	}
}

var servicesFlag = flag.Int("services", 1000, "Services of BenchmarkRulesetReader")

func benchmarkRulesetReader(b *testing.B, d RulesetReader, objects *sim.Objects) {
	measure(b, "Poll", func(int) error {
		_, err := d.Generation()
		return err
	})
	measure(b, "Look", func(int) error {
		look, err := d.Look()
		if err == nil {
			look.Close()
		}
		return err
	})
	look, err := d.Look()
	if err != nil {
		b.Fatal(err)
	}
	defer look.Close()
	measure(b, "Port", func(i int) error {
		s, err := look.Port(corev1.IPv4Protocol, portOf(objects.Services[i%len(objects.Services)]))
		if err == nil && len(s.Cluster) != 10 {
			err = fmt.Errorf("%d endpoints", len(s.Cluster))
		}
		return err
	})
	measure(b, "Shared", func(int) error {
		if l, ok := look.(*chainLook); ok {
			clear(l.dispatch)
		}
		cluster, _, err := look.Dispatched(corev1.IPv4Protocol, portOf(objects.Services[0]))
		if err == nil && !cluster {
			err = errors.New("not dispatched")
		}
		return err
	})
}

// measure also reports CPU time, which does not depend on other work of the machine.
func measure(b *testing.B, name string, do func(i int) error) {
	b.Run(name, func(b *testing.B) {
		before := cpuTime(b)
		for i := 0; b.Loop(); i++ {
			if err := do(i); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
	})
}

func portOf(svc *corev1.Service) tracker.ServicePortName {
	name := tracker.ServicePortName{PortKey: tracker.PortKey{Name: svc.Spec.Ports[0].Name, Protocol: svc.Spec.Ports[0].Protocol}}
	name.Namespace, name.NamespacedName.Name = svc.Namespace, svc.Name
	return name
}

func clusterOf(b *testing.B, services int) *sim.Objects {
	b.Helper()
	world, err := world.NewWorld(scenarios.Shape{Services: services, Endpoints: scenarios.Endpoints{Count: 10}}, 1)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := world.Create(scenarios.Create{}); err != nil {
		b.Fatal(err)
	}
	return world.Objects()
}

// install writes a subject's rules for the objects.
func install(b *testing.B, reader string, objects *sim.Objects) {
	b.Helper()
	if reader == Nftables {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(kubeProxyRules(objects))
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Skipf("nft: %v\n%s", err, out)
		}
		return
	}
	variant := iptables.Legacy
	if reader == IptablesNft {
		variant = iptables.Nft
	}
	if _, err := exec.LookPath(iptables.Binary(variant, corev1.IPv4Protocol, "restore")); err != nil {
		b.Skip(err)
	}
	cluster := api.NewCluster(clock.RealClock{})
	defer cluster.Stop()
	p, err := proxier.New(proxier.Options{Config: config.New(), Variant: variant})
	if err != nil {
		b.Fatal(err)
	}
	if err := cluster.Load(b.Context(), objects); err != nil {
		b.Fatal(err)
	}
	if err := p.Watch(b.Context(), cluster.Informers()); err != nil {
		b.Fatal(err)
	}
	if err := p.SyncNow(b.Context(), ""); err != nil {
		b.Fatal(err)
	}
}

// kubeProxyRules returns rules in kube-proxy's format: the Services' chains, and the map that refers to them.
func kubeProxyRules(o *sim.Objects) string {
	endpoints := map[string][]string{}
	for _, s := range o.Slices {
		name := s.Namespace + "/" + s.Labels["kubernetes.io/service-name"]
		for _, ep := range s.Endpoints {
			endpoints[name] = append(endpoints[name], fmt.Sprintf("%d : %s . %d", len(endpoints[name]), ep.Addresses[0], *s.Ports[0].Port))
		}
	}
	var t strings.Builder
	t.WriteString("table ip kube-proxy {\n")
	var elements []string
	for _, svc := range o.Services {
		chain := clusterPrefix + portBase(portOf(svc))
		protocol := strings.ToLower(string(svc.Spec.Ports[0].Protocol))
		list := endpoints[svc.Namespace+"/"+svc.Name]
		fmt.Fprintf(&t, "chain %s {\nmeta l4proto %s dnat ip addr . port to numgen random mod %d map { %s }\n}\n",
			chain, protocol, len(list), strings.Join(list, ", "))
		elements = append(elements, fmt.Sprintf("%s . %s . %d : goto %s", svc.Spec.ClusterIP, protocol, svc.Spec.Ports[0].Port, chain))
	}
	fmt.Fprintf(&t, `map service-ips {
type ipv4_addr . inet_proto . inet_service : verdict
elements = { %s }
}
chain services {
ip daddr . meta l4proto . th dport vmap @service-ips
}
chain nat-prerouting {
type nat hook prerouting priority dstnat; policy accept;
jump services
}
}
`, strings.Join(elements, ",\n"))
	return t.String()
}

// BenchmarkPolling measures a Watcher that waits for a port that never arrives: CPU time for each second, with timers.
func BenchmarkPolling(b *testing.B) {
	for _, name := range []string{IptablesLegacy, IptablesNft, ""} {
		b.Run("reader="+name, func(b *testing.B) {
			netns.Fresh(b)
			objects := clusterOf(b, 10)
			install(b, IptablesLegacy, objects)
			w, err := New(Options{RulesetReader: name})
			if err != nil {
				b.Fatal(err)
			}
			defer w.Close()
			s := slice("never", "1")
			w.Changed(mirror.Change{Op: sim.Add, Object: s, Due: time.Time{}})
			w.Changed(mirror.Change{Op: sim.Add, Object: service("never"), Due: time.Now()})
			before := cpuTime(b)
			for b.Loop() {
				time.Sleep(time.Second)
			}
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

func cpuTime(b *testing.B) time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
