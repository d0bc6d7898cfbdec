package virtualtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"synclab/bench/verify/walk"
	"synclab/proxier/iptables"
	"synclab/proxier/iptables/rule"
	"synclab/proxier/nftables"
	"synclab/proxier/tracker"
)

// kernel replaces the kernel for one family. While time passes, only the proxier may call its methods.
type kernel interface {
	// fault injects a fault and describes it; empty if this kind of fault is impossible here.
	fault(a Action) string
	// calm clears all faults. Foreign rules stay. With forget, foreign jumps to the proxier's chains are deleted.
	calm(forget bool)
	// differs describes how the tables differ from a fresh proxier's; empty if they do not.
	differs(fresh fresh) string
	// intact describes changes of foreign rules; empty if there are none.
	intact() string
	// hidden bounds how long the proxier may not notice the external writes since the last calm.
	hidden() time.Duration
	// walker returns a ruleset evaluator of the tables.
	walker(w walk.NodeAddresses) (*walk.Walker, error)
}

// fresh is the result of a fresh proxier for the same objects in one family.
type fresh struct {
	iptables *iptables.Model
	nftables *nftables.Model
	world    walk.NodeAddresses
	packets  []walk.Packet
}

// An external write between a restore and the reading of its fingerprint is found only when the fingerprint is not
// trusted: at every tenth check.
const deepLooks = 10

func (t *tables) fault(a Action) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch a.Kind {
	case restores:
		w := way(a.Pick % uint64(waysToEnd))
		for range a.N {
			t.ways = append(t.ways, w)
		}
		return []string{"failing", "killed", "killed between two tables", "killed after their work", "without memory", "slow"}[w]
	case lock:
		if !t.legacy {
			return ""
		}
		t.lockedUntil = time.Now().Add(time.Duration(a.N) * time.Second)
	case refuse:
		t.refused, t.atCommit = refusing(a), a.Pick%2 == 0
	case unreadable:
		t.unreadable = a.N
	case externalWrite:
		return t.externalWrite(a.Pick)
	case externalWriteBefore:
		t.before = append(t.before, a.Pick)
	case externalWriteAfter:
		t.after = append(t.after, a.Pick)
	default:
		return ""
	}
	return string(a.Kind)
}

// refusing selects one in N Service ports at random (seeded).
func refusing(a Action) func(tracker.ServicePortName) bool {
	return func(name tracker.ServicePortName) bool {
		rng := rand.New(rand.NewPCG(a.Pick, hashOf(name.String()+string(name.Protocol))))
		return rng.IntN(max(1, a.N)) == 0
	}
}

// hashOf returns a hash that is the same in every process (FNV-1a).
func hashOf(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

func (t *tables) calm(forget bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ways, t.before, t.after, t.unreadable, t.refused = nil, nil, nil, 0, nil
	t.lockedUntil = time.Time{}
	if forget && strings.Contains(t.foreign, referrer) {
		t.forgetReferences()
	}
}

func (t *tables) hidden() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	raced := t.raced
	t.raced = false
	if raced {
		return (deepLooks + 1) * syncPeriod
	}
	return syncPeriod
}

func (t *tables) differs(f fresh) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	have, want := t.saved(), savedOf(f.iptables)
	if have == want {
		return ""
	}
	there, wanted := comparable(t.withoutForeign(have)), comparable(want)
	if slices.Equal(there, wanted) {
		return ""
	}
	return firstDifferences(wanted, there)
}

// comparable returns the lines of a dump, with the jumps from base chains sorted: a deleted jump is restored as the
// first, which means the same.
func comparable(saved string) []string {
	lines := strings.Split(saved, "\n")
	isJump := func(line string) bool {
		fields := strings.Fields(line)
		return len(fields) > 1 && fields[0] == "-A" && !userDefined(fields[1])
	}
	for from := 0; from < len(lines); from++ {
		to := from
		for to < len(lines) && isJump(lines[to]) {
			to++
		}
		slices.Sort(lines[from:to])
		from = max(from, to-1)
	}
	return lines
}

// withoutForeign removes foreign rules, and empty chains of the proxier with a present or past foreign jump. The kernel
// does not delete a chain with a jump to it. The next full sync deletes the others.
func (t *tables) withoutForeign(saved string) string {
	var b strings.Builder
	d := t.model.Tables()
	wanted := func(table, chain string) bool {
		return !t.referred[table+" "+chain] || d[table][chain] == nil || len(d[table][chain].Rules) > 0 || led(d[table], chain)
	}
	var table string
	for line := range strings.Lines(saved) {
		switch {
		case line[0] == '*':
			table = strings.TrimSpace(line[1:])
		case strings.Contains(line, foreignMark):
			continue
		case line[0] == ':':
			if chain, _, _ := strings.Cut(line[1:], " "); !wanted(table, chain) {
				continue
			}
		}
		b.WriteString(line)
	}
	return b.String()
}

// led reports whether one of the proxier's rules jumps to a chain.
func led(chains map[string]*rule.Chain, chain string) bool {
	for from, c := range chains {
		if from != referrer && slices.ContainsFunc(c.Rules, func(r rule.Rule) bool { return r.Target.Chain == chain }) {
			return true
		}
	}
	return false
}

func savedOf(m *iptables.Model) string {
	var b strings.Builder
	if err := m.Save(&b); err != nil {
		panic(err) // a strings.Builder returns no error
	}
	return b.String()
}

// mostDifferences is the most differences that are listed.
const mostDifferences = 12

// firstDifferences lists lines that are only in want or only in have, or the first line in another order.
func firstDifferences(want, have []string) string {
	var b strings.Builder
	listed := 0
	only := func(sign string, lines, others []string) {
		there := map[string]int{}
		for _, line := range others {
			there[line]++
		}
		for _, line := range lines {
			if there[line]--; there[line] < 0 && listed < mostDifferences {
				fmt.Fprintf(&b, "\n  %s %s", sign, line)
				listed++
			}
		}
	}
	only("missing ", want, have)
	only("too much", have, want)
	if listed > 0 {
		return b.String()
	}
	for i := range want {
		if i < len(have) && want[i] != have[i] {
			return fmt.Sprintf("\n  line %d is out of order: %s\n  instead of %s", i+1, have[i], want[i])
		}
	}
	return "\n  lengths differ"
}

func (t *tables) intact() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	want := t.foreign
	if want == "" {
		want = "*mangle\n*filter\n*nat\n"
	}
	if have := foreignOf(t.saved()); have != want {
		return firstDifferences(strings.Split(want, "\n"), strings.Split(have, "\n"))
	}
	return ""
}

func (t *tables) walker(w walk.NodeAddresses) (*walk.Walker, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rules, err := walk.CompileIptables(t.family, t.model.Tables())
	if err != nil {
		return nil, err
	}
	return walk.New(rules, w), nil
}
