package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/proxier/kernel/xtables"
)

// Jumps equal those that iptables lists, in both variants, whatever else the rules match.
func TestJumps(t *testing.T) {
	for _, x := range tools() {
		t.Run(x.name, func(t *testing.T) {
			netns.Fresh(t)
			read := func(chain string) (targets []string) {
				t.Helper()
				for _, rule := range readRules(t, x, chain) {
					if rule.Jump != "" {
						targets = append(targets, rule.Jump)
					}
				}
				return targets
			}
			if got := read("KUBE-SERVICES"); got != nil {
				t.Errorf("jumps without a table: %v", got)
			}
			x.restore(t, ruleset(x, 60))
			x.restore(t, "*nat\n:LAST - [0:0]\n-A LAST -m mark --mark 1\n-A LAST -m mark --mark 1 -j RETURN\n-A LAST -g KUBE-SERVICES\nCOMMIT\n")
			var services []string
			for i := range 60 {
				name, endpoint := fmt.Sprintf("KUBE-SVC-%016d", i), fmt.Sprintf("KUBE-SEP-%016d", i)
				services = append(services, name)
				if diff := cmp.Diff([]string{endpoint, endpoint}, read(name)); diff != "" {
					t.Fatalf("%s (-want +got):\n%s", name, diff)
				}
			}
			if diff := cmp.Diff(services, read("KUBE-SERVICES")); diff != "" {
				t.Errorf("KUBE-SERVICES (-want +got):\n%s", diff)
			}
			if got := read("LAST"); !slices.Equal(got, []string{"KUBE-SERVICES"}) {
				t.Errorf("LAST goes to %v", got)
			}
			if got := read("NONE"); got != nil {
				t.Errorf("a chain that is not there: %v", got)
			}
		})
	}
}

// readRules returns the rules of a chain of nat.
func readRules(t *testing.T, x tool, chain string) []Rule {
	t.Helper()
	if x.variant == Legacy {
		legacy, err := OpenLegacy(x.family)
		if err != nil {
			t.Fatal(err)
		}
		defer legacy.Close()
		table, err := legacy.Jumps(x.family, "nat")
		if err != nil {
			t.Fatal(err)
		}
		defer table.Close()
		return table.Rules(chain)
	}
	nft, err := OpenNftables()
	if err != nil {
		t.Fatal(err)
	}
	defer nft.Close()
	rules, err := nft.Rules(x.family, "nat", chain)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// The translation of a rule is read if it has a single address and port.
func TestDNAT(t *testing.T) {
	for _, x := range tools() {
		t.Run(x.name, func(t *testing.T) {
			netns.Fresh(t)
			first, second, literal := "10.0.0.1", "10.0.0.2", "%s"
			if x.family == corev1.IPv6Protocol {
				first, second, literal = "fd00::1", "fd00::2", "[%s]"
			}
			one, two := fmt.Sprintf(literal, first), fmt.Sprintf(literal, second)
			var b strings.Builder
			b.WriteString("*nat\n:WEB - [0:0]\n:OTHER - [0:0]\n")
			fmt.Fprintf(&b, "-A WEB -m statistic --mode random --probability 0.5 -p tcp -m tcp -j DNAT --to-destination %s:8080\n", one)
			fmt.Fprintf(&b, "-A WEB -p udp -m udp -j DNAT --to-destination %s:53 --persistent --random\n", two)
			fmt.Fprintf(&b, "-A WEB -p sctp -m sctp -j DNAT --to-destination %s:65535\n", two)
			b.WriteString("-A WEB -j OTHER\n")
			fmt.Fprintf(&b, "-A OTHER -p tcp -j DNAT --to-destination %s:1-2\n-A OTHER -p tcp -j DNAT --to-destination :7\n", one)
			fmt.Fprintf(&b, "-A OTHER -j DNAT --to-destination %s\n-A OTHER -j DNAT --to-destination %s-%s\n", first, first, second)
			b.WriteString("COMMIT\n")
			x.restore(t, b.String())
			at := func(ip string, port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(ip), port) }
			want := []Rule{{DNAT: at(first, 8080)}, {DNAT: at(second, 53)}, {DNAT: at(second, 65535)}, {Jump: "OTHER"}}
			if diff := cmp.Diff(want, readRules(t, x, "WEB"), cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
				t.Errorf("WEB (-want +got):\n%s", diff)
			}
			for _, rule := range readRules(t, x, "OTHER") {
				if rule != (Rule{Other: true}) {
					t.Errorf("OTHER: %+v", rule)
				}
			}
		})
	}
}

