package fault

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"

	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/scenarios"
)

// kind is one kind of fault. CONTRIBUTING lists what a new kind needs.
type kind struct {
	inject injection
	// spared returns why the fault cannot affect the subject; empty: it can. nil: it can affect every subject.
	spared func(*Faults) string
	// removesRules: rules may be missing until the repair.
	removesRules bool
	// FailsRestores: it makes restores fail.
	FailsRestores bool
	// endsSubject: it ends the subject's process, perhaps in the middle of a sync.
	endsSubject bool
	// delaysEach: it delays changes one by one. Its cost is the longest delay.
	delaysEach bool
	// counted: it ends after a number of changes.
	counted bool
	// losesFlows is why flows may fail until the repair; empty: none may.
	losesFlows string
}

// injection injects a fault and has its repair recorded. random is the fault's stream of random numbers.
type injection func(r *Faults, ctx context.Context, f *scenarios.Fault, name string, random *rand.Rand) error

// fixed is an injection without randomness.
func fixed(inject func(*Faults, context.Context, *scenarios.Fault, string) error) injection {
	return func(r *Faults, ctx context.Context, f *scenarios.Fault, name string, _ *rand.Rand) error {
		return inject(r, ctx, f, name)
	}
}

// Kinds are all kinds of faults, by their names in scenarios.
var Kinds map[string]kind

// An initializer would be a cycle: the injections read the table.
func init() {
	restores := fixed((*Faults).breakRestores)
	api := fixed((*Faults).breakAPI)
	Kinds = map[string]kind{
		scenarios.FaultRestoreFails:  {inject: restores, spared: (*Faults).withoutTools, FailsRestores: true},
		scenarios.FaultRestoreKilled: {inject: restores, spared: (*Faults).withoutTools, FailsRestores: true},
		scenarios.FaultRuleRefused: {
			inject: fixed((*Faults).refuse), spared: (*Faults).withoutShim, FailsRestores: true, removesRules: true,
			losesFlows: "a Service whose rules are refused is left out, or keeps its old rules",
		},
		scenarios.FaultLockHeld: {inject: fixed((*Faults).lock), spared: (*Faults).withoutLock, FailsRestores: true},
		scenarios.FaultWriter:   {inject: fixed((*Faults).compete), spared: (*Faults).withoutTables},
		scenarios.FaultFlush: {
			inject: fixed((*Faults).flushed), spared: (*Faults).withoutTables, removesRules: true, losesFlows: "no rule has its Service until the repair",
		},
		scenarios.FaultDelete: {
			inject: (*Faults).deleted, spared: (*Faults).withoutFormat, removesRules: true,
			losesFlows: "perhaps no rule has its Service until the repair",
		},
		scenarios.FaultReference:   {inject: (*Faults).refer, spared: (*Faults).withoutFormat, delaysEach: true},
		scenarios.FaultKilled:      {inject: (*Faults).killed, spared: (*Faults).withoutProcess, endsSubject: true},
		scenarios.FaultMemoryLimit: {inject: fixed((*Faults).limitMemory), spared: (*Faults).withoutProcess, endsSubject: true},
		scenarios.FaultConntrackFull: {
			inject: fixed((*Faults).fillConntrack), losesFlows: "the kernel drops what it cannot track",
		},
		scenarios.FaultAddresses: {
			inject: fixed((*Faults).moreAddresses), losesFlows: "connections through an address end with the address",
		},
		scenarios.FaultClear: {inject: func(r *Faults, ctx context.Context, _ *scenarios.Fault, _ string, _ *rand.Rand) error {
			return r.clear(ctx)
		}},
		scenarios.FaultWatchDropped:     {inject: api},
		scenarios.FaultWatchStalled:     {inject: api},
		scenarios.FaultRelist:           {inject: api},
		scenarios.FaultEventsDuplicated: {inject: api, delaysEach: true, counted: true},
		scenarios.FaultEventsReordered:  {inject: api, delaysEach: true, counted: true},
		scenarios.FaultSlicesFirst:      {inject: api},
		scenarios.FaultAPIDown:          {inject: api},
	}
}

// unaffected returns why a fault cannot affect the subject; empty: it can.
func (r *Faults) unaffected(f *scenarios.Fault) string {
	if spared := Kinds[f.Kind].spared; spared != nil {
		if why := spared(r); why != "" {
			return why
		}
	}
	if r.About.Nftables() && (f.Table == "filter" || f.Table == "mangle") {
		return r.Subject + " has one table: use table nat"
	}
	return ""
}

func (r *Faults) withoutTools() string {
	if r.About.HasTools() {
		return ""
	}
	return r.Subject + " runs no tool that the fault could affect"
}

func (r *Faults) withoutShim() string {
	if why := r.withoutTools(); why != "" || r.Feed == raw.FeedAPI {
		return why
	}
	return "needs the feed " + raw.FeedAPI
}

func (r *Faults) withoutTables() string {
	if r.About.Carrier != subject.Sockets {
		return ""
	}
	return r.Subject + " writes BPF maps and no tables"
}

func (r *Faults) withoutLock() string {
	if why := r.withoutTables(); why != "" {
		return why
	}
	if !r.About.KnownBackend() || r.About.Legacy() {
		return ""
	}
	return r.Subject + " takes no xtables lock"
}

func (r *Faults) withoutProcess() string {
	if r.Feed == raw.FeedAPI {
		return ""
	}
	return "needs the feed " + raw.FeedAPI + ": with the other feed the subject is not a separate process"
}

func (r *Faults) withoutFormat() string {
	if why := r.withoutTables(); why != "" {
		return why
	}
	if r.About.Carrier == subject.Rules {
		return ""
	}
	return "how " + r.Subject + " writes rules is not known"
}

// LosesFlows returns why flows may fail after a fault of a kind; empty: they may not.
func LosesFlows(kind string) string { return Kinds[kind].losesFlows }

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
	for i := range steps {
		if steps[i].Fault == nil || LosesFlows(steps[i].Fault.Kind) == "" || stepNumber(to) < i {
			continue
		}
		if settle, ends := LossEnds(steps, i); !ends || stepNumber(from) <= settle {
			return true
		}
	}
	return false
}

// stepNumber returns the index, from 0, of a step named like "12:check"; -1 for other names.
func stepNumber(name string) int {
	text, _, _ := strings.Cut(name, ":")
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n - 1
}
