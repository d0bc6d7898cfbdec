package inspect

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"synclab/bench/verify/owner"
	"synclab/sim/capture"
)

// Finding is something that should not be, or that is left of an earlier version or mode.
type Finding struct {
	Kind string `json:"kind"`
	// Broken: packets may be lost or go astray. Others are leftovers and waste.
	Broken   bool     `json:"broken"`
	Set      string   `json:"ruleset"`
	What     string   `json:"what"`
	Count    int      `json:"count"`
	Examples []string `json:"examples"` // the first ones
}

// mostExamples of a finding are kept.
const mostExamples = 3

// kinds of findings, in the order of a report.
var kinds = []struct {
	kind   string
	broken bool
	what   string
}{
	{"missing-chain", true, "rules jump to chains that do not exist"},
	{"not-entered", true, "no packet reaches chains that all Services need"},
	{"no-endpoint", true, "chains of Services lead to no endpoint"},
	{"unequal-shares", true, "endpoints of a Service get unequal shares of new flows"},
	{"two-modes", true, "rules of two modes of kube-proxy pick Services: only one of them is kept up to date"},
	{"another-mode", false, "chains of a mode that picks no Service are left"},
	{"older-version", false, "chains of earlier versions are left"},
	{"unreachable", false, "no packet reaches these chains"},
	{"duplicate", false, "rules occur twice in a chain"},
	{"empty-chain", false, "rules jump to empty chains"},
}

// Report is what Examine found.
type Report struct {
	Notes    []string   `json:"notes"`
	Owners   []*Owned   `json:"owners"`
	Proxies  []Proxy    `json:"proxies"`
	Services []*Service `json:"services"` // the largest first
	Findings []*Finding `json:"findings"`
	Sync     *Sync      `json:"sync,omitempty"`
}

// Owned are the numbers of one owner in one ruleset.
type Owned struct {
	Owner    string `json:"owner"`
	Set      string `json:"ruleset"`
	Chains   int    `json:"chains"`
	Rules    int    `json:"rules"`
	Maps     int    `json:"mapsAndSets"`
	Elements int    `json:"elements"`
}

// Anonymize replaces the addresses, the Services and their chains in all texts, consistently and irreversibly. Rules lose
// their comments, which other programs may have written.
func (r *Report) Anonymize(random io.Reader) error {
	return capture.AnonymizeTexts(random, func(replace func(string) string) {
		edit := func(texts []string) {
			for i := range texts {
				texts[i] = replace(comment.ReplaceAllString(texts[i], ""))
			}
		}
		for _, s := range r.Services {
			s.Name = replace(s.Name)
		}
		for i := range r.Findings {
			edit(r.Findings[i].Examples)
		}
		r.Notes = nil // they quote the input
		if r.Sync != nil {
			r.Sync.Node = "a node"
			for i := range r.Sync.Differ {
				d := &r.Sync.Differ[i]
				edit(d.Lines)
				d.Service, d.Diff = replace(d.Service), replace(d.Diff)
			}
		}
	})
}

// comment is a comment of a rule or an element, as iptables-save, nft and nft -j print it.
var comment = regexp.MustCompile(` (?:-m comment --)?comment (?:"(?:[^"\\]|\\.)*"|\S+)| /\* .*? \*/|,"comment":"(?:[^"\\]|\\.)*"`)

// add adds a finding, or counts one more of its kind.
func (r *Report) add(kind, set, example string) {
	at := slices.IndexFunc(r.Findings, func(f *Finding) bool { return f.Kind == kind && f.Set == set })
	if at < 0 {
		k := kinds[kindIndex(kind)]
		at, r.Findings = len(r.Findings), append(r.Findings, &Finding{Kind: kind, Set: set, Broken: k.broken, What: k.what})
	}
	f := r.Findings[at]
	if f.Count++; len(f.Examples) < mostExamples {
		f.Examples = append(f.Examples, example)
	}
}

func kindIndex(kind string) int {
	for i := range kinds {
		if kinds[i].kind == kind {
			return i
		}
	}
	panic("not a kind of finding: " + kind)
}

