package scenarios

import (
	"reflect"
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
	FaultForeign   = "foreign"   // a foreign table of nftables with Elements and newer sets, and foreign Rules, stand there until cleared
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
	// FaultConntrackStale makes UDP connections, Flows in all, to one endpoint each of so many Services, and removes these
	// endpoints: the connections are then stale.
	FaultConntrackStale = "conntrack-stale"
	FaultAddresses      = "addresses" // the node gains an address, and after For loses it again

	// FaultClear clears all active faults.
	FaultClear = "clear"
)

// faultForm is what a scenario may say about a kind of fault.
type faultForm struct {
	kind  string
	takes string // its fields besides kind
	// rules: rules must exist before it. Other faults may come before the first create: a cold start under a held lock
	// is a valid scenario.
	rules bool
	// whole is what it takes hold of as a whole. Two faults of one such thing do not fit into one round: the API cannot
	// be down and stalled, and a full conntrack table takes no stale entries.
	whole string
	// place and trial are of the library's scenario faults: where the kind comes there, from light to heavy, and its
	// steps. "go test ./scenarios -args -update" writes them into library/faults.yaml.
	place int
	trial []string
}

// settled ends the trial of a fault. What is not repaired by then counts as not repaired, and the next trial begins on an
// empty ruleset.
const settled = "- settle: {timeout: 45s, restartOnTimeout: true}"

var faultForms = []faultForm{
	{kind: FaultRestoreKilled, takes: "times", place: 2,
		trial: []string{"- fault: {kind: restore-killed, times: 3}", "- churn: {rate: 2, events: 10}", settled, "- fault: clear"}},
	{kind: FaultRestoreFails, takes: "times", place: 1, trial: []string{"# Restores, or transactions of nft, that fail.",
		"- fault: {kind: restore-fails, times: 3}", "- churn: {rate: 2, events: 10}", settled, "- fault: clear"}},
	{kind: FaultRuleRefused, takes: "for text", rules: true, place: 3,
		trial: []string{"- fault: {kind: rule-refused, for: 10s}", "- churn: {rate: 2, events: 20}", settled}},
	{kind: FaultLockHeld, takes: "for", place: 4, trial: []string{"# Other processes that use the same tables.",
		"- fault: {kind: lock-held, for: 1s}", "- churn: {rate: 2, events: 6}", settled,
		"- fault: {kind: lock-held, for: 6s}", "- churn: {rate: 2, events: 14}", settled,
		"- fault: {kind: lock-held, for: 1h}", "- churn: {rate: 2, events: 30}", "- fault: clear", settled}},
	{kind: FaultWriter, takes: "for", place: 5,
		trial: []string{"- fault: {kind: writer, for: 8s}", "- churn: {rate: 2, events: 16}", settled}},
	{kind: FaultForeign, takes: "elements rules", place: 20,
		trial: []string{"- fault: {kind: foreign, elements: 1000, rules: 200}", "- churn: {rate: 2, events: 10}", settled, "- fault: clear"}},
	{kind: FaultFlush, takes: "table", rules: true, place: 19, trial: []string{
		"- fault: {kind: flush, table: mangle}", settled, "- fault: {kind: flush, table: filter}", settled,
		"- fault: {kind: flush, table: nat}", settled, "- fault: {kind: flush, table: all}", settled}},
	{kind: FaultDelete, takes: "table object", rules: true, place: 18, trial: []string{
		"- fault: {kind: delete, object: rule}", settled, "- fault: {kind: delete, object: chain}", settled,
		"- fault: {kind: delete, object: jump}", settled, "- fault: {kind: delete, object: jump, table: filter}", settled}},
	{kind: FaultReference, rules: true, place: 17, trial: []string{"# External writes to the subject's rules.",
		"- fault: reference", "- churn: {rate: 2, events: 10, kind: services}", settled, "- fault: clear", settled}},
	{kind: FaultWatchDropped, rules: true, whole: "watches", place: 6, trial: []string{"# The API and its watches.",
		"- fault: watch-dropped", "- churn: {rate: 2, events: 6}", settled}},
	{kind: FaultWatchStalled, takes: "for", rules: true, whole: "watches", place: 7,
		trial: []string{"- fault: {kind: watch-stalled, for: 5s}", "- churn: {rate: 2, events: 10}", settled}},
	{kind: FaultRelist, rules: true, whole: "watches", place: 8,
		trial: []string{"- fault: relist", "- churn: {rate: 2, events: 6}", settled}},
	{kind: FaultEventsDuplicated, takes: "times", place: 9,
		trial: []string{"- fault: {kind: events-duplicated, times: 8}", "- churn: {rate: 4, events: 12, kind: mixed}", settled}},
	{kind: FaultEventsReordered, takes: "times", place: 10,
		trial: []string{"- fault: {kind: events-reordered, times: 8}", "- churn: {rate: 4, events: 12, kind: mixed}", settled}},
	{kind: FaultSlicesFirst, takes: "for", whole: "watches", place: 11,
		trial: []string{"- fault: {kind: slices-first, for: 5s}", "- churn: {rate: 2, events: 10, kind: services}", settled}},
	{kind: FaultAPIDown, takes: "for", whole: "watches", place: 12,
		trial: []string{"- fault: {kind: api-down, for: 5s}", "- churn: {rate: 2, events: 10}", settled}},
	{kind: FaultKilled, rules: true, place: 16, trial: []string{"- churn: {rate: 10, events: 10}", "- fault: killed", settled}},
	{kind: FaultMemoryLimit, takes: "for bytes", rules: true, place: 15,
		trial: []string{"- fault: {kind: memory-limit, for: 8s, bytes: 67108864}", "- churn: {rate: 2, events: 16}", settled}},
	{kind: FaultConntrackFull, takes: "for flows", rules: true, whole: "conntrack", place: 14,
		trial: []string{"- fault: {kind: conntrack-full, for: 5s}", "- churn: {rate: 2, events: 10}", settled}},
	{kind: FaultConntrackStale, takes: "flows services", rules: true, whole: "conntrack", place: 14,
		trial: []string{"- fault: {kind: conntrack-stale, flows: 5000, services: 10}", "- churn: {rate: 2, events: 6}", settled}},
	{kind: FaultAddresses, takes: "for", rules: true, place: 13, trial: []string{"# The node and the subject.",
		"- fault: {kind: addresses, for: 5s}", "- churn: {rate: 2, events: 10}", settled}},
	{kind: FaultClear},
}

