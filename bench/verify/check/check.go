package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/bench/fault"
	"synclab/bench/lab/process"
	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/subject/host"
	"synclab/bench/traffic"
	"synclab/bench/traffic/flow"
	"synclab/bench/verify/invariants"
	"synclab/bench/verify/walk"
	"synclab/proxier"
	"synclab/proxier/conntrack"
	"synclab/scenarios"
)

// Checks are the check steps of a repetition, with what they compare.
type Checks struct {
	*pass.Env
	Host   *host.Host
	Faults *fault.Faults
	Flows  *flow.Flows
	// InSync waits until the subject has converged and all faults are repaired, at most until waiting ends.
	InSync func(ctx, waiting context.Context) error

	planted   *invariants.Sentinels
	restarted *invariants.Restarted
	restarts  int
	left      *invariants.Leftover
	met       metFlows
	restores  restores
	changed   map[types.NamespacedName]bool // Services, for Deliver
	noted     string                        // how many health check NodePorts were asked, if not all
}

// Count counts a result of a flow, unless a fault may have made it fail.
func (r *Checks) Count(o *traffic.Observed, from, to string) {
	r.met.met(o, fault.MayFail(r.Scenario.Steps, from, to))
}

// needed reports whether the scenario has a check step for which sentinels are planted.
func (r *Checks) needed() bool {
	return slices.ContainsFunc(r.Scenario.Steps, func(s scenarios.Step) bool { return s.Check != nil && !AsksOnly(s.Check.Invariants) })
}

// AsksOnly reports whether the answers of the subject's own servers are all the evidence that the named invariants need.
// Then no rules are read, which takes minutes in large clusters, and nothing is planted.
func AsksOnly(names []string) bool {
	asked := func(name string) bool { return name == "I11" || name == "I14" }
	return len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool { return !asked(name) })
}

// Starting writes rules and flows that the subject must not change, and starts watchRestores. It does so once,
// before the subject starts first.
func (r *Checks) Starting(ctx context.Context) (err error) {
	if r.planted != nil || !r.needed() {
		return nil
	}
	if r.planted, err = invariants.Plant(ctx, r.About.Variant, r.Families, r.Loaded); err != nil {
		return err
	}
	return r.watchRestores()
}

// TableEmptied restores the sentinels of a table that the lab itself has flushed: nat, filter, mangle or all.
func (r *Checks) TableEmptied(ctx context.Context, table string) error {
	if r.planted == nil || !r.About.Iptables() {
		return nil
	}
	for _, family := range r.Families {
		for _, table := range fault.Tables(table) {
			if err := r.planted.PlantTable(ctx, r.About.Variant, family, table); err != nil {
				return err
			}
		}
	}
	return nil
}

// settleBound is the longest time in which a subject must converge once nothing changes any more.
func (r *Checks) settleBound() time.Duration {
	const allowance = 10 * time.Second // for a sync and for reading the kernel
	return 2*r.Settings().SyncPeriod + allowance
}

// Check checks invariants. It records the number of checks and every violation. It repeats the check until it finds no
// violation or settleBound has passed.
func (r *Checks) Check(ctx context.Context, c *scenarios.Check, name string) error {
	r.Messages.Stage(name, 0, 0)
	if r.Followed {
		return errors.New("cannot check invariants: the desired state of a followed cluster is not known exactly")
	}
	waiting, cancel := context.WithTimeout(ctx, r.settleBound())
	defer cancel()
	reached := false
	for {
		settled := r.InSync(ctx, waiting) // includes the repair of all faults
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if reached = reached || settled == nil; reached {
			settled = nil // the bound may have cut a later check short
		}
		var results []invariants.Result
		var left *invariants.Leftover
		err := r.Host.Subject.Aside(func() (err error) {
			results, left, err = r.inspect(ctx, c.Invariants, settled)
			return err
		})
		if err != nil && waiting.Err() != nil || ctx.Err() != nil {
			return err
		}
		holds := err == nil && !slices.ContainsFunc(results, func(r invariants.Result) bool { return len(r.Findings) > 0 })
		if !holds && pass.Wait(waiting, lookAgain) == nil {
			continue
		}
		if err != nil {
			return err
		}
		r.checked(c.Invariants, left)
		r.RecordResults(results)
		return nil
	}
}