// The bodies of the target's revisions, some of which this machine's tools do not write.
func TestDNATRevisions(t *testing.T) {
	const both = dnatAddress | dnatPort
	u32 := func(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }
	v4, v6 := []byte{10, 0, 0, 1}, netip.MustParseAddr("fd00::1").AsSlice()
	wide, port := append(slices.Clone(v4), make([]byte, 12)...), []byte{0x1f, 0x90}
	old := slices.Concat(u32(1), u32(both), v4, v4, port, port)
	two := slices.Concat(u32(both), v6, v6, port, port, []byte{0, 0, 0, 0})
	for _, x := range []struct {
		name     string
		revision uint32
		body     []byte
		size     int
		want     string
	}{
		{"0", 0, old, 4, "10.0.0.1:8080"},
		{"1 of IPv4", 1, slices.Concat(u32(both), wide, wide, port, port), 4, "10.0.0.1:8080"},
		{"1 of IPv6", 1, two[:40], 16, "[fd00::1]:8080"},
		{"2", 2, two, 16, "[fd00::1]:8080"},
		{"none of IPv6", 0, old, 16, ""},
		{"unknown", 3, two, 16, ""},
		{"cut off", 1, two[:39], 16, ""},
		{"no body", 0, nil, 4, ""},
		{"no address", 2, slices.Concat(u32(dnatPort), two[4:]), 16, ""},
		{"several ranges", 0, slices.Concat(u32(2), old[4:]), 4, ""},
	} {
		got := ""
		if at := dnatOf(x.revision, x.body, x.size); at.IsValid() {
			got = at.String()
		}
		if got != x.want {
			t.Errorf("%s: %q, not %q", x.name, got, x.want)
		}
	}
}