// FaultKinds returns the names of all kinds of faults.
func FaultKinds() []string { return kindsThat(func(faultForm) bool { return true }) }

func kindsThat(fit func(faultForm) bool) (kinds []string) {
	for _, form := range faultForms {
		if fit(form) {
			kinds = append(kinds, form.kind)
		}
	}
	return kinds
}

// enumerate joins names: "a, b and c".
func enumerate(names []string) string {
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// has reports whether the kind takes a field.
func (k faultForm) has(field string) bool { return slices.Contains(strings.Fields(k.takes), field) }

// form returns the form of the fault's kind, or the zero form for an unknown kind.
func (f *Fault) form() faultForm {
	i := slices.IndexFunc(faultForms, func(form faultForm) bool { return form.kind == f.Kind })
	if i < 0 {
		return faultForm{}
	}
	return faultForms[i]
}

// Holds reports whether the fault is active for a duration (For).
func (f *Fault) Holds() bool { return f.form().has("for") }

// defaultHold outlasts the 5 s that kube-proxy lets iptables wait for the lock.
const defaultHold = 6 * time.Second

func (f *Fault) fill() {
	form := f.form()
	if form.has("times") {
		or(&f.Times, defaultFaultTimes)
	}
	if form.has("for") {
		or(&f.For, defaultHold)
	}
	if form.has("table") {
		or(&f.Table, defaultFlushTable)
	}
	if form.has("object") {
		or(&f.Object, "jump")
	}
	if form.has("elements") && f.Elements+f.Rules == 0 {
		f.Elements, f.Rules = 100_000, 1_000
	}
	if f.Kind == FaultConntrackStale {
		or(&f.Flows, defaultStaleFlows)
		or(&f.Services, defaultStaleServices)
	}
	if form.has("bytes") {
		or(&f.Bytes, defaultMemoryLimit)
	}
}

// check reports settings that this kind of fault does not take.
func (f *Fault) check(at string, created int, ps *Problems) {
	form := f.form()
	if form.kind == "" {
		return // the rule of the field refuses it
	}
	v := reflect.ValueOf(*f)
	for _, field := range fieldsOf(v.Type()) {
		if field.name != "kind" && !v.Field(field.index).IsZero() && !form.has(field.name) {
			kinds := kindsThat(func(k faultForm) bool { return k.has(field.name) })
			ps.add(join(at, field.name), "has no effect on "+f.Kind+": it belongs to "+enumerate(kinds))
		}
	}
	if f.Kind == FaultDelete && f.Table == "all" {
		ps.add(join(at, "table"), "is one of nat, filter and mangle for "+FaultDelete)
	}
	if form.rules && created == 0 && f.Text == "" {
		ps.add(at, "comes before any create: there is nothing yet that "+f.Kind+" could break")
	}
}
