package rule

import (
	"net/netip"
	"slices"
	"strconv"

	"golang.org/x/net/bpf"
)

// Rule is a rule of iptables, without its table and chain. The zero value matches every IPv4 packet and has no target.
type Rule struct {
	IPv6 bool // a rule of ip6tables

	Src, Dst netip.Prefix // the zero Prefix contains all addresses
	In, Out  string       // devices; empty: any; with + at the end: all names that begin so
	Proto    Proto        // 0: any
	Not      Not

	// SrcPorts and DstPorts belong to the one Match of kind MatchPorts; without it they are zero.
	SrcPorts, DstPorts Ports

	Matches []Match // in order
	Target  Target

	// Words are options of the rule itself that have no field, as spelled: -f, a protocol that is not known, an address
	// with a mask that is no prefix.
	Words string

	Counters [2]uint64 // packets, bytes
}

// Not is a set of options of a rule that are inverted.
type Not uint8

// The options that Not may contain. Each Match has its own inversion.
const (
	NotSrc Not = 1 << iota
	NotDst
	NotIn
	NotOut
	NotProto
	NotSrcPorts
	NotDstPorts
)

// Has reports whether an option is inverted.
func (n Not) Has(option Not) bool { return n&option != 0 }

// Ports is a range of ports. The zero value contains all: match tcp with port 0 alone is foreign.
type Ports struct{ First, Last uint16 }

// Proto is a protocol number of the IP header.
type Proto uint8

// The protocols that have a match in this package, and ICMP.
const (
	ICMP   Proto = 1
	TCP    Proto = 6
	UDP    Proto = 17
	ICMPv6 Proto = 58
	SCTP   Proto = 132
)

// protoNames are the protocols that Parse knows by name. Those of a rule with another name are in its Words.
var protoNames = []struct {
	name  string
	proto Proto
}{{"tcp", TCP}, {"udp", UDP}, {"sctp", SCTP}, {"icmp", ICMP}, {"ipv6-icmp", ICMPv6}}

// String returns the name that iptables prints, or the number.
func (p Proto) String() string {
	for _, known := range protoNames {
		if known.proto == p {
			return known.name
		}
	}
	return strconv.Itoa(int(p))
}

// protoOf returns a protocol by its name or number; 0: it is not known.
func protoOf(name string) Proto {
	for _, known := range protoNames {
		if known.name == name {
			return known.proto
		}
	}
	n, err := strconv.ParseUint(name, 10, 8)
	if err != nil {
		return 0
	}
	return Proto(n)
}

// Match is a match of an extension (-m).
type Match struct {
	Kind Kind
	Not  bool
	// Bits and Mask by kind: MatchState: states. MatchMark: the value and the mask of the mark. MatchRandom: the
	// probability in units of 2^-31. MatchRecent: RecentSet or RecentCheck, and perhaps RecentReap.
	Bits, Mask uint32
	Seconds    uint32 // of MatchRecent; 0: not limited
	// Name is the text of MatchComment, the list of MatchRecent or the object of MatchAccounting.
	Name    string
	Program []bpf.RawInstruction // of MatchProgram
	// Words of MatchForeign: its name and options, as spelled.
	Words string
}

// Kind of a Match.
type Kind uint8

// The kinds of matches.
const (
	MatchForeign    Kind = iota
	MatchComment         // -m comment
	MatchPorts           // -m tcp, udp or sctp, by the rule's protocol, with the rule's ports; at most one a rule
	MatchSrcLocal        // -m addrtype --src-type LOCAL
	MatchDstLocal        // -m addrtype --dst-type LOCAL
	MatchState           // -m conntrack --ctstate
	MatchMark            // -m mark
	MatchRandom          // -m statistic --mode random
	MatchRecent          // -m recent, with the whole source address
	MatchAccounting      // -m nfacct
	MatchProgram         // -m bpf --bytecode
)

// The states of MatchState, in the order in which iptables prints them.
const (
	StateInvalid uint32 = 1 << iota
	StateNew
	StateRelated
	StateEstablished
	StateUntracked
	StateSNAT
	StateDNAT
)

var stateNames = [...]string{"INVALID", "NEW", "RELATED", "ESTABLISHED", "UNTRACKED", "SNAT", "DNAT"}

// ProbabilityUnit: Match.Bits of MatchRandom is the probability times this. The kernel stores probabilities so.
const ProbabilityUnit = 1 << 31

// The options of MatchRecent.
const (
	RecentSet uint32 = 1 << iota
	RecentCheck
	RecentReap
)

// recentOptions are the commands of match recent, of which a match has one.
var recentOptions = [...]struct {
	option string
	bit    uint32
}{{"--set", RecentSet}, {"--rcheck", RecentCheck}}

// Target is what a rule does with a packet that matches.
type Target struct {
	Kind  TargetKind
	Goto  bool   // of TargetJump: -g, so the packet does not return
	Chain string // of TargetJump; empty for all others
	// To is the new destination of TargetDNAT. Port 0: the port stays.
	To netip.AddrPort
	// Bits and Mask of TargetMark: the bits of Mask are cleared, then those of Bits are toggled.
	Bits, Mask  uint32
	With        string // of TargetReject: the answer, such as icmp-port-unreachable
	RandomFully bool   // of TargetMasquerade
	// Words of TargetForeign: its name and options, as spelled.
	Words string
}

// TargetKind is the kind of a Target.
type TargetKind uint8

// The kinds of targets.
const (
	TargetNone TargetKind = iota // the next rule is evaluated
	TargetForeign
	TargetJump
	TargetAccept
	TargetDrop
	TargetReturn
	TargetReject
	TargetMark
	TargetDNAT
	TargetMasquerade
)

// Comment returns the first comment; empty if there is none.
func (r *Rule) Comment() string {
	for i := range r.Matches {
		if r.Matches[i].Kind == MatchComment {
			return r.Matches[i].Name
		}
	}
	return ""
}

// WithoutComments returns a copy without comments.
func (r *Rule) WithoutComments() *Rule {
	without := *r
	without.Matches = slices.DeleteFunc(slices.Clone(r.Matches), func(m Match) bool { return m.Kind == MatchComment })
	return &without
}

// Equal reports whether two rules are the same, except for their counters.
func (r *Rule) Equal(o *Rule) bool {
	return r.IPv6 == o.IPv6 && r.Src == o.Src && r.Dst == o.Dst && r.In == o.In && r.Out == o.Out && r.Proto == o.Proto &&
		r.Not == o.Not && r.SrcPorts == o.SrcPorts && r.DstPorts == o.DstPorts && r.Target == o.Target && r.Words == o.Words &&
		slices.EqualFunc(r.Matches, o.Matches, equalMatches)
}

func equalMatches(a, b Match) bool {
	return a.Kind == b.Kind && a.Not == b.Not && a.Bits == b.Bits && a.Mask == b.Mask && a.Seconds == b.Seconds &&
		a.Name == b.Name && a.Words == b.Words && slices.Equal(a.Program, b.Program)
}
