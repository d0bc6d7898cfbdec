package iptables

import (
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"synclab/proxier/backend"
	"synclab/proxier/iptables/rule"
	"synclab/proxier/kernel"
)

// ChainRules are the rules of nat as they are, to follow jumps from chain to chain.
type ChainRules interface {
	// Of returns the rules of a chain, in order; none when there is no such chain.
	Of(chain string) ([]kernel.ChainRule, error)
	Close()
}

// Inherited returns the UDP frontends of nat with their endpoints, whatever process wrote the rules.
func (b *Backend) Inherited() ([]backend.Inherited, error) {
	chains, err := b.tables.Chains(NAT)
	if err != nil || !slices.ContainsFunc(chains, b.rules.leads) {
		return nil, err
	}
	leads, err := b.tables.ChainRules()
	if err != nil {
		return nil, err
	}
	defer leads.Close()
	h := previousRules{leads: leads, translates: map[string][]netip.AddrPort{}}
	for _, d := range []dispatch{natServices, natNodePorts} {
		if err := h.follow(d, dispatchChains[d].name, map[string]bool{}); err != nil {
			return nil, err
		}
	}
	return h.found, nil
}

type previousRules struct {
	leads ChainRules
	found []backend.Inherited
	// translates has the endpoints that the chains of Service ports send packets to.
	translates map[string][]netip.AddrPort
}

// follow reads a chain of a dispatch, and the layout's chains that it jumps to.
func (h *previousRules) follow(d dispatch, chain string, seen map[string]bool) error {
	if seen[chain] {
		return nil
	}
	seen[chain] = true
	rules, err := h.leads.Of(chain)
	if err != nil {
		return fmt.Errorf("chain %s: %w", chain, err)
	}
	for _, rule := range rules {
		if isLayoutChain(rule.Jump) {
			if err := h.follow(d, rule.Jump, seen); err != nil {
				return err
			}
			continue
		}
		// A rule without an address matches every address of the node, but only in the dispatch of NodePorts.
		if !IsServiceChain(rule.Jump) || rule.Protocol != unix.IPPROTO_UDP || rule.Port == 0 || rule.Addr.IsValid() != (d == natServices) {
			continue
		}
		endpoints, err := h.endpoints(rule.Jump)
		if err != nil {
			return err
		}
		h.found = append(h.found, backend.Inherited{Frontend: netip.AddrPortFrom(rule.Addr, rule.Port), Endpoints: endpoints})
	}
	return nil
}

// endpoints returns the endpoints that a chain of a Service port sends packets to, over other chains or by itself,
// sorted.
func (h *previousRules) endpoints(chain string) ([]netip.AddrPort, error) {
	if known, seen := h.translates[chain]; seen {
		return known, nil
	}
	h.translates[chain] = nil // ends a loop of chains, which the kernel does not accept
	rules, err := h.leads.Of(chain)
	if err != nil {
		return nil, fmt.Errorf("chain %s: %w", chain, err)
	}
	var all []netip.AddrPort
	for _, rule := range rules {
		if rule.DNAT.IsValid() {
			all = append(all, rule.DNAT)
		}
		if !IsServiceChain(rule.Jump) {
			continue
		}
		further, err := h.endpoints(rule.Jump)
		if err != nil {
			return nil, err
		}
		all = append(all, further...)
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	all = slices.Compact(all)
	h.translates[chain] = all
	return all, nil
}

// ChainRules opens the rules of nat in the kernel.
func (i Installed) ChainRules() (ChainRules, error) {
	return kernel.OpenChainRules(string(i.Variant), i.Family, string(NAT))
}

// ChainRules returns the rules of nat.
func (m *Model) ChainRules() (ChainRules, error) { return modelChainRules{m}, nil }

type modelChainRules struct{ *Model }

// Close does nothing.
func (modelChainRules) Close() {}

// Of returns the rules of a chain.
func (m modelChainRules) Of(chain string) ([]kernel.ChainRule, error) {
	var leads []kernel.ChainRule
	for _, r := range m.Chain(NAT, chain) {
		lead := kernel.ChainRule{Rule: kernel.Rule{Jump: r.Target.Chain, DNAT: r.Target.To}}
		if to, captures := destinationOf(&r); captures && r.Proto == rule.UDP {
			lead.Addr, lead.Protocol, lead.Port = to.addr, unix.IPPROTO_UDP, to.port
		}
		leads = append(leads, lead)
	}
	return leads, nil
}
