package invariants

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/verify/conform"
	"synclab/proxier/iptables/rule"
)

// FailedRestore has the tables before a failed restore, the intended tables, and the tables after it. If Intended is
// not known (nil), the restore proves something only for tables that did not change.
type FailedRestore struct {
	Family                  corev1.IPFamily
	Before, Intended, After Saved
}

// checkWhole: after a failed restore, each table is as before or as intended, and not in between. Converged tables of
// Synclab's proxier must be whole too: either all chains of a table are correct, or none are.
func checkWhole(ctx context.Context, e *Evidence, r *report) error {
	for i := range e.Restores {
		e.Restores[i].check(r)
	}
	if !e.settledWhole() {
		return nil
	}
	x, err := e.expect(ctx)
	if err != nil {
		return err
	}
	for _, family := range e.Families {
		differing := map[string]int{}
		for _, d := range differences(x.saved[family], e.Saved[family]) {
			differing[d.Table]++
		}
		for _, table := range slices.Sorted(maps.Keys(x.saved[family])) {
			r.checked++
			own := 0
			for name := range x.saved[family][table] {
				if ownChain(name) {
					own++
				}
			}
			if n := differing[table]; n > 0 && n < own {
				r.violated("", "%s table %s is a mixture: %d of %d chains differ from a full sync", family, table, n, own)
			}
		}
	}
	return nil
}

// tables returns the names of all tables before or after the restore.
func (f *FailedRestore) tables() []string {
	return conform.Union(f.Before, f.After)
}

// proves reports whether the restore proves something for any table.
func (f *FailedRestore) proves() bool {
	return slices.ContainsFunc(f.tables(), func(table string) bool {
		return f.Intended != nil || sameTable(f.Before[table], f.After[table]) == ""
	})
}

func (f *FailedRestore) check(r *report) {
	for _, table := range f.tables() {
		before := sameTable(f.Before[table], f.After[table])
		if before != "" && f.Intended == nil {
			continue
		}
		r.checked++
		if before == "" {
			continue
		}
		if intended := sameTable(f.Intended[table], f.After[table]); intended != "" {
			r.violated("", "%s table %s after a failed restore is neither what it was (%s) nor what it should become (%s)",
				f.Family, table, before, intended)
		}
	}
}

// sameTable describes the first difference between two contents of a table, ignoring counters; empty if there is none.
func sameTable(a, b map[string]*rule.Chain) string {
	for _, name := range conform.Union(a, b) {
		switch {
		case a[name] == nil:
			return "chain " + name + " is new"
		case b[name] == nil:
			return "chain " + name + " is gone"
		}
		if text := diffRules(name, a[name].Rules, b[name].Rules); text != "" {
			return "chain " + name + " " + text
		}
	}
	return ""
}
