package invariants

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/backend"
	"synclab/proxier/plan"
)

// The subject and the objects alone decide what evidence each invariant needs. Otherwise missing evidence would pass as
// a successful check.

func dueAlways(what string) func(*Evidence) string {
	return func(*Evidence) string { return what }
}

// dueServed requires evidence only from subjects that are known to serve it.
func dueServed(what string) func(*Evidence) string {
	return func(e *Evidence) string {
		if e.Subject.Serves {
			return what
		}
		return ""
	}
}

// dueRules requires the rules of subjects that can be rendered, which kube-proxy's mode nftables cannot.
func dueRules(e *Evidence) string {
	if e.Subject.Iptables() || e.Subject.Nftables() && e.Subject.Own {
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
	if e.Subject.Own && e.Subject.Iptables() {
		return "tables of the subject in the kernel"
	}
	return ""
}

func duePackets(e *Evidence) string {
	if e.Subject.KnownBackend() && e.somePort(func(*plan.ServicePort) bool { return true }) {
		return "packets to the Services"
	}
	return ""
}

func dueRefused(e *Evidence) string {
	if e.Subject.KnownBackend() && e.somePort(func(p *plan.ServicePort) bool { return !p.HasEndpoints }) {
		return "packets to the Service ports without endpoints"
	}
	return ""
}

func dueShares(e *Evidence) string {
	if e.Subject.KnownBackend() && e.somePort(func(p *plan.ServicePort) bool { return len(p.Cluster) > 0 && !p.InternalPolicyLocal }) {
		return "shares of the endpoints"
	}
	return ""
}

// dueRestart requires evidence if UDP flows were planted before a restart, and no object has changed since then.
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

// somePort reports whether a Service port matches such and has a cluster IP and port that no other Service port has.
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
