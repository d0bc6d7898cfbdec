package conform

import (
	"maps"
	"slices"
	"strings"
)

// place is where rules of one Service port stand.
type place struct {
	table, chain string
	// port is "ns/name:port protocol" where a chain holds rules of many Services; empty in a chain of one.
	port string
}

// Grouped are the rules of one family by Service ("ns/name"), or "" for what all share. Within a place, the order is that
// of the tables: it decides which rule a packet meets first. Between Service ports in a shared chain it decides nothing,
// but where two claim one address; kube-proxy draws lots there at every sync.
type Grouped map[string]map[place][]string

// dispatch says whether a chain holds rules of all Services.
func dispatch(chain string) bool {
	switch chain {
	case "KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-EXTERNAL-SERVICES", "KUBE-PROXY-FIREWALL":
		return true
	}
	return false
}

// afterServices marks rules that stand behind those of all Services, as the jump to the NodePorts must.
const afterServices = "(last)"

// Group sorts reachable rules by Service.
func Group(tables Tables) Grouped {
	g := Grouped{}
	for _, table := range slices.Sorted(maps.Keys(tables)) {
		chains := tables[table]
		owners := ownersOf(chains)
		for chain, rules := range chains {
			if !dispatch(chain) {
				g.add(serviceOf(owners[chain]), place{table: table, chain: chain}, rules...)
				continue
			}
			last := len(rules)
			for last > 0 && portOf(rules[last-1]) == "" {
				last--
			}
			for _, rule := range rules[:last] {
				port := portOf(rule)
				if port != "" {
					port += protocolOf(rule)
				}
				g.add(serviceOf(port), place{table, chain, port}, rule)
			}
			// With NodePort addresses there is one for each, in any order.
			g.add("", place{table, chain, afterServices}, slices.Sorted(slices.Values(rules[last:]))...)
		}
	}
	return g
}

func (g Grouped) add(service string, at place, rules ...string) {
	if g[service] == nil {
		g[service] = map[place][]string{}
	}
	g[service][at] = append(g[service][at], rules...)
}

// portOf is the Service port ("ns/name:port") that a rule's comment begins with; empty for other rules.
func portOf(rule string) string {
	word, _, _ := strings.Cut(commentOf(rule), " ")
	if strings.Contains(word, "/") {
		return word
	}
	return ""
}

func protocolOf(rule string) string {
	_, after, _ := strings.Cut(rule, " -p ")
	protocol, _, _ := strings.Cut(after, " ")
	return " " + protocol
}

// serviceOf a Service port: without the port.
func serviceOf(port string) string {
	service, _, _ := strings.Cut(port, ":")
	service, _, _ = strings.Cut(service, " ")
	return service
}

// ownersOf finds which Service port each chain is of: that of the rule in a shared chain which leads there, by however
// many steps.
func ownersOf(chains map[string][]string) map[string]string {
	owners := map[string]string{}
	var claim func(chain, owner string)
	claim = func(chain, owner string) {
		if _, there := chains[chain]; !there || owners[chain] != "" || !own(chain) {
			return
		}
		owners[chain] = owner
		for _, rule := range chains[chain] {
			claim(targetOf(rule), owner)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(chains)) {
		if !dispatch(name) {
			continue
		}
		for _, rule := range chains[name] {
			if port := portOf(rule); port != "" {
				claim(targetOf(rule), port)
			}
		}
	}
	return owners
}

// own says whether a chain is of one Service port.
func own(chain string) bool {
	for _, prefix := range []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-"} {
		if strings.HasPrefix(chain, prefix) {
			return true
		}
	}
	return false
}
