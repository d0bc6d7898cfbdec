package nftables

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"synclab/proxier/backend"
	"synclab/proxier/plan"
)

// suspicious errors may be the fault of what was sent, not of the machine: of its memory, of the limits that it sets to
// files, chains and elements, or of the process's rights.
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

// mostIsolations bounds how many Service ports one sync looks for.
const mostIsolations = 8

// isolate finds those of some Service ports that the kernel refuses, each by halving, and notes them. Without any Service
// port the table must be taken: else none of them is to blame. No table is left.
func (s *syncing) isolate(target string, settings backend.Settings, ports []*plan.ServicePort, cause error) error {
	if err := s.try(target, settings, nil); err != nil {
		return fmt.Errorf("refused without any Service too: %w", err)
	}
	for range mostIsolations {
		good, bad := 0, len(ports) // the first good ports are taken, the first bad ones are not
		for bad-good > 1 {
			middle := (good + bad) / 2
			switch err := s.try(target, settings, ports[:middle]); {
			case err == nil:
				good = middle
			case suspicious(err):
				bad, cause = middle, err
			default:
				return err
			}
		}
		culprit := ports[good].Name
		s.opts.Log("rules refused, Service port left out", "port", culprit.String(), "protocol", culprit.Protocol, "error", cause)
		s.refusals[culprit] = cause
		ports = append(append([]*plan.ServicePort(nil), ports[:good]...), ports[good+1:]...)
		if cause = s.try(target, settings, ports); !suspicious(cause) {
			return cause
		}
	}
	return cause
}

// try loads a table of some Service ports, and takes it away again.
func (s *syncing) try(target string, settings backend.Settings, ports []*plan.ServicePort) error {
	if _, _, err := s.load(target, settings, ports); err != nil {
		return err
	}
	return s.remove(target)
}

// examine tries Service ports that were refused before they changed in a table of their own: if they still are, the sync
// goes on without them, and nothing else is written anew.
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
	target, _, err := s.tables()
	if err == nil {
		err = s.examineIn(target, s.settings, ports)
	}
	for _, port := range ports {
		if s.refusals[port.Name] != nil {
			delete(s.rules.dirty, port.Name)
		} else if err != nil {
			s.pardoned[port.Name] = port
		}
	}
	return err
}

// withRefused adds the Service ports of the plan that were refused to others.
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

// examineIn notes those of the suspects that the kernel refuses, in a table that no packet meets.
func (s *syncing) examineIn(target string, settings backend.Settings, suspects []*plan.ServicePort) error {
	if len(suspects) == 0 {
		return nil
	}
	err := s.try(target, settings, suspects)
	if suspicious(err) {
		err = s.isolate(target, settings, suspects, err)
	}
	return err
}

// accepted are the Service ports of the plan that are not known to be refused.
func (s *syncing) accepted() []*plan.ServicePort {
	if len(s.refusals) == 0 {
		return s.req.Ports
	}
	ports := make([]*plan.ServicePort, 0, len(s.req.Ports))
	for _, port := range s.req.Ports {
		if s.refusals[port.Name] == nil {
			ports = append(ports, port)
		}
	}
	return ports
}
