package walk

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
)

// Kind is how the path of a packet ends.
type Kind uint8

// The kinds: the packet continues, is answered with an error, or is dropped silently.
const (
	Pass Kind = iota
	Reject
	Drop
)

// String returns the kind in lower case.
func (k Kind) String() string { return [...]string{"pass", "reject", "drop"}[k] }

// Outcome is one possible result of a packet.
type Outcome struct {
	Kind Kind
	// To is the endpoint to which the packet's destination is translated; the zero value: it is not translated. Only
	// for packets that pass.
	To netip.AddrPort
	// Masquerade: the packet gets an address of the node as its source. Only for packets that pass.
	Masquerade bool
	// Probability of this outcome, greater than 0.
	Probability float64
}

// String returns the outcome as in "dnat to 10.0.0.1:80, masqueraded: 0.5".
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

// Result is the outcome distribution of a packet.
type Result struct {
	// Outcomes are distinct and sorted, and their probabilities sum to 1.
	Outcomes []Outcome
	Crossed  Crossed
}

// Crossed counts the rules that a packet crosses: those that the kernel evaluates, matching or not. Each number is the
// largest of all possible paths.
type Crossed struct {
	// Total of all hooks.
	Total int
	// ByHook has one number for each hook.
	ByHook [hooks]int
	// Dispatch counts the rules of the base chain that picked the Service, up to that point: the packet enters a chain
	// of the Service, is translated, or is refused. If no rule picked a Service, it counts the rules of nat in the hook
	// by which the packet entered.
	Dispatch int
}

// most takes the larger of each number.
func (c *Crossed) most(d Crossed) {
	c.Total, c.Dispatch = max(c.Total, d.Total), max(c.Dispatch, d.Dispatch)
	for h := range c.ByHook {
		c.ByHook[h] = max(c.ByHook[h], d.ByHook[h])
	}
}

// Hook is a netfilter hook.
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

// String returns the hook's name as iptables writes it.
func (h Hook) String() string {
	return [...]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}[h]
}

// tolerance of probabilities. The kernel's are multiples of 2^-31, and kube-proxy writes ten decimals. The probability
// of the last of 1,000 endpoints may be off by some 10^-10.
const tolerance = 1e-7

// Equal reports whether two verdicts have the same outcomes and, but for rounding, the same probabilities. It ignores
// the rules crossed.
func (v Result) Equal(w Result) bool {
	return slices.EqualFunc(v.Outcomes, w.Outcomes, func(a, b Outcome) bool {
		return a.compare(&b) == 0 && math.Abs(a.Probability-b.Probability) <= tolerance
	})
}

// Within reports whether every outcome of v is also an outcome of one of the others.
func (v Result) Within(others ...Result) bool {
	for i := range v.Outcomes {
		if !slices.ContainsFunc(others, func(w Result) bool {
			return slices.ContainsFunc(w.Outcomes, func(o Outcome) bool { return o.compare(&v.Outcomes[i]) == 0 })
		}) {
			return false
		}
	}
	return true
}

// String lists the outcomes.
func (v Result) String() string {
	words := make([]string, len(v.Outcomes))
	for i, o := range v.Outcomes {
		words[i] = o.String()
	}
	return strings.Join(words, "; ")
}

// settle sorts the outcomes and merges equal ones.
func (v *Result) settle() {
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
