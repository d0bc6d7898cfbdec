package bench

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
	"synclab/scenarios"
)

// settle waits until the proxier has nothing left to do, and counts what the kernel then holds.
func (r *repetition) settle(ctx context.Context, s *scenarios.Settle, name string) error {
	r.say.stage(name, 0, 0)
	waiting, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	if err := r.handled(waiting); err != nil {
		return err
	}
	if err := r.inSync(waiting); err != nil {
		if ctx.Err() == nil && waiting.Err() != nil {
			return fmt.Errorf("not in sync after %v; --set steps.%s.timeout=… gives it more time: %w", s.Timeout, stepIndex(name), err)
		}
		return err
	}
	return r.aside(r.count)
}

// inSync waits until nothing is pending and the kernel holds as many rules as the last sync left: after a foreign flush
// the proxier is idle, and wrong, until it finds out.
func (r *repetition) inSync(ctx context.Context) error {
	for {
		if err := r.proxier.WaitIdle(ctx); err != nil {
			return err
		}
		next := r.syncs.next()
		var wrong string
		err := r.aside(func() (err error) { wrong, err = r.lacking(); return err })
		if wrong == "" || err != nil {
			return err
		}
		select {
		case <-next:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", wrong, context.Cause(ctx))
		}
	}
}

// lacking describes a table that does not hold what the last sync left in it; empty: none.
func (r *repetition) lacking() (string, error) {
	for _, family := range r.families {
		for table, want := range r.syncs.installed(family) {
			have, err := r.ownRules(family, table)
			if err != nil {
				return "", err
			}
			if have != want.Rules {
				return fmt.Sprintf("%s %s has %d rules of the proxier, not %d", family, table, have, want.Rules), nil
			}
		}
	}
	return "", nil
}

// ownRules counts the rules in the proxier's chains, as the kernel has them.
func (r *repetition) ownRules(family corev1.IPFamily, table iptables.Table) (int, error) {
	tally, err := kernel.Tally(string(r.variant), family, string(table))
	rules := 0
	for chain, n := range tally {
		if strings.HasPrefix(chain, "KUBE-") {
			rules += n
		}
	}
	return rules, err
}

// stepIndex of "2:settle" as --set counts: from 0.
func stepIndex(name string) string {
	var n int
	_, _ = fmt.Sscanf(name, "%d:", &n)
	return fmt.Sprint(n-1) + ".settle"
}

// count records what the kernel holds of the proxier, and what the closed form says.
func (r *repetition) count() error {
	forms, applies := closedForms(r.world.Objects(), r.families, r.config)
	for _, family := range r.families {
		for _, table := range []iptables.Table{iptables.NAT, iptables.Filter} {
			rules, err := r.ownRules(family, table)
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
	if now, err := ReadKernelMemory(); err == nil && now > r.memory && r.memory > 0 {
		r.recordAs(Record{Unit: "B"}, KernelMemory, float64(now-r.memory))
	}
	return nil
}

// handled waits until the proxier's handlers have seen every change that was made.
func (r *repetition) handled(ctx context.Context) error {
	return r.proxier.WaitSeen(ctx, r.cluster.Version(&corev1.Service{}), r.cluster.Version(&discoveryv1.EndpointSlice{}))
}