// Examine counts, and looks for what is wrong.
func (d *Dump) Examine() *Report {
	r := &Report{Notes: d.Notes, Proxies: d.proxies()}
	var by map[string]fronts
	r.Services, by = d.services()
	for _, t := range d.Tables {
		of := func(name string) *Owned {
			at := slices.IndexFunc(r.Owners, func(o *Owned) bool { return o.Owner == name && o.Set == t.Set })
			if at < 0 {
				at, r.Owners = len(r.Owners), append(r.Owners, &Owned{Owner: name, Set: t.Set})
			}
			return r.Owners[at]
		}
		whole := of(owner.OfTable(t.Name))
		whole.Maps, whole.Elements = whole.Maps+t.Maps, whole.Elements+t.Elements
		for _, c := range t.Chains {
			if c.isMap() {
				continue
			}
			if !c.Base || owner.Of(t.Name, c.Name) != owner.Others {
				of(owner.Of(t.Name, c.Name)).Chains++
			}
			for i := range c.Rules {
				of(t.ownerOf(c, &c.Rules[i])).Rules++
			}
		}
		t.find(r)
	}
	d.leftovers(r, by)
	r.Owners = slices.DeleteFunc(r.Owners, func(o *Owned) bool { return o.Chains+o.Rules+o.Maps == 0 })
	slices.SortFunc(r.Owners, func(a, b *Owned) int {
		return cmp.Or(cmp.Compare(b.Rules+b.Elements, a.Rules+a.Elements), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Set, b.Set))
	})
	slices.SortFunc(r.Findings, func(a, b *Finding) int {
		return cmp.Or(cmp.Compare(kindIndex(a.Kind), kindIndex(b.Kind)), cmp.Compare(a.Set, b.Set))
	})
	return r
}

// Broken reports whether something may lose packets, or is out of sync.
func (r *Report) Broken() bool {
	return slices.ContainsFunc(r.Findings, func(f *Finding) bool { return f.Broken }) || r.Sync != nil && len(r.Sync.Differ) > 0
}

// unentered are chains that are made on purpose without a jump: canaries, and what the kubelet of old versions keeps for others.
var unentered = []string{"KUBE-PROXY-CANARY", "KUBE-KUBELET-CANARY", "KUBE-IPTABLES-HINT", "KUBE-MARK-DROP", "KUBE-MARK-MASQ"}

// needed are chains that every packet to a Service crosses.
var needed = []string{"KUBE-SERVICES", "KUBE-POSTROUTING", "services", "masquerading"}

// find looks at one table.
func (t *Table) find(r *Report) {
	entered := map[string]bool{}
	var enter func(name string)
	enter = func(name string) {
		if c := t.Chains[name]; c != nil && !entered[name] {
			entered[name] = true
			for i := range c.Rules {
				for _, to := range c.Rules[i].Jumps {
					enter(to)
				}
			}
		}
	}
	for name, c := range t.Chains {
		if c.Base {
			enter(name)
		}
	}
	memo := map[string]map[netip.AddrPort]bool{}
	for _, name := range slices.Sorted(maps.Keys(t.Chains)) {
		c := t.Chains[name]
		place := t.Name + " " + name
		switch {
		case entered[name] || slices.Contains(unentered, name):
		case slices.Contains(needed, name) && owner.OfTable(t.Name) != owner.Synclab && len(c.Rules) > 0:
			r.add("not-entered", t.Set, place)
		case !c.isMap() && !onlyIPVS(name): // what follows another mode is a leftover as a whole
			r.add("unreachable", t.Set, place)
		}
		if picks(name) && !t.Partial && len(t.reach(memo, name)) == 0 {
			r.add("no-endpoint", t.Set, place)
		}
		if what := c.unequal(); what != "" && !t.Partial {
			r.add("unequal-shares", t.Set, place+": "+what)
		}
		seen := map[string]bool{}
		for i := range c.Rules {
			one := &c.Rules[i]
			if seen[one.Text] && !c.isMap() && !t.Partial {
				r.add("duplicate", t.Set, t.line(c, one))
			}
			seen[one.Text] = true
			for _, to := range one.Jumps {
				switch next := t.Chains[to]; {
				case next == nil && to[0] != '@':
					r.add("missing-chain", t.Set, t.line(c, one))
				case next != nil && !next.isMap() && len(next.Rules) == 0 && !picks(to) && !owner.OfProxy(to):
					r.add("empty-chain", t.Set, t.line(c, one))
				}
			}
		}
	}
}

// line shows a rule with its table. Those of iptables name their chain.
func (t *Table) line(c *Chain, r *Rule) string {
	if strings.HasPrefix(r.Text, "-A ") {
		return t.Name + " " + r.Text
	}
	return t.Name + " " + c.Name + ": " + r.Text
}

func onlyIPVS(name string) bool {
	_, only := owner.OfIPVS(name)
	return only
}

