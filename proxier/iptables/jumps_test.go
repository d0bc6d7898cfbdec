package iptables

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/iptables/rule"
)

// Whichever jump is missing, it returns to its position among the others, and foreign rules stay where they are.
func TestJumpsComeBackInPlace(t *testing.T) {
	m := NewModel(corev1.IPv4Protocol)
	if err := m.EnsureJumps(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for table := range builtin {
		for _, j := range baseJumps(table, corev1.IPv4Protocol) {
			chain := m.tables[string(table)][j.from]
			before := chain.Rules
			at := slices.IndexFunc(before, func(r rule.Rule) bool { return r.Equal(&j.Rule) })
			for _, foreign := range [][]rule.Rule{nil, {{Target: rule.Target{Kind: rule.TargetReturn}}}} {
				want := slices.Concat(before, foreign)
				gone := slices.Delete(slices.Clone(want), at, at+1)
				chain.Rules = gone
				if err := m.EnsureJumps(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				if now := m.Chain(table, j.from); !reflect.DeepEqual(now, want) {
					t.Errorf("%s %s without its jump to %s:\n%+v\nwant\n%+v", table, j.from, j.Target.Chain, now, want)
				}
				var p Payload
				p.Written = map[Table]Count{}
				chains, _ := m.Chains(table)
				missingBase(&p, table, corev1.IPv4Protocol, chains, map[string][]rule.Rule{j.from: gone})
				if insert := "-I " + j.from + " " + string(rune('1'+at)) + string(j.Append(nil)) + "\n"; !strings.Contains(string(p.Text()), insert) {
					t.Errorf("want %s in:\n%s", insert, p.Text())
				}
				chain = m.tables[string(table)][j.from]
			}
			chain.Rules = before
		}
	}
}
