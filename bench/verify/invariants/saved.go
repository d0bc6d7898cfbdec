package invariants

import (
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/verify/conform"
	"synclab/bench/verify/owner"
	"synclab/bench/verify/walk"
	"synclab/proxier/iptables/rule"
)

// Saved are the chains of one family by table and chain name.
type Saved rule.Tables

// ownChain reports whether a chain belongs to the proxier.
func ownChain(name string) bool { return owner.OfProxy(name) }

// shared reports whether other programs also write rules into a chain: base chains, and KUBE-FIREWALL, which has a rule
// of the kubelet.
func shared(name string) bool { return !ownChain(name) || name == "KUBE-FIREWALL" }

// own keeps only what belongs to the proxier: its chains, and the rules of base chains that jump to them.
func (s Saved) own() Saved {
	mine := Saved{}
	for table, chains := range s {
		mine[table] = map[string]*rule.Chain{}
		for name, c := range chains {
			switch {
			case ownChain(name):
				mine[table][name] = c
			case c.Policy != "-":
				kept := &rule.Chain{Policy: c.Policy}
				for i := range c.Rules {
					if ownChain(c.Rules[i].Target.Chain) {
						kept.Rules = append(kept.Rules, c.Rules[i])
					}
				}
				mine[table][name] = kept
			}
		}
	}
	return mine
}

// Reachable keeps only the proxier's chains that a packet can reach. It drops chains that were written before a jump to
// them, or that are not deleted yet.
func (s Saved) Reachable() Saved { return Saved(conform.Tables(s.own()).Reachable()) }

// Compile prepares the proxier's own rules for the ruleset evaluator.
func (s Saved) Compile(family corev1.IPFamily) (*walk.Rules, error) {
	return walk.CompileIptables(family, rule.Tables(s.own()))
}
