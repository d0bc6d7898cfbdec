package fault

import (
	"bytes"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
	"synclab/scenarios"
)

func init() {
	register(Kind{
		Name: scenarios.FaultFlush, inject: (*Faults).flushed, lasts: atOnce, shows: objectsBack, removesRules: true,
		spares:     []spare{onlyMaps, oneTable},
		LosesFlows: "no rule has its Service until the repair",
	})
}

// flushed empties tables.
func (r *Faults) flushed(ctx context.Context, d *activeFault) (err error) {
	if r.About.Nftables() {
		d.stillMissing, err = r.lostBases()
	} else {
		d.stillMissing, err = r.lostRules(ctx, d.Table)
	}
	if err != nil {
		return err
	}
	d.began = r.Clock.Now() // before the flush: the subject may detect it at once
	for _, family := range r.Families {
		if err := r.flush(ctx, family, d.Table); err != nil {
			return err
		}
	}
	r.start(d)
	r.Host.Subject.Disturbed()
	r.follow(d) // the repair may come before other programs' rules are back
	return r.TableEmptied(ctx, d.Table)
}

// lostRules reports what tables lack of what they have now: each shared chain that has rules has rules again, and the
// base chains jump to the subject as often. package visible checks the Services' own chains anyway.
func (r *Faults) lostRules(ctx context.Context, table string) (func() (string, error), error) {
	places := r.placesOf(table)
	before := map[tableOf]map[string]int{}
	for _, place := range places {
		tally, err := kernel.Tally(string(r.KernelVariant()), place.family, place.table)
		if err != nil {
			return nil, err
		}
		jumps, err := r.jumpsIn(ctx, place, tally)
		if err != nil {
			return nil, err
		}
		keep := map[string]int{}
		for chain, n := range tally {
			if isOwn(chain) && !perService(chain) && n > 0 { // empty chains are canaries, or only targets of jumps
				keep[chain] = 1
			}
		}
		for _, jump := range jumps {
			keep[jump.base]++
		}
		before[place] = keep
	}
	return r.watched(places, func(place tableOf, now map[string]int) (string, error) {
		for chain, n := range before[place] {
			if has, there := now[chain]; !there || has < n {
				return fmt.Sprintf("%s: %s has %d rules", place, chain, has), nil
			}
		}
		return "", nil
	}), nil
}

// lostBases reports which base chains the traversed tables lack of those that they have now.
func (r *Faults) lostBases() (func() (string, error), error) {
	lives, err := r.liveTables()
	return r.watchedNftables(func(family corev1.IPFamily, now *liveTable) (string, error) {
		if n := len(lives[family].base); len(now.base) < n {
			return fmt.Sprintf("%s: table %s has %d base chains, want %d", family, now.table.Name, len(now.base), n), nil
		}
		return "", nil
	}), err
}

// flush empties what the subject's backend calls a table. With nftables, any table means the subject's own: it is
// deleted, as by a program that flushes the ruleset.
func (r *Faults) flush(ctx context.Context, family corev1.IPFamily, table string) error {
	r.flushes.Add(1)
	if !r.About.Nftables() {
		return flushTable(ctx, r.KernelVariant(), family, table)
	}
	if err := netns.Guard(); err != nil {
		return fmt.Errorf("flush table %s: %w", table, err)
	}
	there, conn, err := r.OwnNftables(family)
	if err != nil || len(there) == 0 {
		return err
	}
	for _, table := range there {
		conn.DelTable(table)
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("delete %s table %s: %w", family, there[0].Name, err)
	}
	return nil
}

// flushTable empties a table (nat, filter, mangle, or all of them), like a program that restores a ruleset without the
// proxier's rules. Rules and user-defined chains disappear in one step.
func flushTable(ctx context.Context, variant iptables.Variant, family corev1.IPFamily, table string) error {
	var empty bytes.Buffer
	for _, name := range Tables(table) {
		// Without --noflush, this input replaces the table.
		fmt.Fprintf(&empty, "*%s\nCOMMIT\n", name)
	}
	if _, err := (iptablesOf{variant, family}).run(ctx, "restore", &empty); err != nil {
		return fmt.Errorf("flush table %s: %w", table, err)
	}
	return nil
}
