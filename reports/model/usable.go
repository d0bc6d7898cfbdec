package model

import (
	"errors"
	"fmt"
	"math"
)

// Usable returns nil if the fits of a subject's full and partial syncs can answer questions. They need at least two
// sizes, and errors below a factor of two at sizes left out of the fit. Otherwise it returns the reason.
func (s *Subject) Usable() error {
	for _, kind := range []string{Full, Partial} {
		t := s.term(Total, kind)
		switch {
		case t == nil:
			return fmt.Errorf("no cost model of its %s syncs", kind)
		case t.Points < 2 || t.Largest.Services <= t.Smallest.Services:
			return fmt.Errorf("its %s syncs were measured at one size only", kind)
		case math.IsNaN(t.Score) || astray(t.Score):
			return fmt.Errorf("the cost model of its %s syncs errs by a factor of two or more at sizes left out of the fit", kind)
		}
	}
	return nil
}

// Answers returns nil if the model can answer questions about a subject. Otherwise it returns the reason.
func (m *Model) Answers(name string) error {
	s, err := m.Subject(name)
	if errors.Is(err, errNoSubject) {
		return errors.New("it was not measured at two sizes")
	}
	if err != nil {
		return err
	}
	return s.Usable()
}
