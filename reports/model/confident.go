package model

import (
	"errors"
	"fmt"
	"math"

	"synclab/bench"
)

// Enough precision of a calibration: the half interval, as a share, of whole syncs at so many times the largest size.
const (
	enoughHalf  = 0.25
	enoughTimes = 2
)

// Confident says which subjects of a calibration need no more cells: their full and partial syncs are known, at twice the
// largest size, to within a quarter.
func Confident(records []bench.Record, o FitOptions) map[string]bool {
	o.Quantities = []Quantity{Total}
	m, err := Fit(bench.Run{}, records, o)
	if err != nil {
		return nil
	}
	out := map[string]bool{}
	for _, s := range m.Subjects {
		enough := true
		for _, kind := range []string{Full, Partial} {
			t := s.term(Total, kind)
			if t == nil || t.Points < 4 {
				enough = false
				continue
			}
			q := Query{Quantity: Total, Kind: kind, Services: int(enoughTimes * t.Largest.Services), Endpoints: 10}
			p, err := s.predict(q, s.confidence, valuesOfCell, false)
			enough = enough && err == nil && p.High/p.Median-1 <= enoughHalf
		}
		out[s.Name] = enough
	}
	return out
}

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
