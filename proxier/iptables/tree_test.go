package iptables

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/verify/walk"
	"synclab/proxier/backend"
	"synclab/proxier/iptables/rule"
	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// serving returns a planned Service port with an endpoint and a cluster IP, for some with a NodePort and other
// addresses.
func serving(i int, rng *rand.Rand, addr func(base, i int) netip.Addr) *plan.ServicePort {
	endpoint := &tracker.Endpoint{Addr: netip.AddrPortFrom(addr(2, i), 8080)}
	endpoint.Text = endpoint.Addr.String()
	port := &plan.ServicePort{
		ServicePort:  &tracker.ServicePort{Name: portName("ns", fmt.Sprintf("svc-%d", i), "", corev1.ProtocolTCP), ClusterIP: addr(0, i), Port: 80},
		HasEndpoints: true, Cluster: []*tracker.Endpoint{endpoint}, Reachable: []*tracker.Endpoint{endpoint},
	}
	if i%2 == 1 {
		port.Name.Protocol = corev1.ProtocolUDP
	}
	if i%10 == 0 {
		port.NodePort = uint16(1 + i%65535)
		port.LoadBalancerVIPs = []netip.Addr{addr(1, i)}
		port.ExternalIPs = []netip.Addr{addr(1, rng.IntN(20))} // few addresses with many ports
		port.Port = uint16(1 + i/10)
	}
	return port
}

// treeAddresses by base: 0 for cluster IPs, 1 for load balancers and external IPs, 2 for endpoints.
var treeAddresses = map[string]func(rng *rand.Rand) func(base, i int) netip.Addr{
	"IPv4, sequential": func(*rand.Rand) func(base, i int) netip.Addr {
		return func(base, i int) netip.Addr {
			return netip.AddrFrom4([4]byte{10 + byte(base), byte(i >> 16), byte(i >> 8), byte(i)})
		}
	},
	"IPv4, random in a /12": func(rng *rand.Rand) func(base, i int) netip.Addr {
		places := rng.Perm(1 << 20)
		return func(base, i int) netip.Addr {
			n := places[i]
			return netip.AddrFrom4([4]byte{10 + byte(base), 96 + byte(n>>16), byte(n >> 8), byte(n)})
		}
	},
	"IPv6, random in a /108": func(rng *rand.Rand) func(base, i int) netip.Addr {
		places := rng.Perm(1 << 20)
		return func(base, i int) netip.Addr {
			n := places[i]
			return netip.AddrFrom16([16]byte{0: 0xfd, 1: byte(base), 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)})
		}
	},
}

// The rule evaluator counts the rules that a packet crosses from the built-in chain on. They are at most 48 for any
// destination of 50,000 Services: cluster IP, external IP, load balancer or NodePort.
func TestTreeDispatch(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	for name, makeAddresses := range treeAddresses {
		for _, n := range []int{1000, 10_000, 50_000} {
			if testing.Short() && n > 1000 {
				continue
			}
			t.Run(fmt.Sprintf("%s/services=%d", name, n), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(1, uint64(n)))
				addr := makeAddresses(rng)
				family, node := corev1.IPv4Protocol, netip.MustParseAddr("172.18.0.2")
				if addr(0, 0).Is6() {
					family, node = corev1.IPv6Protocol, netip.MustParseAddr("fd77::2")
				}
				s := newSettings(backend.Settings{Family: family, MasqueradeBit: 14}, Tree)
				layout := newTree()
				var all []*Rendered
				for i := range n {
					all = append(all, s.render(serving(i, rng, addr)))
					layout.change(nil, all[i])
				}
				rules, err := walk.ParseIptables(family, natText(&s, layout, all))
				if err != nil {
					t.Fatal(err)
				}
				walker := walk.New(rules, walk.NodeAddresses{Local: []netip.Addr{node}})
				most, sum, count := map[string]int{}, map[string]int{}, map[string]int{}
				cross := func(what string, port *plan.ServicePort, to netip.Addr, number uint16) {
					protocol := walk.TCP
					if port.Name.Protocol == corev1.ProtocolUDP {
						protocol = walk.UDP
					}
					verdict, err := walker.Walk(&walk.Packet{Input: "eth0", Protocol: protocol,
						Source: netip.AddrPortFrom(addr(3, 0), 40000), Destination: netip.AddrPortFrom(to, number)})
					if err != nil {
						t.Fatal(err)
					}
					most[what] = max(most[what], verdict.Crossed.Dispatch)
					sum[what] += verdict.Crossed.Dispatch
					count[what]++
				}
				for _, r := range all {
					cross("cluster IP", r.port, r.port.ClusterIP, r.port.Port)
					for _, ip := range slices.Concat(r.port.LoadBalancerVIPs, r.port.ExternalIPs) {
						cross("external", r.port, ip, r.port.Port)
					}
					if r.port.NodePort != 0 {
						cross("NodePort", r.port, node, r.port.NodePort)
					}
					cross("miss", r.port, r.port.ClusterIP, r.port.Port+1)
				}
				for what, rules := range most {
					t.Logf("%s: at most %d rules, mean %.1f", what, rules, float64(sum[what])/float64(count[what]))
					if rules > 48 {
						t.Errorf("%s: %d rules crossed", what, rules)
					}
				}
				frontends, miss := layout.frontends(all)
				if last := frontends[len(frontends)-1]; len(frontends) != n || last.Position+1 != most["cluster IP"] {
					t.Errorf("%d frontends, the last after %d rules of KUBE-SERVICES", len(frontends), last.Position)
				}
				if miss+2 < most["miss"] {
					t.Errorf("a miss crosses up to %d rules, not %d", most["miss"], miss)
				}
			})
		}
	}
}

