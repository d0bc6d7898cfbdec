package model

import (
	"errors"
	"fmt"
	"math"
)

// Usable is nil when a subject's full and partial syncs have laws to answer from: of two sizes at least, and not as good as
// guessed at sizes that were left out. Otherwise it says what is lacking.
func (s *Subject) Usable() error {
	for _, kind := range []string{Full, Partial} {
		t := s.term(Total, kind)
		switch {
		case t == nil:
			return fmt.Errorf("no law of its %s syncs", kind)
		case t.Points < 2 || t.Largest.Services <= t.Smallest.Services:
			return fmt.Errorf("its %s syncs are known of one size only", kind)
		case math.IsNaN(t.Score) || astray(t.Score):
			return fmt.Errorf("the law of its %s syncs misses sizes that were left out by a factor of two", kind)
		}
	}
	return nil
}

// Answers is nil when the model can be asked about a subject; otherwise it says what is lacking.
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
