package probe

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/internal/rigtest"
	"synclab/bench/lab/netns"
	"synclab/bench/pass"
	"synclab/bench/subject"
	"synclab/bench/subject/host"
	"synclab/bench/verify/walk"
	"synclab/proxier/config"
	"synclab/proxier/iptables"
	"synclab/scenarios"
	"synclab/sim/world"
)

// shapeOfKinds has a few UDP Services of each kind among 100.
var shapeOfKinds = scenarios.Shape{
	Services: 100, Endpoints: scenarios.Endpoints{Count: 1}, Protocols: map[string]float64{"UDP": 0.6}, Types: map[string]float64{"NodePort": 0.1, "LoadBalancer": 0.1},
	SourceRanges: 1, ExternalIPs: 0.1, Affinity: 0.1, WithoutEndpoint: 0.1,
}

// probed is ready for a probe: a separate namespace has the rules of a cluster with every kind of Service.
func probed(t *testing.T, about subject.Spec, shape scenarios.Shape) *Probes {
	t.Helper()
	if err := about.Available(); err != nil {
		t.Skip(err)
	}
	netns.Fresh(t)
	lab, err := netns.Enter()
	if err != nil {
		t.Fatal(err)
	}
	shape.Fill()
	world, err := world.NewWorld(shape, rigtest.Seed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := world.Create(scenarios.Create{}); err != nil {
		t.Fatal(err)
	}
	e := &pass.Env{Lab: lab, World: world, About: about, Config: config.New()}
	r := &Probes{Env: e, Host: &host.Host{Env: e}}
	r.Scenario.Shape = shape
	for _, family := range shape.Families {
		r.Families = append(r.Families, corev1.IPFamily(family))
	}
	r.FindNode()
	if err := lab.Connect(netns.Topology{Node: r.Node, Sink: pass.Sinks(shape, world.Objects(), r.Families)}); err != nil {
		t.Fatal(err)
	}
	r.chooseProtocol()
	return r
}

// sendTo sends one packet of a fresh flow to one of the targets.
func sendTo(t *testing.T, p *traversal, target int) {
	t.Helper()
	if _, err := p.send([]int{target}, make([]int64, 1)); err != nil {
		t.Fatal(err)
	}
}

// The ruleset evaluator and the kernel's counters agree on the rules that a packet crosses, in every table and chain,
// for every kind of destination.
func TestCrossedAsTheKernelCounts(t *testing.T) {
	tcpOnly := shapeOfKinds
	tcpOnly.Protocols = nil
	for _, test := range []struct {
		subject string
		shape   scenarios.Shape
	}{
		{"synclab/iptables-legacy", shapeOfKinds}, {"synclab/iptables-legacy-tree", shapeOfKinds},
		{"synclab/iptables-nft", shapeOfKinds}, {"synclab/iptables-nft-tree", shapeOfKinds},
		{"synclab/iptables-legacy", tcpOnly}, {"synclab/iptables-nft", tcpOnly},
	} {
		protocol := corev1.ProtocolUDP
		if test.shape.Protocols == nil {
			protocol = corev1.ProtocolTCP
		}
		t.Run(test.subject+"/"+string(protocol), func(t *testing.T) {
			about, err := subject.Parse(test.subject)
			if err != nil {
				t.Fatal(err)
			}
			r := probed(t, about, test.shape)
			if r.protocol != protocol {
				t.Fatalf("the probe's protocol is %s", r.protocol)
			}
			made := rigtest.New(t, r.World, about, nil)
			made.Sync(t)
			targets := targetsOf(t, r, made)
			counts, err := r.countCrossed(t.Context(), corev1.IPv4Protocol, targets)
			if err != nil {
				t.Fatal(err)
			}
			p, err := newTraversal(TraversalOptions{Targets: targets, Protocol: protocol, Samples: 1, Rand: r.Random(purposeTraversal)})
			if err != nil {
				t.Fatal(err)
			}
			for i := range targets {
				if targets[i].Kind == KindAffinityAgain {
					sendTo(t, p, i)
				}
				before := savedCounters(t, about.Variant)
				sendTo(t, p, i)
				after := savedCounters(t, about.Variant)
				if crossed := crossedByCounters(before, after); crossed != counts[i] {
					t.Errorf("%s crosses %d rules by the kernel's counters, %d by the evaluator", &targets[i], crossed, counts[i])
				}
			}
		})
	}
}

// targetsOf returns the targets of a probe: the first and the last position, the miss, and all kinds.
func targetsOf(t *testing.T, r *Probes, made *rigtest.Rig) []Target {
	t.Helper()
	frontends, _ := made.Proxier.Dispatch(corev1.IPv4Protocol)
	at := map[netip.AddrPort]int{}
	for _, f := range frontends {
		if f.Protocol == r.protocol {
			at[f.Addr] = f.Position
		}
	}
	var targets []Target
	plain := r.plainest(corev1.IPv4Protocol, slices.Clone(frontends))
	for _, f := range []iptables.Frontend{plain[0], plain[len(plain)-1]} {
		targets = append(targets, Target{Position: f.Position, Addr: f.Addr})
	}
	targets = append(targets, Target{Position: -1, Addr: r.misses(corev1.IPv4Protocol, 1)[0]})
	kinds, lacking, err := r.kindTargets(corev1.IPv4Protocol, AllKinds, at)
	if err != nil || len(lacking) > 0 {
		t.Fatalf("kinds of destinations: %v lacking, %v", lacking, err)
	}
	return append(targets, kinds...)
}

// countedRule is a rule as iptables-save -c prints it.
type countedRule struct{ packets, target string }

// counted has the rules of the tables by chain.
type counted map[chainName][]countedRule

func savedCounters(t *testing.T, variant iptables.Variant) counted {
	t.Helper()
	binary, err := iptables.FindBinary(iptables.Binary(variant, corev1.IPv4Protocol, "save"))
	if err != nil {
		t.Skip(err)
	}
	all := counted{}
	table := ""
	for line := range strings.Lines(rigtest.Run(t, "", binary, "-c")) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "*") {
			table = line[1:]
		}
		count, rule, ok := strings.Cut(line, "] -A ")
		if !ok {
			continue
		}
		packets, _, _ := strings.Cut(strings.TrimPrefix(count, "["), ":")
		words := strings.Fields(rule)
		target := ""
		for i, word := range words[:len(words)-1] {
			if word == "-j" || word == "-g" {
				target = word + " " + words[i+1]
			}
		}
		name := chainName{table, words[0]}
		all[name] = append(all[name], countedRule{packets, target})
	}
	return all
}

