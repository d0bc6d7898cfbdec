package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// LegacyTables asks about the tables of iptables-legacy over sockets that stay open. It belongs to the network namespace of
// the thread that opened it, whichever thread asks, as long as that thread stays there. Not safe for concurrent use.
type LegacyTables struct {
	net     int // folder /proc/…/net of the namespace, or -1
	sockets map[corev1.IPFamily]int
	seen    map[legacyName]bool // tables that were there: they stay
}

type legacyName struct {
	family corev1.IPFamily
	table  string
}

// LegacyStamp is what differs when a table was changed; a change that keeps the number of rules and their bytes keeps
// it too. The zero value: there is no such table.
type LegacyStamp struct {
	Entries, Bytes uint32
	Hooks          [2 * hooks]uint32 // where built-in chains begin, and their policies
}

// OpenLegacy opens a socket for each family that the kernel knows.
func OpenLegacy() (*LegacyTables, error) {
	l := &LegacyTables{sockets: map[corev1.IPFamily]int{}, seen: map[legacyName]bool{}}
	var err error
	if l.net, err = unix.Open("/proc/thread-self/net", unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0); err != nil {
		return nil, fmt.Errorf("/proc/thread-self/net: %w", err)
	}
	for family, w := range wires {
		fd, err := unix.Socket(w.domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if errors.Is(err, unix.EAFNOSUPPORT) {
			continue
		}
		if err != nil {
			l.Close()
			return nil, fmt.Errorf("raw socket for %s: %w", family, err)
		}
		l.sockets[family] = fd
	}
	return l, nil
}

// Close closes the sockets.
func (l *LegacyTables) Close() {
	unix.Close(l.net)
	for _, fd := range l.sockets {
		unix.Close(fd)
	}
}

// Stamp asks for a table's stamp: a microsecond once the table is there, without a copy of it.
func (l *LegacyTables) Stamp(family corev1.IPFamily, table string) (LegacyStamp, error) {
	there, err := l.there(family, table)
	if err != nil || !there {
		return LegacyStamp{}, err
	}
	info, err := wires[family].info(l.sockets[family], table)
	if errors.Is(err, unix.ENOENT) {
		return LegacyStamp{}, nil
	}
	if err != nil {
		return LegacyStamp{}, fmt.Errorf("%s table %s: %w", family, table, err)
	}
	stamp := LegacyStamp{Entries: info.NumEntries, Bytes: info.Size}
	copy(stamp.Hooks[:hooks], info.HookEntry[:])
	copy(stamp.Hooks[hooks:], info.Underflow[:])
	return stamp, nil
}

// there says whether a table is there: asking the kernel for it would make it.
func (l *LegacyTables) there(family corev1.IPFamily, table string) (bool, error) {
	if _, ok := l.sockets[family]; !ok {
		return false, nil
	}
	name := legacyName{family, table}
	if l.seen[name] {
		return true, nil
	}
	fd, err := unix.Openat(l.net, path.Base(wires[family].tables), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return false, nil // no ip_tables in this kernel, so far
	case errors.Is(err, unix.EACCES):
		l.seen[name] = true // see withTable: nothing for it but to ask
		return true, nil
	case err != nil:
		return false, fmt.Errorf("names of %s tables: %w", family, err)
	}
	file := os.NewFile(uintptr(fd), "tables")
	defer file.Close()
	names, err := io.ReadAll(file)
	if err != nil {
		return false, fmt.Errorf("names of %s tables: %w", family, err)
	}
	l.seen[name] = slices.Contains(strings.Fields(string(names)), table)
	return l.seen[name], nil
}

// Jumps copies a table; nil when there is no such table. It costs some 150 bytes a rule until closed, and while it
// copies, whoever wants to replace the table waits.
func (l *LegacyTables) Jumps(family corev1.IPFamily, table string) (*Jumps, error) {
	there, err := l.there(family, table)
	if err != nil || !there {
		return nil, err
	}
	for {
		t, err := wires[family].read(l.sockets[family], table)
		switch {
		case errors.Is(err, unix.EAGAIN):
			continue // replaced between the two questions; the next answer may be had at once
		case errors.Is(err, unix.ENOENT):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("%s table %s: %w", family, table, err)
		}
		j := &Jumps{table: t, chains: map[string]int{}}
		if err := j.index(); err != nil {
			j.Close()
			return nil, fmt.Errorf("%s table %s: %w", family, table, err)
		}
		return j, nil
	}
}

// Jumps is a copy of a legacy table, to ask which chains a chain jumps to. A nil one holds nothing.
type Jumps struct {
	table  *legacyTable
	chains map[string]int // of user-defined chains but KUBE-SEP-…: where the entry after the head begins
}

// unindexed chains are most of a proxier's table, and are only jumped to.
var unindexed = []byte("KUBE-SEP-")

// Close gives the copy's memory back.
func (j *Jumps) Close() {
	if j != nil {
		j.table.close()
	}
}

// headSize is the length of a user chain's head: an entry, its ERROR target and the name, aligned to 8.
func (w *wire) headSize() int { return (w.entry + targetHeader + errorName + 7) &^ 7 }

func (j *Jumps) index() error {
	size := j.table.wire.headSize()
	return j.table.eachEntry(func(at int, head []byte) {
		if head != nil && !bytes.HasPrefix(head, unindexed) {
			j.chains[string(head)] = at + size
		}
	})
}

// Targets gives the chains that the rules of a user-defined chain jump to, in order. Those that KUBE-SEP-… chains jump
// to are not to be had.
func (j *Jumps) Targets(chain string) []string {
	if j == nil {
		return nil
	}
	at, ok := j.chains[chain]
	if !ok {
		return nil
	}
	w, entries := &j.table.wire, j.table.entries
	var targets []string
	for {
		entry := entries[at:] // index walked past all of them
		target := int(binary.NativeEndian.Uint16(entry[w.targetOffset:]))
		if entry[target+2] == 0 && target+targetHeader+4 <= len(entry) {
			verdict := int(int32(binary.NativeEndian.Uint32(entry[target+targetHeader:])))
			// A rule without a target goes on with the next entry.
			if name := j.chainAt(verdict); name != "" && verdict != at+target+targetHeader+8 {
				targets = append(targets, name)
			}
		} else if string(cString(entry[target+2:target+2+targetName])) == "ERROR" {
			return targets // the next chain's head, or the table's end
		}
		next := int(binary.NativeEndian.Uint16(entry[w.targetOffset+2:]))
		if at += next; at >= len(entries) {
			return targets
		}
	}
}

// chainAt names the chain whose first entry is at an offset; empty when it is none: verdicts that are no jumps are
// negative.
func (j *Jumps) chainAt(offset int) string {
	w := &j.table.wire
	head := offset - w.headSize()
	if head < 0 || offset > len(j.table.entries) {
		return ""
	}
	entry := j.table.entries[head:offset]
	target := int(binary.NativeEndian.Uint16(entry[w.targetOffset:]))
	if target != w.entry || string(cString(entry[target+2:target+2+targetName])) != "ERROR" {
		return ""
	}
	end := target + targetHeader + errorName
	return string(cString(entry[end-errorName : end]))
}

// Has says whether there is a user-defined chain of that name, KUBE-SEP-… aside.
func (j *Jumps) Has(chain string) bool {
	if j == nil {
		return false
	}
	_, ok := j.chains[chain]
	return ok
}
