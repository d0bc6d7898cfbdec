package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/kernel/xtables"
)

// LegacyTables reads the tables of iptables-legacy over sockets that stay open. It belongs to the network namespace of
// the thread that opened it, whichever thread reads, as long as that thread stays there. Not safe for concurrent use.
type LegacyTables struct {
	net     int // folder /proc/…/net of the namespace, or -1
	sockets map[corev1.IPFamily]*xtables.Socket
	seen    map[legacyName]bool // tables seen before: a table stays
}

type legacyName struct {
	family corev1.IPFamily
	table  string
}

// LegacyStamp differs after a table was changed, unless the change keeps the number of rules and their bytes. The zero
// value: there is no such table.
type LegacyStamp struct {
	Entries, Bytes uint32
	Hooks          [2 * xtables.Hooks]uint32 // where built-in chains begin, and their policies
}

// OpenLegacy opens a socket for each family that the kernel knows.
func OpenLegacy() (*LegacyTables, error) {
	l := &LegacyTables{sockets: map[corev1.IPFamily]*xtables.Socket{}, seen: map[legacyName]bool{}}
	var err error
	if l.net, err = unix.Open("/proc/thread-self/net", unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0); err != nil {
		return nil, fmt.Errorf("/proc/thread-self/net: %w", err)
	}
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		s, err := xtables.Open(family)
		if errors.Is(err, unix.EAFNOSUPPORT) {
			continue
		}
		if err != nil {
			l.Close()
			return nil, err
		}
		l.sockets[family] = s
	}
	return l, nil
}

// Close closes the sockets.
func (l *LegacyTables) Close() {
	unix.Close(l.net)
	for _, s := range l.sockets {
		s.Close()
	}
}

// Stamp returns a table's stamp without copying the table. It takes a microsecond once the table is known to exist.
func (l *LegacyTables) Stamp(family corev1.IPFamily, table string) (LegacyStamp, error) {
	there, err := l.there(family, table)
	if err != nil || !there {
		return LegacyStamp{}, err
	}
	info, err := l.sockets[family].Info(table)
	if errors.Is(err, unix.ENOENT) {
		return LegacyStamp{}, nil
	}
	if err != nil {
		return LegacyStamp{}, fmt.Errorf("%s table %s: %w", family, table, err)
	}
	stamp := LegacyStamp{Entries: info.NumEntries, Bytes: info.Size}
	copy(stamp.Hooks[:xtables.Hooks], info.HookEntry[:])
	copy(stamp.Hooks[xtables.Hooks:], info.Underflow[:])
	return stamp, nil
}

// there reports whether a table exists. A request to the kernel would create it.
func (l *LegacyTables) there(family corev1.IPFamily, table string) (bool, error) {
	if _, ok := l.sockets[family]; !ok {
		return false, nil
	}
	name := legacyName{family, table}
	if l.seen[name] {
		return true, nil
	}
	fd, err := unix.Openat(l.net, path.Base(xtables.Of(family).Tables), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return false, nil // no ip_tables in this kernel, so far
	case errors.Is(err, unix.EACCES):
		l.seen[name] = true // see withTable: only a request shows whether it exists
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

// Jumps copies a table; nil when there is no such table. The copy takes some 150 bytes a rule until it is closed.
// During the copy, processes that want to replace the table wait.
func (l *LegacyTables) Jumps(family corev1.IPFamily, table string) (*Jumps, error) {
	there, err := l.there(family, table)
	if err != nil || !there {
		return nil, err
	}
	t, err := l.sockets[family].Read(table)
	switch {
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

// Jumps is a copy of a legacy table that finds where the rules of a chain jump to. A nil Jumps has no rules.
type Jumps struct {
	table  *xtables.Table
	chains map[string]int // of user-defined chains but KUBE-SEP-…: where the entry after the head begins
}

// unindexed begins the names of chains that are most of a proxier's table. They are needed only as jump targets.
var unindexed = []byte("KUBE-SEP-")

// Close frees the copy.
func (j *Jumps) Close() {
	if j != nil {
		j.table.Close()
	}
}

func (j *Jumps) index() error {
	return j.table.EachEntry(func(e xtables.Entry) {
		if head := e.Head(); head != nil && !bytes.HasPrefix(head, unindexed) {
			j.chains[string(head)] = e.At + len(e.Bytes)
		}
	})
}

// Rules returns the rules of a user-defined chain that decide where packets go, in order. It returns none for
// KUBE-SEP-… chains.
func (j *Jumps) Rules(chain string) []Rule {
	var rules []Rule
	j.each(chain, func(e xtables.Entry) {
		// A rule without a target continues with the next entry.
		if rule := j.rule(e); rule != (Rule{}) && !(e.IsVerdict() && e.Verdict() == e.At+len(e.Bytes)) {
			rules = append(rules, rule)
		}
	})
	return rules
}

// each calls yield with the rules of a user-defined chain. The chain's last entry, which returns, is no rule.
func (j *Jumps) each(chain string, yield func(e xtables.Entry)) {
	if j == nil {
		return
	}
	at, ok := j.chains[chain]
	if !ok {
		return
	}
	var last xtables.Entry
	for at < len(j.table.Entries) {
		e, err := j.table.Wire.EntryAt(j.table.Entries, at)
		if err != nil || e.Head() != nil {
			return // the next chain's head, or the table's end; index walked past all of them
		}
		if len(last.Bytes) > 0 {
			yield(last)
		}
		last = e
		at += len(e.Bytes)
	}
}

// rule returns where an entry sends packets; zero when it decides nothing.
func (j *Jumps) rule(e xtables.Entry) Rule {
	if e.IsVerdict() {
		to := j.chainAt(e.Verdict())
		return Rule{Jump: to, Other: to == ""}
	}
	name := string(e.TargetName())
	if name != targetDNAT {
		return Rule{Other: otherTarget(name, netip.AddrPort{})}
	}
	revision := uint32(e.Target[2+xtables.ExtensionName])
	dnat := dnatOf(revision, e.Target[xtables.Header:], j.table.Wire.Addr)
	return Rule{DNAT: dnat, Other: otherTarget(name, dnat)}
}

// chainAt returns the name of the chain whose first entry is at an offset; empty when there is none. Verdicts that are
// no jumps are negative.
func (j *Jumps) chainAt(offset int) string {
	size := j.table.Wire.HeadSize()
	if offset < size || offset > len(j.table.Entries) {
		return ""
	}
	e, err := j.table.Wire.EntryAt(j.table.Entries, offset-size)
	if err != nil || len(e.Bytes) != size {
		return ""
	}
	return string(e.Head())
}

// Has reports whether there is a user-defined chain of that name, KUBE-SEP-… excluded.
func (j *Jumps) Has(chain string) bool {
	if j == nil {
		return false
	}
	_, ok := j.chains[chain]
	return ok
}
