package direct

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"

	"synclab/proxier/kernel/xtables"
)

// decoder writes rules as iptables-save prints them. Of matches and targets that the proxier does not use, it writes
// the name only.
type decoder struct {
	wire *xtables.Wire
	// chainAt names the chain whose first rule is at an offset.
	chainAt func(offset uint32) (string, bool)
}

func u16(b []byte) uint16 { return binary.NativeEndian.Uint16(b) }
func u32(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }

// rule writes the rule of an entry, from "-A chain" on.
func (d *decoder) rule(chain string, e xtables.Entry) (string, error) {
	out := []string{"-A", chain}
	out = append(out, d.basics(e.Bytes)...)
	matches := e.Bytes[d.wire.Entry : len(e.Bytes)-len(e.Target)]
	for len(matches) > 0 {
		size := 0
		if len(matches) >= xtables.Header {
			size = int(u16(matches))
		}
		if size < xtables.Header || size > len(matches) {
			return "", fmt.Errorf("entry at byte %d: a match of %d bytes in %d", e.At, size, len(matches))
		}
		name := string(xtables.CString(matches[2 : 2+xtables.ExtensionName]))
		out = append(out, "-m", name)
		if k, known := kindOf([]byte(name)); known && size == xtables.Aligned(xtables.Header+matchSizes(k)) {
			out = append(out, matchOptions[k](matches[xtables.Header:size], d.wire, matches[xtables.Header-1])...)
		}
		matches = matches[size:]
	}
	return strings.Join(append(out, d.target(e)...), " "), nil
}

func matchSizes(k kind) int { return matches[k].size }

// not puts ! in front of words where a bit is set.
func not(inverted bool, words ...string) []string {
	if inverted {
		return append([]string{"!"}, words...)
	}
	return words
}

func (d *decoder) basics(entry []byte) []string {
	w, inversions := d.wire, entry[d.wire.Inversions]
	var out []string
	for i, option := range []string{"-s", "-d"} {
		inverted := inversions&[]byte{invertSource, invertDestination}[i] != 0
		addr, _ := netip.AddrFromSlice(entry[i*w.Addr:][:w.Addr])
		ones := 0
		for _, b := range entry[(2+i)*w.Addr:][:w.Addr] {
			ones += bits.OnesCount8(b)
		}
		if ones > 0 || inverted {
			out = append(out, not(inverted, option, netip.PrefixFrom(addr, ones).String())...)
		}
	}
	for i, option := range []string{"-i", "-o"} {
		if name := xtables.CString(entry[w.Interfaces+i*interfaceSize:][:interfaceSize]); len(name) > 0 {
			out = append(out, not(inversions&[]byte{invertIn, invertOut}[i] != 0, option, string(name))...)
		}
	}
	if number := u16(entry[w.Protocol:]); number != 0 {
		name := strconv.Itoa(int(number))
		for _, p := range protocols {
			if p.number == number {
				name = p.name
			}
		}
		out = append(out, not(inversions&invertProtocol != 0, "-p", name)...)
	}
	return out
}

// matchOptions write the options of a match of some revision from what follows its header.
var matchOptions = [kinds]func(b []byte, w *xtables.Wire, revision byte) []string{
	comment: func(b []byte, _ *xtables.Wire, _ byte) []string {
		return []string{"--comment", quoted(string(xtables.CString(b)))}
	},
	tcp: func(b []byte, _ *xtables.Wire, _ byte) []string {
		return ports(b[0:4], b[4:8], b[portInversions[tcp]], 0xffff)
	},
	udp: func(b []byte, _ *xtables.Wire, _ byte) []string {
		return ports(b[0:4], b[4:8], b[portInversions[udp]], 0xffff)
	},
	sctp: func(b []byte, _ *xtables.Wire, _ byte) []string {
		return ports(b[4:8], b[0:4], b[portInversions[sctp]], 0)
	},
	addrtype: func(b []byte, _ *xtables.Wire, _ byte) []string {
		var out []string
		for i, option := range []string{"--src-type", "--dst-type"} {
			if u16(b[2*i:]) == typeLocal {
				out = append(out, not(b[4]>>i&1 != 0, option, "LOCAL")...)
			}
		}
		return out
	},
	conntrack: func(b []byte, _ *xtables.Wire, _ byte) []string {
		var names []string
		for _, s := range states {
			if u16(b[150:])&s.bit != 0 {
				names = append(names, s.name)
			}
		}
		return not(u16(b[148:])&1 != 0, "--ctstate", strings.Join(names, ","))
	},
	mark: func(b []byte, _ *xtables.Wire, _ byte) []string {
		value := fmt.Sprintf("%#x", u32(b))
		if mask := u32(b[4:]); mask != 0xffffffff {
			value += fmt.Sprintf("/%#x", mask)
		}
		return not(b[8] != 0, "--mark", value)
	},
	statistic: func(b []byte, _ *xtables.Wire, _ byte) []string {
		if u16(b) != 0 {
			return []string{"--mode", "nth"}
		}
		return []string{"--mode", "random", "--probability", strconv.FormatFloat(float64(u32(b[4:]))/(1<<31), 'f', 11, 64)}
	},
	recent: recentOptions,
	nfacct: func(b []byte, _ *xtables.Wire, _ byte) []string {
		return []string{"--nfacct-name", string(xtables.CString(b[:32]))}
	},
	bpf: bytecodeOptions,
}

