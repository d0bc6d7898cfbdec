package invariants

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/backend"
	"synclab/proxier/plan"
)

// What must be there to look at, of each invariant, follows from the subject and the objects alone: evidence that was not
// gathered must not pass for evidence that all is well.

// known says whether the lab knows how the subject writes its rules.
func (s *Subject) known() bool { return s.Backend != "" }

func dueAlways(what string) func(*Evidence) string {
	return func(*Evidence) string { return what }
}

// dueServed is due of subjects that are known to serve it.
func dueServed(what string) func(*Evidence) string {
	return func(e *Evidence) string {
		if e.Subject.Serves {
			return what
		}
		return ""
	}
}

// dueRules are those that can be rendered: of kube-proxy's mode nftables they cannot.
func dueRules(e *Evidence) string {
	if e.Subject.iptables() || e.Subject.nftables() && e.Subject.Own {
		return "rules of the subject in the kernel"
	}
	return ""
}

func dueTidy(e *Evidence) string {
	large := !e.Subject.Own && slices.ContainsFunc(e.Families, func(family corev1.IPFamily) bool {
		return e.plan(family).KnownEndpoints() > backend.LargeCluster // see checkStale
	})
	if large {
		return ""
	}
	return dueRules(e)
}

func dueWhole(e *Evidence) string {
	if e.Subject.Own && e.Subject.iptables() {
		return "tables of the subject in the kernel"
	}
	return ""
}

func duePackets(e *Evidence) string {
	if e.Subject.known() && e.somePort(func(*plan.ServicePort) bool { return true }) {
		return "packets to Services, of which there are some"
	}
	return ""
}

func dueRefused(e *Evidence) string {
	if e.Subject.known() && e.somePort(func(p *plan.ServicePort) bool { return !p.HasEndpoints }) {
		return "packets to Service ports without endpoints, of which there are some"
	}
	return ""
}

func dueShares(e *Evidence) string {
	if e.Subject.known() && e.somePort(func(p *plan.ServicePort) bool { return len(p.Cluster) > 0 && !p.InternalPolicyLocal }) {
		return "shares of endpoints, of which there are some"
	}
	return ""
}

// dueRestart: UDP flows were planted before a restart, and since then nothing changed.
func dueRestart(e *Evidence) string {
	if e.Restarted == nil || e.Restarted.Objects != Digest(e.Objects) {
		return ""
	}
	for _, flows := range e.Restarted.Flows {
		if len(flows) > 0 {
			return "UDP flows from before the restart"
		}
	}
	return ""
}

// somePort says whether there is such a Service port whose addresses no other wants.
func (e *Evidence) somePort(such func(*plan.ServicePort) bool) bool {
	for _, family := range e.Families {
		ports := e.plan(family).Ports()
		claims := claimed(ports)
		for _, p := range ports {
			if claims[claim{p.ClusterIP, p.Port, p.Name.Protocol}] == 1 && such(p) {
				return true
			}
		}
	}
	return false
}
