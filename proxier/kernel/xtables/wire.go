package xtables

import (
	"bytes"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// Sizes that both families share, in bytes.
const (
	Align          = 8
	NameSize       = 32 // of a table's name: XT_TABLE_MAXNAMELEN
	Hooks          = 5  // NF_INET_NUMHOOKS
	Header         = 32 // struct xt_entry_match and xt_entry_target: u16 size, name[29], u8 revision
	ExtensionName  = 29
	ChainName      = 30 // in the target of a head: XT_FUNCTION_MAXNAMELEN
	CounterSize    = 16 // struct xt_counters: u64 packets, u64 bytes
	entriesHeader  = 40 // struct ipt_get_entries up to the entries, aligned to 8
	ReplaceHeader  = 96 // struct ipt_replace up to the entries
	CountersHeader = 40 // struct xt_counters_info up to the counters
)

// HookNames are the built-in chains by hook number (enum nf_inet_hooks).
var HookNames = [Hooks]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// Wire is what differs between the families. Offsets and sizes are those of struct ipt_entry and ip6t_entry.
type Wire struct {
	Domain, Level int
	// Tables is the file that names the tables of this namespace. /proc/net is the main thread's; thread-self is the caller's.
	Tables string

	Entry        int // size of an entry without matches and target
	TargetOffset int // of u16 target_offset; u16 next_offset follows, then u32 comefrom
	Counters     int // of the counters

	Addr                   int // size of an address: source, destination and their masks are the entry's first fields
	Interfaces             int // of iniface[16]; outiface and the masks of both follow
	Protocol               int // of u16 proto
	Flags, Inversions      int // of u8 flags and u8 invflags
	FlagProtocol, FlagGoto byte

	getRevisionMatch, getRevisionTarget int
}

// The wires of both families: include/uapi/linux/netfilter_ipv4/ip_tables.h and its IPv6 twin.
var wires = map[corev1.IPFamily]*Wire{
	corev1.IPv4Protocol: {
		Domain: unix.AF_INET, Level: unix.IPPROTO_IP, Tables: "/proc/thread-self/net/ip_tables_names",
		Entry: 112, TargetOffset: 88, Counters: 96,
		Addr: 4, Interfaces: 16, Protocol: 80, Flags: 82, Inversions: 83, FlagGoto: 0x02,
		getRevisionMatch: 66, getRevisionTarget: 67,
	},
	corev1.IPv6Protocol: {
		Domain: unix.AF_INET6, Level: unix.IPPROTO_IPV6, Tables: "/proc/thread-self/net/ip6_tables_names",
		Entry: 168, TargetOffset: 140, Counters: 152,
		Addr: 16, Interfaces: 64, Protocol: 128, Flags: 131, Inversions: 132, FlagProtocol: 0x01, FlagGoto: 0x04,
		getRevisionMatch: 68, getRevisionTarget: 69,
	},
}

// Of gives the wire of a family; nil when it has none.
func Of(family corev1.IPFamily) *Wire { return wires[family] }

// Aligned rounds a size up to what the kernel wants.
func Aligned(size int) int { return (size + Align - 1) &^ (Align - 1) }

// HeadSize is the length of a user chain's head: an entry, its ERROR target and the name.
func (w *Wire) HeadSize() int { return w.Entry + Aligned(Header+ChainName) }

// VerdictSize is the length of an entry without matches whose target is a verdict.
func (w *Wire) VerdictSize() int { return w.Entry + Aligned(Header+4) }

// CString is what stands before the first zero byte.
func CString(b []byte) []byte {
	before, _, _ := bytes.Cut(b, []byte{0})
	return before
}
