package direct

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"synclab/proxier/iptables"
	"synclab/proxier/kernel/xtables"
)

// replaceTries bounds how often a table is read anew: because somebody who takes no lock replaced it meanwhile, or
// because the new one needs more room.
const replaceTries = 10

// handOver puts all tables of a script in place, one after the other, and gives the bytes of those that are. An error
// that is a *lineError is the payload's fault.
func (t *Tables) handOver(ctx context.Context, socket *xtables.Socket, s *script) (size int, err error) {
	for {
		table, err := s.table()
		if table == "" || err != nil {
			return size, err
		}
		n, err := t.handOverTable(ctx, socket, table, s)
		if err != nil {
			return size, fmt.Errorf("table %s: %w", table, err)
		}
		size += n
	}
}

func (t *Tables) handOverTable(ctx context.Context, socket *xtables.Socket, table string, s *script) (size int, err error) {
	unlock, err := lock(ctx, t.opts.LockFile, t.opts.Wait)
	if err != nil {
		return 0, err
	}
	defer unlock()
	revisions, err := t.askRevisions(socket)
	if err != nil {
		return 0, err
	}
	from, room := *s, s.room()
	for try := 1; ; try++ {
		*s = from
		size, err = t.replace(socket, table, s, revisions, room)
		switch {
		case try == replaceTries:
			return size, err
		case errors.Is(err, errNoRoom):
			room *= 2
		case !errors.Is(err, unix.EAGAIN):
			return size, err
		}
	}
}

// replace reads a table, makes the new one and hands it over.
func (t *Tables) replace(socket *xtables.Socket, table string, s *script, revisions revisions, room int) (size int, err error) {
	old, err := t.kept.take(socket, iptables.Table(table), room)
	if err != nil {
		return 0, err
	}
	kept := old != nil
	if !kept {
		if old, err = socket.Read(table, room); err != nil {
			return 0, err
		}
	}
	size, taken, err := t.handOverEdited(socket, old, kept, s, revisions)
	if taken {
		t.kept.keep(iptables.Table(table), old)
	} else {
		old.Close()
	}
	return size, err
}

// handOverEdited edits a table and hands it over. taken: the table's memory holds what the kernel has now.
func (t *Tables) handOverEdited(socket *xtables.Socket, old *xtables.Table, kept bool, s *script, revisions revisions) (size int, taken bool, err error) {
	in, err := index(old)
	if err != nil {
		return 0, false, err
	}
	in.kept = kept
	e := newEdit(in, s.chains)
	if err := s.into(e); err != nil {
		return 0, false, err
	}
	if len(e.runs) == 0 && len(e.declared) == 0 && !e.removes {
		return 0, kept, nil
	}
	made, err := splice(e, revisions)
	if made != nil {
		defer made.block.close()
	}
	if err != nil {
		return 0, false, err
	}
	counters, err := made.commit(socket)
	if err != nil {
		if refusal(err) {
			err = &lineError{s.number, err}
		}
		return 0, false, err
	}
	defer func() { _ = unix.Munmap(counters) }()
	if t.replaced != nil {
		t.replaced()
	}
	if err := made.restoreCounters(socket, counters); err != nil {
		// The rules are in the kernel. Most likely somebody else replaced them since, so the copy is not to be trusted.
		klog.InfoS("counters of kept rules begin anew", "table", unix.ByteSliceToString(made.info.Name[:]), "family", t.opts.Family, "error", err)
		return made.block.size, false, nil
	}
	if !made.block.borrowed {
		return made.block.size, false, nil
	}
	old.Taken(made.info, made.block.size)
	return made.block.size, true, nil
}

// refusals are the kernel's answers to a table that it will not have: something is malformed, is not known, is not
// there, may not be used from this hook, or goes round in circles. The others say nothing of the table.
var refusals = []error{unix.EINVAL, unix.ENOENT, unix.ELOOP, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.ERANGE, unix.EEXIST, unix.E2BIG, unix.ENAMETOOLONG, unix.EDOM}

func refusal(err error) bool {
	return slices.ContainsFunc(refusals, func(r error) bool { return errors.Is(err, r) })
}

// commit hands the table over, and gives the counters of the old one. The caller unmaps them.
func (s *splicer) commit(socket *xtables.Socket) ([]byte, error) {
	counters, err := unix.Mmap(-1, 0, int(s.Info.NumEntries)*xtables.CounterSize,
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("room for %d counters: %w", s.Info.NumEntries, err)
	}
	if err := socket.Replace(s.info, s.block.whole(), counters); err != nil {
		_ = unix.Munmap(counters)
		return nil, err
	}
	return counters, nil
}

// restoreCounters adds to the kept rules what they had counted at the moment of the replacement.
func (s *splicer) restoreCounters(socket *xtables.Socket, old []byte) error {
	counted := func(k kept) []byte { return old[k.from*xtables.CounterSize:][:k.count*xtables.CounterSize] }
	if !slices.ContainsFunc(s.kept, func(k kept) bool { return len(bytes.TrimLeft(counted(k), "\x00")) > 0 }) {
		return nil
	}
	counters, err := unix.Mmap(-1, 0, xtables.CountersHeader+int(s.entries)*xtables.CounterSize,
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("room for %d counters: %w", s.entries, err)
	}
	defer func() { _ = unix.Munmap(counters) }()
	for _, k := range s.kept {
		copy(counters[xtables.CountersHeader+int(k.to)*xtables.CounterSize:], counted(k))
	}
	return socket.AddCounters(s.info.Name, counters)
}
