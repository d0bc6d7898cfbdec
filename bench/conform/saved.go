package conform

import (
	"bufio"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/iptables"
)

// Tables are the rules of one family: table, chain, rules as iptables.Canonical spells them, without counters.
type Tables map[string]map[string][]string

// Parse reads what iptables-save prints, of either variant, or Model.Save.
func Parse(saved string, family corev1.IPFamily) (Tables, error) {
	tables := Tables{}
	table := ""
	scanner := bufio.NewScanner(strings.NewReader(saved))
	scanner.Buffer(nil, 1<<20)
	for line := 1; scanner.Scan(); line++ {
		text := scanner.Text()
		switch {
		case text == "" || text == "COMMIT" || strings.HasPrefix(text, "#"):
		case strings.HasPrefix(text, "*"):
			table = text[1:]
			if tables[table] == nil {
				tables[table] = map[string][]string{}
			}
		case table == "":
			return nil, fmt.Errorf("line %d: %q before any table", line, text)
		case strings.HasPrefix(text, ":"):
			chain, _, _ := strings.Cut(text[1:], " ")
			tables[table][chain] = tables[table][chain][:0:0]
		default:
			if strings.HasPrefix(text, "[") { // counters, with -c
				_, text, _ = strings.Cut(text, "] ")
			}
			words := strings.Fields(text)
			if len(words) < 2 || words[0] != "-A" {
				return nil, fmt.Errorf("line %d: %q is no rule", line, text)
			}
			tables[table][words[1]] = append(tables[table][words[1]], iptables.Canonical(text, family))
		}
	}
	return tables, scanner.Err()
}

// targetOf a rule: the chain or extension it jumps to; empty when it has none.
func targetOf(rule string) string {
	_, after, _ := strings.Cut(rule, " -j ")
	target, _, _ := strings.Cut(after, " ")
	return target
}

// commentOf a rule; empty when it has none.
func commentOf(rule string) string {
	_, after, _ := strings.Cut(rule, ` --comment "`)
	comment, _, _ := strings.Cut(after, `"`)
	return comment
}

// builtin says whether packets enter a chain from a hook.
func builtin(chain string) bool {
	switch chain {
	case "PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING":
		return true
	}
	return false
}

// Reachable leaves out the chains that no packet can reach from a hook. kube-proxy leaves such chains for a while: what
// they hold says when it cleans up, not what it does with packets.
func (t Tables) Reachable() Tables {
	found := Tables{}
	for table, chains := range t {
		found[table] = map[string][]string{}
		var walk func(chain string)
		walk = func(chain string) {
			rules, there := chains[chain]
			if _, seen := found[table][chain]; seen || !there {
				return
			}
			found[table][chain] = rules
			for _, rule := range rules {
				walk(targetOf(rule))
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
