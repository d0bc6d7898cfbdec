package xtables

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Table is a copy of a table as the kernel gave it.
type Table struct {
	Wire    *Wire
	Info    Info
	Entries []byte // part of mapping
	mapping []byte
	start   int // of the entries in the mapping
	// released is how far the mapping was given back.
	released int
}

// Close gives the copy's memory back: a large table is hundreds of megabytes.
func (t *Table) Close() {
	if t.mapping != nil {
		_ = unix.Munmap(t.mapping)
		t.mapping, t.Entries = nil, nil
	}
}

// Room is the memory in front of the entries, which begin at start, together with theirs: who has read an entry may
// write over it. Empty for a table that was not read from the kernel.
func (t *Table) Room() (memory []byte, start int) { return t.mapping, t.start }

// Taken makes a table of what was written into the memory of this one and taken by the kernel: size bytes of entries behind
// ReplaceHeader. This one is no more.
func (t *Table) Taken(to Info, size int) {
	t.Info, t.start, t.released = to, ReplaceHeader, 0
	if shorter, err := unix.Mremap(t.mapping, t.start+size, 0); err == nil {
		t.mapping = shorter
	}
	t.Entries = t.mapping[t.start : t.start+size]
}

// MakeRoom moves the entries so that at least room bytes are in front of them. These are not zero.
func (t *Table) MakeRoom(room int) error {
	size := len(t.Entries)
	need := room + entriesHeader + size
	if need > len(t.mapping) {
		grown, err := unix.Mremap(t.mapping, need, unix.MREMAP_MAYMOVE)
		if err != nil {
			return fmt.Errorf("room for a table of %d bytes: %w", need, err)
		}
		t.mapping = grown
	}
	from := t.mapping[t.start : t.start+size]
	t.start = room + entriesHeader
	t.Entries = t.mapping[t.start : t.start+size]
	copy(t.Entries, from)
	return nil
}

// Entry is one entry of a table.
type Entry struct {
	At     int    // its offset
	Bytes  []byte // all of it
	Target []byte // its target, header included
}

// TargetName is empty for a verdict.
func (e *Entry) TargetName() []byte { return CString(e.Target[2 : 2+ExtensionName]) }

// Verdict is where to go on, or how the walk ends; only for a target without a name.
func (e *Entry) Verdict() int { return int(int32(binary.NativeEndian.Uint32(e.Target[Header:]))) }

// IsVerdict says whether the target is one.
func (e *Entry) IsVerdict() bool { return e.Target[2] == 0 && len(e.Target) >= Header+4 }

// Head is the name of the user chain that begins with this entry; nil when none does. The table's last entry looks like
// a head, too.
func (e *Entry) Head() []byte {
	if e.Target[2] != 'E' || len(e.Target) < Header+ChainName || string(e.TargetName()) != "ERROR" {
		return nil
	}
	return CString(e.Target[Header : Header+ChainName])
}

// EntryAt gives the entry at an offset, after a check that it lies within the table.
func (w *Wire) EntryAt(entries []byte, at int) (Entry, error) {
	rest := entries[at:]
	if len(rest) < w.Entry {
		return Entry{}, fmt.Errorf("entry at byte %d is cut off", at)
	}
	target := int(binary.NativeEndian.Uint16(rest[w.TargetOffset:]))
	next := int(binary.NativeEndian.Uint16(rest[w.TargetOffset+2:]))
	if target < w.Entry || target+Header > next || next > len(rest) {
		return Entry{}, fmt.Errorf("entry at byte %d: target at %d, next at %d of %d", at, target, next, len(rest))
	}
	return Entry{At: at, Bytes: rest[:next:next], Target: rest[target:next:next]}, nil
}

// EachEntry calls yield with each entry but the table's last.
func (t *Table) EachEntry(yield func(e Entry)) error {
	for at := 0; at < len(t.Entries); {
		e, err := t.Wire.EntryAt(t.Entries, at)
		if err != nil {
			return err
		}
		if at += len(e.Bytes); at == len(t.Entries) {
			return nil
		}
		yield(e)
	}
	return nil
}

// releaseStep is the grain in which memory is given back: two huge pages.
const releaseStep = 4 << 20

// Release gives back the memory of the entries before an offset, as far as whole steps of it are no longer needed. What
// is read there afterwards is zero.
func (t *Table) Release(before int) {
	if t.released == 0 {
		t.released = (t.start + releaseStep - 1) &^ (releaseStep - 1)
	}
	until := (t.start + before) &^ (releaseStep - 1)
	if until <= t.released || t.mapping == nil {
		return
	}
	_ = unix.Madvise(t.mapping[t.released:until], unix.MADV_DONTNEED)
	t.released = until
}

// Same says whether two entries are the same rule, whatever they have counted.
func (w *Wire) Same(a, b []byte) bool {
	// What the kernel remembers stands around the two offsets: u32 nfcache, u16 target, u16 next, u32 comefrom, counters.
	return len(a) == len(b) &&
		bytes.Equal(a[:w.TargetOffset-4], b[:w.TargetOffset-4]) &&
		bytes.Equal(a[w.TargetOffset:w.TargetOffset+4], b[w.TargetOffset:w.TargetOffset+4]) &&
		bytes.Equal(a[w.Entry:], b[w.Entry:])
}
