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

// Tables are the rules of one family, by table and chain. Rules are spelled as by iptables.Canonical, without counters.
type Tables map[string]map[string][]string

// Parse reads the output of iptables-save (either variant) or Model.Save.
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
			if strings.HasPrefix(text, "[") { // counters, from option -c
				_, text, _ = strings.Cut(text, "] ")
			}
			words := strings.Fields(text)
			if len(words) < 2 || words[0] != "-A" {
				return nil, fmt.Errorf("line %d: %q is not a rule of iptables-save", line, text)
			}
			tables[table][words[1]] = append(tables[table][words[1]], iptables.Canonical(text, family))
		}
	}
	return tables, scanner.Err()
}

// targetOf returns the chain or extension that a rule jumps to; empty if there is none.
func targetOf(rule string) string {
	_, after, _ := strings.Cut(rule, " -j ")
	target, _, _ := strings.Cut(after, " ")
	return target
}

// commentOf returns the comment of a rule; empty if there is none.
func commentOf(rule string) string {
	_, after, _ := strings.Cut(rule, ` --comment "`)
	comment, _, _ := strings.Cut(after, `"`)
	return comment
}

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
