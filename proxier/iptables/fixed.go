package iptables

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
)

// The rules that do not depend on Services.

// filterChains and natChains are the shared chains that every payload declares, and thereby empties.
var (
	filterChains = []string{chainServices, chainExternalServices, chainForward, chainNodePorts, chainProxyFirewall}
	natChains    = []string{chainServices, chainNodePorts, chainPostrouting, chainMarkMasq}
)

// fixedChains returns the chains that contain no dispatch rule, with their rules.
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
	masquerade := []string{"-j", "MASQUERADE"}
	if s.RandomFully {
		masquerade = append(masquerade, "--random-fully") // two connections must not race for one source port (k/k#76699)
	}
	var l lines
	if s.flat {
		// Marked packets are masqueraded by the rules below, which clear the mark.
		unmarked := []string{"-m", "mark", "!", "--mark", mark + "/" + mark}
		l.rule(chainPostrouting, "kubernetes service traffic of an endpoint to itself", slices.Concat(unmarked, s.hairpin(), masquerade)...)
	}
	l.rule(chainPostrouting, "", "-m", "mark", "!", "--mark", mark+"/"+mark, "-j", "RETURN")
	// Clear the mark, or another network stack on the packet's way would masquerade it again.
	l.rule(chainPostrouting, "", "-j", "MARK", "--xor-mark", mark)
	l.rule(chainPostrouting, "kubernetes service traffic requiring SNAT", masquerade...)
	l.rule(chainMarkMasq, "", "-j", "MARK", "--or-mark", mark)
	return l
}

// hairpin matches packets that an endpoint sends to itself through a Service: translated packets with equal addresses.
// Of all matches, only a BPF program can compare two fields of a packet.
func (s *settings) hairpin() []string {
	program := sameAddresses(8, 24, 4)
	if s.IPv4() {
		program = sameAddresses(12, 16, 1)
	}
	return []string{"-m", "conntrack", "--ctstate", "DNAT", "-m", "bpf", "--bytecode", `"` + program + `"`}
}

// sameAddresses returns a program in classic BPF, as match bpf takes it. It returns true when so many words at two
// offsets of the IP header are equal.
func sameAddresses(source, destination, words int) string {
	const (
		loadWord, toX, jumpIfX, result = 0x20, 0x07, 0x1d, 0x06 // BPF_LD|W|ABS, MISC|TAX, JMP|JEQ|X, RET|K
		perWord                        = 4
	)
	program := strconv.Itoa(perWord*words + 2)
	instruction := func(code, ifTrue, ifFalse, k int) { program += fmt.Sprintf(",%d %d %d %d", code, ifTrue, ifFalse, k) }
	for i := range words {
		instruction(loadWord, 0, 0, source+4*i)
		instruction(toX, 0, 0, 0)
		instruction(loadWord, 0, 0, destination+4*i)
		instruction(jumpIfX, 0, perWord*(words-1-i)+1, 0) // else to the last instruction, which returns false
	}
	instruction(result, 0, 0, 1)
	instruction(result, 0, 0, 0)
	return program
}

// natTail returns the jump from KUBE-SERVICES to the NodePorts, which must be the last rule there.
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
			continue // no NodePort on loopback in IPv6, nor where it is disabled
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
	if s.flat {
		// Hairpin packets are masqueraded without a mark.
		l.rule(chainForward, "kubernetes forwarding of an endpoint to itself", append(s.hairpin(), "-j", "ACCEPT")...)
	}
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
