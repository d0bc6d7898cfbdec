package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// A legacy table is one block of entries. A built-in chain is its rules and then one entry for its policy. A user
// chain is a head (an ERROR target that carries the name), its rules, and one entry that returns. An ERROR entry named
// "ERROR" ends the table. So with b built-in chains, u user chains and r rules there are r + b + 2u + 1 entries.
//
// include/uapi/linux/netfilter_ipv4/ip_tables.h and its IPv6 twin: both families share the two options' numbers.
const (
	soGetInfo    = 64
	soGetEntries = 65

	nameSize = 32 // XT_TABLE_MAXNAMELEN
	hooks    = 5  // NF_INET_NUMHOOKS

	entriesHeader = 40 // struct ipt_get_entries up to the entries, aligned to 8
	targetHeader  = 32 // struct xt_entry_target: u16 size, name[29], u8 revision
	targetName    = 29
	errorName     = 30 // XT_FUNCTION_MAXNAMELEN
)

// tableInfo is struct ipt_getinfo, the same for both families.
type tableInfo struct {
	Name       [nameSize]byte
	ValidHooks uint32
	HookEntry  [hooks]uint32
	Underflow  [hooks]uint32
	NumEntries uint32
	Size       uint32
}

func (t *tableInfo) builtins() int {
	n := 0
	for hook := range hooks {
		n += int(t.ValidHooks >> hook & 1)
	}
	return n
}

// wire is what differs between the families.
type wire struct {
	domain, level int
	tables        string // file that names the tables of this namespace
	targetOffset  int    // of u16 target_offset in struct ipt_entry; u16 next_offset follows
	entry         int    // size of struct ipt_entry
}

// /proc/net is the main thread's namespace; thread-self is the caller's.
var wires = map[corev1.IPFamily]wire{
	corev1.IPv4Protocol: {unix.AF_INET, unix.IPPROTO_IP, "/proc/thread-self/net/ip_tables_names", 88, 112},
	corev1.IPv6Protocol: {unix.AF_INET6, unix.IPPROTO_IPV6, "/proc/thread-self/net/ip6_tables_names", 140, 168},
}

func countLegacy(family corev1.IPFamily, table string) (rules, chains int, err error) {
	t, err := readLegacy(family, table)
	if err != nil || t == nil {
		return 0, 0, err
	}
	defer t.close()
	if err := t.eachHead(func(string) { chains++ }); err != nil {
		return 0, 0, err
	}
	return int(t.info.NumEntries) - t.info.builtins() - 2*chains - 1, chains, nil
}

// hookNames are the built-in chains by hook number (enum nf_inet_hooks).
var hookNames = [hooks]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

func chainsLegacy(family corev1.IPFamily, table string) ([]Chain, error) {
	t, err := readLegacy(family, table)
	if err != nil || t == nil {
		return nil, err
	}
	defer t.close()
	var chains []Chain
	for hook, name := range hookNames {
		if t.info.ValidHooks>>hook&1 == 1 {
			chains = append(chains, Chain{Name: name, Builtin: true})
		}
	}
	err = t.eachHead(func(name string) { chains = append(chains, Chain{Name: name}) })
	return chains, err
}

// legacyTable is a copy of a table as the kernel gave it.
type legacyTable struct {
	wire    wire
	info    tableInfo
	mapping []byte
	entries []byte // part of mapping
}

// close gives the copy's memory back: a large table is hundreds of megabytes.
func (t *legacyTable) close() { _ = unix.Munmap(t.mapping) }

func stampLegacy(family corev1.IPFamily, table string) (stamp uint64, err error) {
	err = withTable(family, table, func(w wire, fd int) error {
		info, err := w.info(fd, table)
		stamp = uint64(info.NumEntries)<<32 | uint64(info.Size)
		return err
	})
	return stamp, err
}

// readLegacy copies a table out of the kernel; nil when there is no such table.
func readLegacy(family corev1.IPFamily, table string) (t *legacyTable, err error) {
	err = withTable(family, table, func(w wire, fd int) error {
		// EAGAIN: the table was replaced between the two questions.
		const tries = 10
		for try := 1; ; try++ {
			t, err = w.read(fd, table)
			if !errors.Is(err, unix.EAGAIN) || try == tries {
				return err
			}
		}
	})
	return t, err
}

