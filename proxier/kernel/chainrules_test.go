package kernel

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
)

func readLeads(t *testing.T, variant string, family corev1.IPFamily, table, chain string) []ChainRule {
	t.Helper()
	leads, err := OpenChainRules(variant, family, table)
	if err != nil {
		t.Fatal(err)
	}
	defer leads.Close()
	all, err := leads.Of(chain)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func sameLeads(t *testing.T, want, got []ChainRule) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.AddrPort{}, netip.Addr{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A rule's destination is read where it is one address, one protocol or one port of UDP, and not otherwise.
func TestLeads(t *testing.T) {
	for _, x := range tools() {
		t.Run(x.name, func(t *testing.T) {
			netns.Fresh(t)
			if got := readLeads(t, x.variant, x.family, "nat", "A"); got != nil {
				t.Errorf("without a table: %v", got)
			}
			addr, wide := x.address(7), x.address(0)+"/12"
			text := `*nat
:A - [0:0]
:KUBE-SEP-X - [0:0]
-A A -p udp -d ADDR -m udp --dport 53 -m comment --comment "10.9.9.9 udp" -j KUBE-SEP-X
-A A -p udp -m udp --dport 53 -g KUBE-SEP-X
-A A -p udp -d WIDE -m udp --dport 50:53 -j KUBE-SEP-X
-A A -p udp ! -d ADDR -m udp ! --dport 53 -j KUBE-SEP-X
-A A -p udp -s ADDR -m udp --sport 53 -j KUBE-SEP-X
-A A ! -p udp -d ADDR -j KUBE-SEP-X
-A A -p tcp -d ADDR -j KUBE-SEP-X
-A A -d ADDR -m mark --mark 0x35 -j RETURN
-A KUBE-SEP-X -p udp -m udp -j DNAT --to-destination TO
COMMIT
`
			to := netip.AddrPortFrom(netip.MustParseAddr(addr), 5353)
			x.restore(t, strings.NewReplacer("ADDR", addr, "WIDE", wide, "TO", to.String()).Replace(text))
			jump, one := Rule{Jump: "KUBE-SEP-X"}, netip.MustParseAddr(addr)
			const udp = unix.IPPROTO_UDP
			sameLeads(t, []ChainRule{
				{jump, one, udp, 53}, {jump, netip.Addr{}, udp, 53}, {Rule: jump, Protocol: udp}, {Rule: jump, Protocol: udp},
				{Rule: jump, Protocol: udp}, {Rule: jump, Addr: one}, {Rule: jump, Addr: one, Protocol: unix.IPPROTO_TCP}, {Rule: Rule{Other: true}, Addr: one},
			}, readLeads(t, x.variant, x.family, "nat", "A"))
			sameLeads(t, []ChainRule{{Rule: Rule{DNAT: to}, Protocol: udp}}, readLeads(t, x.variant, x.family, "nat", "KUBE-SEP-X"))
			if got := readLeads(t, x.variant, x.family, "nat", "NONE"); got != nil {
				t.Errorf("a chain that is not there: %v", got)
			}
		})
	}
}

// Matches of iptables-nft may be nf_tables' own, as nft writes them, in other versions than this machine's.
func TestLeadsOfPlainMatches(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip(err)
	}
	for family, as := range map[corev1.IPFamily][3]string{
		corev1.IPv4Protocol: {"ip", "10.96.0.7", "ip protocol udp"}, corev1.IPv6Protocol: {"ip6", "fd00::7", "meta l4proto udp"},
	} {
		t.Run(string(family), func(t *testing.T) {
			netns.Fresh(t)
			script := fmt.Sprintf(`table %[1]s nat {
	chain B { }
	chain A {
		%[1]s daddr %[2]s %[3]s udp dport 53 counter jump B
		%[1]s daddr != %[2]s meta l4proto udp udp dport 50-53 counter jump B
		meta mark and 0x11 == 0x11 udp sport 53 jump B
	}
}
`, as[0], as[1], as[2])
			cmd := exec.Command("nft", "-f", "-")
			cmd.Stdin = strings.NewReader(script)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			jump := Rule{Jump: "B"}
			sameLeads(t, []ChainRule{
				{jump, netip.MustParseAddr(as[1]), unix.IPPROTO_UDP, 53}, {Rule: jump, Protocol: unix.IPPROTO_UDP}, {Rule: jump, Protocol: unix.IPPROTO_UDP},
			}, readLeads(t, Nft, family, "nat", "A"))
		})
	}
}