// natText returns the rules of a layout in nat, from the built-in chain on, with stubs for the chains of Services.
func natText(s *settings, layout layout, all []*Rendered) []byte {
	var chains, rules bytes.Buffer
	chains.WriteString("*nat\n:PREROUTING ACCEPT [0:0]\n")
	rules.WriteString("-A PREROUTING -j KUBE-SERVICES\n")
	for _, c := range layout.chains() {
		if c.table != NAT {
			continue
		}
		b, _ := layout.lines(c, func() []*Rendered { return all })
		fmt.Fprintf(&chains, ":%s - [0:0]\n", c.name)
		rules.Write(b.text)
		if c.name == chainServices {
			tail := s.natTail()
			rules.Write(tail.text)
		}
	}
	for _, r := range all {
		for _, c := range r.chains {
			fmt.Fprintf(&chains, ":%s - [0:0]\n", c.name)
			fmt.Fprintf(&rules, "-A %s -j ACCEPT\n", c.name)
		}
	}
	return slices.Concat(chains.Bytes(), rules.Bytes(), []byte("COMMIT\n"))
}

// The tree keeps to the contract of layouts: the names of chains, the jumps to them, and levels that fall along a path.
func TestTreeChains(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(treeAddresses)) {
		rng := rand.New(rand.NewPCG(2, 2))
		layout, addr := newTree(), treeAddresses[name](rng)
		family := corev1.IPv4Protocol
		if addr(0, 0).Is6() {
			family = corev1.IPv6Protocol
		}
		s := newSettings(backend.Settings{Family: family}, Tree)
		rules := map[Table]int{}
		for i := range 3000 {
			port := serving(i, rng, addr)
			port.HasEndpoints = i%3 > 0
			r := s.render(port)
			layout.change(nil, r)
		}
		chains := layout.chains()
		led := map[chain]int{}
		for _, c := range chains {
			b, there := layout.lines(c, nil)
			if !there || len(c.name) > 28 || isLayoutChain(c.name) == slices.Contains(dispatchChains[:], c) {
				t.Errorf("%s: chain %v, there: %v", name, c, there)
			}
			rules[c.table] += b.count
			for line := range strings.Lines(string(b.text)) {
				_, r, err := rule.Parse(s.Family, line)
				if err != nil {
					t.Fatal(err)
				}
				target := chain{c.table, r.Target.Chain}
				if !isLayoutChain(target.name) {
					continue
				}
				if led[target]++; layout.level(target) >= layout.level(c) {
					t.Errorf("%s: %v jumps to %v, which has no lower level", name, c, target)
				}
				if r.Target.Goto != isLayoutChain(c.name) {
					t.Errorf("%s: jumps are for the root, gotos for all else: %s", name, line)
				}
			}
		}
		for _, table := range []Table{NAT, Filter} {
			want := Count{Rules: rules[table]}
			for _, c := range chains {
				if c.table == table && isLayoutChain(c.name) {
					if want.Chains++; led[c] != 1 {
						t.Errorf("%s: %d rules jump to %v", name, led[c], c)
					}
				}
			}
			if got := layout.count(table); got != want {
				t.Errorf("%s: %s counts %+v, not %+v", name, table, got, want)
			}
		}
		if _, there := layout.lines(chain{NAT, "KUBE-TREE-S0A600000-12-3"}, nil); there && !slices.Contains(chains, chain{NAT, "KUBE-TREE-S0A600000-12-3"}) {
			t.Errorf("%s: a chain that is not there has lines", name)
		}
		layout.settle()
		if touched := layout.touched(); len(touched) > 0 {
			t.Errorf("%s: settled, yet touched: %v", name, touched)
		}
	}
}

// One Service port is added and removed. It measures the layout until the text of the touched chains is known.
func BenchmarkTreeChange(b *testing.B) {
	for _, n := range []int{1000, 10_000, 50_000} {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 0))
			addr := treeAddresses["IPv4, random in a /12"](rng)
			s := newSettings(backend.Settings{Family: corev1.IPv4Protocol}, Tree)
			layout := newTree()
			for i := range n {
				layout.change(nil, s.render(serving(i, rng, addr)))
			}
			layout.settle()
			extra := s.render(serving(n+1, rng, addr))
			before, after := (*Rendered)(nil), extra
			b.ReportAllocs()
			for b.Loop() {
				layout.change(before, after)
				for _, c := range layout.touched() {
					layout.lines(c, nil)
				}
				layout.settle()
				before, after = after, before
			}
		})
	}
}
