package verdictstest

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/verify/walk"
)

// both lists the families in the order that this package always uses.
var both = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}

// Ruleset has a subject's rules for a state, by family.
type Ruleset struct {
	Subject string
	Rules   map[corev1.IPFamily]*walk.Rules
}

// Difference is a packet on which two rulesets disagree.
type Difference struct {
	Family corev1.IPFamily
	Packet walk.Packet
	// Subjects, and their verdicts.
	Subjects [2]string
	Verdicts [2]walk.Result
}

// String formats both verdicts.
func (d *Difference) String() string {
	return fmt.Sprintf("%s\n\t%s: %s\n\t%s: %s", &d.Packet, d.Subjects[0], d.Verdicts[0], d.Subjects[1], d.Verdicts[1])
}

// Compare sends packets of a family through all rulesets, and returns the disagreements with the first ruleset.
func Compare(family corev1.IPFamily, world walk.NodeAddresses, packets []walk.Packet, rulesets ...Ruleset) ([]Difference, error) {
	walkers := make([]*walk.Walker, len(rulesets))
	for i, r := range rulesets {
		walkers[i] = walk.New(r.Rules[family], world)
	}
	var found []Difference
	for i := range packets {
		var first walk.Result
		for n, w := range walkers {
			v, err := w.Walk(&packets[i])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", rulesets[n].Subject, err)
			}
			if n == 0 {
				first = v
			} else if !v.Equal(first) {
				found = append(found, Difference{
					Family: family, Packet: packets[i],
					Subjects: [2]string{rulesets[0].Subject, rulesets[n].Subject}, Verdicts: [2]walk.Result{first, v},
				})
			}
		}
	}
	return found, nil
}

// Describe formats the first few differences.
func Describe(found []Difference) string {
	const most = 5
	var b strings.Builder
	for i := range found[:min(most, len(found))] {
		fmt.Fprintln(&b, &found[i])
	}
	if len(found) > most {
		fmt.Fprintf(&b, "and %d more\n", len(found)-most)
	}
	return b.String()
}
