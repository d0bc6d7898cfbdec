package rule

import (
	"net/netip"
	"strconv"
)

// Append appends the rule as iptables-save prints it after "-A CHAIN". Each word follows a space.
func (r *Rule) Append(b []byte) []byte {
	b = appendPrefix(b, " -s ", r.Src, r.Not.Has(NotSrc))
	b = appendPrefix(b, " -d ", r.Dst, r.Not.Has(NotDst))
	b = appendName(b, " -i ", r.In, r.Not.Has(NotIn))
	b = appendName(b, " -o ", r.Out, r.Not.Has(NotOut))
	if r.Proto != 0 {
		b = appendName(b, " -p ", r.Proto.String(), r.Not.Has(NotProto))
	}
	b = appendName(b, " ", r.Words, false)
	for i := range r.Matches {
		b = r.appendMatch(b, &r.Matches[i])
	}
	return r.Target.append(b)
}

// Line returns the rule as iptables-save prints it, without counters.
func (r *Rule) Line(chain string) string {
	return string(r.Append(append([]byte("-A "), chain...)))
}

func appendNot(b []byte, not bool) []byte {
	if not {
		b = append(b, " !"...)
	}
	return b
}

func appendName(b []byte, option, name string, not bool) []byte {
	if name == "" {
		return b
	}
	return append(append(appendNot(b, not), option...), name...)
}

func appendPrefix(b []byte, option string, p netip.Prefix, not bool) []byte {
	if !p.IsValid() {
		return b
	}
	b = appendAddr(append(appendNot(b, not), option...), p.Addr())
	return strconv.AppendInt(append(b, '/'), int64(p.Bits()), 10)
}

// appendAddr appends an address as inet_ntop prints it: that of IPv6 with 96 leading zero bits ends like one of IPv4.
func appendAddr(b []byte, a netip.Addr) []byte {
	if a.Is6() {
		all := a.As16()
		zeros, last := [12]byte(all[:12]), [4]byte(all[12:])
		if zeros == ([12]byte{}) && (last[0] != 0 || last[1] != 0) {
			return netip.AddrFrom4(last).AppendTo(append(b, "::"...))
		}
	}
	return a.AppendTo(b)
}

func appendHex(b []byte, n uint32) []byte {
	return strconv.AppendUint(append(b, "0x"...), uint64(n), 16)
}

func (r *Rule) appendMatch(b []byte, m *Match) []byte {
	switch m.Kind {
	case MatchForeign:
		return append(append(b, " -m "...), m.Words...)
	case MatchComment:
		return appendQuoted(append(b, " -m comment --comment "...), m.Name)
	case MatchPorts:
		b = append(append(b, " -m "...), r.Proto.String()...)
		b = appendPorts(b, " --sport ", r.SrcPorts, r.Not.Has(NotSrcPorts))
		return appendPorts(b, " --dport ", r.DstPorts, r.Not.Has(NotDstPorts))
	case MatchSrcLocal:
		return append(appendNot(append(b, " -m addrtype"...), m.Not), " --src-type LOCAL"...)
	case MatchDstLocal:
		return append(appendNot(append(b, " -m addrtype"...), m.Not), " --dst-type LOCAL"...)
	case MatchState:
		return appendStates(append(appendNot(append(b, " -m conntrack"...), m.Not), " --ctstate "...), m.Bits)
	case MatchMark:
		b = appendHex(append(appendNot(append(b, " -m mark"...), m.Not), " --mark "...), m.Bits)
		if m.Mask != 1<<32-1 {
			b = appendHex(append(b, '/'), m.Mask)
		}
	case MatchRandom:
		b = append(appendNot(append(b, " -m statistic --mode random"...), m.Not), " --probability "...)
		return strconv.AppendFloat(b, float64(m.Bits)/ProbabilityUnit, 'f', 11, 64)
	case MatchRecent:
		return r.appendRecent(append(b, " -m recent"...), m)
	case MatchAccounting:
		return appendQuoted(append(b, " -m nfacct --nfacct-name  "...), m.Name) // iptables prints two spaces here
	case MatchProgram:
		return appendProgram(append(b, " -m bpf --bytecode "...), m)
	}
	return b
}

func appendPorts(b []byte, option string, p Ports, not bool) []byte {
	if p == (Ports{}) {
		return b
	}
	b = strconv.AppendUint(append(appendNot(b, not), option...), uint64(p.First), 10)
	if p.First != p.Last {
		b = strconv.AppendUint(append(b, ':'), uint64(p.Last), 10)
	}
	return b
}

func appendStates(b []byte, states uint32) []byte {
	separate := false
	for i, name := range stateNames {
		if states&(1<<i) == 0 {
			continue
		}
		if separate {
			b = append(b, ',')
		}
		b, separate = append(b, name...), true
	}
	return b
}

func (r *Rule) appendRecent(b []byte, m *Match) []byte {
	b = appendNot(b, m.Not)
	for _, known := range recentOptions {
		if m.Bits&known.bit != 0 {
			b = append(append(b, ' '), known.option...)
		}
	}
	if m.Seconds != 0 {
		b = strconv.AppendUint(append(b, " --seconds "...), uint64(m.Seconds), 10)
	}
	if m.Bits&RecentReap != 0 {
		b = append(b, " --reap"...)
	}
	b = append(append(b, " --name "...), m.Name...)
	return append(append(append(b, " --mask "...), wholeAddress[r.IPv6]...), " --rsource"...)
}

func appendProgram(b []byte, m *Match) []byte {
	b = strconv.AppendUint(append(b, '"'), uint64(len(m.Program)), 10)
	for _, in := range m.Program {
		b = strconv.AppendUint(append(b, ','), uint64(in.Op), 10)
		b = strconv.AppendUint(append(b, ' '), uint64(in.Jt), 10)
		b = strconv.AppendUint(append(b, ' '), uint64(in.Jf), 10)
		b = strconv.AppendUint(append(b, ' '), uint64(in.K), 10)
	}
	return append(b, '"')
}

var verdicts = [...]string{TargetAccept: "ACCEPT", TargetDrop: "DROP", TargetReturn: "RETURN"}

func (t *Target) append(b []byte) []byte {
	switch t.Kind {
	case TargetForeign:
		return append(append(b, " -j "...), t.Words...)
	case TargetJump:
		how := " -j "
		if t.Goto {
			how = " -g "
		}
		return append(append(b, how...), t.Chain...)
	case TargetAccept, TargetDrop, TargetReturn:
		return append(append(b, " -j "...), verdicts[t.Kind]...)
	case TargetReject:
		return append(append(b, " -j REJECT --reject-with "...), t.With...)
	case TargetMark:
		b = appendHex(append(b, " -j MARK --set-xmark "...), t.Bits)
		return appendHex(append(b, '/'), t.Mask)
	case TargetDNAT:
		return appendDestination(append(b, " -j DNAT --to-destination "...), t.To)
	case TargetMasquerade:
		b = append(b, " -j MASQUERADE"...)
		if t.RandomFully {
			b = append(b, " --random-fully"...)
		}
	}
	return b
}

func appendDestination(b []byte, to netip.AddrPort) []byte {
	if to.Port() == 0 {
		return appendAddr(b, to.Addr())
	}
	if to.Addr().Is4() {
		b = appendAddr(b, to.Addr())
	} else {
		b = append(appendAddr(append(b, '['), to.Addr()), ']')
	}
	return strconv.AppendUint(append(b, ':'), uint64(to.Port()), 10)
}
