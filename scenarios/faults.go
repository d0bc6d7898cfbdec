package scenarios

import (
	"slices"
	"strings"
	"time"
)

// Kinds of faults. What holds, holds during the steps after it, for Fault.For or until it has hit Fault.Times; FaultHeal ends
// all that still hold. What is chosen, such as which rule is deleted, is drawn by lot from the scenario's seed.
//
// There is no fault of the clock. A time namespace shifts CLOCK_MONOTONIC and CLOCK_BOOTTIME of processes that start in it,
// by a constant, which no process can notice; CLOCK_REALTIME is the machine's, for all its namespaces alike; and a library
// in front of a program's own (LD_PRELOAD) is not there for programs without libc. Steps of the clock belong where time is
// passed in.
const (
	// Of restores, and nft transactions of a tool. Subjects without tools have none.
	FaultRestoreKilled = "restore-killed" // the next Times are killed as soon as they run
	FaultRestoreFails  = "restore-fails"  // the next Times fail before they read anything
	FaultRuleRefused   = "rule-refused"   // For: each that names the endpoint that is added next, or has Text in it, fails, as a whole

	// Of what others do to the same tables.
	FaultLockHeld  = "lock-held" // For: another holds the xtables lock
	FaultWriter    = "writer"    // For: another writes rules of its own all the time, as a CNI or a kubelet does
	FaultFlush     = "flush"     // Table is emptied
	FaultDelete    = "delete"    // an Object of the subject's in Table is deleted
	FaultReference = "reference" // foreign rules refer to the chains that the subject's Services have now, and stay

	// Of the API.
	FaultWatchDropped   = "watch-dropped"   // all watches end, once
	FaultWatchStalled   = "watch-stalled"   // For: watches stay open and say nothing
	FaultRelist         = "relist"          // all watches end, and what they missed is forgotten: 410 Gone
	FaultEventsRepeated = "events-repeated" // the next Times changes are told twice
	FaultEventsSwapped  = "events-swapped"  // the next Times changes change places with the one after them, if of another object
	FaultSlicesFirst    = "slices-first"    // For: EndpointSlices are told before the Services they belong to
	FaultAPIDown        = "api-down"        // For: nobody listens

	// Of the subject and its machine.
	FaultKilled = "killed" // the subject is killed within the next second, and started again
	// FaultMemoryLimit, For: the subject and its children may hold Bytes together, where cgroups can be made, else each of
	// them as much of its own. A subject that dies of it is started again without.
	FaultMemoryLimit   = "memory-limit"
	FaultConntrackFull = "conntrack-full" // For: the namespace's connections fill the table, or there are Flows of nobody's
	FaultAddresses     = "addresses"      // the node gains an address, and after For loses it again

	// FaultHeal ends what still holds.
	FaultHeal = "heal"
)

// faultForm is what a kind of fault takes, and whether there have to be rules before it.
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
	{kind: FaultEventsRepeated, times: true},
	{kind: FaultEventsSwapped, times: true},
	{kind: FaultSlicesFirst, holds: true},
	{kind: FaultAPIDown, holds: true},
	{kind: FaultKilled, rules: true},
	{kind: FaultMemoryLimit, holds: true, bytes: true, rules: true},
	{kind: FaultConntrackFull, holds: true, flows: true, rules: true},
	{kind: FaultAddresses, holds: true, rules: true},
	{kind: FaultHeal},
}

func faultKinds() []string {
	kinds := make([]string, len(faultForms))
	for i, form := range faultForms {
		kinds[i] = form.kind
	}
	return kinds
}

// kindsThat lists the kinds that take something: "a, b and c".
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

// form of a fault's kind; the zero form when there is no such kind.
func (f *Fault) form() faultForm {
	i := slices.IndexFunc(faultForms, func(form faultForm) bool { return form.kind == f.Kind })
	if i < 0 {
		return faultForm{}
	}
	return faultForms[i]
}

// Holds says whether a fault lasts for a time that it says.
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

// check refuses settings that this kind of fault does not have. A fault may come before the first create if it needs no
// rules: a cold start under a held lock is a question.
func (f *Fault) check(at string, created int, ps *Problems) {
	form := f.form()
	if form.kind == "" {
		return // refused as a word
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
