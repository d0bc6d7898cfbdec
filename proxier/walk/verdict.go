package walk

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
)

// Kind is how a packet ends.
type Kind uint8

// The ends: on its way, answered with an error, or gone.
const (
	Pass Kind = iota
	Reject
	Drop
)

// String is the kind in lower case.
func (k Kind) String() string { return [...]string{"pass", "reject", "drop"}[k] }

// Outcome is one of the things that may become of a packet.
type Outcome struct {
	Kind Kind
	// To is the endpoint that the packet goes to instead of its destination; the zero value: it is not translated.
	// Only of packets that pass.
	To netip.AddrPort
	// Masquerade: the packet gets an address of the node as its source. Only of packets that pass.
	Masquerade bool
	// Probability of this outcome, greater than 0.
	Probability float64
}

// String is the outcome as in "dnat to 10.0.0.1:80, masqueraded: 0.5".
func (o Outcome) String() string {
	text := o.Kind.String()
	if o.To.IsValid() {
		text = "dnat to " + o.To.String()
	}
	if o.Masquerade {
		text += ", masqueraded"
	}
	return fmt.Sprintf("%s: %.6g", text, o.Probability)
}

func (o *Outcome) compare(p *Outcome) int {
	masquerade := 0
	if o.Masquerade != p.Masquerade {
		masquerade = 1
		if p.Masquerade {
			masquerade = -1
		}
	}
	return cmp.Or(cmp.Compare(o.Kind, p.Kind), o.To.Compare(p.To), masquerade)
}

// Verdict is everything that may become of a packet.
type Verdict struct {
	// Outcomes are distinct and sorted, and their probabilities sum to 1.
	Outcomes []Outcome
	Crossed  Crossed
}

// Crossed are the rules that a packet crosses: those that the kernel evaluates, matching or not. Of all the ways that a
// packet may go, each number is the most.
type Crossed struct {
	// Total of all hooks.
	Total int
	// ByHook, one number a hook.
	ByHook [hooks]int
	// Dispatch are the rules of the base chain that picked the Service, until it did: by entering one of its chains, by
	// translating the packet, or by refusing it. Where no rule did, they are those of nat in the hook by which the
	// packet entered.
	Dispatch int
}

// most is the most of each number.
func (c *Crossed) most(d Crossed) {
	c.Total, c.Dispatch = max(c.Total, d.Total), max(c.Dispatch, d.Dispatch)
	for h := range c.ByHook {
		c.ByHook[h] = max(c.ByHook[h], d.ByHook[h])
	}
}

// Hook is a place where packets meet rules.
type Hook uint8

// The hooks, in the kernel's order.
const (
	Prerouting Hook = iota
	Input
	Forward
	Output
	Postrouting
	hooks
)

// String is the hook's name as iptables writes it.
func (h Hook) String() string {
	return [...]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}[h]
}

// tolerance of probabilities. The kernel's are multiples of 2^-31, and kube-proxy writes ten decimals: the probability
// of the last of 1,000 endpoints may be off by some 10^-10.
const tolerance = 1e-7

// Equal says whether two verdicts have the same outcomes, with the same probabilities but for rounding. The rules
// crossed do not count.
func (v Verdict) Equal(w Verdict) bool {
	return slices.EqualFunc(v.Outcomes, w.Outcomes, func(a, b Outcome) bool {
		return a.compare(&b) == 0 && math.Abs(a.Probability-b.Probability) <= tolerance
	})
}

// Within says whether everything that may become of a packet by v may also by one of others.
func (v Verdict) Within(others ...Verdict) bool {
	for i := range v.Outcomes {
		if !slices.ContainsFunc(others, func(w Verdict) bool {
			return slices.ContainsFunc(w.Outcomes, func(o Outcome) bool { return o.compare(&v.Outcomes[i]) == 0 })
		}) {
			return false
		}
	}
	return true
}

// String lists the outcomes.
func (v Verdict) String() string {
	words := make([]string, len(v.Outcomes))
	for i, o := range v.Outcomes {
		words[i] = o.String()
	}
	return strings.Join(words, "; ")
}

// settle sorts the outcomes and merges those that are alike.
func (v *Verdict) settle() {
	slices.SortFunc(v.Outcomes, func(a, b Outcome) int { return a.compare(&b) })
	merged := v.Outcomes[:0]
	for _, o := range v.Outcomes {
		if last := len(merged) - 1; last >= 0 && merged[last].compare(&o) == 0 {
			merged[last].Probability += o.Probability
			continue
		}
		merged = append(merged, o)
	}
	v.Outcomes = merged
}
