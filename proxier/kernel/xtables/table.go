package xtables

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Table is a copy of a table from the kernel.
type Table struct {
	Wire    *Wire
	Info    Info
	Entries []byte // part of mapping
	mapping []byte
}

// Close frees the copy: a large table has hundreds of megabytes.
func (t *Table) Close() {
	if t.mapping != nil {
		_ = unix.Munmap(t.mapping)
		t.mapping, t.Entries = nil, nil
	}
}

// Entry is one entry of a table.
type Entry struct {
	At     int    // its offset
	Bytes  []byte // all of it
	Target []byte // its target, header included
}

// TargetName returns the name of the target; empty for a verdict.
func (e *Entry) TargetName() []byte { return CString(e.Target[2 : 2+ExtensionName]) }

// Verdict returns the offset of the next entry, or a negative verdict. Only for a target without a name.
func (e *Entry) Verdict() int { return int(int32(binary.NativeEndian.Uint32(e.Target[Header:]))) }

// IsVerdict reports whether the target is a verdict.
func (e *Entry) IsVerdict() bool { return e.Target[2] == 0 && len(e.Target) >= Header+4 }

// Head returns the name of the user chain that begins with this entry; nil when none does. The table's last entry looks
// like a head, too.
func (e *Entry) Head() []byte {
	if e.Target[2] != 'E' || len(e.Target) < Header+ChainName || string(e.TargetName()) != "ERROR" {
		return nil
	}
	return CString(e.Target[Header : Header+ChainName])
}

// EntryAt returns the entry at an offset, after a check that it lies within the table.
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