// picks reports whether a chain picks one of a Service's endpoints: it exists only for Services that have some.
func picks(name string) bool {
	return strings.HasPrefix(name, "KUBE-SVC-") || strings.HasPrefix(name, "KUBE-SVL-") || serviceOfChain(name) != "" &&
		(strings.HasPrefix(name, "service-") || strings.HasPrefix(name, "local-"))
}

// shareError is the largest error of a share: versions before 1.19 write probabilities with five decimals.
const shareError = 0.02

// unequal says how the shares of endpoints differ; empty: they do not, or the chain picks none.
func (c *Chain) unequal() string {
	if !picks(c.Name) {
		return ""
	}
	rest, least, most, n := 1.0, 1.0, 0.0, 0
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.Slots > 0 {
			if to := len(slices.Compact(slices.Sorted(slices.Values(r.Jumps)))); len(r.Jumps) > 0 && (r.Slots != len(r.Jumps) || to != r.Slots) {
				return fmt.Sprintf("%d slots for %d endpoints", r.Slots, to)
			}
			continue
		}
		if r.sticky || len(r.Jumps) == 0 || !owner.OfService(c.Name) || !strings.HasPrefix(r.Jumps[0], "KUBE-SEP-") {
			continue
		}
		share := rest
		if r.Share > 0 {
			share = rest * r.Share
		}
		rest, least, most, n = rest-share, min(least, share), max(most, share), n+1
	}
	switch {
	case n == 0:
	case rest > shareError/float64(n):
		return fmt.Sprintf("%.3g %% of new flows reach none of %d endpoints", 100*rest, n)
	case least < most*(1-shareError):
		return fmt.Sprintf("from %.3g %% to %.3g %% of new flows for %d endpoints", 100*least, 100*most, n)
	}
	return ""
}

// leftovers compares the proxiers of all rulesets, and finds chains of earlier versions.
func (d *Dump) leftovers(r *Report, by map[string]fronts) {
	picking := map[string][]Proxy{} // those that pick Services, by family
	for _, p := range r.Proxies {
		picks := len(by[p.Set]) > 0 && p.Mode != modeIPVS
		if p.Mode == modeIPVS {
			picks = slices.ContainsFunc(d.Tables, func(t *Table) bool {
				c := t.Chains["KUBE-SERVICES"]
				return c != nil && t.Set == p.Set && slices.ContainsFunc(c.Rules, func(r Rule) bool { return strings.Contains(r.Text, "KUBE-CLUSTER-IP ") })
			})
		}
		if picks {
			picking[p.family()] = append(picking[p.family()], p)
		}
	}
	for _, p := range r.Proxies {
		others := slices.DeleteFunc(slices.Clone(picking[p.family()]), func(o Proxy) bool { return o == p })
		switch both := len(others) < len(picking[p.family()]); {
		case len(others) > 0 && both:
			r.add("two-modes", p.Set, fmt.Sprintf("%s, and in %s %s", p.Mode, others[0].Set, others[0].Mode))
		case len(others) > 0:
			r.add("another-mode", p.Set, fmt.Sprintf("%s; Services are picked in %s by %s", p.Mode, others[0].Set, others[0].Mode))
		}
	}
	newer := slices.ContainsFunc(d.Tables, func(t *Table) bool { return t.Chains["KUBE-PROXY-FIREWALL"] != nil })
	for _, t := range d.Tables {
		for _, name := range slices.Sorted(maps.Keys(t.Chains)) {
			for prefix, of := range map[string]string{"KUBE-MARK-DROP": "a kubelet before 1.27", "KUBE-XLB-": "kube-proxy before 1.24", "OLD_CILIUM_": "an update of Cilium that did not end"} {
				if strings.HasPrefix(name, prefix) && (newer || owner.OfChain(name) == "Cilium") {
					r.add("older-version", t.Set, t.Name+" "+name+": of "+of)
				}
			}
		}
	}
}

// Measure returns commands that measure a sync of that size: with the objects, if they are in files.
func (r *Report) Measure(files []string) []string {
	if len(files) > 0 {
		return []string{"synclab compare -f " + strings.Join(files, " -f ")}
	}
	endpoints, sets := 0, map[string]int{}
	for _, s := range r.Services {
		endpoints += s.Endpoints
		sets[s.Set]++
	}
	if len(r.Services) == 0 {
		return nil
	}
	services := slices.Max(slices.Collect(maps.Values(sets)))
	return []string{fmt.Sprintf("synclab compare --services %d --endpoints %d", services, max(1, (endpoints+len(r.Services)/2)/len(r.Services)))}
}
