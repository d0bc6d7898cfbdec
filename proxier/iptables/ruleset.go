package iptables

import (
	"bytes"
	"cmp"
	"net/netip"
	"reflect"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// LargeCluster is the number of endpoints above which comments of endpoint rules are left out, as in kube-proxy.
const LargeCluster = 1000

// Ruleset knows what is wanted and what is installed, and writes the difference. What it derives from all Service ports
// (sums, the text of the dispatch chains) it keeps up to date, so that a sync costs what changed and not what there is.
type Ruleset struct {
	settings Settings
	// outdated: settings changed since wanted was rendered.
	outdated bool

	wanted    map[tracker.ServicePortName]*Rendered
	installed map[tracker.ServicePortName]*Rendered
	// dirty Service ports may differ from what is installed: a partial payload covers exactly these.
	dirty map[tracker.ServicePortName]bool
	// refused Service ports keep what is installed of them until they change or everything is written anew.
	refused map[tracker.ServicePortName]bool
	// stuck chains could not be deleted (a foreign rule refers to them); they stay, empty, until the next full payload.
	stuck map[string]bool
	large bool

	// sums of the effective rules of all Service ports, by table; see change.
	sums map[Table]Count
	// blocks are the lines of the dispatch chains; nil: to be put together again.
	blocks [dispatches]*block
}

// NewRuleset makes an empty Ruleset.
func NewRuleset(settings Settings) *Ruleset {
	return &Ruleset{
		settings:  settings,
		wanted:    map[tracker.ServicePortName]*Rendered{},
		installed: map[tracker.ServicePortName]*Rendered{},
		dirty:     map[tracker.ServicePortName]bool{},
		refused:   map[tracker.ServicePortName]bool{},
		stuck:     map[string]bool{},
		sums:      map[Table]Count{},
	}
}

// Settings in force.
func (r *Ruleset) Settings() Settings { return r.settings }

// SetSettings for the payloads to come. The next one must be full, after Rerender.
func (r *Ruleset) SetSettings(settings Settings) {
	r.outdated = r.outdated || !reflect.DeepEqual(settings, r.settings)
	r.settings = settings
}

// CrossesLarge says whether so many endpoints change the form of endpoint rules, so that only a full payload leaves
// the same rules as a fresh start would. (kube-proxy leaves a mixture.)
func (r *Ruleset) CrossesLarge(endpoints int) bool { return endpoints > LargeCluster != r.large }

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
		clear(r.blocks[:]) // its place among the others may be another
	}
	r.change(port.Name, func() { r.wanted[port.Name] = r.settings.render(port) })
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

// Dirty says whether a partial payload would have anything to write.
func (r *Ruleset) Dirty() bool { return len(r.dirty) > 0 }

// Rerender makes the rules of all Service ports again where they may differ, after SetSettings.
func (r *Ruleset) Rerender(ports []*plan.ServicePort) {
	for _, port := range ports {
		if old := r.wanted[port.Name]; r.outdated || old == nil || old.port != port {
			r.want(port)
		}
	}
	r.outdated = false
}

// Stick keeps a chain that cannot be deleted.
func (r *Ruleset) Stick(chain string) { r.stuck[chain] = true }

// Reset gives what was refused or stuck another chance, before a full payload.
func (r *Ruleset) Reset() {
	for name := range r.refused {
		r.change(name, func() { delete(r.refused, name) })
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
	none := &Rendered{}
	before, after = cmp.Or(before, none), cmp.Or(after, none)
	for d := range dispatches {
		old, now := &before.dispatch[d], &after.dispatch[d]
		r.sum(d.table(), 0, now.count-old.count)
		if !bytes.Equal(old.text, now.text) {
			r.blocks[d] = nil
		}
	}
	r.sum(NAT, len(after.chains)-len(before.chains), after.chainRules-before.chainRules)
}

func (r *Ruleset) sum(table Table, chains, rules int) {
	c := r.sums[table]
	r.sums[table] = Count{c.Chains + chains, c.Rules + rules}
}

// effective is what the payload shall leave of a Service port.
func (r *Ruleset) effective(name tracker.ServicePortName) *Rendered {
	if r.refused[name] {
		return r.installed[name]
	}
	return r.wanted[name]
}

// Total is what the Ruleset would leave in each table, base chains included.
func (r *Ruleset) Total() map[Table]Count {
	s := &r.settings
	filter, nat := r.sums[Filter], r.sums[NAT]
	return map[Table]Count{
		Filter: {filter.Chains + len(s.sharedFilterChains()), filter.Rules + s.filterFixed().count},
		NAT:    {nat.Chains + len(natChains), nat.Rules + s.natFixed().count + s.natTail().count},
	}
}

// Expected is what the tables hold after the last successful payload, as long as nobody meddles. The rule in
// KUBE-FIREWALL is not counted: the kubelet writes there as well.
func (r *Ruleset) Expected() Expected {
	want := Expected{Services: map[string]int{}, Stuck: r.stuck, Total: r.Total()}
	for _, rendered := range r.installed {
		for _, c := range rendered.chains {
			want.Services[c.name] = c.rules
		}
	}
	if want.Firewall = r.settings.writesFirewall(); want.Firewall {
		filter := want.Total[Filter]
		want.Total[Filter] = Count{filter.Chains - 1, filter.Rules - 1}
	}
	return want
}

// Frontend is a cluster IP as packets find it: the position of its rule in nat KUBE-SERVICES, from 1.
type Frontend struct {
	Position int
	Protocol corev1.Protocol
	Addr     netip.AddrPort
}

// Dispatch lists the cluster IPs that lead to endpoints, in the order in which packets meet their rules, and the number
// of rules in nat KUBE-SERVICES that a packet for none of the Services crosses.
func (r *Ruleset) Dispatch(ports []*plan.ServicePort) (frontends []Frontend, rules int) {
	for _, rendered := range r.effectiveAll(ports) {
		port := rendered.port
		if port.HasInternalEndpoints() { // its rule is the first of the port's
			frontends = append(frontends, Frontend{rules + 1, port.Name.Protocol, netip.AddrPortFrom(port.ClusterIP, port.Port)})
		}
		rules += rendered.dispatch[natServices].count
	}
	return frontends, rules
}
