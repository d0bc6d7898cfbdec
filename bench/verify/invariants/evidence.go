package invariants

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/process"
	"synclab/bench/subject"
	"synclab/bench/verify/walk"
	"synclab/proxier"
	"synclab/proxier/conntrack"
	"synclab/proxier/plan"
	"synclab/sim"
)

// Subject is the proxy under test.
type Subject struct {
	subject.Spec
	// Serves: the subject runs as a process and is known to serve /healthz and /metrics.
	Serves bool
	// HealthPorts: it is known to serve health check NodePorts too. OldHealthPorts: its answers may lack
	// serviceProxyHealthy and the header with the number of endpoints.
	HealthPorts, OldHealthPorts bool
}

// Evidence describes a subject at one moment, after it converged. Fields that were not read are nil.
type Evidence struct {
	Subject Subject
	// Seed of random choices.
	Seed uint64
	// Options of Synclab's proxier on this machine: configuration, node, addresses, features of iptables and the
	// kernel.
	Options  proxier.Options
	Families []corev1.IPFamily
	Objects  *sim.Objects
	// Node are the addresses on the node's device.
	Node []netip.Addr

	// Saved are the tables of iptables by family, with rules of other programs.
	Saved map[corev1.IPFamily]Saved
	// Nft is the table of Synclab's backend nftables.
	Nft map[corev1.IPFamily]*NftTable
	// Rules are the subject's rules in the kernel, for the ruleset evaluator.
	Rules map[corev1.IPFamily]*walk.Rules

	// Settled is nil if the subject converged in time without a change of the cluster; otherwise it says what is
	// missing.
	Settled error
	// Refused are real packets sent to Service ports without endpoints.
	Refused []Refused
	// Restores that failed.
	Restores []FailedRestore

	Planted *Sentinels // written before the subject started
	// ForeignNft lists what is left of the sentinels in nf_tables, by family.
	ForeignNft map[corev1.IPFamily][]string
	// Flows are the UDP entries of the conntrack table.
	Flows map[corev1.IPFamily][]conntrack.Flow
	// Restarted is the state before the subject's last restart.
	Restarted *Restarted

	// Health is the status of /healthz; 0 means no answer. Missing is how long a desired object has been missing from
	// the kernel; 0 means nothing is missing.
	Health     int
	Missing    time.Duration
	SyncPeriod time.Duration
	// HealthAnswers are the answers of the health check NodePorts (HealthPorts).
	HealthAnswers []HealthAnswer

	// Syncs is the number of syncs in this process's metrics. LeftBefore lists the deferred deletes of an earlier
	// check.
	Syncs      uint64
	LeftBefore *Leftover

	Metrics process.Samples // nil means no answer
	// Injected counts this process's restores that a fault made fail, by family.
	Injected map[corev1.IPFamily]int

	// Traffic, if set, has the outcomes of a stream's real flows.
	Traffic *Traffic

	expected *expected
	plans    map[corev1.IPFamily]*plan.Plan
	walked   *walked
	// healthPorts is nil until HealthPorts makes it.
	healthPorts []HealthPort
}

// Traffic counts the outcomes of a stream's flows.
type Traffic struct {
	Streaming         bool // a stream runs, so there must be flows
	Flows             int  // number of all flows
	Misrouted, Failed int
	LongLivedLost     int // long-lived flows that ended
	LongLived         int
	// Reached counts, by "namespace/name:port", the new flows that each endpoint answered while the Service did not
	// change.
	Reached map[string]map[netip.AddrPort]int
}

// Finding is a violation.
type Finding struct {
	Invariant string
	Service   string // "namespace/name", or with the port; empty if it concerns no single Service
	Text      string
}

// Result is the result of one checker.
type Result struct {
	Invariant string
	Checked   int // number of checks
	Findings  []Finding
}

// report collects the findings of a checker.
type report struct {
	invariant string
	checked   int
	findings  []Finding
}

func (r *report) violated(service, format string, args ...any) {
	r.findings = append(r.findings, Finding{Invariant: r.invariant, Service: service, Text: fmt.Sprintf(format, args...)})
}

