package invariants

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// FailedRestore is what a restore that failed found, should have made, and left. Where Intended is not known (nil), only
// tables that are as they were before tell anything.
type FailedRestore struct {
	Family                  corev1.IPFamily
	Before, Intended, After Saved
}

// checkWhole: of a restore that failed, each table is as before or as intended, and not in between. Tables of the lab's
// own proxier that have settled must be whole as well: all of a table's chains are as wanted, or none are.
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
				r.violated("", "%s table %s is a mixture: %d of %d chains are not as wanted", family, table, n, own)
			}
		}
	}
	return nil
}

// tables are the names of all that there were or are.
func (f *FailedRestore) tables() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(f.Before)), maps.Keys(f.After))
	slices.Sort(names)
	return slices.Compact(names)
}

// tells says whether it can be said of any table that it is as it should be, or is not.
func (f *FailedRestore) tells() bool {
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

// sameTable describes the first difference of two contents of a table, whatever the counters; empty: none.
func sameTable(a, b map[string]*Chain) string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		switch {
		case a[name] == nil:
			return "chain " + name + " is new"
		case b[name] == nil:
			return "chain " + name + " is gone"
		}
		if text := diffRules(a[name].texts(), b[name].texts()); text != "" {
			return "chain " + name + " " + text
		}
	}
	return ""
}
