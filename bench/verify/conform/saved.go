package conform

import (
	"maps"
	"slices"

	"synclab/proxier/iptables/rule"
)

// Tables are the rules of one family.
type Tables rule.Tables

// builtin reports whether packets enter a chain from a hook.
func builtin(chain string) bool {
	switch chain {
	case "PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING":
		return true
	}
	return false
}

// Reachable removes the chains that no packet can reach from a hook. kube-proxy keeps such chains until it cleans up.
// Their rules do not change what happens to packets.
func (t Tables) Reachable() Tables {
	found := Tables{}
	for table, chains := range t {
		found[table] = map[string]*rule.Chain{}
		var walk func(chain string)
		walk = func(chain string) {
			c := chains[chain]
			if c == nil || found[table][chain] != nil {
				return
			}
			found[table][chain] = c
			for i := range c.Rules {
				walk(c.Rules[i].Target.Chain)
			}
		}
		for _, chain := range slices.Sorted(maps.Keys(chains)) {
			if builtin(chain) {
				walk(chain)
			}
		}
	}
	return found
}
