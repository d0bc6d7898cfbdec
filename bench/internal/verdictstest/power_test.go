package verdictstest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/verify/conform"
	"synclab/bench/verify/walk"
	"synclab/internal/seedstest"
	"synclab/proxier"
	"synclab/sim/random"
)

// text returns the output of Model.Save for a state's rules in layout classic.
func text(t *testing.T, s *State, family corev1.IPFamily) string {
	t.Helper()
	o, err := s.options(Classic, &models{})
	if err != nil {
		t.Fatal(err)
	}
	node, err := s.node()
	if err != nil {
		t.Fatal(err)
	}
	made, err := proxier.Render(t.Context(), o, s.Objects.Services, s.Objects.Slices, node)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, m := range made {
		if m.Family() == family {
			if err := m.Save(&b); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b.String()
}

// A packet set that matches few rules would find few bugs. This one matches most rules, and finds almost every
// removed rule that translates, rejects or drops.
func TestPopulationMeetsRules(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	seed := seedstest.Of(t)
	rng := rand.New(rand.NewPCG(seed, 5))
	rules, met, taken, seen := 0, 0, 0, 0
	for i := range uint64(6) {
		family := both[i%2]
		setting := conform.DrawSetting(seed+i, conform.Constraint{Family: family})
		random := random.New(random.Options{Seed: seed + i, Families: setting.Families, Services: 40})
		s := &State{Setting: setting, Node: "node-0", Objects: random.Objects()}
		world, err := s.World()
		if err != nil {
			t.Fatal(err)
		}
		packets, err := s.Packets(family, seed)
		if err != nil {
			t.Fatal(err)
		}
		whole := text(t, s, family)
		all, matched := rulesOf(whole), metBy(t, whole, family, world, packets)
		rules, met = rules+len(all), met+len(matched)
		for _, at := range rng.Perm(len(all))[:min(60, len(all))] {
			r := all[at]
			ends := strings.Contains(r.text, "-j DNAT") || strings.Contains(r.text, "-j REJECT") || strings.Contains(r.text, "-j DROP")
			if !matched[r.at] || !ends {
				continue
			}
			taken++
			less := strings.Replace(whole, r.text+"\n", "", 1)
			found, err := Compare(family, world, packets, compiled(t, "whole", whole, family), compiled(t, "less", less, family))
			if err != nil {
				t.Fatal(err)
			}
			if len(found) > 0 {
				seen++
			} else {
				t.Logf("no packet notices the removal of %s", r.text)
			}
		}
	}
	t.Logf("%d of %d rules matched; %d of %d removals were found", met, rules, seen, taken)
	// Some settings have rules that no packet reaches, such as those of NodePorts if the node has none of nodePortAddresses.
	if met*100 < rules*80 || seen*100 < taken*95 || taken == 0 {
		t.Error("the packet set finds too few removals")
	}
}

type ruleText struct {
	at   walk.RuleAt
	text string
}

// rulesOf lists the rules of a text, without the rules that first packets of flows never match.
func rulesOf(saved string) []ruleText {
	var all []ruleText
	numbers, table := map[string]int{}, ""
	for line := range strings.Lines(saved) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "*"):
			table = line[1:]
		case strings.HasPrefix(line, "-A "):
			chain := strings.Fields(line)[1]
			at := walk.RuleAt{Table: table, Chain: chain, Number: numbers[table+chain]}
			numbers[table+chain]++
			if !strings.Contains(line, "--ctstate INVALID") && !strings.Contains(line, "--ctstate RELATED,ESTABLISHED ") {
				all = append(all, ruleText{at, line})
			}
		}
	}
	return all
}

func compiled(t *testing.T, name, saved string, family corev1.IPFamily) Ruleset {
	t.Helper()
	rules, err := walk.ParseIptables(family, []byte(saved))
	if err != nil {
		t.Fatal(fmt.Errorf("%s: %w", name, err))
	}
	return Ruleset{Subject: name, Rules: map[corev1.IPFamily]*walk.Rules{family: rules}}
}

// metBy returns the rules that at least one packet matches.
func metBy(t *testing.T, saved string, family corev1.IPFamily, world walk.NodeAddresses, packets []walk.Packet) map[walk.RuleAt]bool {
	t.Helper()
	w := walk.New(compiled(t, "whole", saved, family).Rules[family], world)
	met := map[walk.RuleAt]bool{}
	for i := range packets {
		ways, err := w.Paths(&packets[i])
		if err != nil {
			t.Fatal(err)
		}
		for _, way := range ways {
			for _, at := range way.Matched {
				met[at] = true
			}
		}
	}
	return met
}
