package walk

import (
	"encoding/binary"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/proxier/nftables/objects"
)

func TestMain(m *testing.M) { os.Exit(netns.TestMain(m)) }

// A ruleset with the expressions of kube-proxy's nftables mode and of a leaner one: maps by numgen in a concatenation,
// values remembered of clients, intervals.
const nftRuleset = `
table ip t {
	map dispatch { type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 10.96.0.1 . tcp . 80 : goto service-a, 10.96.0.2 . udp . 53 : goto lean-2, 10.96.0.3 . tcp . 80 : goto sticky,
			10.96.0.4 . tcp . 80 : jump firewall-x, 10.96.0.5 . tcp . 80 : drop } }
	map nodeports { type inet_proto . inet_service : verdict; elements = { tcp . 30080 : goto external-a } }
	map refused { type ipv4_addr . inet_proto . inet_service : verdict; elements = { 10.96.0.6 . tcp . 80 : goto no } }
	map endpoints { typeof ip daddr . meta l4proto . th dport . numgen random mod 2 : ip daddr . th dport
		elements = { 10.96.0.2 . udp . 53 . 0 : 10.128.0.1 . 5353, 10.96.0.2 . udp . 53 . 1 : 10.128.0.2 . 5353 } }
	set clients-1 { type ipv4_addr; size 65535; flags dynamic,timeout; timeout 3h; }
	set hairpin { type ipv4_addr . ipv4_addr; elements = { 10.128.0.1 . 10.128.0.1, 10.128.0.2 . 10.128.0.2 } }
	map sticky-clients { typeof ip saddr : ip daddr . th dport; size 65535; flags dynamic,timeout; timeout 3h; }
	chain pre { type nat hook prerouting priority dstnat; policy accept; jump services; }
	chain out { type nat hook output priority -100; policy accept; jump services; }
	chain post { type nat hook postrouting priority srcnat; policy accept;
		ip saddr . ip daddr @hairpin masquerade fully-random
		meta mark & 0x4000 == 0x4000 meta mark set meta mark ^ 0x4000 counter masquerade fully-random; }
	chain forward { type filter hook forward priority filter; policy accept;
		ct state new ip daddr . meta l4proto . th dport vmap @refused
		ct state new tcp dport 1000-1010 ip saddr != { 203.0.113.0/24, 198.51.100.5 } drop; }
	chain input { type filter hook input priority filter; policy drop;
		ct status dnat accept
		iifname "lo" accept
		iifname "cali*" accept; }
	chain no { reject; }
	chain mark-masq { meta mark set meta mark | 0x4000; }
	chain services {
		ip daddr . meta l4proto . th dport vmap @dispatch
		fib daddr type local meta l4proto . th dport vmap @nodeports; }
	chain service-a {
		ip daddr 10.96.0.1 tcp dport 80 ip saddr != 10.128.0.0/16 jump mark-masq
		ip saddr @clients-1 goto endpoint-1
		numgen random mod 3 vmap { 0 : goto endpoint-1, 1 : goto endpoint-2, 2 : goto endpoint-3 }; }
	chain external-a { fib saddr type local jump mark-masq; jump mark-masq; goto service-a; }
	chain endpoint-1 { ip saddr 10.128.0.1 jump mark-masq; update @clients-1 { ip saddr }; meta l4proto tcp dnat to 10.128.0.1:8080; }
	chain endpoint-2 { meta l4proto tcp dnat to 10.128.0.2:8080; }
	chain endpoint-3 { meta l4proto tcp dnat to 10.128.0.3:8080; }
	chain lean-2 { dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map @endpoints; }
	chain sticky {
		meta l4proto tcp dnat ip to ip saddr map @sticky-clients
		numgen random mod 2 vmap { 0 : goto sticky-0, 1 : goto sticky-1 }; }
	chain sticky-0 { update @sticky-clients { ip saddr : 10.128.0.8 . 80 }; meta l4proto tcp dnat to 10.128.0.8:80; }
	chain sticky-1 { update @sticky-clients { ip saddr : 10.128.0.9 . 81 }; meta l4proto tcp dnat to 10.128.0.9:81; }
	chain firewall-x { ip saddr { 203.0.113.0-203.0.113.9, 203.0.113.64/26 } goto endpoint-2; }
}`

