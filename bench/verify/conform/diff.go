package conform

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/iptables/rule"
)

// Difference is the difference between two sides for one Service of one family.
type Difference struct {
	Family corev1.IPFamily
	// Service is "ns/name"; empty for the rules that all Services share.
	Service string
	// Lines are a diff with a headline for each chain. "-" marks rules of the first side, "+" rules of the second side.
	Lines []string
	// Entry is the entry of the list of known differences that explains this one; empty if none does.
	Entry string
}

func (d *Difference) String() string {
	name := d.Service
	if name == "" {
		name = "(shared rules)"
	}
	explained := ""
	if d.Entry != "" {
		explained = "  explained by " + d.Entry
	}
	return fmt.Sprintf("Service %s, %s%s\n%s", name, d.Family, explained, strings.Join(d.Lines, "\n"))
}

// Diff compares two rulesets of a family and lists what differs, by Service.
func Diff(family corev1.IPFamily, first, second Grouped) []Difference {
	var found []Difference
	for _, service := range Union(first, second) {
		if lines := diffService(first[service], second[service]); len(lines) > 0 {
			found = append(found, Difference{Family: family, Service: service, Lines: lines})
		}
	}
	return found
}

// Union returns the keys of two maps, sorted.
func Union[K cmp.Ordered, V any](a, b map[K]V) []K {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	return slices.Compact(keys)
}

func diffService(first, second map[place][]*rule.Rule) []string {
	places := slices.AppendSeq(slices.Collect(maps.Keys(first)), maps.Keys(second))
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.table, b.table), cmp.Compare(a.chain, b.chain), cmp.Compare(a.port, b.port))
	})
	var lines []string
	for _, at := range slices.Compact(places) {
		a, inFirst := first[at]
		b, inSecond := second[at]
		if slices.EqualFunc(a, b, (*rule.Rule).Equal) && inFirst == inSecond {
			continue
		}
		title := "@@ " + at.table + " " + at.chain
		switch {
		case inFirst && inSecond:
		case inFirst && at.port == "":
			title += ", only in ---"
		case inSecond && at.port == "":
			title += ", only in +++"
		}
		lines = append(append(lines, title), diffRules(at.chain, a, b)...)
	}
	return lines
}

// diffRules returns a diff of a chain by longest common subsequence. Chains are short, so quadratic memory is fine.
func diffRules(chain string, a, b []*rule.Rule) []string {
	common := make([][]int, len(a)+1) // [i][j]: length of the longest common subsequence of a[i:] and b[j:]
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i].Equal(b[j]) {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var lines []string
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i].Equal(b[j]):
			lines = append(lines, "  "+a[i].Line(chain))
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			lines = append(lines, "- "+a[i].Line(chain))
			i++
		default:
			lines = append(lines, "+ "+b[j].Line(chain))
			j++
		}
	}
	return lines
}
