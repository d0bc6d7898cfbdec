package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"synclab/proxier/tracker"
)

// mostIsolations is how many refusals one sync isolates one by one before it bisects.
const mostIsolations = 64

// write encodes and restores until the kernel has accepted everything but the rules that it refuses. It tries the
// likely causes one after the other: see docs/design/iptables-refused-rules.md.
func (s *syncing) write(ctx context.Context) error {
	s.nfacct.tried, s.bpf.tried = false, false
	for range mostIsolations {
		err := s.restore(ctx)
		refused := refusal(err)
		switch {
		case refused == nil:
			return err
		case !s.result.Full:
			s.opts.Log("payload of a partial sync refused, starting a full sync", "error", err)
			s.result.Full, s.result.Reason = true, "failure"
			err = s.prepareFull(ctx)
		case s.rules.Settings().Accounting:
			err = s.without(&s.nfacct, err)
		case s.rules.settings.flat && !s.bpf.proven && !refused.Owner.IsPort() && refused.Owner.Deletes == "":
			s.nfacct.acquit() // not the only cause
			err = s.without(&s.bpf, err)
		default:
			s.nfacct.acquit()
			s.bpf.acquit()
			if !s.isolate(refused.Owner, err) {
				return s.bisect(ctx)
			}
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return s.bisect(ctx)
}

// optionalMatch is a match that the tool or the kernel may lack, although the machine's features include it. A refusal
// that ends without the match was its fault. Syncs then do without it for the time absence.
type optionalMatch struct {
	name   string
	until  time.Time // rules do without it until then
	tried  bool      // this sync is the first without it
	proven bool      // a refusal had another cause
}

// absence is how long a match is left out. The cause of a refusal may go away, so a later full sync uses it again.
const absence = 30 * time.Minute

// acquit lets the next full sync use a match without which this sync was refused too.
func (m *optionalMatch) acquit() {
	if m.tried {
		m.until, m.proven = time.Time{}, true
	}
}

// without leaves out a match that may be the cause of a refusal.
func (s *syncing) without(match *optionalMatch, cause error) error {
	s.opts.Log("payload refused, retrying without match "+match.name, "error", cause)
	match.tried, match.until = true, s.opts.Clock.Now().Add(absence)
	return s.applySettings()
}

// isolate leaves out the owner of a refused line. false: the line has none.
func (s *syncing) isolate(owner Owner, cause error) bool {
	switch {
	case owner.IsPort():
		s.refuse(owner.Port, cause)
	case owner.Deletes != "":
		s.opts.Log("chain cannot be deleted, it stays empty", "chain", owner.Deletes, "error", cause)
		s.rules.Stick(owner.Table, owner.Deletes)
		if err := s.stickReferred(owner.Table); err != nil {
			s.opts.Log("cannot list the chains that foreign rules refer to, finding them one by one", "error", err)
		}
	default:
		return false
	}
	return true
}

// stickReferred keeps all chains of Services that foreign rules refer to. There may be more of them than
// mostIsolations, and the kernel names one at a time.
func (b *Backend) stickReferred(table Table) error {
	referred, err := b.referred(table)
	for name := range referred {
		b.rules.Stick(table, name)
	}
	return err
}

// referred returns the chains of Services that foreign rules jump to.
func (b *Backend) referred(table Table) (map[string]bool, error) {
	chains, err := b.tables.Chains(table)
	if err != nil {
		return nil, err
	}
	chains = slices.DeleteFunc(chains, func(name string) bool { return strings.HasPrefix(name, "KUBE-") })
	rules, err := b.tables.Rules(table, append(chains, builtin[table]...)...)
	if err != nil {
		return nil, err
	}
	referred := map[string]bool{}
	for _, chain := range rules {
		for i := range chain {
			if to := chain[i].Target.Chain; ownChain(to) {
				referred[to] = true
			}
		}
	}
	return referred, nil
}

// loosened describes a chain that could not be deleted and that no foreign rule refers to any more; empty: there is
// none. A full sync deletes such a chain.
func (b *Backend) loosened(want Expected) (string, error) {
	for _, table := range []Table{NAT, Filter} {
		var stuck []string
		for name := range want.Stuck[table] {
			if _, wanted := want.Chains[table][name]; !wanted {
				stuck = append(stuck, name)
			}
		}
		if len(stuck) == 0 {
			continue
		}
		referred, err := b.referred(table)
		if err != nil {
			return "", err
		}
		slices.Sort(stuck)
		for _, name := range stuck {
			if !referred[name] {
				return fmt.Sprintf("no rule refers to chain %s in %s any more", name, table), nil
			}
		}
	}
	return "", nil
}

// refusal returns the error of a refused restore; nil for any other error.
func refusal(err error) *RestoreError {
	var refused *RestoreError
	if errors.As(err, &refused) && refused.Refused() {
		return refused
	}
	return nil
}

func (s *syncing) refuse(port tracker.ServicePortName, err error) {
	s.opts.Log("rules refused, Service port unchanged", "port", port.String(), "protocol", port.Protocol, "error", err)
	s.rules.Refuse(port)
	s.refusals[port] = err
}

// bisect finds the Service ports for which the kernel refuses a table. It first holds back all suspects: if the kernel
// still refuses, none of them is the cause.
func (s *syncing) bisect(ctx context.Context) error {
	suspects, standing, err := s.suspects()
	if err != nil {
		return err
	}
	if err = s.withhold(ctx, suspects); refusal(err) != nil && len(standing) > 0 {
		s.opts.Log("kernel refuses rules that it already has", "error", err)
		suspects = append(suspects, standing...)
		err = s.withhold(ctx, standing)
	}
	if refusal(err) != nil {
		err = fmt.Errorf("rules refused even without any Service port: %w", err)
	}
	if err != nil {
		for _, name := range suspects {
			s.rules.Accept(name)
		}
		return err
	}
	if err := s.admit(ctx, suspects); err != nil || !s.rules.Dirty() {
		return err
	}
	return s.restore(ctx) // the last payload was refused, but its first table may have been committed
}

func (s *syncing) withhold(ctx context.Context, ports []tracker.ServicePortName) error {
	for _, name := range ports {
		s.rules.Refuse(name)
	}
	return s.restore(ctx)
}

// suspects returns the Service ports that may be the cause, and the standing ones: this process or an earlier one wrote
// their desired rules, and the kernel accepted them. Holding back standing ones would interrupt their service.
func (s *syncing) suspects() (suspects, standing []tracker.ServicePortName, err error) {
	there := map[tracker.ServicePortName]bool{}
	if s.rules.staleness() > behind {
		if there, err = s.rules.found(s.tables, s.req); err != nil {
			return nil, nil, fmt.Errorf("reading the tables to find the refused rules: %w", err)
		}
	}
	for _, port := range s.req.Ports {
		name := port.Name
		_, known := s.refusals[name]
		wanted := s.rules.wanted[name]
		switch {
		case known:
		case wanted != nil && wanted == s.rules.installed[name], there[name]:
			standing = append(standing, name)
		default:
			suspects = append(suspects, name)
		}
	}
	return suspects, standing, nil
}

// admit includes Service ports again, and bisects those that the kernel refuses together.
func (s *syncing) admit(ctx context.Context, suspects []tracker.ServicePortName) error {
	if len(suspects) == 0 {
		return nil
	}
	for _, name := range suspects {
		s.rules.Accept(name)
	}
	err := s.restore(ctx)
	if refusal(err) == nil {
		return err
	}
	if len(suspects) == 1 {
		s.refuse(suspects[0], err)
		return nil
	}
	for _, name := range suspects {
		s.rules.Refuse(name)
	}
	half := len(suspects) / 2
	if err := s.admit(ctx, suspects[:half]); err != nil {
		return err
	}
	return s.admit(ctx, suspects[half:])
}
