package iptables

import (
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"synclab/proxier/backend"
	"synclab/proxier/kernel"
)

// Leads are the rules of nat as they are, chain by chain, to be followed.
type Leads interface {
	// Of gives the rules of a chain, in order; none when there is no such chain.
	Of(chain string) ([]kernel.Lead, error)
	Close()
}

// inherit reads which UDP frontends nat leads to which endpoints, whoever wrote that.
func inherit(tables Tables) ([]backend.Inherited, error) {
	leads, err := tables.Leads()
	if err != nil {
		return nil, fmt.Errorf("frontends of an earlier proxier: %w", err)
	}
	defer leads.Close()
	h := heir{leads: leads, translates: map[string][]netip.AddrPort{}}
	for _, d := range []dispatch{natServices, natNodePorts} {
		if err := h.follow(d, dispatchChains[d].name, map[string]bool{}); err != nil {
			return nil, fmt.Errorf("frontends of an earlier proxier: %w", err)
		}
	}
	return h.found, nil
}

type heir struct {
	leads Leads
	found []backend.Inherited
	// translates says where chains of Service ports lead packets to in the end.
	translates map[string][]netip.AddrPort
}

// follow goes through a chain of a dispatch, and those of the layout that it leads to.
func (h *heir) follow(d dispatch, chain string, seen map[string]bool) error {
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
		// What asks for no address would take packets for any of the node's, but only in the dispatch of NodePorts.
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

// endpoints are those that a chain of a Service port leads to, over others or by itself. Each may be there more than once.
func (h *heir) endpoints(chain string) ([]netip.AddrPort, error) {
	if known, seen := h.translates[chain]; seen {
		return known, nil
	}
	h.translates[chain] = nil // should chains go round in circles, which the kernel does not take
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

// Leads are the rules of nat in the kernel.
func (i Installed) Leads() (Leads, error) {
	return kernel.OpenLeads(string(i.Variant), i.Family, string(NAT))
}

// Leads are the rules of nat.
func (m *Model) Leads() (Leads, error) { return modelLeads{m}, nil }

type modelLeads struct{ *Model }

// Close does nothing.
func (modelLeads) Close() {}

// Of reads the rules of a chain from their text.
func (m modelLeads) Of(chain string) ([]kernel.Lead, error) {
	var leads []kernel.Lead
	rules, _ := m.Chain(NAT, chain)
	for _, text := range rules {
		words, err := splitWords(text)
		if err != nil {
			return nil, err
		}
		lead := kernel.Lead{Rule: kernel.Rule{Jump: jumpTarget(text)}}
		if to, captures := destinationOf(words[2:]); captures && to.protocol == "udp" {
			lead.Addr, lead.Protocol, lead.Port = to.addr, unix.IPPROTO_UDP, to.port
		}
		if i := slices.Index(words, "--to-destination"); i >= 0 && i+1 < len(words) {
			lead.DNAT, err = netip.ParseAddrPort(words[i+1])
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
		leads = append(leads, lead)
	}
	return leads, nil
}