func recentOptions(b []byte, w *xtables.Wire, _ byte) []string {
	var out []string
	for _, o := range []struct {
		bit    byte
		option string
	}{{1 << 1, "--set"}, {1 << 0, "--rcheck"}} {
		if b[recentFlags]&o.bit != 0 {
			out = append(out, o.option)
		}
	}
	if seconds := u32(b); seconds != 0 {
		out = append(out, "--seconds", strconv.Itoa(int(seconds)))
	}
	if b[recentFlags]&(1<<5) != 0 {
		out = append(out, "--reap")
	}
	mask, _ := netip.AddrFromSlice(b[recentMask:][:w.Addr])
	return append(out, "--name", string(xtables.CString(b[recentName:][:200])), "--mask", mask.String(), "--rsource")
}

// ports writes two ranges, each if it is not all ports; last is the last port of a range that was not asked for.
func ports(source, destination []byte, inversions byte, last uint16) []string {
	var out []string
	for i, b := range [][]byte{source, destination} {
		from, to := u16(b), u16(b[2:])
		if inverted := inversions>>i&1 != 0; inverted || from != 0 || to != last {
			value := strconv.Itoa(int(from))
			if to != from {
				value += ":" + strconv.Itoa(int(to))
			}
			out = append(out, not(inverted, []string{"--sport", "--dport"}[i], value)...)
		}
	}
	return out
}

// quoted writes a word as iptables-save does: within quotes unless it is made of letters, digits, - and _.
func quoted(word string) string {
	const plain = "_-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`, `'`, `\'`).Replace(word) + `"`
}

func (d *decoder) target(e xtables.Entry) []string {
	name, b := string(e.TargetName()), e.Target[xtables.Header:]
	if e.IsVerdict() {
		return d.verdict(e)
	}
	out := []string{"-j", name}
	switch {
	case name == "REJECT" && len(b) >= 4 && int32(u32(b)) == portUnreachable(d.wire):
		if d.wire.Addr == 4 {
			return append(out, "--reject-with", "icmp-port-unreachable")
		}
		return append(out, "--reject-with", "icmp6-port-unreachable")
	case name == "MARK" && len(b) >= 8:
		return append(out, "--set-xmark", fmt.Sprintf("%#x/%#x", u32(b), u32(b[4:])))
	case name == "MASQUERADE" && len(b) >= 8:
		flags := u32(b)
		if d.wire.Addr == 4 {
			flags = u32(b[4:])
		}
		if flags&rangeRandomFully != 0 {
			out = append(out, "--random-fully")
		}
	case name == "DNAT":
		if to, ok := d.dnat(e.Target[xtables.Header-1], b); ok {
			out = append(out, "--to-destination", to)
		}
	}
	return out
}

func (d *decoder) dnat(revision byte, b []byte) (string, bool) {
	addr, stride := 4, 16
	if revision == 0 {
		addr, stride = 8, 4
	}
	if len(b) < addr+2*stride+4 {
		return "", false
	}
	to, _ := netip.AddrFromSlice(b[addr:][:d.wire.Addr])
	return netip.AddrPortFrom(to, binary.BigEndian.Uint16(b[addr+2*stride:])).String(), true
}

func (d *decoder) verdict(e xtables.Entry) []string {
	verdict := e.Verdict()
	switch verdict {
	case verdictAccept:
		return []string{"-j", "ACCEPT"}
	case verdictDrop:
		return []string{"-j", "DROP"}
	case verdictReturn:
		return []string{"-j", "RETURN"}
	case e.At + len(e.Bytes):
		return nil // a rule that only counts
	}
	if verdict < 0 {
		return []string{"-j", strconv.Itoa(verdict)}
	}
	how := "-j"
	if e.Bytes[d.wire.Flags]&d.wire.FlagGoto != 0 {
		how = "-g"
	}
	name, ok := d.chainAt(uint32(verdict))
	if !ok {
		name = strconv.Itoa(verdict)
	}
	return []string{how, name}
}