// loadNft returns the rules that nft makes of a text, as the kernel reports them.
func loadNft(t *testing.T, text string, tables ...string) *Rules {
	t.Helper()
	netns.Fresh(t)
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Skip("nft is not installed")
	}
	cmd := exec.Command(nft, "-f", "-")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	rules, err := ReadNftables(corev1.IPv4Protocol, tables...)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func TestNftables(t *testing.T) {
	rules := loadNft(t, nftRuleset, "t")
	const third = "0.333333"
	for _, c := range []struct {
		name   string
		packet *Packet
		want   string
	}{
		{"numgen", packet4("veth1", "10.128.0.7:1000", "10.96.0.1:80", TCP),
			"dnat to 10.128.0.1:8080: " + third + "; dnat to 10.128.0.2:8080: " + third + "; dnat to 10.128.0.3:8080: " + third},
		{"masquerade", packet4("eth0", "203.0.113.1:1000", "10.96.0.1:80", TCP), "dnat to 10.128.0.1:8080, masqueraded: " + third +
			"; dnat to 10.128.0.2:8080, masqueraded: " + third + "; dnat to 10.128.0.3:8080, masqueraded: " + third},
		{"hairpin", packet4("veth1", "10.128.0.1:1000", "10.96.0.1:80", TCP),
			"dnat to 10.128.0.1:8080, masqueraded: " + third + "; dnat to 10.128.0.2:8080: " + third + "; dnat to 10.128.0.3:8080: " + third},
		{"remembered by a set", after(packet4("veth1", "10.128.0.7:1000", "10.96.0.1:80", TCP), "", "10.128.0.1:8080"), "dnat to 10.128.0.1:8080: 1"},
		{"remembered by a map", after(packet4("veth1", "10.128.0.7:1000", "10.96.0.3:80", TCP), "", "10.128.0.9:81"), "dnat to 10.128.0.9:81: 1"},
		{"not remembered", packet4("veth1", "10.128.0.7:1000", "10.96.0.3:80", TCP), "dnat to 10.128.0.8:80: 0.5; dnat to 10.128.0.9:81: 0.5"},
		{"numgen in a key", packet4("veth1", "10.128.0.2:1000", "10.96.0.2:53", UDP),
			"dnat to 10.128.0.1:5353: 0.5; dnat to 10.128.0.2:5353, masqueraded: 0.5"},
		{"node port", packet4("eth0", "203.0.113.1:1000", "192.0.2.10:30080", TCP), "dnat to 10.128.0.1:8080, masqueraded: " + third +
			"; dnat to 10.128.0.2:8080, masqueraded: " + third + "; dnat to 10.128.0.3:8080, masqueraded: " + third},
		{"another's node port", packet4("eth0", "203.0.113.1:1000", "192.0.2.11:30080", TCP), "pass: 1"},
		{"dropped in a map", packet4("eth0", "203.0.113.1:1000", "10.96.0.5:80", TCP), "drop: 1"},
		{"rejected", packet4("eth0", "203.0.113.1:1000", "10.96.0.6:80", TCP), "reject: 1"},
		{"in an interval", packet4("eth0", "203.0.113.9:1000", "10.96.0.4:80", TCP), "dnat to 10.128.0.2:8080: 1"},
		{"in another", packet4("eth0", "203.0.113.127:1000", "10.96.0.4:80", TCP), "dnat to 10.128.0.2:8080: 1"},
		{"behind an interval", packet4("eth0", "203.0.113.10:1000", "10.96.0.4:80", TCP), "pass: 1"},
		{"behind another", packet4("eth0", "203.0.113.128:1000", "10.96.0.4:80", TCP), "pass: 1"},
		{"range", packet4("eth0", "192.0.2.99:1", "10.128.0.77:1010", TCP), "drop: 1"},
		{"behind the range", packet4("eth0", "192.0.2.99:1", "10.128.0.77:1011", TCP), "pass: 1"},
		{"not in a set", packet4("eth0", "198.51.100.5:1", "10.128.0.77:1010", TCP), "pass: 1"},
		{"policy", packet4("eth0", "203.0.113.1:1", "192.0.2.10:22", TCP), "drop: 1"},
		{"device", packet4("cali7", "203.0.113.1:1", "192.0.2.10:22", TCP), "pass: 1"},
		{"to itself", packet4("", "192.0.2.10:1", "192.0.2.10:22", TCP), "pass: 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := New(rules, world4).Walk(c.packet)
			if err != nil {
				t.Fatal(err)
			}
			if got := v.String(); got != c.want {
				t.Errorf("%s\n got %s\nwant %s", c.packet, got, c.want)
			}
		})
	}
	v, err := New(rules, world4).Walk(packet4("eth0", "203.0.113.1:1000", "10.96.0.1:80", TCP))
	if err != nil {
		t.Fatal(err)
	}
	// pre 1, services 1; to the Service. service-a 3, mark-masq 1; endpoint-1 3. forward 2, post 2.
	want := Crossed{Total: 13, Dispatch: 2}
	want.ByHook[Prerouting], want.ByHook[Forward], want.ByHook[Postrouting] = 9, 2, 2
	if v.Crossed != want {
		t.Errorf("crossed %+v, want %+v", v.Crossed, want)
	}
}

