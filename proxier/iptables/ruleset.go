package iptables

import (
	"cmp"
	"maps"

	"synclab/proxier/backend"
	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// Ruleset stores the desired and the installed rules and computes the difference. It keeps sums and dispatch chains of
// all Service ports up to date. So the cost of a sync depends on the changes and not on the number of Services.
type Ruleset struct {
	settings settings
	kind     Layout
	layout   layout

	wanted map[tracker.ServicePortName]*Rendered
	// installed is the last state of each Service port that the kernel accepted, table by table.
	installed map[tracker.ServicePortName]*Rendered
	// dirty Service ports may differ from installed.
	dirty map[tracker.ServicePortName]bool
	// refused Service ports keep their installed rules until they change or a full sync begins.
	refused map[tracker.ServicePortName]bool
	// large: the installed rules have the form for a large cluster.
	large bool
	// known is what is known of the kernel, by table.
	known map[Table]*known

	// round numbers the sync, and written counts what it has written so far.
	round   uint16
	written map[Table]Count

	// sum counts the chains of all Service ports and their rules.
	sum Count
}

// NewRuleset makes an empty Ruleset.
func NewRuleset(s backend.Settings, kind Layout) *Ruleset {
	return &Ruleset{
		settings:  newSettings(s, kind),
		kind:      kind,
		layout:    newLayout(kind),
		wanted:    map[tracker.ServicePortName]*Rendered{},
		installed: map[tracker.ServicePortName]*Rendered{},
		dirty:     map[tracker.ServicePortName]bool{},
		refused:   map[tracker.ServicePortName]bool{},
		known:     map[Table]*known{Filter: newKnown(), NAT: newKnown()},
		written:   map[Table]Count{},
	}
}

// Settings returns the settings in force.
func (r *Ruleset) Settings() backend.Settings { return r.settings.Settings }

// CrossesLarge reports whether so many endpoints change the form of endpoint rules. Then only a full sync leaves the
// same rules as a fresh start. (kube-proxy leaves a mixture.)
func (r *Ruleset) CrossesLarge(endpoints int) bool {
	return endpoints > backend.LargeCluster != r.large
}

// Update renders the Service ports that a delta names.
func (r *Ruleset) Update(delta plan.Delta) {
	for _, name := range delta.Removed {
		r.change(name, func() { delete(r.wanted, name) })
		r.Accept(name)
	}
	for _, port := range delta.Changed {
		r.want(port)
		r.Accept(port.Name)
	}
}

// want renders one Service port.
func (r *Ruleset) want(port *plan.ServicePort) {
	if old := r.wanted[port.Name]; old != nil && !old.port.Created.Equal(port.Created) {
		r.layout.reorder() // its position among the others may change
	}
	r.change(port.Name, func() { r.wanted[port.Name] = r.settings.render(port) })
	r.dirty[port.Name] = true
}

// Refuse leaves a Service port out of later payloads. Its installed rules stay, unless these are the refused ones.
func (r *Ruleset) Refuse(name tracker.ServicePortName) {
	r.change(name, func() {
		if r.refused[name] {
			delete(r.installed, name)
		}
		r.refused[name] = true
	})
	r.dirty[name] = true
}

// Accept includes a refused Service port again.
func (r *Ruleset) Accept(name tracker.ServicePortName) {
	r.change(name, func() { delete(r.refused, name) })
	r.dirty[name] = true
}

// Dirty reports whether there may be anything to write.
func (r *Ruleset) Dirty() bool { return r.staleness() > current || len(r.dirty) > 0 }

// Rerender replaces the settings, and renders the Service ports whose rules may differ.
func (r *Ruleset) Rerender(s backend.Settings, ports []*plan.ServicePort) {
	changed := !r.settings.equal(s)
	if changed {
		r.settings = newSettings(s, r.kind)
		r.raise(behind)
	}
	for _, port := range ports {
		if old := r.wanted[port.Name]; changed || old == nil || old.port != port {
			r.want(port)
		}
	}
	if changed {
		r.rerenderInstalled()
	}
}

// rerenderInstalled renders the installed rules of all Service ports with the current settings. Refused Service ports
// keep these rules, and their chains are written again, because a change of settings makes the kernel content unknown.
func (r *Ruleset) rerenderInstalled() {
	for name, old := range r.installed {
		now := r.again(old)
		r.change(name, func() { r.installed[name] = now })
	}
}

func (r *Ruleset) again(old *Rendered) *Rendered {
	now := r.wanted[old.port.Name]
	if now == nil || now.port != old.port {
		now = r.settings.render(old.port)
	}
	switch old.filter {
	case nil:
		return now
	case absent:
		return now.over(nil)
	}
	return now.over(r.settings.render(old.filter))
}

// Stick marks a chain that cannot be deleted.
func (r *Ruleset) Stick(table Table, name string) { r.known[table].stuck[name] = true }

// Reset makes the next sync try refused Service ports and stuck chains again.
func (r *Ruleset) Reset() {
	for name := range r.refused {
		r.Accept(name)
	}
	for _, k := range r.known {
		clear(k.stuck)
	}
}

// change lets f change the effective rules of one Service port and updates everything that is derived from them.
func (r *Ruleset) change(name tracker.ServicePortName, f func()) {
	before := r.effective(name)
	f()
	after := r.effective(name)
	if before == after {
		return
	}
	r.layout.change(before, after)
	none := &Rendered{}
	before, after = cmp.Or(before, none), cmp.Or(after, none)
	r.sum.Chains += len(after.chains) - len(before.chains)
	r.sum.Rules += after.chainRules - before.chainRules
}

// effective returns the rules that a sync has to leave for a Service port.
func (r *Ruleset) effective(name tracker.ServicePortName) *Rendered {
	if r.refused[name] {
		return r.installed[name]
	}
	return r.wanted[name]
}

func (r *Ruleset) effectiveAll(ports []*plan.ServicePort) []*Rendered {
	effective := make([]*Rendered, 0, len(ports))
	for _, port := range ports {
		if rendered := r.effective(port.Name); rendered != nil {
			effective = append(effective, rendered)
		}
	}
	return effective
}

// Total returns how many chains and rules the Ruleset would leave in each table, base chains included.
func (r *Ruleset) Total() map[Table]Count {
	s := &r.settings
	filter, nat := r.layout.count(Filter), r.layout.count(NAT)
	return map[Table]Count{
		Filter: {Chains: filter.Chains + len(s.sharedFilterChains()), Rules: filter.Rules + s.filterFixed().count},
		NAT:    {Chains: nat.Chains + len(natChains) + r.sum.Chains, Rules: nat.Rules + s.natFixed().count + s.natTail().count + r.sum.Rules},
	}
}

// Expected returns the table content after the last successful sync, without external writes. Other rules in
// KUBE-FIREWALL are the kubelet's.
func (r *Ruleset) Expected() Expected {
	want := Expected{Chains: map[Table]map[string]int{}, Stuck: map[Table]map[string]bool{}}
	for table, k := range r.known {
		chains := make(map[string]int, len(k.content))
		for name, content := range k.content {
			chains[name] = int(content.rules)
		}
		want.Chains[table], want.Stuck[table] = chains, maps.Clone(k.stuck)
	}
	if want.Firewall = r.settings.writesFirewall(); want.Firewall {
		delete(want.Chains[Filter], chainFirewall)
	}
	return want
}

// Dispatch lists the cluster IPs in the order in which packets meet their rules; see layout.frontends.
func (r *Ruleset) Dispatch(ports []*plan.ServicePort) (frontends []Frontend, rules int) {
	return r.layout.frontends(r.effectiveAll(ports))
}
