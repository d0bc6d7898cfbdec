package kernel

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/proxier/kernel/xtables"
)

func TestMain(m *testing.M) { os.Exit(netns.TestMain(m)) }

// tool is one iptables command.
type tool struct {
	variant string
	family  corev1.IPFamily
	name    string
}

func tools() []tool {
	return []tool{
		{Legacy, corev1.IPv4Protocol, "iptables-legacy"},
		{Legacy, corev1.IPv6Protocol, "ip6tables-legacy"},
		{Nft, corev1.IPv4Protocol, "iptables-nft"},
		{Nft, corev1.IPv6Protocol, "ip6tables-nft"},
	}
}

func (x tool) String() string { return x.name }

func (x tool) address(n int) string {
	if x.family == corev1.IPv6Protocol {
		return fmt.Sprintf("fd00:10:96::%x", n)
	}
	return fmt.Sprintf("10.96.%d.%d", n>>8&255, n&255)
}

func (x tool) restore(t testing.TB, text string) {
	t.Helper()
	if _, err := exec.LookPath(x.name); err != nil {
		t.Skip(err)
	}
	cmd := exec.Command(x.name+"-restore", "--noflush")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

// listed returns the chains that iptables -S prints.
func (x tool) listed(t testing.TB, table string) (user, builtin []string) {
	t.Helper()
	out, err := exec.Command(x.name, "-t", table, "-S").Output()
	if err != nil {
		t.Fatalf("%s -S: %v", x.name, err)
	}
	for line := range bytes.Lines(out) {
		fields := strings.Fields(string(line))
		switch fields[0] {
		case "-N":
			user = append(user, fields[1])
		case "-P":
			builtin = append(builtin, fields[1])
		}
	}
	return user, builtin
}

func ruleset(x tool, services int) string {
	var b strings.Builder
	b.WriteString("*nat\n:KUBE-SERVICES - [0:0]\n")
	for i := range services {
		fmt.Fprintf(&b, ":KUBE-SVC-%016d - [0:0]\n:KUBE-SEP-%016d - [0:0]\n", i, i)
	}
	b.WriteString("-A OUTPUT -m comment --comment \"service portals\" -j KUBE-SERVICES\n")
	for i := range services {
		fmt.Fprintf(&b, "-A KUBE-SERVICES -d %s -p tcp -m tcp --dport 80 -m comment --comment \"ns/svc-%d\" -j KUBE-SVC-%016d\n",
			x.address(i), i, i)
		fmt.Fprintf(&b, "-A KUBE-SVC-%016d -m statistic --mode random --probability 0.5 -j KUBE-SEP-%016d\n", i, i)
		fmt.Fprintf(&b, "-A KUBE-SVC-%016d -j KUBE-SEP-%016d\n", i, i)
		fmt.Fprintf(&b, "-A KUBE-SEP-%016d -s %s -j MARK --set-xmark 0x4000/0x4000\n", i, x.address(i))
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

func TestChainsAgreeWithIptables(t *testing.T) {
	for _, x := range tools() {
		for _, services := range []int{0, 1, 60} {
			t.Run(fmt.Sprintf("%s/services=%d", x, services), func(t *testing.T) {
				netns.Fresh(t)
				x.restore(t, ruleset(x, services))
				x.restore(t, "*filter\n-A INPUT -j ACCEPT\nCOMMIT\n") // must not show in nat
				check(t, x, "nat")
				check(t, x, "filter")
			})
		}
	}
}

func check(t *testing.T, x tool, table string) {
	t.Helper()
	user, builtin := x.listed(t, table)
	list, err := Chains(x.variant, x.family, table)
	if err != nil {
		t.Fatal(err)
	}
	var gotUser, gotBuiltin []string
	for _, c := range list {
		if c.Builtin {
			gotBuiltin = append(gotBuiltin, c.Name)
		} else {
			gotUser = append(gotUser, c.Name)
		}
	}
	sorted := cmpopts.SortSlices(func(a, b string) bool { return a < b })
	if diff := cmp.Diff(user, gotUser, sorted, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("user chains of %s (-iptables +Chains):\n%s", table, diff)
	}
	if x.variant == Nft {
		// iptables-nft lists all four or five, also those that do not exist.
		builtin = slices.DeleteFunc(builtin, func(name string) bool { return !slices.Contains(used(table), name) })
	}
	if diff := cmp.Diff(builtin, gotBuiltin, sorted, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("built-in chains of %s (-iptables +Chains):\n%s", table, diff)
	}
}

// used returns the built-in chains that the test's rules need.
func used(table string) []string {
	return map[string][]string{"nat": {"OUTPUT"}, "filter": {"INPUT"}}[table]
}

// A missing table has no chains, and reading it does not create it.
func TestMissingTable(t *testing.T) {
	for _, x := range tools() {
		t.Run(x.name, func(t *testing.T) {
			netns.Fresh(t)
			for _, table := range []string{"nat", "no-such-table"} {
				if tally, err := Tally(x.variant, x.family, table); len(tally) != 0 || err != nil {
					t.Errorf("Tally(%s) = %v, %v; want none", table, tally, err)
				}
				if list, err := Chains(x.variant, x.family, table); len(list) != 0 || err != nil {
					t.Errorf("Chains(%s) = %v, %v; want none", table, list, err)
				}
			}
			if x.variant == Legacy {
				names, err := os.ReadFile(xtables.Of(x.family).Tables)
				if err != nil && !os.IsNotExist(err) || len(names) != 0 {
					t.Errorf("tables after reading: %q, %v; want none", names, err)
				}
			}
		})
	}
}

func TestUnknownVariantAndFamily(t *testing.T) {
	if _, err := Tally("iptables", corev1.IPv4Protocol, "nat"); err == nil {
		t.Error("Tally with an unknown variant: no error")
	}
	for _, variant := range []string{Legacy, Nft} {
		if _, err := Chains(variant, "IPv5", "nat"); err == nil {
			t.Errorf("Chains(%s) with an unknown family: no error", variant)
		}
	}
}

// A table that any process changed or flushed has another fingerprint; a table that was only read has the same one.
func TestFingerprint(t *testing.T) {
	for _, x := range tools() {
		t.Run(x.name, func(t *testing.T) {
			netns.Fresh(t)
			fingerprint := func() uint64 {
				t.Helper()
				n, err := Fingerprint(x.variant, x.family, "nat")
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			none := fingerprint()
			x.restore(t, ruleset(x, 3))
			loaded := fingerprint()
			if loaded == none {
				t.Error("the fingerprint is the same after a restore")
			}
			if _, err := Tally(x.variant, x.family, "nat"); err != nil {
				t.Fatal(err)
			}
			if again := fingerprint(); again != loaded {
				t.Errorf("fingerprint %d after only reading, was %d", again, loaded)
			}
			x.restore(t, "*nat\n-F KUBE-SERVICES\nCOMMIT\n")
			if flushed := fingerprint(); flushed == loaded {
				t.Error("the fingerprint is the same after a flush")
			}
		})
	}
}

// BenchmarkTally and BenchmarkChains grow in proportion to the ruleset.
func BenchmarkTally(b *testing.B) {
	each(b, func(x tool) error { _, err := Tally(x.variant, x.family, "nat"); return err })
}

func BenchmarkChains(b *testing.B) {
	each(b, func(x tool) error { _, err := Chains(x.variant, x.family, "nat"); return err })
}

func each(b *testing.B, read func(tool) error) {
	for _, x := range tools() {
		for _, services := range []int{10, 100} {
			b.Run(fmt.Sprintf("tool=%s/chains=%d", x, 2*services+1), func(b *testing.B) {
				netns.Fresh(b)
				x.restore(b, ruleset(x, services))
				for b.Loop() {
					if err := read(x); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// The tool's limit is what SendLimit returns: a restore far below it passes, one above it fails with "Message too
// long".
func TestSendLimit(t *testing.T) {
	netns.Fresh(t)
	limit, err := SendLimit()
	if err != nil {
		t.Fatal(err)
	}
	if limit == 0 {
		const many = 1000
		tools()[2].restore(t, ruleset(tools()[2], many))
		return
	}
	const rule, rules = 600, 4 // of ruleset, for one service
	tools()[2].restore(t, ruleset(tools()[2], limit/rule/rules/2))
	cmd := exec.Command("iptables-nft-restore", "--noflush")
	cmd.Stdin = strings.NewReader(ruleset(tools()[2], 2*limit/rule/rules))
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "Message too long") {
		t.Errorf("a restore above %d bytes: %v\n%s", limit, err, out)
	}
}