// An unknown expression is an error that names it.
func TestNftablesRefuses(t *testing.T) {
	for rule, want := range map[string]string{
		"oifname eth0 accept":           "expression meta: key 7 is not known",
		"limit rate 5/second accept":    "expression limit: not known",
		"tcp flags syn accept":          "expression payload: 1 bytes at 13 are not known",
		"fib daddr . iif type local":    "expression fib: flags 0xa are not known",
		"ct direction reply accept":     "expression ct: key 1 is not known",
		"meta mark set 5 ip dscp set 1": "expression payload",
		"jhash ip saddr mod 2 0 accept": "expression hash: not known",
		"snat to 10.0.0.1":              "expression nat: type 0 is not known",
		"dnat to 10.0.0.1-10.0.0.4":     "expression nat: ranges are not known",
	} {
		t.Run(rule, func(t *testing.T) {
			hook := "prerouting"
			if strings.HasPrefix(rule, "snat") {
				hook = "postrouting"
			}
			netns.Fresh(t)
			nft, err := exec.LookPath("nft")
			if err != nil {
				t.Skip("nft is not installed")
			}
			cmd := exec.Command(nft, "-f", "-")
			cmd.Stdin = strings.NewReader("table ip t {\nchain c { type nat hook " + hook + " priority 0;\naccept\n" + rule + "\n}\n}")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			_, err = ReadNftables(corev1.IPv4Protocol, "t")
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "chain c: rule 2") {
				t.Errorf("error %v, want one of rule 2 with %q", err, want)
			}
		})
	}
}

// A table in memory gives the same rules as the kernel's messages.
func TestCompileNftables(t *testing.T) {
	addr := func(text string) []byte { return netip.MustParseAddr(text).AsSlice() }
	endpoints := map[string]objects.Element{}
	for i, ep := range []string{"10.128.0.1", "10.128.0.2"} {
		key := binary.NativeEndian.AppendUint32(addr("10.96.0.1"), uint32(i))
		endpoints[string(key)] = objects.Element{Value: append(addr(ep), 0x1f, 0x90, 0, 0)}
	}
	frontend := string(append(addr("10.96.0.1"), 6, 0, 0, 0, 0, 80, 0, 0))
	daddr := &expr.Payload{DestRegister: 8, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4}
	table := &objects.Table{
		Name: "t",
		Sets: map[string]*objects.Set{
			"frontends": {KeyLen: 12, Verdicts: true, Elements: map[string]objects.Element{
				frontend: {Verdict: expr.Verdict{Kind: expr.VerdictGoto, Chain: "lean"}},
			}},
			"endpoints": {KeyLen: 8, ValueLen: 8, Elements: endpoints},
		},
		Chains: map[string]*objects.Chain{
			"pre": {Type: "nat", Hook: unix.NF_INET_PRE_ROUTING, Priority: -100, Rules: [][]expr.Any{{
				daddr, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 9},
				&expr.Payload{DestRegister: 10, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
				&expr.Lookup{SourceRegister: 8, SetName: "frontends", IsDestRegSet: true},
			}}},
			"lean": {Rules: [][]expr.Any{{
				daddr, &expr.Numgen{Register: 9, Modulus: 2, Type: unix.NFT_NG_RANDOM},
				&expr.Lookup{SourceRegister: 8, DestRegister: 12, IsDestRegSet: true, SetName: "endpoints"},
				&expr.Counter{},
				&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 12, RegProtoMin: 13},
			}}},
		},
	}
	rules, err := CompileNftables(corev1.IPv4Protocol, table)
	if err != nil {
		t.Fatal(err)
	}
	v, err := New(rules, world4).Walk(packet4("veth1", "10.128.0.2:1000", "10.96.0.1:80", TCP))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := v.String(), "dnat to 10.128.0.1:8080: 0.5; dnat to 10.128.0.2:8080: 0.5"; got != want || v.Crossed.Total != 2 {
		t.Errorf("%s (crossed %d), want %s (2)", got, v.Crossed.Total, want)
	}
	table.Chains["bad"] = &objects.Chain{Rules: [][]expr.Any{{&expr.Verdict{Kind: expr.VerdictJump, Chain: "nowhere"}}}}
	if _, err := CompileNftables(corev1.IPv4Protocol, table); err == nil || !strings.Contains(err.Error(), `chain "nowhere" is missing`) {
		t.Errorf("a jump nowhere: %v", err)
	}
}

func FuzzNftablesMessage(f *testing.F) {
	f.Add(uint16(unix.NFT_MSG_NEWRULE), []byte{4, 0, 1, 0})
	f.Fuzz(func(t *testing.T, kind uint16, attrs []byte) {
		n := newNftables(corev1.IPv4Protocol)
		if _, err := n.addChain("", "", &baseChain{kind: "nat", hook: unix.NF_INET_PRE_ROUTING}); err != nil {
			t.Fatal(err)
		}
		n.addSet("", nftSet{keySize: 4, valueSize: 4})
		if n.message(kind, attrs) != nil {
			return
		}
		rules, err := n.rules()
		if err != nil {
			return
		}
		w := New(rules, world4)
		w.limit = 1000
		_, _ = w.Walk(packet4("eth0", "203.0.113.1:1000", "192.0.2.10:30080", TCP))
	})
}
