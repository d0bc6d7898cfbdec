package conform

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier"
	"synclab/proxier/config"
	"synclab/proxier/iptables/rule"
	"synclab/sim/random"
)

// rulesOf renders a random cluster, as the lines of iptables-save.
func rulesOf(t *testing.T, seed uint64) []string {
	t.Helper()
	o := random.New(random.Options{Seed: seed, Families: both[:1]}).Objects()
	s := Setting{Variant: "legacy", Config: config.New()}
	s.Config.ClusterCIDR = random.RandomPods
	models, err := proxier.Render(context.Background(), s.Options(o.Nodes[0], proxier.Machine{Accounting: true}), o.Services, o.Slices, o.Nodes[0])
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := models[0].Save(&text); err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(text.String()), "\n")
}

func parsed(t *testing.T, line string) *rule.Rule {
	t.Helper()
	_, r, err := rule.Parse(both[0], line)
	if err != nil {
		t.Fatal(err)
	}
	return &r
}

func diffOf(t *testing.T, a, b []string) []Difference {
	t.Helper()
	var g [2]Grouped
	for i, text := range [][]string{a, b} {
		tables, err := rule.ParseTables(both[0], []byte(strings.Join(text, "\n")))
		if err != nil {
			t.Fatal(err)
		}
		g[i] = Group(Tables(tables).Reachable())
	}
	return Diff(both[0], g[0], g[1])
}

// The comparison finds every edit of one reachable rule: removed, duplicated, or changed.
func TestDiffSeesEveryRule(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	for seed := range uint64(2) {
		rules := rulesOf(t, seed)
		if found := diffOf(t, rules, rules); len(found) > 0 {
			t.Fatalf("a ruleset differs from itself: %v", found)
		}
		for i, line := range rules {
			if !strings.HasPrefix(line, "-A ") {
				continue
			}
			for name, edit := range map[string][]string{
				"lost": nil, "twice": {line, line}, "another": {strings.Replace(line, " -j ", " -m mark --mark 0x1/0x1 -j ", 1) + " "},
			} {
				if name == "another" && parsed(t, line).Target == (rule.Target{}) {
					continue
				}
				changed := slices.Concat(rules[:i], edit, rules[i+1:])
				found := diffOf(t, rules, changed)
				if len(found) == 0 {
					t.Errorf("seed %d: %s goes unseen: %s", seed, name, line)
				}
				if port := portOf(parsed(t, line)); port != "" && found[0].Service != serviceOf(port) {
					t.Errorf("seed %d: %s of %s counts for Service %q", seed, name, line, found[0].Service)
				}
			}
		}
	}
}

// Order between Service ports in shared chains does not count. Order within a Service port and in all other chains
// does.
func TestDiffAndOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	swapped, shuffled := 0, 0
	for seed := range uint64(6) {
		rules := rulesOf(t, seed)
		for range 100 {
			i := 1 + rng.IntN(len(rules)-1)
			a, b := rules[i-1], rules[i]
			if !strings.HasPrefix(a, "-A ") || !strings.HasPrefix(b, "-A ") || a == b {
				continue
			}
			chain := strings.Fields(a)[1]
			if chain != strings.Fields(b)[1] {
				continue
			}
			changed := slices.Clone(rules)
			changed[i-1], changed[i] = b, a
			services := dispatch(chain) && portOf(parsed(t, a)) != "" && portOf(parsed(t, b)) != ""
			matters := !services || portOf(parsed(t, a)) == portOf(parsed(t, b))
			if services && !matters {
				shuffled++
			} else {
				swapped++
			}
			if found := diffOf(t, rules, changed); (len(found) > 0) != matters {
				t.Errorf("seed %d: swapping\n%s\n%s\nmatters: %t, differences: %v", seed, a, b, matters, found)
			}
		}
	}
	if swapped < 20 || shuffled < 20 {
		t.Errorf("%d swaps that matter and %d that do not: too few for a test", swapped, shuffled)
	}
}

// Unreachable chains, counters and policies do not count.
func TestDiffLeavesOutWhatNoPacketReaches(t *testing.T) {
	rules := rulesOf(t, 3)
	var other []string
	for _, rule := range rules {
		switch {
		case rule == "*nat":
			other = append(other, rule, ":KUBE-SEP-STALE - [0:0]", ":KUBE-SVC-STALE - [0:0]")
		case rule == "COMMIT" && slices.Contains(other, "*nat"):
			other = append(other, "-A KUBE-SVC-STALE -j KUBE-SEP-STALE", "# Completed", rule)
		case strings.HasPrefix(rule, "-A "):
			other = append(other, fmt.Sprintf("[%d:%d] %s", len(other), 60*len(other), rule))
		default:
			other = append(other, strings.ReplaceAll(rule, "[0:0]", "[17:1020]"))
		}
	}
	if found := diffOf(t, rules, other); len(found) > 0 {
		t.Errorf("differences: %v", found)
	}
}

func TestDiffText(t *testing.T) {
	at := place{table: "nat", chain: "KUBE-SVC-A"}
	first := Grouped{"ns/a": {at: {parsed(t, "-A KUBE-SVC-A -j KUBE-SEP-1"), parsed(t, "-A KUBE-SVC-A -j KUBE-SEP-2")}}}
	second := Grouped{"ns/a": {at: {parsed(t, "-A KUBE-SVC-A -j KUBE-SEP-2"), parsed(t, "-A KUBE-SVC-A -j KUBE-SEP-3")}}}
	found := Diff(corev1.IPv4Protocol, first, second)
	if len(found) != 1 {
		t.Fatalf("%v", found)
	}
	want := `Service ns/a, IPv4
@@ nat KUBE-SVC-A
- -A KUBE-SVC-A -j KUBE-SEP-1
  -A KUBE-SVC-A -j KUBE-SEP-2
+ -A KUBE-SVC-A -j KUBE-SEP-3`
	if text := found[0].String(); text != want {
		t.Errorf("%s\nwant\n%s", text, want)
	}
}
