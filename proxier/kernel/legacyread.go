package kernel

import (
	"bytes"
	"encoding/binary"
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

// LegacyFingerprint differs after a table was changed, unless the change keeps the number of rules and their bytes. The zero
// value: there is no such table.
type LegacyFingerprint struct {
	Entries, Bytes uint32
	Hooks          [2 * xtables.Hooks]uint32 // where built-in chains begin, and their policies
}

// OpenLegacy opens a socket for each of some families, if the kernel knows it.
func OpenLegacy(families ...corev1.IPFamily) (*LegacyTables, error) {
	l := &LegacyTables{sockets: map[corev1.IPFamily]*xtables.Socket{}, seen: map[legacyName]bool{}}
	var err error
	if l.net, err = unix.Open("/proc/thread-self/net", unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0); err != nil {
		return nil, fmt.Errorf("/proc/thread-self/net: %w", err)
	}
	for _, family := range families {
		s, err := xtables.Open(family)
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EPERM) && !exists(l.net, family) {
			continue // no tables, or no ip_tables in this kernel so far
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

// Fingerprint returns a table's fingerprint without copying the table. It takes a microsecond once the table is known to exist.
func (l *LegacyTables) Fingerprint(family corev1.IPFamily, table string) (LegacyFingerprint, error) {
	there, err := l.there(family, table)
	if err != nil || !there {
		return LegacyFingerprint{}, err
	}
	info, err := l.sockets[family].Info(table)
	if errors.Is(err, unix.ENOENT) {
		return LegacyFingerprint{}, nil
	}
	if err != nil {
		return LegacyFingerprint{}, fmt.Errorf("%s table %s: %w", family, table, err)
	}
	fingerprint := LegacyFingerprint{Entries: info.NumEntries, Bytes: info.Size}
	copy(fingerprint.Hooks[:xtables.Hooks], info.HookEntry[:])
	copy(fingerprint.Hooks[xtables.Hooks:], info.Underflow[:])
	return fingerprint, nil
}

// exists reports whether the kernel has a list of a family's tables.
func exists(net int, family corev1.IPFamily) bool {
	return !errors.Is(unix.Faccessat(net, path.Base(xtables.Of(family).Tables), unix.F_OK, 0), unix.ENOENT)
}

// there reports whether a table exists. A request to the kernel would create it, with its hooks.
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
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		// In a namespace that was created together with its user namespace, the file belongs to the machine's root.
		// Then only a request shows whether the table exists.
		l.seen[name] = true
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

// read copies a table; nil when there is no such table.
func (l *LegacyTables) read(family corev1.IPFamily, table string) (*xtables.Table, error) {
	there, err := l.there(family, table)
	if err != nil || !there {
		return nil, err
	}
	t, err := l.sockets[family].Read(table)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return t, err
}

// chains returns the chains of a table.
func (l *LegacyTables) chains(family corev1.IPFamily, table string) ([]Chain, error) {
	t, err := l.read(family, table)
	if err != nil || t == nil {
		return nil, err
	}
	defer t.Close()
	var chains []Chain
	for hook, name := range xtables.HookNames {
		if t.Info.ValidHooks>>hook&1 == 1 {
			chains = append(chains, Chain{Name: name, Builtin: true})
		}
	}
	err = t.EachEntry(func(e xtables.Entry) {
		if head := e.Head(); head != nil {
			chains = append(chains, Chain{Name: string(head)})
		}
	})
	return chains, err
}

// tally counts the entries between the two that begin and end a chain: a hook's entry point and its policy, or a user
// chain's head and its return.
func (l *LegacyTables) tally(family corev1.IPFamily, table string) (map[string]int, error) {
	t, err := l.read(family, table)
	if err != nil || t == nil {
		return nil, err
	}
	defer t.Close()
	starts := map[int]string{}
	for hook, name := range xtables.HookNames {
		if t.Info.ValidHooks>>hook&1 == 1 {
			starts[int(t.Info.HookEntry[hook])] = name
		}
	}
	tally := map[string]int{}
	chain := ""
	err = t.EachEntry(func(e xtables.Entry) {
		if name, builtin := starts[e.At]; builtin {
			chain = name
			tally[chain] = -1 // the policy's entry is no rule
		}
		if head := e.Head(); head != nil {
			chain = string(head)
			tally[chain] = -1 // nor is the chain's return
			return
		}
		tally[chain]++
	})
	return tally, err
}

// Jumps copies a table; nil when there is no such table. The copy takes some 150 bytes a rule until it is closed.
// During the copy, processes that want to replace the table wait.
func (l *LegacyTables) Jumps(family corev1.IPFamily, table string) (*Jumps, error) {
	j, err := l.jumps(family, table, unindexed)
	if err != nil {
		return nil, fmt.Errorf("%s table %s: %w", family, table, err)
	}
	return j, nil
}

// jumps copies a table and finds its chains, but those whose names begin with except.
func (l *LegacyTables) jumps(family corev1.IPFamily, table string, except []byte) (*Jumps, error) {
	t, err := l.read(family, table)
	if err != nil || t == nil {
		return nil, err
	}
	j := &Jumps{table: t, chains: map[string]int{}}
	err = t.EachEntry(func(e xtables.Entry) {
		if head := e.Head(); head != nil && (except == nil || !bytes.HasPrefix(head, except)) {
			j.chains[string(head)] = e.At + len(e.Bytes)
		}
	})
	if err != nil {
		j.Close()
		return nil, err
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

// Rules returns the rules of a user-defined chain that decide where packets go, in order. It returns none for
// KUBE-SEP-… chains.
func (j *Jumps) Rules(chain string) (rules []Rule) {
	j.deciding(chain, func(_ xtables.Entry, rule Rule) { rules = append(rules, rule) })
	return rules
}

// deciding calls yield with the rules of a chain that decide where packets go. A rule without a target continues with
// the next entry.
func (j *Jumps) deciding(chain string, yield func(xtables.Entry, Rule)) {
	j.each(chain, func(e xtables.Entry) {
		if rule := j.rule(e); rule != (Rule{}) && !(e.IsVerdict() && e.Verdict() == e.At+len(e.Bytes)) {
			yield(e, rule)
		}
	})
}

// eachMatch calls yield with the name and the content of each match of an entry.
func eachMatch(e xtables.Entry, w *xtables.Wire, yield func(name string, body []byte)) {
	for matches := e.Bytes[w.Entry : len(e.Bytes)-len(e.Target)]; len(matches) >= xtables.Header; {
		size := int(binary.NativeEndian.Uint16(matches))
		if size < xtables.Header || size > len(matches) {
			return
		}
		yield(string(xtables.CString(matches[2:2+xtables.ExtensionName])), matches[xtables.Header:size])
		matches = matches[size:]
	}
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
			return // the next chain's head, or the table's end; jumps walked past all of them
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
