package xtables

import (
	"bytes"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// Sizes that both families share, in bytes.
const (
	Align         = 8
	NameSize      = 32 // of a table's name: XT_TABLE_MAXNAMELEN
	Hooks         = 5  // NF_INET_NUMHOOKS
	Header        = 32 // struct xt_entry_match and xt_entry_target: u16 size, name[29], u8 revision
	ExtensionName = 29
	ChainName     = 30 // in the target of a head: XT_FUNCTION_MAXNAMELEN
	entriesHeader = 40 // struct ipt_get_entries up to the entries, aligned to 8
)

// HookNames are the built-in chains by hook number (enum nf_inet_hooks).
var HookNames = [Hooks]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// Wire has the differences between the families. Offsets and sizes are those of struct ipt_entry and ip6t_entry.
type Wire struct {
	Domain, Level int
	// Tables is the file that names the tables of this namespace. /proc/net is the main thread's; thread-self is the caller's.
	Tables string

	Entry        int // size of an entry without matches and target
	TargetOffset int // of u16 target_offset; u16 next_offset follows, then u32 comefrom

	Addr       int // size of an address: source, destination and their masks are the entry's first fields
	Interfaces int // of iniface[16]; outiface and the masks of both follow
	Protocol   int // of u16 proto
	Inversions int // of u8 invflags

	getRevisionMatch, getRevisionTarget int
}

// The wires of both families: include/uapi/linux/netfilter_ipv4/ip_tables.h and its IPv6 counterpart.
var wires = map[corev1.IPFamily]*Wire{
	corev1.IPv4Protocol: {
		Domain: unix.AF_INET, Level: unix.IPPROTO_IP, Tables: "/proc/thread-self/net/ip_tables_names",
		Entry: 112, TargetOffset: 88,
		Addr: 4, Interfaces: 16, Protocol: 80, Inversions: 83,
		getRevisionMatch: 66, getRevisionTarget: 67,
	},
	corev1.IPv6Protocol: {
		Domain: unix.AF_INET6, Level: unix.IPPROTO_IPV6, Tables: "/proc/thread-self/net/ip6_tables_names",
		Entry: 168, TargetOffset: 140,
		Addr: 16, Interfaces: 64, Protocol: 128, Inversions: 132,
		getRevisionMatch: 68, getRevisionTarget: 69,
	},
}

// Of returns the wire of a family; nil when it has none.
func Of(family corev1.IPFamily) *Wire { return wires[family] }

// Aligned rounds a size up to the kernel's alignment.
func Aligned(size int) int { return (size + Align - 1) &^ (Align - 1) }

// HeadSize returns the length of a user chain's head: an entry, its ERROR target and the name.
func (w *Wire) HeadSize() int { return w.Entry + Aligned(Header+ChainName) }

// CString returns the bytes before the first zero byte.
func CString(b []byte) []byte {
	before, _, _ := bytes.Cut(b, []byte{0})
	return before
}
