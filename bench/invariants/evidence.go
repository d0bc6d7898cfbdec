package invariants

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/process"
	"synclab/proxier"
	"synclab/proxier/conntrack"
	"synclab/proxier/iptables"
	"synclab/proxier/plan"
	"synclab/proxier/walk"
	"synclab/sim"
)

// Subject is whose rules are looked at.
type Subject struct {
	Name    string
	Own     bool // the lab's own proxier
	Backend proxier.BackendKind
	// Variant of iptables; empty for other backends.
	Variant iptables.Variant
	Layout  iptables.Layout
	// Serves says that it runs as a process and is known to serve /healthz and /metrics.
	Serves bool
}

// iptables says whether the rules can be read as iptables-save prints them.
func (s *Subject) iptables() bool { return s.Variant != "" }

// nftables says whether they are in tables of nf_tables of their own.
func (s *Subject) nftables() bool { return s.Backend == proxier.Nftables }

// Evidence is what is known of a subject at one moment, after everything settled. What was not looked at is nil.
type Evidence struct {
	Subject Subject
	// Seed of what is drawn.
	Seed uint64
	// Options are those that the lab's proxier has, or would have, on this machine: configuration, node, addresses, what
	// iptables and the kernel can do.
	Options  proxier.Options
	Families []corev1.IPFamily
	Objects  *sim.Objects

	// Saved are the tables of iptables by family, with those of others in them.
	Saved map[corev1.IPFamily]Saved
	// Nft is the table of the lab's own backend nftables.
	Nft map[corev1.IPFamily]*NftTable
	// Rules are the subject's in the kernel, as packets meet them.
	Rules map[corev1.IPFamily]*walk.Rules

	// Settled is nil when the subject came in sync in time, without any change of the cluster, or what it lacked.
	Settled error
	// Refused are packets that were really sent to Service ports without endpoints.
	Refused []Refused
	// Restores that failed.
	Restores []FailedRestore

	Planted *Sentinels // before the subject started
	// ForeignNft is what is there of the sentinels in nf_tables, by family.
	ForeignNft map[corev1.IPFamily][]string
	// Flows are the UDP entries of the conntrack table.
	Flows map[corev1.IPFamily][]conntrack.Flow
	// Restarted is what there was before the subject was last started again.
	Restarted *Restarted

	// Health is the status of /healthz; 0: no answer. Missing is how long something that is desired has been missing
	// from the kernel; 0: nothing is.
	Health     int
	Missing    time.Duration
	SyncPeriod time.Duration

	// Syncs of this process that its metrics tell of, and what an earlier check found to be left over.
	Syncs      uint64
	LeftBefore *Leftover

	Metrics process.Samples // nil: no answer
	// Injected counts restores of this process that were made to fail, by family.
	Injected map[corev1.IPFamily]int

	// Traffic, when set, is what real flows of a stream met.
	Traffic *Traffic

	expected *expected
	plans    map[corev1.IPFamily]*plan.Plan
	walked   *walked
}

// Traffic is what became of the flows of a stream.
type Traffic struct {
	Streaming         bool // a stream runs: there must be flows
	Flows             int  // all of them
	Misrouted, Failed int
	HeldLost          int // flows that were there before the changes, and ended
	Held              int
	// Reached counts, by "namespace/name:port", the new flows that each endpoint answered while the Service did not change.
	Reached map[string]map[netip.AddrPort]int
}

// Finding is a violation.
type Finding struct {
	Invariant string
	Service   string // "namespace/name", or with the port; empty: of none alone
	Text      string
}

// Result is what became of one invariant.
type Result struct {
	Invariant string
	Checked   int // things that were looked at
	Findings  []Finding
}

// report collects what a checker finds.
type report struct {
	invariant string
	checked   int
	findings  []Finding
}

func (r *report) violated(service, format string, args ...any) {
	r.findings = append(r.findings, Finding{Invariant: r.invariant, Service: service, Text: fmt.Sprintf(format, args...)})
}

