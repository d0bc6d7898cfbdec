package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
	"synclab/scenarios"
)

// settle waits until the subject has nothing left to do and what faults broke is repaired, and counts what the kernel then
// holds.
func (r *repetition) settle(ctx context.Context, s *scenarios.Settle, name string) error {
	r.say.stage(name, 0, 0)
	if err := r.converge(ctx, *s, name); err != nil {
		return err
	}
	return r.subject.aside(r.subject.count)
}

// converge waits until the subject has nothing left to do and what faults broke is repaired.
func (r *repetition) converge(ctx context.Context, s scenarios.Settle, name string) error {
	waiting, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	err := r.inSync(ctx, waiting)
	switch {
	case err == nil, ctx.Err() != nil || waiting.Err() == nil:
		return err
	case s.OrRestart:
		r.giveUp(s.Timeout, err)
		return r.restoreOrder(ctx, s.Timeout)
	case r.Feed == FeedAPI: // one of several subjects, most often: the others go on
		return r.tooLong(err)
	}
	return fmt.Errorf("not in sync after %v; --set steps.%s.timeout=… gives it more time: %w", s.Timeout, stepPath(name), err)
}

// inSync waits, until waiting ends, for all that faults broke to be repaired, but for what holds beyond that, and for the
// subject to have nothing left to do. One that a fault ended is started again, in ctx.
func (r *repetition) inSync(ctx, waiting context.Context) error {
	for {
		if err := r.revive(ctx); err != nil {
			return err
		}
		trying, stop := context.WithCancelCause(waiting)
		s, ok := r.subject.(*outside)
		if ok {
			go func() {
				select {
				case <-s.process.Done():
					stop(errEnded)
				case <-trying.Done():
				}
			}()
		}
		err := r.awaitRepairs(trying)
		if err == nil {
			err = r.subject.inSync(trying)
		}
		ended := errors.Is(context.Cause(trying), errEnded)
		stop(nil)
		if err == nil {
			r.settledFaults()
			r.settledFlows()
			return nil
		}
		switch {
		case !ended || waiting.Err() != nil:
			return err
		case !s.mortal.Load(): // it ended by itself, and says why
			return cmp.Or(s.process.Err(), err)
		}
	}
}

// own counts the proxier's chains and the rules in them, as the kernel has them.
func (r *repetition) own(family corev1.IPFamily, table iptables.Table) (chains, rules int, err error) {
	variant, prefix := string(r.variant), "KUBE-"
	if r.about.Backend == proxier.Nftables { // a table of its own
		variant, prefix = kernel.Nft, ""
	}
	var tally map[string]int
	err = r.steady(func() (err error) { tally, err = kernel.Tally(variant, family, string(table)); return err })
	for chain, n := range tally {
		if strings.HasPrefix(chain, prefix) {
			chains++
			rules += n
		}
	}
	return chains, rules, err
}

// steady looks at the kernel's rules again as long as they change meanwhile: a subject that serves both families may still
// write for one when it has settled in the other, and on a busy machine a look takes longer than it pauses.
func (r *repetition) steady(look func() error) error {
	const tries, pause = 60, 250 * time.Millisecond
	for try := 1; ; try++ {
		if err := look(); !kernel.Changed(err) || try == tries {
			return err
		}
		r.clock.Sleep(pause)
	}
}

// stepPath of "2:settle" as --set has it: "1.settle".
func stepPath(name string) string {
	var n int
	var kind string
	_, _ = fmt.Sscanf(name, "%d:%s", &n, &kind)
	return fmt.Sprintf("%d.%s", n-1, kind)
}

// countTables records what the kernel holds of the proxier, and what the closed form says of it.
func (r *repetition) countTables() error {
	defer r.recordKernelMemory()
	if r.about.Backend == proxier.Nftables {
		return r.countNftables()
	}
	forms, applies := closedForms(r.world.Objects(), r.families, r.config)
	applies = applies && r.about.Proxier == Synclab && !r.followed // others may leave stale chains for a while
	applies = applies && r.layout != iptables.Tree                 // which has more, and other, dispatch rules
	for _, family := range r.families {
		for _, table := range []iptables.Table{iptables.NAT, iptables.Filter} {
			_, rules, err := r.own(family, table)
			if err != nil {
				return err
			}
			place := Record{Unit: "count", Family: string(family), Table: string(table)}
			r.recordAs(place, RulesKernel, float64(rules))
			if applies {
				r.recordAs(place, RulesClosedForm, float64(forms[family][table]))
			}
		}
	}
	return nil
}

// countNftables counts the rules of the proxier's own tables, and the elements of its sets and maps.
func (r *repetition) countNftables() error {
	tables, err := kernel.OpenNftables()
	if err != nil {
		return err
	}
	defer tables.Close()
	names := ownTables[r.about.Proxier]
	for _, family := range r.families {
		var rules, elements int
		for _, name := range names {
			var tally kernel.NftTally
			err := r.steady(func() (err error) { tally, err = tables.Tally(family, name); return err })
			if err != nil {
				return err
			}
			rules, elements = rules+tally.Rules, elements+tally.Elements
		}
		r.recordAs(Record{Unit: "count", Family: string(family), Table: names[0]}, RulesKernel, float64(rules))
		r.recordAs(Record{Unit: "count", Family: string(family), Table: "elements"}, RulesKernel, float64(elements))
	}
	return nil
}

func (r *repetition) recordKernelMemory() {
	if now, err := ReadKernelMemory(); err == nil && now > r.memory && r.memory > 0 {
		r.recordAs(Record{Unit: "B"}, KernelMemory, float64(now-r.memory))
	}
}
