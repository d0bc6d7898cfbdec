package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/invariants"
	"synclab/bench/process"
	"synclab/proxier"
	"synclab/proxier/conntrack"
	"synclab/proxier/walk"
	"synclab/scenarios"
)

// checking is what a repetition keeps for its check steps.
type checking struct {
	planted   *invariants.Sentinels
	restarted *invariants.Restarted
	left      *invariants.Leftover
	met       metFlows
	restores  restores
}

// checks says whether the scenario has a check step: then sentinels are planted.
func (r *repetition) checks() bool {
	return slices.ContainsFunc(r.Scenario.Steps, func(s scenarios.Step) bool { return s.Check != nil })
}

// plantSentinels writes what the subject must leave alone, and has its restores watched: once, before it first starts.
func (r *repetition) plantSentinels(ctx context.Context) (err error) {
	if r.checking.planted != nil || !r.checks() {
		return nil
	}
	if r.checking.planted, err = invariants.Plant(ctx, r.variant, r.families, r.loaded); err != nil {
		return err
	}
	return r.watchRestores()
}

// sentinelsLost plants the sentinels of a table anew, which the lab itself has flushed: nat, filter, mangle or all.
func (r *repetition) sentinelsLost(ctx context.Context, table string) error {
	if r.checking.planted == nil || r.variant == "" {
		return nil
	}
	tables := []string{table}
	if table == "all" {
		tables = []string{"nat", "filter", "mangle"}
	}
	for _, family := range r.families {
		for _, table := range tables {
			if err := r.checking.planted.PlantTable(ctx, r.variant, family, table); err != nil {
				return err
			}
		}
	}
	return nil
}

// settleBound is how long a subject may take to get in sync when nothing changes any more.
func (r *repetition) settleBound() time.Duration {
	const allowance = 10 * time.Second // for a sync, and the look at it
	return 2*r.config.IPTables.SyncPeriod.Duration + allowance
}

// check looks whether invariants hold, and records what was looked at and what was violated. What is not as it should be
// may become so by itself until the bound is over.
func (r *repetition) check(ctx context.Context, c *scenarios.Check, name string) error {
	r.say.stage(name, 0, 0)
	if r.followed {
		return errors.New("the cluster is followed: what it should be is not known exactly")
	}
	waiting, cancel := context.WithTimeout(ctx, r.settleBound())
	defer cancel()
	reached := false
	for {
		settled := r.inSync(ctx, waiting) // and what faults broke is repaired
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if reached = reached || settled == nil; reached {
			settled = nil // a later look may have been cut short by the bound
		}
		var results []invariants.Result
		var left *invariants.Leftover
		err := r.subject.aside(func() (err error) {
			results, left, err = r.inspect(ctx, c.Invariants, settled)
			return err
		})
		if err != nil && waiting.Err() != nil || ctx.Err() != nil {
			return err
		}
		holds := err == nil && !slices.ContainsFunc(results, func(r invariants.Result) bool { return len(r.Findings) > 0 })
		if !holds && wait(waiting, lookAgain) == nil {
			continue
		}
		if err != nil {
			return err
		}
		r.checking.left, r.checking.restarted = left, nil
		r.checking.met.forget()
		r.checking.restores.forget()
		r.recordResults(results)
		return nil
	}
}

// lookAgain is how long after a look that found something the next one comes.
const lookAgain = time.Second

// mostViolations of one invariant are recorded in full.
const mostViolations = 20

// recordResults writes down what was looked at, and every violation with how to see it again.
func (r *repetition) recordResults(results []invariants.Result) {
	for _, result := range results {
		r.recordAs(Record{Unit: "count", Invariant: result.Invariant}, Checked, float64(result.Checked))
		for i, f := range result.Findings {
			if i == mostViolations {
				f = invariants.Finding{Invariant: f.Invariant, Text: fmt.Sprintf("and %d more", len(result.Findings)-i)}
			}
			text := fmt.Sprintf("%s; seed %d", f.Text, r.Scenario.Seed)
			if r.Command != "" {
				text += "; again: " + r.Command
			}
			r.recordAs(Record{Unit: "count", Invariant: f.Invariant, Service: f.Service, Error: text}, Violation, 1)
			r.say.message(message{Note: strings.TrimSpace(fmt.Sprintf("%s violated by %s: %s %s", f.Invariant, r.Subject, f.Service, text))})
			if i == mostViolations {
				break
			}
		}
	}
}

// inspect gathers evidence and asks the checkers.
func (r *repetition) inspect(ctx context.Context, names []string, settled error) ([]invariants.Result, *invariants.Leftover, error) {
	e, err := r.evidence(ctx)
	if err != nil {
		return nil, nil, err
	}
	e.Settled = settled
	e.Planted, e.Restarted, e.LeftBefore = r.checking.planted, r.checking.restarted, r.checking.left
	if err := errors.Join(r.askSubject(ctx, e), r.restoresSeen(e)); err != nil {
		return nil, nil, err
	}
	for _, family := range r.families {
		if e.Rules != nil {
			r.sendRefused(e, family)
		}
		if e.ForeignNft[family], err = invariants.ForeignNft(family); err != nil {
			return nil, nil, err
		}
	}
	e.Traffic = r.checking.met.traffic(r.flows.ledger.Load() != nil)
	results, err := invariants.Check(ctx, e, names)
	if err != nil {
		return nil, nil, err
	}
	left, err := e.Left(ctx)
	return results, left, err
}

