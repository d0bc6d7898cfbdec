package iptables

import (
	"cmp"
	"maps"

	"synclab/proxier/backend"
	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// Ruleset knows what is wanted and what is installed, and finds the difference. What it derives from all Service ports
// (sums, dispatch chains) it keeps up to date, so that a sync costs what changed and not what there is.
type Ruleset struct {
	settings settings
	// outdated: settings changed since wanted was rendered.
	outdated bool
	kind     Layout
	layout   layout

	wanted map[tracker.ServicePortName]*Rendered
	// installed is the last of each Service port that the kernel took, table by table.
	installed map[tracker.ServicePortName]*Rendered
	// dirty Service ports may differ from what is installed.
	dirty map[tracker.ServicePortName]bool
	// refused Service ports keep what is installed of them until they change or everything is written anew.
	refused map[tracker.ServicePortName]bool
	// stuck chains could not be deleted (a foreign rule refers to them); they stay, empty, until everything is written.
	stuck map[chain]bool
	large bool
	// behind: something beside Service ports may differ, or the last sync was not finished.
	behind bool
	// unread: what the dispatch in the kernel leads to is not what is installed, as far as is known.
	unread bool
	// void tables had no chain that leads to Services when everything was forgotten: there is nothing to read back.
	void map[Table]bool

	// round numbers the sync, and written is what it wrote so far.
	round   uint16
	written map[Table]Count

	// sum of the chains of all Service ports, with their rules.
	sum Count
	// held is what the kernel holds, by table.
	held map[Table]*held
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
		stuck:     map[chain]bool{},
		held:      map[Table]*held{Filter: newHeld(), NAT: newHeld()},
		behind:    true,
		written:   map[Table]Count{},
	}
}

// Settings in force.
func (r *Ruleset) Settings() backend.Settings { return r.settings.Settings }

// SetSettings for what is to come, after Rerender.
func (r *Ruleset) SetSettings(s backend.Settings) {
	if r.settings.equal(s) {
		return
	}
	r.settings, r.outdated, r.behind = newSettings(s, r.kind), true, true
}

// CrossesLarge says whether so many endpoints change the form of endpoint rules, so that only a full sync leaves the
// same rules as a fresh start would. (kube-proxy leaves a mixture.)
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
		r.layout.reorder() // its place among the others may be another
	}
	r.change(port.Name, func() { r.wanted[port.Name] = r.settings.render(port) })
	r.dirty[port.Name] = true
}

// Refuse leaves a Service port out of the payloads to come. What is installed of it stays, unless that is what was
// refused.
func (r *Ruleset) Refuse(name tracker.ServicePortName) {
	r.change(name, func() {
		if r.refused[name] {
			delete(r.installed, name)
		}
		r.refused[name] = true
	})
	r.dirty[name] = true
}

// Accept takes a Service port back in.
func (r *Ruleset) Accept(name tracker.ServicePortName) {
	r.change(name, func() { delete(r.refused, name) })
	r.dirty[name] = true
}

// Dirty says whether there may be anything to write.
func (r *Ruleset) Dirty() bool { return r.behind || len(r.dirty) > 0 }

// Rerender makes the rules of all Service ports again where they may differ, after SetSettings.
func (r *Ruleset) Rerender(ports []*plan.ServicePort) {
	for _, port := range ports {
		if old := r.wanted[port.Name]; r.outdated || old == nil || old.port != port {
			r.want(port)
		}
	}
	if r.outdated {
		r.rerenderInstalled()
	}
	r.outdated = false
}

// rerenderInstalled makes the rules again that refused Service ports keep, or are going to: with the settings of now, as
// their chains are written. Whatever the kernel holds of them is forgotten with every change of settings.
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

// Stick keeps a chain that cannot be deleted.
func (r *Ruleset) Stick(table Table, name string) { r.stuck[chain{table, name}] = true }

// Reset gives what was refused or stuck another chance.
func (r *Ruleset) Reset() {
	for name := range r.refused {
		r.Accept(name)
	}
	clear(r.stuck)
}

// change lets f change what is effective of one Service port, and brings up to date what is derived from it.
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

// effective is what a sync shall leave of a Service port.
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

// Total is what the Ruleset would leave in each table, base chains included.
func (r *Ruleset) Total() map[Table]Count {
	s := &r.settings
	filter, nat := r.layout.count(Filter), r.layout.count(NAT)
	return map[Table]Count{
		Filter: {Chains: filter.Chains + len(s.sharedFilterChains()), Rules: filter.Rules + s.filterFixed().count},
		NAT:    {Chains: nat.Chains + len(natChains) + r.sum.Chains, Rules: nat.Rules + s.natFixed().count + s.natTail().count + r.sum.Rules},
	}
}

// Expected is what the tables hold after the last successful sync, as long as nobody meddles. What else is in
// KUBE-FIREWALL is the kubelet's.
func (r *Ruleset) Expected() Expected {
	want := Expected{Chains: map[Table]map[string]int{}, Stuck: map[Table]map[string]bool{NAT: {}, Filter: {}}}
	for table, held := range r.held {
		chains := make(map[string]int, len(held.content))
		for name, content := range held.content {
			chains[name] = int(content.rules)
		}
		want.Chains[table] = chains
	}
	for c := range maps.Keys(r.stuck) {
		want.Stuck[c.table][c.name] = true
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
