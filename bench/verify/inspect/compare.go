package inspect

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/bench/verify/conform"
	"synclab/proxier"
	"synclab/proxier/iptables"
	"synclab/proxier/iptables/rule"
	"synclab/sim"
)

// Sync says how a node's rules differ from those that the API's objects need.
type Sync struct {
	Node string `json:"node"`
	// Method says for each family what was compared.
	Method []string `json:"method"`
	// Services are those of the API with a frontend in a family that was compared.
	Services int      `json:"services"`
	Differ   []Differ `json:"differ"`
}

// Differ are the differences of one Service.
type Differ struct {
	Service string   `json:"service"`
	Family  string   `json:"family"`
	Lines   []string `json:"lines,omitempty"`
	// Diff has the rules that the objects need (-), and those of the node (+).
	Diff string `json:"diff,omitempty"`
}

// Compare compares with the rules that the objects need on their first node. exact: the configuration is the cluster's, so
// that layouts that Synclab writes are compared rule for rule. Else it compares addresses of Services and their endpoints.
func (d *Dump) Compare(ctx context.Context, o *sim.Objects, cfg *v1alpha1.KubeProxyConfiguration, exact bool) (*Sync, error) {
	node := o.Nodes[0]
	counted := slices.ContainsFunc(d.Tables, func(t *Table) bool {
		c := t.Chains["KUBE-FORWARD"]
		return c != nil && slices.ContainsFunc(c.Rules, func(r Rule) bool { return strings.Contains(r.Text, "nfacct") })
	})
	options := conform.Setting{Variant: iptables.Nft, Config: cfg}.Options(node, proxier.Machine{RandomFully: true, Accounting: counted})
	models, err := proxier.Render(ctx, options, o.Services, o.Slices, node)
	if err != nil {
		return nil, err
	}
	s, names := &Sync{Node: node.Name}, map[string]bool{}
	_, have := d.services()
	for _, m := range models {
		want := &Dump{}
		want.add(string(m.Family()), m.Family(), rule.Tables(m.Tables()))
		_, by := want.services()
		api := by[string(m.Family())]
		set := "" // the ruleset that picks the most Services
		for _, name := range slices.Sorted(maps.Keys(have)) {
			if strings.HasPrefix(name, string(m.Family())) && len(have[name]) > len(have[set]) {
				set = name
			}
		}
		if !slices.ContainsFunc(d.Tables, func(t *Table) bool { return t.Family == m.Family() && !t.Partial }) {
			if len(api) > 0 {
				s.Method = append(s.Method, fmt.Sprintf("%s: not compared: the input has no rules of this family", m.Family()))
			}
			continue
		}
		for _, f := range api {
			names[f.service] = true
		}
		if set == "" && len(api) > 0 {
			s.Method = append(s.Method, fmt.Sprintf("%s: the rules pick no Service; the API's objects need %d addresses", m.Family(), len(api)))
		}
		saved := d.layout(set)
		refusals := slices.ContainsFunc(d.Tables, func(t *Table) bool { return t.Set == set && (t.Name == "filter" || t.Name == "kube-proxy") })
		listed := s.fronts(m.Family(), api, have[set], refusals)
		switch {
		case set == "":
		case saved == nil || !exact || saved.Tables["nat"] == nil:
			s.Method = append(s.Method, set+": by address of each Service, and the set of endpoints that the rules lead to")
		default:
			s.Method = append(s.Method, set+": rule for rule, in all chains of Services; and by address and endpoints")
			for _, diff := range conform.Diff(m.Family(), conform.Group(conform.Tables(m.Tables()).Reachable()), conform.Group(conform.Tables(saved.Tables).Reachable())) {
				if diff.Service != "" && !listed[diff.Service] {
					s.Differ = append(s.Differ, Differ{Service: diff.Service, Family: string(m.Family()), Diff: strings.Join(diff.Lines, "\n")})
				}
			}
		}
	}
	s.Services = len(names)
	slices.SortFunc(s.Differ, func(a, b Differ) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Family, b.Family))
	})
	return s, nil
}

// layout returns the output of iptables-save of a ruleset, if its layout is one that Synclab writes.
func (d *Dump) layout(set string) *Saved {
	for _, s := range d.Saved {
		if s.set == set && s.Tables["filter"]["KUBE-PROXY-FIREWALL"] != nil {
			return s
		}
	}
	return nil
}

// fronts compares frontends and endpoints. Without the table filter, nothing is known of Services without endpoints. It
// returns the Services that differ.
func (s *Sync) fronts(family corev1.IPFamily, api, node fronts, refusals bool) map[string]bool {
	lines := map[string][]string{}
	add := func(service string, f Frontend, what string) {
		lines[service] = append(lines[service], f.String()+": "+what)
	}
	for f, want := range api {
		have := node[f]
		switch {
		case have == nil && (refusals || len(want.to) > 0):
			add(want.service, f, "missing: the rules have no such address")
		case have != nil && !have.to[netip.AddrPort{}]: // else some are not readable
			if without := less(want.to, have.to); without != "" {
				add(want.service, f, "missing endpoints "+without)
			}
			if also := less(have.to, want.to); also != "" {
				add(want.service, f, "extra endpoints "+also)
			}
		}
	}
	for f, have := range node {
		if api[f] == nil {
			add(have.service, f, "extra: no Service of the API has it")
		}
	}
	differ := map[string]bool{}
	for service, of := range lines {
		slices.Sort(of)
		s.Differ, differ[service] = append(s.Differ, Differ{Service: service, Family: string(family), Lines: of}), true
	}
	return differ
}

// less lists what only a has.
func less(a, b map[netip.AddrPort]bool) string {
	var only []string
	for to := range a {
		if !b[to] {
			only = append(only, to.String())
		}
	}
	slices.Sort(only)
	return strings.Join(only, ", ")
}
