package kernel

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/kernel/xtables"
)

func chainsLegacy(family corev1.IPFamily, table string) ([]Chain, error) {
	t, err := readLegacy(family, table)
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
	err = eachHead(t, func(name string) { chains = append(chains, Chain{Name: name}) })
	return chains, err
}

// eachHead calls yield with the name of each user-defined chain.
func eachHead(t *xtables.Table, yield func(name string)) error {
	return t.EachEntry(func(e xtables.Entry) {
		if head := e.Head(); head != nil {
			yield(string(head))
		}
	})
}

func stampLegacy(family corev1.IPFamily, table string) (stamp uint64, err error) {
	err = withTable(family, table, func(s *xtables.Socket) error {
		info, err := s.Info(table)
		stamp = uint64(info.NumEntries)<<32 | uint64(info.Size)
		return err
	})
	return stamp, err
}

// readLegacy copies a table from the kernel; nil when there is no such table.
func readLegacy(family corev1.IPFamily, table string) (t *xtables.Table, err error) {
	err = withTable(family, table, func(s *xtables.Socket) error {
		t, err = s.Read(table)
		return err
	})
	return t, err
}

// withTable calls read with a socket for a table, unless there is no such table.
func withTable(family corev1.IPFamily, table string, read func(*xtables.Socket) error) error {
	w := xtables.Of(family)
	if w == nil {
		return errFamily
	}
	// A request for a table creates it, with its hooks. So check first whether it exists.
	names, err := os.ReadFile(w.Tables)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no ip_tables, or no IPv6, in this kernel
	}
	// In a namespace that was created together with its user namespace, the file belongs to the machine's root. Then
	// only the request shows whether the table exists.
	blind := errors.Is(err, fs.ErrPermission)
	if err != nil && !blind {
		return err
	}
	if !blind && !slices.Contains(strings.Fields(string(names)), table) {
		return nil
	}
	s, err := xtables.Open(family)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := read(s); !blind || !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil // no such table in this kernel
}