// checked forgets what the checked invariants have used as evidence: the next check begins anew. One that only asks the
// subject has used nothing.
func (r *Checks) checked(names []string, left *invariants.Leftover) {
	if AsksOnly(names) {
		return
	}
	r.left, r.restarted = left, nil
	r.met.forget()
	r.restores.forget()
}

// lookAgain is the time from a check that found a violation to the next check.
const lookAgain = time.Second

// inspect gathers the evidence and runs the checkers.
func (r *Checks) inspect(ctx context.Context, names []string, settled error) ([]invariants.Result, *invariants.Leftover, error) {
	e, err := r.evidence(ctx, !AsksOnly(names))
	if err != nil {
		return nil, nil, err
	}
	e.Settled = r.Host.Why(settled)
	e.Planted, e.Restarted, e.LeftBefore = r.planted, r.restarted, r.left
	if err := errors.Join(r.askSubject(ctx, e), r.restoresSeen(e)); err != nil {
		return nil, nil, err
	}
	for _, family := range r.Families {
		if e.Rules != nil {
			r.sendRefused(e, family)
		}
		if e.ForeignNft[family], err = invariants.ForeignNft(family); err != nil {
			return nil, nil, err
		}
	}
	e.Traffic = r.met.traffic(r.Flows.Checker.Load() != nil)
	results, err := invariants.Check(ctx, e, names)
	if err != nil {
		return nil, nil, err
	}
	left, err := e.Left(ctx)
	return results, left, err
}

