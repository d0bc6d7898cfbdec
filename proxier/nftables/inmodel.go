package nftables

import (
	"errors"
	"fmt"
)

// ask returns an error when the model refuses the coming write.
func (s *syncing) ask() error {
	if s.model.Fail == nil {
		return nil
	}
	if err := s.model.Fail(s.ctx); err != nil {
		s.unsure = true
		return &TransactionError{Err: err}
	}
	return nil
}

// fullModel writes everything into the model.
func (s *syncing) fullModel() error {
	settings, err := s.opts.Settings()
	if err != nil {
		return err
	}
	if err := s.ask(); err != nil {
		return err
	}
	clear(s.refusals)
	clear(s.pardoned)
	s.rules, s.settings = NewRuleset(settings), settings
	s.model.deleteTable()
	if err := s.rules.Load(s.model, s.req.Ports); err != nil {
		return err
	}
	s.unsure = false
	return s.rules.Activate(s.model)
}

// partialModel writes the difference into the model. When the model refuses it, everything is written.
func (s *syncing) partialModel() error {
	if s.model.Fail == nil {
		return s.rules.Partial(s.model)
	}
	if err := s.ask(); err != nil {
		return err
	}
	next, err := s.model.Clone(), errors.New("no such table")
	if s.model.Exists {
		err = s.rules.Partial(next)
	}
	if err == nil {
		*s.model = *next
		return nil
	}
	s.opts.Log("transaction failed, starting a full sync", "error", err)
	s.unsure = true
	s.result.Full, s.result.Reason = true, "failure"
	return s.fullModel()
}

// driftOfModel describes the first difference between the model and its expected content; empty: none.
func (b *Backend) driftOfModel() string {
	switch {
	case b.rules == nil:
		return ""
	case !b.model.Exists:
		return fmt.Sprintf("table %s is missing", b.model.Name)
	}
	for s := range sets {
		have := b.model.Sets[s.String()]
		if have == nil || s != setAffinity && len(have.Elements) != b.rules.elements[s] { // packets write affinity
			return fmt.Sprintf("set %s has unexpected content", s)
		}
	}
	tally := map[string]int{}
	for name, chain := range b.model.Chains {
		tally[name] = len(chain.Rules)
	}
	return driftOfRules(b.rules.rules, b.rules.chains, tally)
}
