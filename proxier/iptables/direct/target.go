package direct

import (
	"fmt"

	"synclab/proxier/kernel/xtables"
)

// The verdicts: -1 - NF_DROP and so on; a chain returns with -1 - NF_REPEAT.
const (
	verdictDrop   = -1
	verdictAccept = -2
	verdictReturn = -5
)

// revisions of extensions that kernels and iptables have had several of. The highest that both know is used, as
// iptables does.
type revisions struct{ dnat, nfacct, bpf uint8 }

// askRevisions asks the kernel.
func askRevisions(s *xtables.Socket) (revisions, error) {
	// Before Linux 4.18, DNAT has no revision 2; then IPv4 has a structure of its own.
	r := revisions{dnat: 1}
	if s.Wire.Addr == 4 {
		r.dnat = 0
	}
	ranges, err := s.Knows(true, "DNAT", 2)
	if err != nil {
		return r, err
	}
	if ranges {
		r.dnat = 2
	}
	accounts, err := s.Knows(false, "nfacct", 1)
	if err != nil {
		return r, err
	}
	if accounts {
		r.nfacct = 1
	}
	programs, err := s.Knows(false, "bpf", 1)
	if programs {
		r.bpf = 1
	}
	return r, err
}

// target takes the rest of the rule. A name that is no target's is a chain's.
func (r *rule) target(follow bool) error {
	name, err := r.words.value("-j")
	if err != nil {
		return err
	}
	r.endMatches()
	if follow {
		r.block.entries[r.start+r.wire.Flags] |= r.wire.FlagGoto
		err = r.jump(name)
	} else {
		err = r.verdict(name)
	}
	if err != nil {
		return err
	}
	switch rest, err := r.words.next(); {
	case err != nil:
		return err
	case rest != nil:
		return fmt.Errorf("%q after target %s", rest, name)
	}
	return nil
}

func (r *rule) verdict(name []byte) error {
	switch string(name) {
	case "ACCEPT":
		return r.simple("", verdictAccept)
	case "DROP":
		return r.simple("", verdictDrop)
	case "RETURN":
		return r.simple("", verdictReturn)
	case "REJECT":
		return r.simple("REJECT", portUnreachable(r.wire))
	case "MARK":
		return r.markTarget()
	case "MASQUERADE":
		return r.masquerade()
	case "DNAT":
		return r.dnat()
	}
	return r.jump(name)
}

// simple appends a target that holds one number.
func (r *rule) simple(name string, value int32) error {
	at, err := r.extension(name, 4, 0)
	if err == nil {
		r.block.put32(at, uint32(value))
	}
	return err
}

func (r *rule) jump(name []byte) error {
	number, ok := r.number(name)
	if !ok {
		return fmt.Errorf("%q is neither a chain nor a target that is known here", name)
	}
	at, err := r.extension("", verdictSize, 0)
	if err != nil {
		return err
	}
	r.block.put32(at, number)
	r.jumps = append(r.jumps, uint32(at))
	return nil
}

// portUnreachable is what iptables rejects with by default: IPT_ICMP_PORT_UNREACHABLE, IP6T_ICMP6_PORT_UNREACH.
func portUnreachable(w *xtables.Wire) int32 {
	if w.Addr == 4 {
		return 3
	}
	return 4
}

// markTarget: struct xt_mark_tginfo2: u32 mark, u32 mask. The kernel clears the mask's bits, then flips the mark's.
func (r *rule) markTarget() error {
	option, err := r.words.value("-j MARK")
	if err != nil {
		return err
	}
	word, err := r.words.value(string(option))
	if err != nil {
		return err
	}
	value, mask, err := masked(word)
	if err != nil {
		return err
	}
	switch string(option) {
	case "--or-mark":
		mask = value
	case "--xor-mark":
		mask = 0
	case "--and-mark":
		value, mask = 0, ^value
	case "--set-mark":
		mask |= value
	case "--set-xmark":
	default:
		return fmt.Errorf("%q is no option of MARK", option)
	}
	at, err := r.extension("MARK", 8, 2)
	if err == nil {
		r.block.put32(at, value)
		r.block.put32(at+4, mask)
	}
	return err
}

// The flags of an address range that packets are translated to: NF_NAT_RANGE_….
const (
	rangeAddress     = 1 << 0
	rangePorts       = 1 << 1
	rangeRandomFully = 1 << 4
)

// masquerade: IPv4 has struct nf_nat_ipv4_multi_range_compat (u32 number of ranges, one; u32 flags, then addresses and
// ports), IPv6 has struct nf_nat_range (u32 flags, then the same).
func (r *rule) masquerade() error {
	option, err := r.words.next()
	if err != nil {
		return err
	}
	var flags uint32
	if option != nil {
		if string(option) != "--random-fully" {
			return fmt.Errorf("%q is no option of MASQUERADE", option)
		}
		flags = rangeRandomFully
	}
	size, flagsAt := 40, 0
	if r.wire.Addr == 4 {
		size, flagsAt = 20, 4
	}
	at, err := r.extension("MASQUERADE", size, 0)
	if err != nil {
		return err
	}
	if flagsAt > 0 {
		r.block.put32(at, 1)
	}
	r.block.put32(at+flagsAt, flags)
	return nil
}

// dnat: revision 0, IPv4 only, has struct nf_nat_ipv4_multi_range_compat: u32 number of ranges, u32 flags, two addresses
// of 4 bytes, two ports. Revision 1 has struct nf_nat_range: u32 flags, two addresses of 16 bytes, two ports. Revision 2
// has a third port.
func (r *rule) dnat() error {
	option, err := r.words.value("-j DNAT")
	if err != nil {
		return err
	}
	if string(option) != "--to-destination" {
		return fmt.Errorf("%q is no option of DNAT", option)
	}
	word, err := r.words.value("--to-destination")
	if err != nil {
		return err
	}
	to, err := endpoint(word, 8*r.wire.Addr)
	if err != nil {
		return err
	}
	size, flags, addr, stride := 40, 0, 4, 16
	switch r.revisions.dnat {
	case 0:
		size, flags, addr, stride = 20, 4, 8, 4
	case 2:
		size = 42
	}
	at, err := r.extension("DNAT", size, r.revisions.dnat)
	if err != nil {
		return err
	}
	if flags > 0 {
		r.block.put32(at, 1)
	}
	r.block.put32(at+flags, rangeAddress|rangePorts)
	for i := range 2 {
		r.putAddr(at+addr+i*stride, to.Addr())
		r.block.putPort(at+addr+2*stride+2*i, to.Port())
	}
	return nil
}
