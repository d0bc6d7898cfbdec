package iptables

import "bytes"

// The rules that do not depend on Services.

// filterChains and natChains are the shared chains that every payload declares, and thereby empties.
var (
	filterChains = []string{chainServices, chainExternalServices, chainForward, chainNodePorts, chainProxyFirewall}
	natChains    = []string{chainServices, chainNodePorts, chainPostrouting, chainMarkMasq}
)

// fixedChains are the chains that no line of a Service port stands in.
func (s *settings) fixedChains() map[chain]lines {
	chains := map[chain]lines{}
	for table, fixed := range map[Table]lines{NAT: s.natFixed(), Filter: s.filterFixed()} {
		for line := range bytes.Lines(fixed.text) {
			name := string(bytes.Fields(line)[1])
			l := chains[chain{table, name}]
			chains[chain{table, name}] = lines{append(l.text, line...), l.count + 1}
		}
	}
	return chains
}

// natFixed are the rules of the masquerading chains.
func (s *settings) natFixed() lines {
	mark := s.mark()
	var l lines
	l.rule(chainPostrouting, "", "-m", "mark", "!", "--mark", mark+"/"+mark, "-j", "RETURN")
	// The mark comes off before the packet can meet another network stack that would masquerade it again.
	l.rule(chainPostrouting, "", "-j", "MARK", "--xor-mark", mark)
	masquerade := []string{"-j", "MASQUERADE"}
	if s.RandomFully {
		masquerade = append(masquerade, "--random-fully") // two connections must not race for one source port (k/k#76699)
	}
	l.rule(chainPostrouting, "kubernetes service traffic requiring SNAT", masquerade...)
	l.rule(chainMarkMasq, "", "-j", "MARK", "--or-mark", mark)
	return l
}

// natTail sends what is left in KUBE-SERVICES to the NodePorts: it must stand last there.
func (s *settings) natTail() lines {
	const comment = "kubernetes service nodeports; NOTE: this must be the last rule in this chain"
	var l lines
	if s.NodePortAddresses == nil {
		args := []string{"-m", "addrtype", "--dst-type", "LOCAL"}
		switch {
		case !s.IPv4():
			args = append(args, "!", "-d", "::1/128")
		case !s.LocalhostNodePorts:
			args = append(args, "!", "-d", "127.0.0.0/8")
		}
		l.rule(chainServices, comment, append(args, "-j", chainNodePorts)...)
		return l
	}
	for _, addr := range s.NodePortAddresses {
		if addr.IsLoopback() && !(s.IPv4() && s.LocalhostNodePorts) {
			continue // no NodePort on loopback in IPv6, nor where it is switched off
		}
		l.rule(chainServices, comment, "-d", addr.String(), "-j", chainNodePorts)
	}
	return l
}

// filterFixed are the rules of KUBE-FORWARD and KUBE-FIREWALL.
func (s *settings) filterFixed() lines {
	mark := s.mark()
	var l lines
	if s.DropInvalid {
		args := []string{"-m", "conntrack", "--ctstate", "INVALID"}
		if s.Accounting {
			args = append(args, "-m", "nfacct", "--nfacct-name", AccountInvalid)
		}
		l.rule(chainForward, "", append(args, "-j", "DROP")...)
	}
	l.rule(chainForward, "kubernetes forwarding rules", "-m", "mark", "--mark", mark+"/"+mark, "-j", "ACCEPT")
	l.rule(chainForward, "kubernetes forwarding conntrack rule", "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT")
	if s.writesFirewall() {
		// NodePorts on loopback need route_localnet, which would let neighbours reach 127.0.0.1 (CVE-2020-8558).
		l.rule(chainFirewall, "block incoming localnet connections", "-d", "127.0.0.0/8", "!", "-s", "127.0.0.0/8",
			"-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "DROP")
	}
	return l
}

func (s *settings) writesFirewall() bool { return s.IPv4() && s.LocalhostNodePorts }

func (s *settings) sharedFilterChains() []string {
	if s.writesFirewall() {
		return append(filterChains[:len(filterChains):len(filterChains)], chainFirewall)
	}
	return filterChains
}