// withTable calls read with a socket to ask about a table, unless there is no such table.
func withTable(family corev1.IPFamily, table string, read func(w wire, fd int) error) error {
	w, ok := wires[family]
	if !ok {
		return errFamily
	}
	// Asking for a table makes it, with its hooks: look first whether it is there.
	names, err := os.ReadFile(w.tables)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no ip_tables, or no IPv6, in this kernel
	}
	// A namespace that was made together with its user namespace shows the file as the machine's root's: then there is
	// nothing for it but to ask.
	blind := errors.Is(err, fs.ErrPermission)
	if err != nil && !blind {
		return err
	}
	if !blind && !slices.Contains(strings.Fields(string(names)), table) {
		return nil
	}
	fd, err := unix.Socket(w.domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return fmt.Errorf("raw socket: %w", err)
	}
	defer unix.Close(fd)
	if err := read(w, fd); !blind || !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil // no such table in this kernel
}

func (w wire) info(fd int, table string) (tableInfo, error) {
	var info tableInfo
	copy(info.Name[:nameSize-1], table)
	length := uint32(unsafe.Sizeof(info))
	if err := getsockopt(fd, w.level, soGetInfo, unsafe.Pointer(&info), &length); err != nil {
		return info, fmt.Errorf("IPT_SO_GET_INFO: %w", err)
	}
	return info, nil
}

func (w wire) read(fd int, table string) (*legacyTable, error) {
	info, err := w.info(fd, table)
	if err != nil {
		return nil, err
	}
	t := &legacyTable{wire: w, info: info}
	// Memory of its own, so that the copy neither grows the Go heap nor stays in it.
	t.mapping, err = unix.Mmap(-1, 0, entriesHeader+int(t.info.Size),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("%d bytes for the table: %w", t.info.Size, err)
	}
	copy(t.mapping, t.info.Name[:])
	binary.NativeEndian.PutUint32(t.mapping[nameSize:], t.info.Size)
	length := uint32(len(t.mapping))
	if err := getsockopt(fd, w.level, soGetEntries, unsafe.Pointer(&t.mapping[0]), &length); err != nil {
		t.close()
		return nil, fmt.Errorf("IPT_SO_GET_ENTRIES: %w", err)
	}
	t.entries = t.mapping[entriesHeader:]
	return t, nil
}

func getsockopt(fd, level, option int, value unsafe.Pointer, length *uint32) error {
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(value), uintptr(unsafe.Pointer(length)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// eachHead calls yield with the name of each user-defined chain.
func (t *legacyTable) eachHead(yield func(name string)) error {
	return t.eachEntry(func(_ int, head []byte) {
		if head != nil {
			yield(string(head))
		}
	})
}

// eachEntry calls yield with the offset of each entry but the table's last, and the chain's name when it is a head.
func (t *legacyTable) eachEntry(yield func(at int, head []byte)) error {
	for at := 0; at < len(t.entries); {
		entry := t.entries[at:]
		if len(entry) < t.wire.entry {
			return fmt.Errorf("entry at byte %d is cut off", at)
		}
		target := int(binary.NativeEndian.Uint16(entry[t.wire.targetOffset:]))
		next := int(binary.NativeEndian.Uint16(entry[t.wire.targetOffset+2:]))
		if target < t.wire.entry || target+targetHeader > next || next > len(entry) {
			return fmt.Errorf("entry at byte %d: target at %d, next at %d of %d", at, target, next, len(entry))
		}
		if at+next == len(t.entries) {
			return nil
		}
		var head []byte
		if end := target + targetHeader + errorName; string(cString(entry[target+2:target+2+targetName])) == "ERROR" && end <= next {
			head = cString(entry[end-errorName : end])
		}
		yield(at, head)
		at += next
	}
	return nil
}

func cString(b []byte) []byte {
	before, _, _ := bytes.Cut(b, []byte{0})
	return before
}
