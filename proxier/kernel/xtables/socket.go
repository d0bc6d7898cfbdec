package xtables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// Both families share these numbers.
const (
	soGetInfo     = 64
	soGetEntries  = 65
	soSetReplace  = 64
	soAddCounters = 65
)

// Info is struct ipt_getinfo, the same for both families.
type Info struct {
	Name       [NameSize]byte
	ValidHooks uint32
	HookEntry  [Hooks]uint32
	Underflow  [Hooks]uint32
	NumEntries uint32
	Size       uint32
}

// Builtins is the number of built-in chains.
func (i *Info) Builtins() int {
	n := 0
	for hook := range Hooks {
		n += int(i.ValidHooks >> hook & 1)
	}
	return n
}

// Socket asks about the tables of one family, in the network namespace of the thread that opened it, whichever thread
// asks.
type Socket struct {
	Wire *Wire
	// Clock, if there is one, times the kernel's answers: Spent is how long all of them took.
	Clock clock.PassiveClock
	Spent time.Duration
	fd    int
}

// Open opens a socket of a family.
func Open(family corev1.IPFamily) (*Socket, error) {
	w := wires[family]
	if w == nil {
		return nil, fmt.Errorf("family %q has no tables", family)
	}
	fd, err := unix.Socket(w.Domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return nil, fmt.Errorf("raw socket for %s: %w", family, err)
	}
	return &Socket{Wire: w, fd: fd}, nil
}

// Close closes the socket.
func (s *Socket) Close() { unix.Close(s.fd) }

// Info asks for a table's sizes. Asking for a table makes it, with its hooks, if the kernel knows it.
func (s *Socket) Info(table string) (Info, error) {
	var info Info
	copy(info.Name[:NameSize-1], table)
	length := uint32(unsafe.Sizeof(info))
	if err := s.get(soGetInfo, unsafe.Pointer(&info), &length); err != nil {
		return info, fmt.Errorf("IPT_SO_GET_INFO: %w", err)
	}
	return info, nil
}

// readTries bounds how often a table is asked for that is replaced between the two questions.
const readTries = 10

// Read copies a table. room is how many bytes there shall be in front of it (see Table.Room).
func (s *Socket) Read(table string, room int) (*Table, error) {
	for try := 1; ; try++ {
		t, err := s.read(table, room)
		if !errors.Is(err, unix.EAGAIN) || try == readTries {
			return t, err
		}
	}
}

func (s *Socket) read(table string, room int) (*Table, error) {
	info, err := s.Info(table)
	if err != nil {
		return nil, err
	}
	room = (room + os.Getpagesize() - 1) &^ (os.Getpagesize() - 1)
	t := &Table{Wire: s.Wire, Info: info, start: room + entriesHeader}
	// Memory of its own, so that the copy neither grows the Go heap nor stays in it.
	t.mapping, err = unix.Mmap(-1, 0, t.start+int(info.Size),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("%d bytes for the table: %w", t.start+int(info.Size), err)
	}
	_ = unix.Madvise(t.mapping, unix.MADV_HUGEPAGE) // some 25,000 page faults less for a large table
	answer := t.mapping[room:]
	copy(answer, info.Name[:])
	binary.NativeEndian.PutUint32(answer[NameSize:], info.Size)
	length := uint32(len(answer))
	if err := s.get(soGetEntries, unsafe.Pointer(&answer[0]), &length); err != nil {
		t.Close()
		return nil, fmt.Errorf("IPT_SO_GET_ENTRIES: %w", err)
	}
	t.Entries = answer[entriesHeader:]
	return t, nil
}

// Replace puts a table in place of the one there is, at once for all packets. block is the new table's entries behind
// ReplaceHeader bytes, which are overwritten; to says its name, hooks and number of entries. counters takes those of the
// entries that went, and must have room for exactly as many as there are, or else somebody else was faster: EAGAIN.
// Both are memory that Go does not manage. All counters of the new table are zero.
func (s *Socket) Replace(to Info, block, counters []byte) error {
	// struct ipt_replace: name, u32 valid_hooks, num_entries, size, hook_entry[5], underflow[5], num_counters, counters*.
	copy(block, to.Name[:])
	at := NameSize
	put := func(v uint32) {
		binary.NativeEndian.PutUint32(block[at:], v)
		at += 4
	}
	put(to.ValidHooks)
	put(to.NumEntries)
	put(uint32(len(block) - ReplaceHeader))
	for _, v := range to.HookEntry {
		put(v)
	}
	for _, v := range to.Underflow {
		put(v)
	}
	put(uint32(len(counters) / CounterSize))
	binary.NativeEndian.PutUint64(block[at:], uint64(uintptr(unsafe.Pointer(unsafe.SliceData(counters)))))
	if err := s.set(soSetReplace, block); err != nil {
		return fmt.Errorf("IPT_SO_SET_REPLACE: %w", err)
	}
	return nil
}

// AddCounters adds packets and bytes to every entry of a table. counters are those of all entries, in order, behind
// CountersHeader bytes, which are overwritten.
func (s *Socket) AddCounters(name [NameSize]byte, counters []byte) error {
	copy(counters, name[:])
	binary.NativeEndian.PutUint32(counters[NameSize:], uint32((len(counters)-CountersHeader)/CounterSize))
	if err := s.set(soAddCounters, counters); err != nil {
		return fmt.Errorf("IPT_SO_SET_ADD_COUNTERS: %w", err)
	}
	return nil
}

// Knows says whether the kernel has a revision of a match, or of a target. The question loads its module.
func (s *Socket) Knows(target bool, name string, revision uint8) (bool, error) {
	option := s.Wire.getRevisionMatch
	if target {
		option = s.Wire.getRevisionTarget
	}
	var question [ExtensionName + 1]byte // struct xt_get_revision
	copy(question[:ExtensionName-1], name)
	question[ExtensionName] = revision
	length := uint32(len(question))
	switch err := s.get(option, unsafe.Pointer(&question), &length); {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.ENOENT):
		return false, nil
	default:
		return false, fmt.Errorf("revision %d of %s: %w", revision, name, err)
	}
}

func (s *Socket) get(option int, value unsafe.Pointer, length *uint32) error {
	defer s.timed()()
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(s.fd), uintptr(s.Wire.Level), uintptr(option),
		uintptr(value), uintptr(unsafe.Pointer(length)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// timed begins to time a system call, and gives what ends that.
func (s *Socket) timed() func() {
	if s.Clock == nil {
		return func() {}
	}
	start := s.Clock.Now()
	return func() { s.Spent += s.Clock.Since(start) }
}

func (s *Socket) set(option int, value []byte) error {
	defer s.timed()()
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(s.fd), uintptr(s.Wire.Level), uintptr(option),
		uintptr(unsafe.Pointer(unsafe.SliceData(value))), uintptr(len(value)), 0)
	runtime.KeepAlive(value)
	if errno != 0 {
		return errno
	}
	return nil
}
