package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"

	"github.com/google/nftables"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/netns"
	"synclab/proxier"
	"synclab/proxier/iptables"
	"synclab/scenarios"
)

// faults break the next restores, as often as was asked for.
type faults struct {
	fail, kill atomic.Int32
}

// prepare makes iptables-restore one that fails before it has read anything.
func (f *faults) prepare(cmd *exec.Cmd) {
	if takeOne(&f.fail) {
		cmd.Path = "/bin/false"
	}
}

// started kills a restore as soon as it runs: whether it has already handed a table to the kernel is chance, as it is
// when the machine runs out of memory.
func (f *faults) started(p *os.Process) {
	if takeOne(&f.kill) {
		_ = p.Kill()
	}
}

func takeOne(n *atomic.Int32) bool {
	for {
		left := n.Load()
		if left == 0 {
			return false
		}
		if n.CompareAndSwap(left, left-1) {
			return true
		}
	}
}

// fault breaks something. Faults of restores and of the lock hold during the steps after it; a flush is done at once.
func (r *repetition) fault(ctx context.Context, f *scenarios.Fault, name string) error {
	r.say.stage(name, 0, 0)
	if !r.about.hasTools() && (f.Kind == "restore-fails" || f.Kind == "restore-killed") {
		r.say.message(message{Note: fmt.Sprintf("fault %s: %s runs no tool that could be hit", f.Kind, r.Subject)})
		return nil
	}
	switch f.Kind {
	case "restore-fails":
		if r.shim != nil {
			return r.shim.Fail(f.Times)
		}
		r.faults.fail.Add(int32(f.Times))
	case "restore-killed":
		if r.shim != nil {
			return r.shim.Kill(f.Times)
		}
		r.faults.kill.Add(int32(f.Times))
	case "lock-held":
		held := make(chan struct{})
		failed := make(chan error, 1)
		go func() { failed <- HoldLock(ctx, r.lab.LockFile, f.For, func() { close(held) }) }()
		select {
		case <-held:
		case err := <-failed:
			return err
		}
	case "flush":
		if err := r.noteTables(); err != nil {
			return err
		}
		for _, family := range r.families {
			if err := r.flush(ctx, family, f.Table); err != nil {
				return err
			}
		}
		r.subject.disturbed()
	case scenarios.FaultWatchDropped, scenarios.FaultWatchStalled, scenarios.FaultRelist, scenarios.FaultEventsRepeated,
		scenarios.FaultEventsSwapped, scenarios.FaultSlicesFirst, scenarios.FaultAPIDown:
		return r.apiFault(ctx, f)
	default:
		return fmt.Errorf("fault %s is not there yet", f.Kind)
	}
	return nil
}

// tableOf is a table of iptables in one family.
type tableOf struct {
	family corev1.IPFamily
	table  iptables.Table
}

// noteTables notes in which tables the subject has chains: they have to come back.
func (r *repetition) noteTables() error {
	r.held = nil
	if r.variant == "" {
		return nil
	}
	for _, family := range r.families {
		for _, table := range []iptables.Table{iptables.NAT, iptables.Filter, "mangle"} {
			chains, _, err := r.own(family, table)
			if err != nil {
				return err
			}
			if chains > 0 {
				r.held = append(r.held, tableOf{family, table})
			}
		}
	}
	return nil
}

// restored waits until the subject has chains again wherever it had some before a flush. Where Services lead shows only
// what is in nat.
func (r *repetition) restored(ctx context.Context) error {
	for _, t := range r.held {
		for {
			chains, _, err := r.own(t.family, t.table)
			if err != nil {
				return err
			}
			if chains > 0 {
				break
			}
			if err := wait(ctx, calm); err != nil {
				return fmt.Errorf("%s table %s has no chain of the subject any more: %w", t.family, t.table, err)
			}
		}
	}
	r.held = nil
	return nil
}

// flush empties what the subject's backend calls a table. In nftables its own table stands for any of them: it is
// deleted, as by somebody who flushes the ruleset.
func (r *repetition) flush(ctx context.Context, family corev1.IPFamily, table string) error {
	if r.about.Backend != proxier.Nftables {
		return FlushTable(ctx, cmp.Or(r.variant, iptables.Legacy), family, table)
	}
	if err := netns.Guard(); err != nil {
		return fmt.Errorf("flush table %s: %w", table, err)
	}
	there, conn, err := r.ownNftables(family)
	if err != nil {
		return err
	}
	if len(there) == 0 {
		return fmt.Errorf("delete %s table %s: there is none", family, ownTables[r.about.Proxier][0])
	}
	for _, table := range there {
		conn.DelTable(table)
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("delete %s table %s: %w", family, there[0].Name, err)
	}
	return nil
}

// ownNftables are the tables that the subject's proxier has in nf_tables now, and a connection to ask more.
func (r *repetition) ownNftables(family corev1.IPFamily) ([]*nftables.Table, *nftables.Conn, error) {
	protocol := nftables.TableFamilyIPv4
	if family == corev1.IPv6Protocol {
		protocol = nftables.TableFamilyIPv6
	}
	conn, err := nftables.New()
	if err != nil {
		return nil, nil, fmt.Errorf("%s tables of nftables: %w", family, err)
	}
	tables, err := conn.ListTablesOfFamily(protocol)
	if err != nil {
		return nil, nil, fmt.Errorf("%s tables of nftables: %w", family, err)
	}
	own := ownTables[r.about.Proxier]
	return slices.DeleteFunc(tables, func(t *nftables.Table) bool { return !slices.Contains(own, t.Name) }), conn, nil
}

// nftProtocol is what nft calls a family.
func nftProtocol(family corev1.IPFamily) string {
	if family == corev1.IPv6Protocol {
		return "ip6"
	}
	return "ip"
}