// evidence is what the cluster and the kernel hold now.
func (r *repetition) evidence(ctx context.Context) (*invariants.Evidence, error) {
	own := r.about.Proxier == Synclab
	e := &invariants.Evidence{
		Subject: invariants.Subject{Name: r.Subject, Own: own, Backend: r.about.Backend, Variant: r.variant, Layout: r.layout, Serves: r.Feed == FeedAPI && r.about.Proxier != Exec},
		Seed:    r.Scenario.Seed, Families: r.families, Objects: r.world.Objects(), SyncPeriod: r.config.IPTables.SyncPeriod.Duration,
		Flows: map[corev1.IPFamily][]conntrack.Flow{}, ForeignNft: map[corev1.IPFamily][]string{},
	}
	machine, err := proxier.ExamineMachine(r.variant)
	if err != nil {
		return nil, err
	}
	e.Options = proxier.Options{
		Config: r.config, NodeName: nodeName(e.Objects), NodeIPs: r.node, Addresses: r.addresses, Machine: machine,
		Clock: r.clock,
	}
	if len(e.Objects.Nodes) > 0 {
		e.Options.PodCIDRs = e.Objects.Nodes[0].Spec.PodCIDRs
	}
	for _, family := range r.families {
		if err := r.readRules(ctx, e, family); err != nil {
			return nil, err
		}
		if e.Flows[family], err = invariants.Flows(ctx, family); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// readRules reads the rules of a family, where it is known how the subject writes them.
func (r *repetition) readRules(ctx context.Context, e *invariants.Evidence, family corev1.IPFamily) (err error) {
	if r.about.Backend == "" {
		return nil
	}
	if e.Rules == nil {
		e.Rules = map[corev1.IPFamily]*walk.Rules{}
	}
	if r.variant != "" {
		if e.Saved == nil {
			e.Saved = map[corev1.IPFamily]invariants.Saved{}
		}
		if e.Saved[family], err = invariants.Save(ctx, r.variant, family); err != nil {
			return err
		}
		e.Rules[family], err = e.Saved[family].Compile(family)
		return err
	}
	tables := ownTables[r.about.Proxier]
	if r.about.Proxier == Synclab {
		if e.Nft == nil {
			e.Nft = map[corev1.IPFamily]*invariants.NftTable{}
		}
		if e.Nft[family], err = invariants.ReadNft(family); err != nil {
			return err
		}
	}
	e.Rules[family], err = walk.ReadNftables(family, tables...)
	return err
}

// askSubject asks what it serves, and counts the restores of its process that were made to fail.
func (r *repetition) askSubject(ctx context.Context, e *invariants.Evidence) error {
	s, ok := r.subject.(*outside)
	if !ok {
		return nil
	}
	if samples, err := process.Metrics(ctx, metricsURL); err == nil {
		e.Metrics = samples
		for _, m := range samples["kubeproxy_sync_proxy_rules_duration_seconds"].GetMetric() {
			e.Syncs += m.GetHistogram().GetSampleCount()
		}
	}
	e.Health = healthStatus(ctx)
	if since := r.tunnel.visible.MissingSince(); !since.IsZero() {
		e.Missing = r.clock.Since(since)
	}
	calls, _, err := r.shim.Read(0)
	if err != nil {
		return err
	}
	e.Injected = map[corev1.IPFamily]int{}
	for _, call := range calls {
		made := call.Fault == "fail" || call.Fault == "kill"
		if made && call.ExitCode != 0 && !call.Start.Before(s.began) && r.about.writes(call) && slices.Contains(r.families, call.Family()) {
			e.Injected[call.Family()]++
		}
	}
	return nil
}

// answerTime bounds how long a question to the subject, or a packet to nobody, may wait.
const answerTime = 3 * time.Second

// healthStatus is what the subject says of its health; 0: nobody answers.
func healthStatus(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+healthAddress+"/healthz", nil)
	if err != nil {
		return 0
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// sendRefused sends a packet to a UDP Service port without endpoints, if there is one.
func (r *repetition) sendRefused(e *invariants.Evidence, family corev1.IPFamily) {
	service, to, ok := e.Refusing(family)
	if !ok {
		return
	}
	begin := r.clock.Now()
	err := knock(to)
	e.Refused = append(e.Refused, invariants.Refused{Service: service, To: to, Err: err, Waited: r.clock.Since(begin)})
}

// knock sends a UDP packet and gives what the socket says of it.
func knock(to netip.AddrPort) error {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return err
	}
	// A rule that turns a packet away makes its own system call fail with EPERM, be it by REJECT or by DROP. The ICMP
	// answer shows at the next one.
	if _, err := conn.Write([]byte{0}); err != nil && !errors.Is(err, unix.EPERM) {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// beforeRestart keeps what there is before the subject is stopped, to hold against what the next one makes of it. UDP flows
// of some Services are planted, which it has to leave alone. One that has ended already is not kept waiting.
func (r *repetition) beforeRestart(ctx context.Context) {
	r.checking.restarted = nil
	if s, ok := r.subject.(*outside); ok {
		select {
		case <-s.process.Done():
			return
		default:
		}
	}
	if !r.checks() || r.subject == nil || r.followed {
		return
	}
	err := r.subject.aside(func() error {
		e, err := r.evidence(ctx)
		if err != nil {
			return err
		}
		before := &invariants.Restarted{Objects: invariants.Digest(e.Objects), Saved: e.Saved, Nft: e.Nft, Flows: map[corev1.IPFamily][]conntrack.Flow{}}
		for _, family := range r.families {
			before.Flows[family] = e.Serving(family, mostKept)
			for _, f := range before.Flows[family] {
				if err := invariants.PlantFlow(family, f); err != nil {
					return err
				}
			}
		}
		r.checking.restarted = before
		return nil
	})
	if err != nil && ctx.Err() == nil { // a fault may hold, such as a full conntrack table
		r.say.message(message{Note: fmt.Sprintf("I13 is not looked at after this restart: %v", err)})
	}
}

// mostKept flows are planted before a restart.
const mostKept = 5
