package conform

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"synclab/bench/verify/owner"
	"synclab/proxier/iptables/rule"
)

// place is a chain, or the part of a shared chain that has the rules of one Service port.
type place struct {
	table, chain string
	// port is "ns/name:port protocol" in a chain with rules of many Services; empty in a chain of one Service.
	port string
}

// Grouped maps each Service ("ns/name") of one family to its rules; "" is the key of rules that all Services share.
// Within a place, rules keep the order of the table, because it decides which rule a packet meets first. Between
// Service ports in a shared chain, order matters only if two ports have the same address; kube-proxy's order there is
// random.
type Grouped map[string]map[place][]*rule.Rule

// dispatch reports whether a chain is shared by all Services.
func dispatch(chain string) bool {
	switch chain {
	case "KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-EXTERNAL-SERVICES", "KUBE-PROXY-FIREWALL":
		return true
	}
	return false
}

// afterServices marks rules after the rules of all Services, such as the jump to the NodePorts.
const afterServices = "(last)"

// Group groups reachable rules by Service.
func Group(tables Tables) Grouped {
	g := Grouped{}
	for _, table := range slices.Sorted(maps.Keys(tables)) {
		chains := tables[table]
		owners := ownersOf(chains)
		for chain, c := range chains {
			rules := make([]*rule.Rule, len(c.Rules))
			for i := range c.Rules {
				rules[i] = &c.Rules[i]
			}
			if !dispatch(chain) {
				g.add(serviceOf(owners[chain]), place{table: table, chain: chain}, rules...)
				continue
			}
			last := len(rules)
			for last > 0 && portOf(rules[last-1]) == "" {
				last--
			}
			for _, r := range rules[:last] {
				port := portOf(r)
				if port != "" {
					port += " " + r.Proto.String()
				}
				g.add(serviceOf(port), place{table, chain, port}, r)
			}
			// With nodePortAddresses there is one rule for each address, in any order.
			slices.SortFunc(rules[last:], func(a, b *rule.Rule) int { return bytes.Compare(a.Append(nil), b.Append(nil)) })
			g.add("", place{table, chain, afterServices}, rules[last:]...)
		}
	}
	return g
}

func (g Grouped) add(service string, at place, rules ...*rule.Rule) {
	if g[service] == nil {
		g[service] = map[place][]*rule.Rule{}
	}
	g[service][at] = append(g[service][at], rules...)
}

// portOf returns the Service port ("ns/name:port") at the start of a rule's comment; empty for other rules.
func portOf(r *rule.Rule) string {
	word, _, _ := strings.Cut(r.Comment(), " ")
	if strings.Contains(word, "/") {
		return word
	}
	return ""
}

// serviceOf returns the Service of a Service port.
func serviceOf(port string) string {
	service, _, _ := strings.Cut(port, ":")
	service, _, _ = strings.Cut(service, " ")
	return service
}

// ownersOf maps each chain to its Service port. A rule of a shared chain names the port, and jumps to the chain
// directly or through other chains.
func ownersOf(chains map[string]*rule.Chain) map[string]string {
	owners := map[string]string{}
	var claim func(chain, port string)
	claim = func(chain, port string) {
		c := chains[chain]
		if c == nil || owners[chain] != "" || !owner.OfService(chain) {
			return
		}
		owners[chain] = port
		for i := range c.Rules {
			claim(c.Rules[i].Target.Chain, port)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(chains)) {
		if !dispatch(name) {
			continue
		}
		for i := range chains[name].Rules {
			if r := &chains[name].Rules[i]; portOf(r) != "" {
				claim(r.Target.Chain, portOf(r))
			}
		}
	}
	return owners
}