// A fingerprint changes with the table's size. Reading it creates no table, and sees a table that is created later.
func TestLegacyFingerprint(t *testing.T) {
	for _, x := range tools()[:2] {
		t.Run(x.name, func(t *testing.T) {
			netns.Fresh(t)
			l, err := OpenLegacy(x.family)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			fingerprint := func() LegacyFingerprint {
				t.Helper()
				s, err := l.Fingerprint(x.family, "nat")
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			if s := fingerprint(); s != (LegacyFingerprint{}) {
				t.Errorf("fingerprint %+v of no table", s)
			}
			if names, err := os.ReadFile(xtables.Of(x.family).Tables); err != nil && !os.IsNotExist(err) || len(names) > 0 {
				t.Errorf("tables after reading: %q, %v", names, err)
			}
			x.restore(t, ruleset(x, 3))
			loaded := fingerprint()
			if loaded == (LegacyFingerprint{}) || loaded != fingerprint() {
				t.Error("the fingerprint does not stay")
			}
			x.restore(t, "*nat\n-F KUBE-SERVICES\nCOMMIT\n")
			if loaded == fingerprint() {
				t.Error("the fingerprint does not move")
			}
		})
	}
}

func TestNftables(t *testing.T) {
	netns.Fresh(t)
	n, err := OpenNftables()
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	const v4 = corev1.IPv4Protocol
	generation := func() uint32 {
		t.Helper()
		g, err := n.Generation()
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	before := generation()
	if e, err := n.Elements(v4, "lab", "ips"); len(e) > 0 || err != nil {
		t.Errorf("elements of no set: %v, %v", e, err)
	}
	if uses, there, err := n.Uses(v4, "lab", "web"); uses != 0 || there || err != nil {
		t.Errorf("uses of no chain: %d, %t, %v", uses, there, err)
	}
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(`table ip lab {
	chain a { counter; accept; }
	chain web { meta l4proto tcp dnat ip addr . port to numgen random mod 2 map { 0 : 10.0.0.1 . 8080, 1 : 10.0.0.2 . 80 }; }
	set known { type ipv4_addr; elements = { 10.0.0.1 }; }
	map ips { type ipv4_addr . inet_service : verdict; elements = { 10.96.0.1 . 80 : goto web, 10.96.0.2 . 443 : goto a }; }
	chain own { meta l4proto tcp dnat to 10.0.0.3:8080; dnat to 10.0.0.4; snat to 10.0.0.5; }
	chain marks { ip saddr @known counter meta mark set 0x4000; counter drop; reject; }
	chain services { ip saddr @known jump a; ip daddr . th dport vmap @ips; }
	chain out { type nat hook output priority -100; jump services; }
}`)
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip(err)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v\n%s", err, out)
	}
	if generation() == before {
		t.Error("the generation did not move")
	}
	rules, err := n.Rules(v4, "lab", "services")
	if diff := cmp.Diff([]Rule{{Jump: "a"}, {Map: "ips"}}, rules, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" || err != nil {
		t.Errorf("rules (-want +got), %v:\n%s", err, diff)
	}
	rules, err = n.Rules(v4, "lab", "web")
	if err != nil || len(rules) != 1 || rules[0].Map == "" {
		t.Fatalf("rules of web: %+v, %v", rules, err)
	}
	own, err := n.Rules(v4, "lab", "own")
	if err != nil || len(own) != 3 || own[0].DNAT.String() != "10.0.0.3:8080" || own[1] != (Rule{Other: true}) || own[2] != own[1] {
		t.Errorf("rules of own: %+v, %v", own, err)
	}
	marks, err := n.Rules(v4, "lab", "marks")
	if other := (Rule{Other: true}); err != nil || len(marks) != 3 || marks[0] != (Rule{}) || marks[1] != other || marks[2] != other {
		t.Errorf("rules of marks: %+v, %v", marks, err)
	}
	for chain, want := range map[string][]string{
		"own": {"meta l4proto == 0x06 0x0a000003 0x1f90 dnat", "0x0a000004 dnat", "0x0a000005 snat"}, "a": {"counter", "accept"},
		"services": {"network header 12+4 lookup @known jump a", "network header 16+4 transport header 2+2 lookup @ips"}, "none": nil,
	} {
		if texts, err := n.Texts(v4, "lab", chain); err != nil || !slices.Equal(texts, want) {
			t.Errorf("texts of %s: %q, %v; want %q", chain, texts, err, want)
		}
	}
	byData := func(list []NftElement) []string {
		var texts []string
		for _, e := range list {
			texts = append(texts, fmt.Sprintf("%x:%x%s", e.Key, e.Data, e.Jump))
		}
		slices.Sort(texts)
		return texts
	}
	sizes, err := n.ReportedSizes(v4, "lab")
	if err != nil || len(sizes) != 3 {
		t.Fatalf("sizes: %v, %v", sizes, err)
	}
	for _, size := range sizes { // in both ways, where the kernel knows both
		if counted, err := n.s.countElements(v4, "lab", size.Set); err != nil || size.Elements >= 0 && size.Elements != counted {
			t.Errorf("set %s: reported %d, counted %d, %v", size.Set, size.Elements, counted, err)
		}
	}
	elements, err := n.Elements(v4, "lab", rules[0].Map)
	if diff := cmp.Diff([]string{"00000000:0a0000011f900000", "01000000:0a00000200500000"}, byData(elements)); diff != "" || err != nil {
		t.Errorf("elements (-want +got), %v:\n%s", err, diff)
	}
	elements, err = n.Elements(v4, "lab", "ips")
	if diff := cmp.Diff([]string{"0a60000100500000:web", "0a60000201bb0000:a"}, byData(elements)); diff != "" || err != nil {
		t.Errorf("elements of ips (-want +got), %v:\n%s", err, diff)
	}
	// Chain a: two rules, a jump and an element.
	if uses, there, err := n.Uses(v4, "lab", "a"); uses != 4 || !there || err != nil {
		t.Errorf("uses of a: %d, %t, %v", uses, there, err)
	}
	tally, err := n.Tally(v4, "lab")
	if want := (NftTally{Rules: 12, Chains: 6, Sets: 3, Elements: 5}); tally != want || err != nil {
		t.Errorf("tally %+v, %v; want %+v", tally, err, want)
	}
	if tally, err := n.Tally(v4, "none"); tally != (NftTally{}) || err != nil {
		t.Errorf("tally of no table: %+v, %v", tally, err)
	}
}

// The rest of an abandoned dump is no answer to the next request.
func TestDumpGivenUp(t *testing.T) {
	netns.Fresh(t)
	n, err := OpenNftables()
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip(err)
	}
	var marks []string
	for i := range 5000 { // more than one read
		marks = append(marks, fmt.Sprint(i))
	}
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader("table ip lab { chain web { accept; }; set marks { type mark; elements = { " + strings.Join(marks, ", ") + " }; }; }")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("nft: %v\n%s", err, out)
	}
	giveUp := func() {
		t.Helper()
		given := errors.New("given up")
		if err := n.s.dumpElements(unix.NFPROTO_IPV4, "lab", "marks", func([]byte) error { return given }); !errors.Is(err, given) {
			t.Fatalf("%v, not %v", err, given)
		}
	}
	giveUp()
	if generation, err := n.Generation(); generation == 0 || err != nil {
		t.Errorf("generation %d, %v", generation, err)
	}
	giveUp()
	if uses, there, err := n.Uses(corev1.IPv4Protocol, "lab", "web"); uses != 1 || !there || err != nil {
		t.Errorf("chain with %d rules, there %t, %v", uses, there, err)
	}
}
