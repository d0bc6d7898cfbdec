package nftables

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"synclab/proxier/backend"
	"synclab/proxier/plan"
)

// suspicious reports whether the content of a transaction may have caused an error. Shortages of the machine are not
// suspicious: memory, limits of files, chains and elements, or the process's rights.
func suspicious(err error) bool {
	var refused *RefusedError
	if !errors.As(err, &refused) {
		return false
	}
	switch refused.Errno {
	case unix.ENOMEM, unix.ENOBUFS, unix.ENOSPC, unix.EMLINK, unix.ENFILE, unix.EMFILE, unix.EPERM, unix.EINTR, unix.EAGAIN,
		unix.EMSGSIZE, unix.ERESTART, unix.ENOENT:
		return false
	}
	return true
}

// firstTrials is how many trial tables are loaded before the accepted Service ports get rules, if there are no rules
// yet. The number doubles each time.
const firstTrials = 64

// isolation finds the Service ports that the kernel refuses, by bisection. An accepted part is done, so k refused
// Service ports of n take no more than about 2k(log2(n/k)+2) tables, most of them small.
type isolation struct {
	*syncing
	settings backend.Settings
	// taken are accepted: each part alone, or, with together, all of them in one table.
	taken    []*plan.ServicePort
	parts    int
	together bool
	// meanwhile, when set, installs what is taken, each time that tried reaches due.
	meanwhile  func() error
	tried, due int
}

// isolate records which of some Service ports the kernel refuses. The kernel must accept a table without any Service
// port: otherwise none of them is the cause. No trial table is left.
func (s *syncing) isolate(settings backend.Settings, ports []*plan.ServicePort, cause error, empty bool) error {
	if err := s.try(settings, nil); err != nil {
		return fmt.Errorf("rules refused even without any Service port: %w", err)
	}
	i := &isolation{syncing: s, settings: settings, due: firstTrials}
	if empty {
		i.meanwhile = func() error {
			if err := s.replace(settings, i.taken); !suspicious(err) {
				return err
			}
			return nil // refused together only: see below
		}
	}
	if err := i.divide(ports, cause); err != nil {
		return err
	}
	if i.parts < 2 {
		return nil
	}
	ports = slices.DeleteFunc(slices.Clone(ports), func(p *plan.ServicePort) bool { return s.refusals[p.Name] != nil })
	if cause = s.try(settings, ports); !suspicious(cause) {
		return cause
	}
	// Some are accepted alone, and refused together with others.
	together := &isolation{syncing: s, settings: settings, together: true}
	return together.divide(ports, cause)
}

// divide finds the refused ones among Service ports that are refused together.
func (i *isolation) divide(ports []*plan.ServicePort, cause error) error {
	if len(ports) == 1 {
		culprit := ports[0].Name
		i.opts.Log("rules refused, Service port left out", "port", culprit.String(), "protocol", culprit.Protocol, "error", cause)
		i.refusals[culprit] = cause
		return nil
	}
	first, second := ports[:len(ports)/2], ports[len(ports)/2:]
	refused, err := i.offer(first)
	if err == nil && !refused && len(second) > 1 {
		return i.divide(second, cause) // one of them, or more
	}
	if err == nil {
		_, err = i.offer(second)
	}
	return err
}

// offer tries Service ports, and divides them when they are refused.
func (i *isolation) offer(ports []*plan.ServicePort) (refused bool, err error) {
	if i.tried == i.due && i.meanwhile != nil {
		i.due *= 2
		if err := i.meanwhile(); err != nil {
			return false, err
		}
	}
	i.tried++
	tried := ports
	if i.together {
		tried = slices.Concat(i.taken, ports)
	}
	err = i.try(i.settings, tried)
	if suspicious(err) {
		return true, i.divide(ports, err)
	}
	if err == nil {
		i.taken = append(i.taken, ports...)
		i.parts++
	}
	return false, err
}

// try loads a trial table, which no packet meets, and deletes it.
func (s *syncing) try(settings backend.Settings, ports []*plan.ServicePort) error {
	target, _, err := s.tables()
	if err != nil {
		return err
	}
	rules := NewRuleset(settings)
	rules.bare = true
	if _, _, err := s.load(target, rules, ports); err != nil {
		return err
	}
	return s.remove(target)
}

// examine tries Service ports that were refused before they changed, in a separate table. If they are refused again,
// the sync goes on without them and rewrites nothing else.
func (s *syncing) examine() error {
	var ports []*plan.ServicePort
	for _, port := range s.rules.changed() {
		if s.pardoned[port.Name] != nil {
			ports = append(ports, port)
		}
	}
	clear(s.pardoned)
	if len(ports) == 0 {
		return nil
	}
	err := s.examineAlone(s.settings, ports)
	for _, port := range ports {
		if s.refusals[port.Name] != nil {
			delete(s.rules.dirty, port.Name)
		} else if err != nil {
			s.pardoned[port.Name] = port
		}
	}
	return err
}

// withRefused adds the Service ports of the plan that were refused to the suspects.
func (s *syncing) withRefused(suspects []*plan.ServicePort) []*plan.ServicePort {
	if len(s.refusals)+len(s.pardoned) == 0 {
		return suspects
	}
	for _, port := range s.req.Ports {
		known := s.refusals[port.Name] != nil || s.pardoned[port.Name] != nil
		if known && !slices.ContainsFunc(suspects, func(p *plan.ServicePort) bool { return p.Name == port.Name }) {
			suspects = append(suspects, port)
		}
	}
	return suspects
}

// examineAlone records which suspects the kernel refuses, in a table that no packet meets.
func (s *syncing) examineAlone(settings backend.Settings, suspects []*plan.ServicePort) error {
	if len(suspects) == 0 {
		return nil
	}
	err := s.try(settings, suspects)
	if suspicious(err) {
		err = s.isolate(settings, suspects, err, false)
	}
	return err
}

// accepted returns the Service ports of the plan that are not known to be refused.
func (s *syncing) accepted() []*plan.ServicePort {
	if len(s.refusals) == 0 {
		return s.req.Ports
	}
	return slices.DeleteFunc(slices.Clone(s.req.Ports), func(port *plan.ServicePort) bool { return s.refusals[port.Name] != nil })
}
