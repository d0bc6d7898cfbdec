package iptables

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// LargeCluster is the number of endpoints above which comments of endpoint rules are left out, as in kube-proxy.
const LargeCluster = 1000

// Ruleset knows what is wanted and what is installed, and writes the difference.
type Ruleset struct {
	settings Settings

	wanted    map[tracker.ServicePortName]*Rendered
	installed map[tracker.ServicePortName]*Rendered
	// dirty Service ports may differ from what is installed: a partial payload covers exactly these.
	dirty map[tracker.ServicePortName]bool
	// refused Service ports keep what is installed of them until they change or everything is written anew.
	refused map[tracker.ServicePortName]bool
	// stuck chains could not be deleted (a foreign rule refers to them); they stay, empty, until the next full payload.
	stuck map[string]bool
	large bool
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
	}
}

// Settings in force.
func (r *Ruleset) Settings() Settings { return r.settings }

// SetSettings for the payloads to come. The next one must be full, after Rerender.
func (r *Ruleset) SetSettings(settings Settings) { r.settings = settings }

// CrossesLarge says whether so many endpoints change the form of endpoint rules, so that only a full payload leaves
// the same rules as a fresh start would. (kube-proxy leaves a mixture.)
func (r *Ruleset) CrossesLarge(endpoints int) bool { return endpoints > LargeCluster != r.large }

// Update renders the Service ports that a delta names.
func (r *Ruleset) Update(delta plan.Delta) {
	for _, name := range delta.Removed {
		delete(r.wanted, name)
		r.Accept(name)
	}
	for _, port := range delta.Changed {
		r.wanted[port.Name] = r.settings.render(port)
		r.Accept(port.Name)
	}
}

// Refuse leaves a Service port out of the payloads to come. What is installed of it stays, unless that is what was
// refused.
func (r *Ruleset) Refuse(name tracker.ServicePortName) {
	if r.refused[name] {
		delete(r.installed, name)
	}
	r.refused[name] = true
	r.dirty[name] = true
}

// Accept takes a Service port back in.
func (r *Ruleset) Accept(name tracker.ServicePortName) {
	delete(r.refused, name)
	r.dirty[name] = true
}

// Dirty says whether a partial payload would have anything to write.
func (r *Ruleset) Dirty() bool { return len(r.dirty) > 0 }

// Rerender makes the rules of all Service ports again, after SetSettings.
func (r *Ruleset) Rerender(ports []*plan.ServicePort) {
	for _, port := range ports {
		r.wanted[port.Name] = r.settings.render(port)
	}
}

// Stick keeps a chain that cannot be deleted.
func (r *Ruleset) Stick(chain string) { r.stuck[chain] = true }

// Reset gives what was refused or stuck another chance, before a full payload.
func (r *Ruleset) Reset() {
	clear(r.refused)
	clear(r.stuck)
}

// effective is what the payload shall leave of a Service port.
func (r *Ruleset) effective(name tracker.ServicePortName) *Rendered {
	if r.refused[name] {
		return r.installed[name]
	}
	return r.wanted[name]
}

// Expected is what the tables hold after the last successful payload, as long as nobody meddles. KUBE-FIREWALL is left
// out: the kubelet writes to it as well.
func (r *Ruleset) Expected(ports []*plan.ServicePort) Expected {
	want := Expected{Services: map[string]int{}, Stuck: r.stuck, Total: r.Total(ports)}
	for _, rendered := range r.installed {
		for _, c := range rendered.chains {
			want.Services[c.name] = c.rules
		}
	}
	if r.settings.writesFirewall() {
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
