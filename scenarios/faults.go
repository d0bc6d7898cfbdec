package scenarios

import (
	"slices"
	"strings"
	"time"
)

// Kinds of faults. A fault that lasts is active during the steps after it: for Fault.For, or until Fault.Times hits.
// FaultClear clears all active faults. Random choices, such as the deleted rule, are drawn from the scenario's seed.
//
// There is no fault of the clock. A time namespace shifts CLOCK_MONOTONIC and CLOCK_BOOTTIME by a constant, for
// processes that start in it, and no process can notice that. CLOCK_REALTIME is the machine's, the same in all
// namespaces. LD_PRELOAD has no effect on programs without libc. Steps of the clock belong in tests of code with an
// injected clock.
const (
	// Faults of restores, and of a tool's nft transactions. Subjects without tools have none.
	FaultRestoreKilled = "restore-killed" // the next Times restores are killed as soon as they run
	FaultRestoreFails  = "restore-fails"  // the next Times restores fail before they read anything
	FaultRuleRefused   = "rule-refused"   // For: each restore that contains the endpoint added next, or Text, fails as a whole

	// Faults of other processes that use the same tables.
	FaultLockHeld  = "lock-held" // For: another process holds the xtables lock
	FaultWriter    = "writer"    // For: another process keeps writing its own rules, as a CNI or a kubelet does
	FaultFlush     = "flush"     // Table is flushed
	FaultDelete    = "delete"    // one Object of the subject in Table is deleted
	FaultReference = "reference" // foreign rules refer to the chains of the subject's present Services, and stay

	// Faults of the API.
	FaultWatchDropped     = "watch-dropped"     // all watches end, once
	FaultWatchStalled     = "watch-stalled"     // For: watches stay open and deliver nothing
	FaultRelist           = "relist"            // all watches end, and the server forgets the events they missed: 410 Gone
	FaultEventsDuplicated = "events-duplicated" // the next Times changes are delivered twice
	FaultEventsReordered  = "events-reordered"  // the next Times changes swap with the one after them, if of another object
	FaultSlicesFirst      = "slices-first"      // For: EndpointSlices are delivered before their Services
	FaultAPIDown          = "api-down"          // For: nothing listens

	// Faults of the subject and its machine.
	FaultKilled = "killed" // the subject is killed within the next second, and restarted
	// FaultMemoryLimit limits, during For, the memory of the subject and its children: to Bytes together where cgroups
	// can be made, else to Bytes each. A subject that dies of the limit is restarted without it.
	FaultMemoryLimit   = "memory-limit"
	FaultConntrackFull = "conntrack-full" // For: the namespace's connections fill the table, or Flows unrelated ones are added
	FaultAddresses     = "addresses"      // the node gains an address, and after For loses it again

	// FaultClear clears all active faults.
	FaultClear = "clear"
)

// faultForm lists the fields that a kind of fault takes, and whether rules must exist before it.
type faultForm struct {
	kind                               string
	table, object, times, holds, bytes bool
	text, flows                        bool
	rules                              bool
}

var faultForms = []faultForm{
	{kind: FaultRestoreKilled, times: true},
	{kind: FaultRestoreFails, times: true},
	{kind: FaultRuleRefused, holds: true, text: true, rules: true},
	{kind: FaultLockHeld, holds: true},
	{kind: FaultWriter, holds: true},
	{kind: FaultFlush, table: true, rules: true},
	{kind: FaultDelete, table: true, object: true, rules: true},
	{kind: FaultReference, rules: true},
	{kind: FaultWatchDropped, rules: true},
	{kind: FaultWatchStalled, holds: true, rules: true},
	{kind: FaultRelist, rules: true},
	{kind: FaultEventsDuplicated, times: true},
	{kind: FaultEventsReordered, times: true},
	{kind: FaultSlicesFirst, holds: true},
	{kind: FaultAPIDown, holds: true},
	{kind: FaultKilled, rules: true},
	{kind: FaultMemoryLimit, holds: true, bytes: true, rules: true},
	{kind: FaultConntrackFull, holds: true, flows: true, rules: true},
	{kind: FaultAddresses, holds: true, rules: true},
	{kind: FaultClear},
}

func faultKinds() []string {
	kinds := make([]string, len(faultForms))
	for i, form := range faultForms {
		kinds[i] = form.kind
	}
	return kinds
}

// kindsThat lists the kinds that take a field: "a, b and c".
func kindsThat(take func(faultForm) bool) string {
	var kinds []string
	for _, form := range faultForms {
		if take(form) {
			kinds = append(kinds, form.kind)
		}
	}
	last := len(kinds) - 1
	if last == 0 {
		return kinds[0]
	}
	return strings.Join(kinds[:last], ", ") + " and " + kinds[last]
}

// form returns the form of the fault's kind, or the zero form for an unknown kind.
func (f *Fault) form() faultForm {
	i := slices.IndexFunc(faultForms, func(form faultForm) bool { return form.kind == f.Kind })
	if i < 0 {
		return faultForm{}
	}
	return faultForms[i]
}

// Holds reports whether the fault is active for a duration (For).
func (f *Fault) Holds() bool { return f.form().holds }

// defaultHold outlasts the 5 s that kube-proxy lets iptables wait for the lock.
const defaultHold = 6 * time.Second

func (f *Fault) fill() {
	form := f.form()
	if form.times {
		or(&f.Times, defaultFaultTimes)
	}
	if form.holds {
		or(&f.For, defaultHold)
	}
	if form.table {
		or(&f.Table, defaultFlushTable)
	}
	if form.object {
		or(&f.Object, "jump")
	}
	if form.bytes {
		or(&f.Bytes, defaultMemoryLimit)
	}
}

// check reports settings that this kind of fault does not take. A fault that needs no rules may come before the first
// create: a cold start under a held lock is a valid scenario.
func (f *Fault) check(at string, created int, ps *Problems) {
	form := f.form()
	if form.kind == "" {
		return // the rule of the field refuses it
	}
	for _, extra := range []struct {
		field string
		set   bool
		takes func(faultForm) bool
	}{
		{"table", f.Table != "", func(k faultForm) bool { return k.table }},
		{"object", f.Object != "", func(k faultForm) bool { return k.object }},
		{"times", f.Times != 0, func(k faultForm) bool { return k.times }},
		{"for", f.For != 0, func(k faultForm) bool { return k.holds }},
		{"bytes", f.Bytes != 0, func(k faultForm) bool { return k.bytes }},
		{"text", f.Text != "", func(k faultForm) bool { return k.text }},
		{"flows", f.Flows != 0, func(k faultForm) bool { return k.flows }},
	} {
		if extra.set && !extra.takes(form) {
			ps.add(join(at, extra.field), "has no effect on "+f.Kind+": it belongs to "+kindsThat(extra.takes))
		}
	}
	if f.Kind == FaultDelete && f.Table == "all" {
		ps.add(join(at, "table"), "is one of nat, filter and mangle for "+FaultDelete)
	}
	if form.rules && created == 0 && f.Text == "" {
		ps.add(at, "comes before any create: there is nothing yet that "+f.Kind+" could break")
	}
}
