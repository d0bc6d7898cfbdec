package iptables

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Whichever jump is missing, it returns to its position among the others, and foreign rules stay where they are.
func TestJumpsComeBackInPlace(t *testing.T) {
	m := NewModel(corev1.IPv4Protocol)
	if err := m.EnsureJumps(t.Context()); err != nil {
		t.Fatal(err)
	}
	for table := range m.tables {
		for _, j := range BaseJumps(table) {
			before := slices.Clone(m.tables[table][j.From])
			rule := Canonical("-A "+j.From+" "+j.Rule, corev1.IPv4Protocol)
			for _, foreign := range [][]string{nil, {"-A " + j.From + " -j FOREIGN"}} {
				want := slices.Concat(before, foreign)
				m.tables[table][j.From] = slices.DeleteFunc(slices.Clone(want), func(r string) bool { return r == rule })
				gone := m.tables[table][j.From]
				if err := m.EnsureJumps(t.Context()); err != nil {
					t.Fatal(err)
				}
				if now := m.tables[table][j.From]; !slices.Equal(now, want) {
					t.Errorf("%s %s without its jump to %s:\n%s\nwant\n%s", table, j.From, j.To, strings.Join(now, "\n"), strings.Join(want, "\n"))
				}
				var p Payload
				p.Written = map[Table]Count{}
				chains, _ := m.Chains(table)
				missingBase(&p, table, corev1.IPv4Protocol, chains, gone)
				if at := slices.Index(want, rule); !strings.Contains(string(p.Text()), "-I "+j.From+" "+string(rune('1'+at))+" "+j.Rule+"\n") {
					t.Errorf("want it at %d:\n%s", at+1, p.Text())
				}
				m.tables[table][j.From] = before
			}
		}
	}
}
