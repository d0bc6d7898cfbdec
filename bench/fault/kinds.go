package fault

import (
	"context"
	"slices"
	"strings"

	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/scenarios"
)

// Kind is one kind of fault. CONTRIBUTING ("Add a fault") lists what a new kind needs.
type Kind struct {
	Name string // as in scenarios
	// inject breaks something, and calls start. What it leaves in stops ends the fault.
	inject func(*Faults, context.Context, *activeFault) error
	// disturb replaces inject for a fault of the API. Before the subject's watches exist, the fault waits for them.
	disturb func(*Faults, context.Context, *activeFault) error
	spares  []spare
	lasts   lasting
	shows   repair

	// Planted is the shim's name of the fault, which is planted into calls of the subject's tools; empty: it is not.
	Planted string
	// FailsRestores: it makes restores fail.
	FailsRestores bool
	// removesRules: rules may be missing until the repair.
	removesRules bool
	// endsSubject: it ends the subject's process, perhaps in the middle of a sync.
	endsSubject bool
	// newProcess: a new process of the subject writes all rules, whether or not something changed.
	newProcess bool
	// LosesFlows is why flows may fail until the repair; empty: none may.
	LosesFlows string
	// FillsConntrack: the conntrack table may be full until the repair.
	FillsConntrack bool
	// Hides are changes of the cluster that it makes and hides from the subject.
	Hides []scenarios.Churn
}

// spare is a reason why a fault cannot affect some subjects. In why, %s is the subject.
type spare struct {
	why  string
	when func(*pass.Env, *scenarios.Fault) bool
}

// lasting is when a fault ends.
type lasting int

const (
	atOnce       lasting = iota // with its injection
	forTime                     // after Fault.For
	forCalls                    // when it has affected Fault.Times calls of the subject's tools
	forChanges                  // when it has affected Fault.Times changes
	untilCleared                // with the next fault step of kind clear
)

// repair is what shows that a fault is repaired, and from when on its time counts.
type repair string

const (
	changesVisible repair = "from its end until all earlier changes are visible"
	objectsBack    repair = "from its start until all that it removed is back"
	entriesGone    repair = "from its change until no stale conntrack entry is left"
	nextVisible    repair = "from the first later change until it is visible"
	eachVisible    repair = "the longest delay of a change"
)

// asked reports whether stillMissing shows the repair.
func (s repair) asked() bool { return s == objectsBack || s == entriesGone }

// Repair says what the time to recover from the fault is; empty: the kind is not known.
func (k *Kind) Repair() string { return string(k.shows) }

// Kinds are all kinds of faults.
var Kinds []*Kind

// register adds a kind. The files of the kinds call it.
func register(k Kind) { Kinds = append(Kinds, &k) }

// Of returns a kind by its name in scenarios; without a name: it is not known.
func Of(name string) *Kind {
	if i := slices.IndexFunc(Kinds, func(k *Kind) bool { return k.Name == name }); i >= 0 {
		return Kinds[i]
	}
	return &Kind{}
}

// AtOnce reports whether the fault ends at once, so that there is nothing to clear.
func (k *Kind) AtOnce() bool { return k.lasts == atOnce }

// OfAPI reports whether it is a fault of the API.
func (k *Kind) OfAPI() bool { return k.disturb != nil }

// Spares returns why a fault cannot affect the subject; empty: it can.
func Spares(e *pass.Env, f *scenarios.Fault) string {
	for _, spare := range Of(f.Kind).spares {
		if spare.when(e, f) {
			return strings.ReplaceAll(spare.why, "%s", e.Subject)
		}
	}
	return ""
}

// Reasons that several kinds share.
var (
	withoutTools = spare{"%s runs no tool that the fault could affect", func(e *pass.Env, _ *scenarios.Fault) bool {
		return !e.About.HasTools()
	}}
	onlyMaps = spare{"%s writes BPF maps and no tables", func(e *pass.Env, _ *scenarios.Fault) bool {
		return e.About.Carrier == subject.Sockets
	}}
	oneTable = spare{"%s has one table: use table nat", func(e *pass.Env, f *scenarios.Fault) bool {
		return e.About.Nftables() && (f.Table == "filter" || f.Table == "mangle")
	}}
	withoutFormat = spare{"how %s writes rules is not known", func(e *pass.Env, _ *scenarios.Fault) bool {
		return e.About.Carrier != subject.Rules
	}}
	withoutProcess = spare{"needs the feed " + raw.FeedAPI + ": with the other feed the subject is not a separate process", informed}
)

// informed reports whether the subject runs in this process, with informers.
func informed(e *pass.Env, _ *scenarios.Fault) bool { return e.Feed != raw.FeedAPI }

// LossEnds returns the step, from 0, at whose end fault step i no longer excuses a failed flow. It is the first settle
// step after the fault has ended. ends is false if there is none.
func LossEnds(steps []scenarios.Step, i int) (settle int, ends bool) {
	holds := steps[i].Fault.Holds()
	for j := i + 1; j < len(steps); j++ {
		switch step := steps[j]; {
		case step.Fault != nil && step.Fault.Kind == scenarios.FaultClear:
			holds = false
		case step.Settle != nil && !holds:
			return j, true
		}
	}
	return 0, false
}

// MayFail reports whether a fault may have made a flow fail that lasted from one step to another, by their names.
func MayFail(steps []scenarios.Step, from, to string) bool {
	first, last := StepIndex(from), StepIndex(to)
	for i := range steps {
		if steps[i].Fault == nil || Of(steps[i].Fault.Kind).LosesFlows == "" || last < i {
			continue
		}
		if settle, ends := LossEnds(steps, i); !ends || first <= settle {
			return true
		}
	}
	return false
}

// StepIndex returns the index, from 0, of a step named like "12:check", or of a fault's step; -1 for other names.
func StepIndex(name string) int {
	number, _ := scenarios.StepOf(name)
	return number - 1
}