// Invariant is one of the promises, and who looks whether it is kept.
type Invariant struct {
	Name string // I1 to I13
	Says string
	// applies says whether there is anything to look at.
	applies func(*Evidence) bool
	check   func(context.Context, *Evidence, *report) error
	// due says what must be there to look at; empty: there may be nothing. A check of nothing is a violation then.
	due func(*Evidence) string
}

// All are the invariants, in order.
func All() []Invariant {
	return []Invariant{
		{"I1", "partial syncs leave what a full one would", (*Evidence).rendered, checkSame, dueRules},
		{"I2", "every frontend with usable endpoints leads to all of them", (*Evidence).met, checkReached, duePackets},
		{"I3", "no packet reaches another endpoint", (*Evidence).met, checkAstray, duePackets},
		{"I4", "no endpoints: rejected; none on this node: dropped", (*Evidence).walkable, checkRefused, dueRefused},
		{"I5", "a failed restore leaves whole tables", (*Evidence).whole, checkWhole, dueWhole},
		{"I6", "in sync without an event, once faults stopped", always, checkAlive, dueAlways("the end of the settle step")},
		{"I7", "what others wrote is untouched", func(e *Evidence) bool { return e.Planted != nil }, checkForeign, dueAlways("rules or objects of others, written before the start")},
		{"I8", "own chains that nothing needs are gone", (*Evidence).tidy, checkStale, dueTidy},
		{"I9", "no UDP flow stays with an endpoint that does not serve, and no other flow is cut", func(e *Evidence) bool { return e.Flows != nil || e.Traffic != nil }, checkFlows, dueAlways("flows of others in the conntrack table")},
		{"I10", "endpoints of a Service get equal shares", (*Evidence).met, checkShares, dueShares},
		{"I11", "/healthz says whether something is missing", func(e *Evidence) bool { return e.Health != 0 }, checkHealth, dueServed("an answer of /healthz")},
		{"I12", "metrics say what is so", func(e *Evidence) bool { return e.Metrics != nil }, checkMetrics, dueServed("an answer of /metrics")},
		{"I13", "a restart changes nothing that need not change", func(e *Evidence) bool { return e.Restarted != nil }, checkRestart, dueRestart},
	}
}

// rendered says whether a full sync of the same objects can be compared with.
func (e *Evidence) rendered() bool {
	return e.Saved != nil && e.Subject.iptables() || e.Nft != nil && e.Subject.Own
}

func (e *Evidence) walkable() bool { return e.Rules != nil }

// met says whether it is known what packets meet: by the rules, or by a stream's flows.
func (e *Evidence) met() bool { return e.walkable() || e.Traffic != nil }

func always(*Evidence) bool { return true }

func (e *Evidence) whole() bool {
	return e.settledWhole() || slices.ContainsFunc(e.Restores, func(f FailedRestore) bool { return f.tells() })
}

// settledWhole says whether what has settled can be held against what a full sync makes, chain by chain.
func (e *Evidence) settledWhole() bool {
	return e.Saved != nil && e.Subject.Own && e.Subject.iptables()
}

func (e *Evidence) tidy() bool { return e.rendered() }

// Check looks at the named invariants, or at all, as far as they apply. Where nothing was looked at and something was due,
// that is a violation. An error says that one could not be looked at.
func Check(ctx context.Context, e *Evidence, names []string) ([]Result, error) {
	var results []Result
	for _, invariant := range All() {
		if !wanted(names, invariant.Name) {
			continue
		}
		r, applies := &report{invariant: invariant.Name}, invariant.applies(e)
		if applies {
			if err := invariant.check(ctx, e, r); err != nil {
				return results, fmt.Errorf("invariant %s: %w", invariant.Name, err)
			}
		}
		if what := invariant.due(e); r.checked == 0 && what != "" {
			r.violated("", "nothing was looked at; due: %s", what)
		}
		if applies || len(r.findings) > 0 {
			results = append(results, Result{Invariant: invariant.Name, Checked: r.checked, Findings: r.findings})
		}
	}
	return results, nil
}

func wanted(names []string, name string) bool {
	if len(names) == 0 {
		return true
	}
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}