// Invariant is a property and its checker.
type Invariant struct {
	Name string // I1 to I14
	Says string
	// applies reports whether there is evidence to check.
	applies func(*Evidence) bool
	check   func(context.Context, *Evidence, *report) error
	// due names the evidence that must be there; empty if none is required. Without required evidence the check fails.
	due func(*Evidence) string
}

// All returns the invariants, in order.
func All() []Invariant {
	return []Invariant{
		{"I1", "partial syncs leave the same rules as a full sync", (*Evidence).rendered, checkSame, dueRules},
		{"I2", "every frontend sends traffic to all of its usable endpoints", (*Evidence).met, checkReached, duePackets},
		{"I3", "no packet reaches another endpoint", (*Evidence).met, checkAstray, duePackets},
		{"I4", "no endpoints: rejected; none on this node: dropped", (*Evidence).walkable, checkRefused, dueRefused},
		{"I5", "a failed restore leaves whole tables", (*Evidence).whole, checkWhole, dueWhole},
		{"I6", "converges without an event once faults have stopped", always, checkAlive, dueAlways("the end of the settle step")},
		{"I7", "rules and tables of other programs are unchanged", func(e *Evidence) bool { return e.Planted != nil }, checkForeign, dueAlways("the sentinels written before the start")},
		{"I8", "own chains that are no longer needed are deleted", (*Evidence).rendered, checkStale, dueTidy},
		{"I9", "UDP flows to endpoints that do not serve are deleted, and no other flows", func(e *Evidence) bool { return e.Flows != nil || e.Traffic != nil }, checkFlows, dueAlways("the sentinels' flows in the conntrack table")},
		{"I10", "endpoints of a Service get equal shares", (*Evidence).met, checkShares, dueShares},
		{"I11", "/healthz reports missing rules", func(e *Evidence) bool { return e.Health != 0 }, checkHealth, dueServed("an answer of /healthz")},
		{"I12", "metrics are correct", func(e *Evidence) bool { return e.Metrics != nil }, checkMetrics, dueServed("an answer of /metrics")},
		{"I13", "a restart makes no unnecessary change", func(e *Evidence) bool { return e.Restarted != nil }, checkRestart, dueRestart},
		{"I14", "health check NodePorts answer with the ready endpoints of this node", (*Evidence).AnswersHealth, checkHealthPorts, dueHealthPorts},
	}
}

// rendered reports whether the rules can be compared with a full sync of the same objects.
func (e *Evidence) rendered() bool {
	return e.Saved != nil && e.Subject.Iptables() || e.Nft != nil && e.Subject.Own
}

func (e *Evidence) walkable() bool { return e.Rules != nil }

// met reports whether the outcomes of packets are known, from the rules or from a stream's flows.
func (e *Evidence) met() bool { return e.walkable() || e.Traffic != nil }

func always(*Evidence) bool { return true }

func (e *Evidence) whole() bool {
	return e.settledWhole() || slices.ContainsFunc(e.Restores, func(f FailedRestore) bool { return f.proves() })
}

// settledWhole reports whether the converged tables can be compared with a full sync, chain by chain.
func (e *Evidence) settledWhole() bool {
	return e.Saved != nil && e.Subject.Own && e.Subject.Iptables()
}

// Check runs the checkers of the named invariants, or of all, if their evidence is there. It reports a violation if no
// check was possible and evidence was required. An error means that a checker failed.
func Check(ctx context.Context, e *Evidence, names []string) ([]Result, error) {
	var results []Result
	for _, invariant := range All() {
		if len(names) > 0 && !slices.Contains(names, invariant.Name) {
			continue
		}
		r, applies := &report{invariant: invariant.Name}, invariant.applies(e)
		if applies {
			if err := invariant.check(ctx, e, r); err != nil {
				return results, fmt.Errorf("invariant %s: %w", invariant.Name, err)
			}
		}
		if what := invariant.due(e); r.checked == 0 && what != "" {
			r.violated("", "no evidence was checked; required: %s", what)
		}
		if applies || len(r.findings) > 0 {
			results = append(results, Result{Invariant: invariant.Name, Checked: r.checked, Findings: r.findings})
		}
	}
	return results, nil
}
