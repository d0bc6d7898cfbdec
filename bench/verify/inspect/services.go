package inspect

import (
	"cmp"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"synclab/bench/verify/owner"
)

// Service is what the rules of one ruleset do for a Service.
type Service struct {
	Name      string `json:"service"` // namespace/name
	Set       string `json:"ruleset"`
	Rules     int    `json:"rules"` // and elements of maps
	Endpoints int    `json:"endpoints"`

	endpoints map[netip.AddrPort]bool
}

// front is a Frontend in a ruleset: its Service, and the endpoints that the rules lead to.
type front struct {
	service string
	to      map[netip.AddrPort]bool
}

// fronts are the frontends of a ruleset.
type fronts map[Frontend]*front

// dispatching are the chains and maps that pick a Service, by kind of ruleset.
var dispatching = []string{"KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-EXTERNAL-SERVICES", "@service-ips", "@service-nodeports", "@no-endpoint-services", "@no-endpoint-nodeports"}

var (
	// ofServicePort is a chain of one Service port in kube-proxy's mode nftables. A long name is cut off, and ends with dots.
	ofServicePort = regexp.MustCompile(`^(?:service|local|external|firewall|endpoint)-[A-Z2-7]{8}-([^/]+/[^/]+)/`)
	inComment     = regexp.MustCompile(`^([a-z0-9][-a-z0-9]*/[a-z0-9][-a-z0-9.]*)(?::\S*)?(?: |$)`)
)

// serviceOfChain returns the Service in a chain's name; empty: there is none.
func serviceOfChain(name string) string {
	if m := ofServicePort.FindStringSubmatch(name); m != nil {
		return strings.TrimSuffix(m[1], "...")
	}
	return ""
}

// serviceOf returns the Service of a rule that picks one.
func serviceOf(r *Rule) string {
	for _, to := range r.Jumps {
		if is := serviceOfChain(to); is != "" {
			return is
		}
	}
	if m := inComment.FindStringSubmatch(r.Comment); m != nil {
		return m[1]
	}
	return ""
}

// reach returns the endpoints behind some chains of a table. memo has those of each chain.
func (t *Table) reach(memo map[string]map[netip.AddrPort]bool, chains ...string) map[netip.AddrPort]bool {
	found := map[netip.AddrPort]bool{}
	for _, name := range chains {
		c := t.Chains[name]
		if c == nil {
			continue
		}
		known, ok := memo[name]
		if !ok {
			memo[name] = nil // of a loop
			known = map[netip.AddrPort]bool{}
			for i := range c.Rules {
				for _, to := range c.Rules[i].To {
					known[to] = true
				}
				maps.Copy(known, t.reach(memo, c.Rules[i].Jumps...))
			}
			memo[name] = known
		}
		if len(chains) == 1 {
			return known
		}
		maps.Copy(found, known)
	}
	return found
}

// services follows the rules of all Services, by ruleset.
func (d *Dump) services() (all []*Service, by map[string]fronts) {
	by = map[string]fronts{}
	named := map[[2]string]*Service{}
	for _, t := range d.Tables {
		if t.Partial {
			continue
		}
		memo, of := map[string]map[netip.AddrPort]bool{}, map[string]string{} // chain: Service
		var claim func(chain, service string)
		claim = func(chain, service string) {
			if c := t.Chains[chain]; c != nil && of[chain] == "" && owner.OfService(chain) {
				of[chain] = service
				for i := range c.Rules {
					for _, to := range c.Rules[i].Jumps {
						claim(to, service)
					}
				}
			}
		}
		count := func(service string, rules int, to map[netip.AddrPort]bool) {
			s := named[[2]string{t.Set, service}]
			if s == nil {
				s = &Service{Name: service, Set: t.Set, endpoints: map[netip.AddrPort]bool{}}
				named[[2]string{t.Set, service}], all = s, append(all, s)
			}
			s.Rules += rules
			maps.Copy(s.endpoints, to)
		}
		for _, name := range dispatching {
			c := t.Chains[name]
			if c == nil || c.isMap() && owner.OfTable(t.Name) != owner.KubeProxy {
				continue
			}
			if by[t.Set] == nil {
				by[t.Set] = fronts{}
			}
			for i := range c.Rules {
				r := &c.Rules[i]
				service := serviceOf(r)
				if service == "" || r.Front == nil || strings.HasSuffix(r.Comment, "health check node port") {
					continue
				}
				f := by[t.Set][*r.Front]
				if f == nil {
					f = &front{service, map[netip.AddrPort]bool{}}
					by[t.Set][*r.Front] = f
				}
				maps.Copy(f.to, t.reach(memo, r.Jumps...))
				for _, to := range r.Jumps {
					claim(to, service)
				}
				count(service, 1, f.to)
			}
		}
		for name, c := range t.Chains {
			if service := cmp.Or(of[name], serviceOfChain(name)); service != "" {
				count(service, len(c.Rules), nil)
			}
		}
	}
	for _, s := range all {
		s.Endpoints = len(s.endpoints)
	}
	slices.SortFunc(all, func(a, b *Service) int {
		return cmp.Or(cmp.Compare(b.Rules, a.Rules), strings.Compare(a.Name, b.Name), strings.Compare(a.Set, b.Set))
	})
	return all, by
}
