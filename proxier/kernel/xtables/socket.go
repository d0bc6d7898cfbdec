package xtables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// Both families share these numbers.
const (
	soGetInfo    = 64
	soGetEntries = 65
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

// Socket reads the tables of one family, in the network namespace of the thread that opened it, whichever thread reads.
type Socket struct {
	Wire *Wire
	fd   int
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

// Info returns a table's sizes. The request creates the table, with its hooks, if the kernel knows it.
func (s *Socket) Info(table string) (Info, error) {
	var info Info
	copy(info.Name[:NameSize-1], table)
	length := uint32(unsafe.Sizeof(info))
	if err := s.get(soGetInfo, unsafe.Pointer(&info), &length); err != nil {
		return info, fmt.Errorf("IPT_SO_GET_INFO: %w", err)
	}
	return info, nil
}

// readTries is how often Read tries a table that is replaced between the two requests.
const readTries = 10

// Read copies a table.
func (s *Socket) Read(table string) (*Table, error) {
	for try := 1; ; try++ {
		t, err := s.read(table)
		if !errors.Is(err, unix.EAGAIN) || try == readTries {
			return t, err
		}
	}
}

func (s *Socket) read(table string) (*Table, error) {
	info, err := s.Info(table)
	if err != nil {
		return nil, err
	}
	t := &Table{Wire: s.Wire, Info: info}
	// A separate mapping, so that the copy neither grows the Go heap nor stays in it.
	t.mapping, err = unix.Mmap(-1, 0, entriesHeader+int(info.Size),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("%d bytes for the table: %w", entriesHeader+int(info.Size), err)
	}
	_ = unix.Madvise(t.mapping, unix.MADV_HUGEPAGE) // some 25,000 page faults less for a large table
	answer := t.mapping
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

// Knows reports whether the kernel has a revision of a match, or of a target. The request loads its module.
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
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(s.fd), uintptr(s.Wire.Level), uintptr(option),
		uintptr(value), uintptr(unsafe.Pointer(length)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