// crossedByCounters counts the rules whose counters rose between two reads, along the way of the one packet between
// them.
func crossedByCounters(before, after counted) (crossed int) {
	for _, base := range []chainName{
		{"mangle", "OUTPUT"}, {"nat", "OUTPUT"}, {"filter", "OUTPUT"}, {"mangle", "POSTROUTING"}, {"nat", "POSTROUTING"},
	} {
		n, end := crossedIn(before, after, base)
		crossed += n
		if end == "REJECT" || end == "DROP" {
			break
		}
	}
	return crossed
}

// crossedIn counts the crossed rules of a chain and of the chains that it jumps to. end is the final target; empty: the
// packet returns.
func crossedIn(before, after counted, chain chainName) (crossed int, end string) {
	for i, rule := range after[chain] {
		crossed++
		if rule.packets == before[chain][i].packets {
			continue
		}
		how, target, _ := strings.Cut(rule.target, " ")
		switch target {
		case "", "MARK":
			continue
		case "RETURN":
			return crossed, ""
		case "ACCEPT", "DROP", "REJECT", "DNAT", "MASQUERADE":
			return crossed, target
		}
		n, end := crossedIn(before, after, chainName{chain.table, target})
		if crossed += n; end != "" || how == "-g" {
			return crossed, end
		}
	}
	return crossed, ""
}

// A Service whose many endpoint chains are unread has as many ways, and all these chains are read next.
func TestUnreadChainsEndWays(t *testing.T) {
	const endpoints = 30
	service := &readChain{policy: "-"}
	n := &chainReader{there: map[chainName]bool{{"nat", "KUBE-SVC-A"}: true}, order: []chainName{{"nat", "OUTPUT"}, {"nat", "KUBE-SVC-A"}}}
	n.chains = map[chainName]*readChain{
		{"nat", "OUTPUT"}:     {policy: "ACCEPT", rules: []string{"-A OUTPUT -d 10.96.0.1/32 -p udp -m udp --dport 80 -j KUBE-SVC-A"}},
		{"nat", "KUBE-SVC-A"}: service,
	}
	for i := range endpoints {
		name := fmt.Sprintf("KUBE-SEP-%d", i)
		n.there[chainName{"nat", name}] = true
		service.rules = append(service.rules, fmt.Sprintf("-A KUBE-SVC-A -m statistic --mode random --probability %.10f -j %s", 1/float64(endpoints-i), name))
	}
	rules, err := walk.ParseIptables(corev1.IPv4Protocol, n.text())
	if err != nil {
		t.Fatal(err)
	}
	ways, err := walk.New(rules, walk.NodeAddresses{}).Paths(&walk.Packet{
		Protocol: walk.UDP, Source: netip.MustParseAddrPort("192.0.2.1:40000"), Destination: netip.MustParseAddrPort("10.96.0.1:80"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if next := n.entered(ways); len(ways) != endpoints || len(next) != endpoints {
		t.Errorf("%d ways, and %d chains to read next, want %d", len(ways), len(next), endpoints)
	}
}