// evidence reads the current state of the cluster and, with rules, of the kernel.
func (r *Checks) evidence(ctx context.Context, rules bool) (*invariants.Evidence, error) {
	e := &invariants.Evidence{
		Subject: invariants.Subject{
			Spec: r.Current(), Serves: r.Feed == raw.FeedAPI && len(r.About.Command) == 0,
			HealthPorts: r.Feed == raw.FeedAPI && r.About.HasMetrics, OldHealthPorts: r.About.OldHealthPorts(r.Tools.Programs[r.About.Program()].Version),
		},
		Seed: r.Scenario.Seed, Families: r.Families, Objects: r.World.Objects(), Node: r.Node, SyncPeriod: r.Settings().SyncPeriod,
		Flows: map[corev1.IPFamily][]conntrack.Flow{}, ForeignNft: map[corev1.IPFamily][]string{},
	}
	machine, err := proxier.ExamineMachine(r.About.Variant)
	if err != nil {
		return nil, err
	}
	e.Options = proxier.Options{
		Config: r.SameForAll(), NodeName: pass.NodeName(e.Objects), NodeIPs: r.NodeIPs, Addresses: r.Addresses, Machine: machine,
		Clock: r.Clock,
	}
	if len(e.Objects.Nodes) > 0 {
		e.Options.PodCIDRs = e.Objects.Nodes[0].Spec.PodCIDRs
	}
	for _, family := range r.Families {
		if !rules {
			break
		}
		if err := r.readRules(ctx, e, family); err != nil {
			return nil, err
		}
		if e.Flows[family], err = invariants.Flows(ctx, family); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// readRules reads the rules of a family, if the subject's format of rules is known.
func (r *Checks) readRules(ctx context.Context, e *invariants.Evidence, family corev1.IPFamily) (err error) {
	if !r.About.KnownBackend() {
		return nil
	}
	if e.Rules == nil {
		e.Rules = map[corev1.IPFamily]*walk.Rules{}
	}
	if r.About.Iptables() {
		if e.Saved == nil {
			e.Saved = map[corev1.IPFamily]invariants.Saved{}
		}
		if e.Saved[family], err = invariants.Save(ctx, r.About.Variant, family); err != nil {
			return err
		}
		e.Rules[family], err = e.Saved[family].Compile(family)
		return err
	}
	if r.About.Own {
		if e.Nft == nil {
			e.Nft = map[corev1.IPFamily]*invariants.NftTable{}
		}
		if e.Nft[family], err = invariants.ReadNft(family); err != nil {
			return err
		}
	}
	e.Rules[family], err = walk.ReadNftables(family, r.About.Tables...)
	return err
}

// askSubject reads the subject's metrics and health, and counts the restores of its process that the shim made fail.
func (r *Checks) askSubject(ctx context.Context, e *invariants.Evidence) error {
	if r.Host.Process() == nil {
		return nil
	}
	if samples, err := process.Metrics(ctx, host.MetricsURL); err == nil {
		e.Metrics = samples
		for _, m := range samples["kubeproxy_sync_proxy_rules_duration_seconds"].GetMetric() {
			e.Syncs += m.GetHistogram().GetSampleCount()
		}
	}
	if status, _, _, err := get(ctx, host.HealthAddress); err == nil {
		e.Health = status
	}
	if err := r.askHealthPorts(ctx, e); err != nil {
		return err
	}
	if since := r.Host.Harness.Watcher.MissingSince(); !since.IsZero() {
		e.Missing = r.Clock.Since(since)
	}
	calls, _, err := r.Shim.Read(0)
	if err != nil {
		return err
	}
	e.Injected = map[corev1.IPFamily]int{}
	for _, call := range calls {
		made := call.Fault == "fail" || call.Fault == "kill"
		if made && call.ExitCode != 0 && !call.Start.Before(r.Host.Began) && r.About.Writes(call) && slices.Contains(r.Families, call.Family()) {
			e.Injected[call.Family()]++
		}
	}
	return nil
}

// answerTime bounds the wait for an HTTP answer from the subject, and for an answer to a packet.
const answerTime = 3 * time.Second

// sendRefused sends a packet to a UDP Service port without endpoints, if there is one.
func (r *Checks) sendRefused(e *invariants.Evidence, family corev1.IPFamily) {
	service, to, ok := e.Refusing(family)
	if !ok {
		return
	}
	begin := r.Clock.Now()
	err := knock(to)
	e.Refused = append(e.Refused, invariants.Refused{Service: service, To: to, Err: err, Waited: r.Clock.Since(begin)})
}

// knock sends a UDP packet and returns the socket's error.
func knock(to netip.AddrPort) error {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return err
	}
	// If a rule rejects or drops the packet in its own system call, the call fails with EPERM. The ICMP answer shows at
	// the next call.
	if _, err := conn.Write([]byte{0}); err != nil && !errors.Is(err, unix.EPERM) {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// Restarting keeps the state before the subject is stopped, to compare it with the state after the restart. It plants
// UDP flows of some Services, which the next process must not change. It does not wait for a subject that has exited.
func (r *Checks) Restarting(ctx context.Context) {
	r.restarted = nil
	r.restarts++
	if p := r.Host.Process(); p != nil {
		select {
		case <-p.Done():
			return
		default:
		}
	}
	if !r.needed() || r.Host.Subject == nil || r.Followed {
		return
	}
	err := r.Host.Subject.Aside(func() error {
		e, err := r.evidence(ctx, true)
		if err != nil {
			return err
		}
		before := &invariants.Restarted{Objects: invariants.Digest(e.Objects), Saved: e.Saved, Nft: e.Nft, Flows: map[corev1.IPFamily][]conntrack.Flow{}}
		for _, family := range r.Families {
			before.Flows[family] = e.Serving(family, r.restarts*mostKept, mostKept)
			for _, f := range before.Flows[family] {
				if err := invariants.PlantFlow(family, f); err != nil {
					return err
				}
			}
		}
		r.restarted = before
		return nil
	})
	if err != nil && ctx.Err() == nil { // a fault may be active, such as a full conntrack table
		r.Messages.Send(pass.Message{Note: fmt.Sprintf("I13 is not checked after this restart: %v", err)})
	}
}

// mostKept is the number of flows planted before a restart.
const mostKept = 5
