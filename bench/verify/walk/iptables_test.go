package walk

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// ruleset returns the text of iptables-save with the rules of nat and filter.
func ruleset(nat, filter []string) string {
	var b strings.Builder
	for _, table := range []struct {
		name, builtin string
		rules         []string
	}{{"nat", "PREROUTING INPUT OUTPUT POSTROUTING", nat}, {"filter", "INPUT FORWARD OUTPUT", filter}} {
		fmt.Fprintf(&b, "*%s\n", table.name)
		for _, c := range strings.Fields(table.builtin) {
			fmt.Fprintf(&b, ":%s ACCEPT [0:0]\n", c)
		}
		declared := map[string]bool{}
		for _, rule := range table.rules {
			if c := strings.Fields(rule)[0]; strings.HasPrefix(c, "K") && !declared[c] {
				declared[c] = true
				fmt.Fprintf(&b, ":%s - [0:0]\n", c)
			}
		}
		for _, rule := range table.rules {
			fmt.Fprintf(&b, "-A %s\n", rule)
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

var world4 = NodeAddresses{Local: []netip.Addr{netip.MustParseAddr("192.0.2.10")}}

func packet4(input, source, destination string, protocol Protocol) *Packet {
	return &Packet{
		Input: input, Protocol: protocol, Source: netip.MustParseAddrPort(source), Destination: netip.MustParseAddrPort(destination),
	}
}

func verdictOf(t *testing.T, text string, p *Packet) Result {
	t.Helper()
	rules, err := ParseIptables(corev1.IPv4Protocol, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	v, err := New(rules, world4).Walk(p)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, o := range v.Outcomes {
		sum += o.Probability
	}
	if math.Abs(sum-1) > tolerance {
		t.Errorf("%s: probabilities sum to %v", v, sum)
	}
	return v
}

// Three endpoints behind one address, as kube-proxy writes them: with hairpin, affinity and masquerading.
var service = ruleset([]string{
	"PREROUTING -j KUBE-SERVICES", "OUTPUT -j KUBE-SERVICES", "POSTROUTING -j KUBE-POSTROUTING",
	`KUBE-SERVICES -d 10.96.0.9/32 -p tcp -m comment --comment "a \"quoted\" name" -m tcp --dport 80 -j KUBE-SVC-B`,
	`KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m comment --comment "ns/svc cluster IP" -m tcp --dport 80 -j KUBE-SVC-A`,
	"KUBE-SERVICES ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS",
	"KUBE-NODEPORTS -p tcp -m tcp --dport 30080 -j KUBE-EXT-A",
	"KUBE-EXT-A -j KUBE-MARK-MASQ", "KUBE-EXT-A -j KUBE-SVC-A",
	"KUBE-SVC-A ! -s 10.128.0.0/16 -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ",
	"KUBE-SVC-A -m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-1 --mask 255.255.255.255 --rsource -j KUBE-SEP-1",
	"KUBE-SVC-A -m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-2 --mask 255.255.255.255 --rsource -j KUBE-SEP-2",
	"KUBE-SVC-A -m statistic --mode random --probability 0.33333333349 -j KUBE-SEP-1",
	"KUBE-SVC-A -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-2",
	"KUBE-SVC-A -j KUBE-SEP-3",
	"KUBE-SEP-1 -s 10.128.0.1/32 -j KUBE-MARK-MASQ",
	"KUBE-SEP-1 -p tcp -m recent --set --name KUBE-SEP-1 --mask 255.255.255.255 --rsource -m tcp -j DNAT --to-destination 10.128.0.1:8080",
	"KUBE-SEP-2 -s 10.128.0.2/32 -j KUBE-MARK-MASQ",
	"KUBE-SEP-2 -p tcp -m recent --set --name KUBE-SEP-2 --mask 255.255.255.255 --rsource -m tcp -j DNAT --to-destination 10.128.0.2:8080",
	"KUBE-SEP-3 -p tcp -m tcp -j DNAT --to-destination 192.0.2.10:8080",
	"KUBE-SVC-B -p tcp -m tcp -j DNAT --to-destination 10.128.0.9:8080",
	"KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000",
	"KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN",
	"KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0",
	"KUBE-POSTROUTING -j MASQUERADE --random-fully",
}, []string{
	"INPUT -m conntrack --ctstate NEW -j KUBE-X", "OUTPUT -m conntrack --ctstate NEW -j KUBE-Y",
	"INPUT -d 192.0.2.10 -p tcp -m tcp --dport 8080 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP",
	"KUBE-X -m addrtype --dst-type LOCAL -p udp -m udp --dport 30000:30010 -j REJECT --reject-with icmp-port-unreachable",
	"KUBE-Y -d 10.96.0.2/32 -p tcp -m tcp --dport 80 -j REJECT",
})

func TestIptables(t *testing.T) {
	const third = "0.333333"
	for _, c := range []struct {
		name   string
		packet *Packet
		want   string
	}{
		{"from a pod", packet4("veth1", "10.128.0.7:1000", "10.96.0.1:80", TCP),
			"dnat to 10.128.0.1:8080: " + third + "; dnat to 10.128.0.2:8080: " + third + "; dnat to 192.0.2.10:8080: " + third},
		{"hairpin", packet4("veth1", "10.128.0.2:1000", "10.96.0.1:80", TCP),
			"dnat to 10.128.0.1:8080: " + third + "; dnat to 10.128.0.2:8080, masqueraded: " + third + "; dnat to 192.0.2.10:8080: " + third},
		// A packet that stays on the node crosses INPUT and not POSTROUTING, where it would be masqueraded.
		{"from outside", packet4("eth0", "203.0.113.1:1000", "192.0.2.10:30080", TCP),
			"dnat to 10.128.0.1:8080, masqueraded: " + third + "; dnat to 10.128.0.2:8080, masqueraded: " + third + "; dnat to 192.0.2.10:8080: " + third},
		// A packet that the node sends does cross POSTROUTING, wherever it goes.
		{"from the node", packet4("", "192.0.2.10:1000", "10.96.0.1:80", TCP),
			"dnat to 10.128.0.1:8080, masqueraded: " + third + "; dnat to 10.128.0.2:8080, masqueraded: " + third + "; dnat to 192.0.2.10:8080, masqueraded: " + third},
		{"of a client that endpoint 2 remembers", after(packet4("veth1", "10.128.0.7:1000", "10.96.0.1:80", TCP), "", "10.128.0.2:8080"),
			"dnat to 10.128.0.2:8080: 1"},
		{"remembered by another address", after(packet4("eth0", "203.0.113.1:1000", "10.96.0.1:80", TCP), "192.0.2.10:30080", "10.128.0.1:8080"),
			"dnat to 10.128.0.1:8080, masqueraded: 1"},
		{"no affinity entry", after(packet4("veth1", "10.128.0.7:1000", "10.96.0.1:80", TCP), "", "192.0.2.10:8080"),
			"dnat to 10.128.0.1:8080: " + third + "; dnat to 10.128.0.2:8080: " + third + "; dnat to 192.0.2.10:8080: " + third},
		{"other port", packet4("veth1", "10.128.0.7:1000", "10.96.0.1:81", TCP), "pass: 1"},
		{"other protocol", packet4("veth1", "10.128.0.7:1000", "10.96.0.1:80", UDP), "pass: 1"},
		{"other address", packet4("veth1", "10.128.0.7:1000", "10.96.0.2:80", TCP), "pass: 1"},
		{"refused by OUTPUT", packet4("", "192.0.2.10:1000", "10.96.0.2:80", TCP), "reject: 1"},
		{"refused by INPUT", packet4("eth0", "203.0.113.1:1000", "192.0.2.10:30010", UDP), "reject: 1"},
		{"from the node, refused by INPUT", packet4("", "192.0.2.10:1000", "192.0.2.10:30000", UDP), "reject: 1"},
		{"port beyond the range", packet4("eth0", "203.0.113.1:1000", "192.0.2.10:30011", UDP), "pass: 1"},
		{"not translated", packet4("eth0", "203.0.113.1:1000", "192.0.2.10:8080", TCP), "drop: 1"},
		{"loopback", packet4("", "127.0.0.1:1000", "127.0.0.1:30080", TCP), "pass: 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := verdictOf(t, service, c.packet).String(); got != c.want {
				t.Errorf("%s\n got %s\nwant %s", c.packet, got, c.want)
			}
		})
	}
}

func after(p *Packet, via, endpoint string) *Packet {
	p.After = &After{Endpoint: netip.MustParseAddrPort(endpoint)}
	if via != "" {
		p.After.Via = netip.MustParseAddrPort(via)
	}
	return p
}

// Programs of -m bpf that return whether a packet goes back to its source.
const (
	returns4 = "6,32 0 0 12,7 0 0 0,32 0 0 16,29 0 1 0,6 0 0 1,6 0 0 0"
	returns6 = "18,32 0 0 8,7 0 0 0,32 0 0 24,29 0 13 0,32 0 0 12,7 0 0 0,32 0 0 28,29 0 9 0," +
		"32 0 0 16,7 0 0 0,32 0 0 32,29 0 5 0,32 0 0 20,7 0 0 0,32 0 0 36,29 0 1 0,6 0 0 1,6 0 0 0"
)

// One rule masquerades packets that return to the endpoint that sent them. It compares source and destination after the
// DNAT.
func TestBytecode(t *testing.T) {
	for _, c := range []struct {
		name                               string
		family                             corev1.IPFamily
		service, program                   string
		endpoint, near, other, node, world string
	}{
		{"IPv4", corev1.IPv4Protocol, "10.96.0.1", returns4, "10.128.0.2", "10.128.0.3", "10.129.0.2", "192.0.2.10", "203.0.113.1"},
		{"IPv6", corev1.IPv6Protocol, "fd00:96::1", returns6, "fd00:10::2", "fd00:10::3", "fd00:11::2", "2001:db8::10", "2001:db8:1::1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			to := netip.AddrPortFrom(netip.MustParseAddr(c.endpoint), 8080)
			text := ruleset([]string{
				"PREROUTING -j KUBE-SERVICES", "OUTPUT -j KUBE-SERVICES", "POSTROUTING -j KUBE-POSTROUTING",
				"KUBE-SERVICES -d " + c.service + " -p tcp -m tcp --dport 80 -j DNAT --to-destination " + to.String(),
				`KUBE-POSTROUTING -m conntrack --ctstate DNAT -m bpf --bytecode "` + c.program + `" -j MASQUERADE --random-fully`,
			}, []string{`FORWARD -m conntrack --ctstate DNAT -m bpf --bytecode "` + c.program + `" -j ACCEPT`, "FORWARD -s " + c.other + " -j DROP"})
			rules, err := ParseIptables(c.family, []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			w := New(rules, NodeAddresses{Local: []netip.Addr{netip.MustParseAddr(c.node)}})
			for _, p := range []struct{ input, from, to, want string }{
				{"veth1", c.endpoint, c.service, "dnat to " + to.String() + ", masqueraded: 1"},
				{"veth1", c.near, c.service, "dnat to " + to.String() + ": 1"},
				{"veth1", c.other, c.service, "drop: 1"},
				{"eth0", c.world, c.service, "dnat to " + to.String() + ": 1"},
				{"veth1", c.endpoint, c.endpoint, "pass: 1"}, // not translated
				{"", c.node, c.service, "dnat to " + to.String() + ": 1"},
			} {
				v, err := w.Walk(&Packet{
					Input: p.input, Protocol: TCP, Source: netip.AddrPortFrom(netip.MustParseAddr(p.from), 1000),
					Destination: netip.AddrPortFrom(netip.MustParseAddr(p.to), 80),
				})
				if err != nil || v.String() != p.want {
					t.Errorf("from %s to %s: got %s, %v; want %s", p.from, p.to, v, err, p.want)
				}
			}
			s := &state{}
			program := w.rules.chains[w.rules.bases[Forward][0].chain].rules.(iptablesRules)[0].matches[1].program
			if n := testing.AllocsPerRun(100, func() { w.accepts(program, s) }); n > 0 {
				t.Errorf("%v allocations a packet", n)
			}
		})
	}
}

// The numbers of rules crossed were counted by hand.
func TestCrossed(t *testing.T) {
	v := verdictOf(t, service, packet4("veth1", "10.128.0.7:1000", "10.96.0.1:80", TCP))
	// PREROUTING 1, KUBE-SERVICES 2, KUBE-SVC 6, KUBE-SEP 1 at the third endpoint (9 more than to the Service's chain);
	// 2 to the second endpoint make it 5+2. Its end is local: INPUT 2, KUBE-X 1. The others: POSTROUTING 2.
	want := Crossed{Total: 13, Dispatch: 3}
	want.ByHook[Prerouting], want.ByHook[Input], want.ByHook[Postrouting] = 10, 3, 2
	if v.Crossed != want {
		t.Errorf("crossed %+v, want %+v", v.Crossed, want)
	}
	v = verdictOf(t, service, packet4("veth1", "10.128.0.7:1000", "10.96.0.1:81", TCP))
	want = Crossed{Total: 6, Dispatch: 4}
	want.ByHook[Prerouting], want.ByHook[Postrouting] = 4, 2
	if v.Crossed != want {
		t.Errorf("a miss: crossed %+v, want %+v", v.Crossed, want)
	}
	v = verdictOf(t, service, packet4("", "192.0.2.10:1000", "10.96.0.2:80", TCP))
	want = Crossed{Total: 6, Dispatch: 2}
	want.ByHook[Output] = 6
	if v.Crossed != want {
		t.Errorf("refused: crossed %+v, want %+v", v.Crossed, want)
	}
}

// What the evaluator does not know is an error that names it.
func TestIptablesRefuses(t *testing.T) {
	for rule, want := range map[string]string{
		"-m set --match-set x dst -j ACCEPT":                        `match "set --match-set x dst" is not known`,
		"-m statistic --mode nth --every 2 --packet 0 -j ACCEPT":    `match "statistic --mode nth --every 2 --packet 0" is not known`,
		"-m statistic --mode random --probability 0 -j ACCEPT":      "probability 0",
		"-m conntrack --ctstate SNAT -j ACCEPT":                     "state SNAT is not known",
		"-o eth0 -j ACCEPT":                                         "option -o is not known",
		"-f -j ACCEPT":                                              `"-f" is not known`,
		"-p icmp -j ACCEPT":                                         "protocol icmp is not known",
		"-j NOWHERE":                                                "target NOWHERE is not known",
		"-j TPROXY --on-port 1":                                     `target "TPROXY --on-port 1" is not known`,
		"-p tcp -j DNAT --to-destination 10.0.0.1":                  "target DNAT without a port",
		"-j ACCEPT -j DROP":                                         "line 6: option -j: a second target",
		`-m bpf --bytecode "1,32 0 0 12" -j ACCEPT`:                 "must end with",
		`-m bpf --bytecode "2,5 0 0 1,6 0 0 1" -j ACCEPT`:           "cannot jump 1 instructions",
		`-m bpf --bytecode "2,132 0 0 0,6 0 0 1" -j ACCEPT`:         "instruction 0: neg is not known",
		`-m bpf --bytecode "2,32 0 0 8,6 0 0 1" -j ACCEPT`:          "instruction 0: 4 bytes at 8 are not known",
		`-m bpf --bytecode "2,32 0 0 4294963200,6 0 0 1" -j ACCEPT`: "instruction 0",
	} {
		_, err := ParseIptables(corev1.IPv4Protocol, []byte(ruleset([]string{"PREROUTING " + rule}, nil)))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "-A PREROUTING") {
			t.Errorf("%s: error %v, want one with %q and the rule", rule, err, want)
		}
	}
	for text, want := range map[string]string{
		"*raw\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n": "table raw: the table is not known",
		"*nat\n:PREROUTING QUEUE [0:0]\nCOMMIT\n":  "table nat: chain PREROUTING: policy QUEUE is not known",
	} {
		if _, err := ParseIptables(corev1.IPv4Protocol, []byte(text)); err == nil || err.Error() != want {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

// A loop of chains, which the kernel refuses, and chains deeper than the kernel allows end in an error.
func TestWalkEnds(t *testing.T) {
	deep := []string{"PREROUTING -j KA"}
	for c := 'A'; c < 'A'+17; c++ {
		deep = append(deep, fmt.Sprintf("K%c -j K%c", c, c+1))
	}
	deep = append(deep, fmt.Sprintf("K%c -j ACCEPT", 'A'+17))
	rules, err := ParseIptables(corev1.IPv4Protocol, []byte(ruleset(deep, nil)))
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(rules, world4).Walk(packet4("eth0", "203.0.113.1:1", "192.0.2.10:1", TCP))
	if err == nil || !strings.Contains(err.Error(), "more than 16 chains deep") {
		t.Errorf("17 jumps: %v", err)
	}
	rules, err = ParseIptables(corev1.IPv4Protocol, []byte(ruleset([]string{"PREROUTING -g KA", "KA -g KB", "KB -g KA"}, nil)))
	if err != nil {
		t.Fatal(err)
	}
	w := New(rules, world4)
	w.limit = 1000
	if _, err = w.Walk(packet4("eth0", "203.0.113.1:1", "192.0.2.10:1", TCP)); err == nil || !strings.Contains(err.Error(), "more than 1000 chains") {
		t.Errorf("a loop: %v", err)
	}
}

func FuzzParseIptables(f *testing.F) {
	f.Add(service)
	f.Add("*nat\n:PREROUTING DROP [1:2]\n-A PREROUTING -m bpf --bytecode \"" + returns4 + "\" -j ACCEPT\nCOMMIT\n")
	f.Add("*nat\n:PREROUTING DROP [1:2]\n[3:4] -A PREROUTING -g KA\nCOMMIT\n")
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := ParseIptables(corev1.IPv4Protocol, []byte(text))
		if err != nil {
			return
		}
		for _, p := range []*Packet{
			packet4("eth0", "203.0.113.1:1000", "192.0.2.10:30080", TCP), packet4("", "192.0.2.10:1000", "10.96.0.1:80", UDP),
		} {
			w := New(rules, world4)
			w.limit = 1000
			v, err := w.Walk(p)
			if err != nil {
				continue
			}
			sum := 0.0
			for _, o := range v.Outcomes {
				sum += o.Probability
			}
			if math.Abs(sum-1) > tolerance {
				t.Errorf("%s: %s: probabilities sum to %v", p, v, sum)
			}
		}
	})
}
