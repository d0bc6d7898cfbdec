package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"synclab/proxier/tracker"
)

// mostIsolations bounds how many lines one sync isolates one by one before it halves.
const mostIsolations = 64

// write encodes and restores until the kernel has taken everything but what it refuses.
//
// A payload may fail for reasons that lie outside of it: the lock, memory, a killed tool. Then nothing is concluded and
// the sync fails as a whole. If the tool names a line, it is the line's owner that is at fault: a Service port is left
// out and reported, a chain that something else refers to is not deleted. If only the COMMIT failed, the kernel refused
// the table without saying why, and halving the Service ports finds the culprit.
//
// A refused partial payload proves nothing of the Services in it: somebody may have deleted a chain they refer to, and
// the jumps to it. So everything is written first.
func (s *syncing) write(ctx context.Context) error {
	var doubted struct{ accounting, bpf bool } // were left out, as the first to blame
	for range mostIsolations {
		err := s.restore(ctx)
		refused := refusal(err)
		if refused == nil {
			return err
		}
		switch owner := refused.Owner; {
		case !s.result.Full:
			s.opts.Log("payload of a partial sync refused, writing everything", "error", err)
			s.result.Full, s.result.Reason = true, "failure"
			if err := s.prepareFull(ctx); err != nil {
				return err
			}
			continue
		case s.rules.Settings().Accounting:
			s.opts.Log("payload refused, doing without packet counts", "error", err)
			s.noAccounting, doubted.accounting = true, true
			s.doubted = s.opts.Clock.Now()
			if err := s.applySettings(); err != nil {
				return err
			}
			continue
		case s.rules.settings.flat && !s.provenBPF && !owner.IsPort() && owner.Deletes == "":
			s.opts.Log("payload refused, doing without match bpf", "error", err)
			s.noBPF, doubted.bpf = true, true
			s.doubted = s.opts.Clock.Now()
			if doubted.accounting {
				s.noAccounting = false // not to blame alone
			}
			if err := s.applySettings(); err != nil {
				return err
			}
			continue
		}
		// It is something else: the next full sync may do with them again.
		if doubted.accounting {
			s.noAccounting = false
		}
		if doubted.bpf {
			s.noBPF, s.provenBPF = false, true
		}
		switch owner := refused.Owner; {
		case owner.IsPort():
			s.refuse(owner.Port, err)
		case owner.Deletes != "":
			s.opts.Log("chain cannot be deleted, left empty", "chain", owner.Deletes, "error", err)
			s.rules.Stick(owner.Table, owner.Deletes)
			if err := s.stickReferred(owner.Table); err != nil {
				s.opts.Log("chains that others refer to are found one by one", "error", err)
			}
		default:
			return s.bisect(ctx)
		}
	}
	return s.bisect(ctx)
}

// stickReferred keeps all chains of Services that rules of somebody else refer to: there may be more of them than lines
// are isolated, and the kernel names one at a time.
func (b *Backend) stickReferred(table Table) error {
	referred, err := b.referred(table)
	for name := range referred {
		b.rules.Stick(table, name)
	}
	return err
}

// referred are the chains of Services that rules of somebody else lead to.
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
	for _, rule := range rules {
		if to := targetOf(rule); ownChain(to) {
			referred[to] = true
		}
	}
	return referred, nil
}

// loosened describes a chain that was not deleted because others referred to it, and nobody does any more; empty: there
// is none. A full sync deletes them.
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
				return fmt.Sprintf("nothing refers to chain %s in %s any more", name, table), nil
			}
		}
	}
	return "", nil
}

// targetOf is the chain or verdict that a rule leads to.
func targetOf(rule string) string {
	for _, flag := range []string{" -j ", " -g "} {
		if at := strings.LastIndex(rule, flag); at >= 0 {
			target, _, _ := strings.Cut(rule[at+len(flag):], " ")
			return target
		}
	}
	return ""
}

// refusal is the error of a restore that was refused; nil for any other.
func refusal(err error) *RestoreError {
	var refused *RestoreError
	if errors.As(err, &refused) && refused.Refused() {
		return refused
	}
	return nil
}

func (s *syncing) refuse(port tracker.ServicePortName, err error) {
	s.opts.Log("rules refused, Service port left as it was", "port", port.String(), "protocol", port.Protocol, "error", err)
	s.rules.Refuse(port)
	s.refusals[port] = err
}

// bisect finds the Service ports for which the kernel refuses a table. First all suspects are held back: if that is
// refused as well, none of them is to blame.
func (s *syncing) bisect(ctx context.Context) error {
	suspects, standing, err := s.suspects()
	if err != nil {
		return err
	}
	if err = s.withhold(ctx, suspects); refusal(err) != nil && len(standing) > 0 {
		s.opts.Log("rules refused that the kernel holds already", "error", err)
		suspects = append(suspects, standing...)
		err = s.withhold(ctx, standing)
	}
	if refusal(err) != nil {
		err = fmt.Errorf("refused without any Service too: %w", err)
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
	return s.restore(ctx) // the last payload was refused, but its first table may have been taken
}

func (s *syncing) withhold(ctx context.Context, ports []tracker.ServicePortName) error {
	for _, name := range ports {
		s.rules.Refuse(name)
	}
	return s.restore(ctx)
}

// suspects are the Service ports that may be to blame. Those that the kernel took before as they are wanted now are standing:
// whether this process wrote them or one before it, which is found in the tables. Holding them back would end their service.
func (s *syncing) suspects() (suspects, standing []tracker.ServicePortName, err error) {
	there := map[tracker.ServicePortName]bool{}
	if s.rules.unread {
		if there, err = s.rules.found(s.tables, s.req); err != nil {
			return nil, nil, fmt.Errorf("looking for whose rules are refused: %w", err)
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

// admit takes Service ports back in, halving those that the kernel refuses together.
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
