package model

import (
	"fmt"
	"math"
)

// Query is what is asked: a quantity of a kind of sync, at a size. The zero Quantity is Total.
type Query struct {
	Quantity  Quantity
	Kind      string // Full, Resync or Partial; empty for what is of the state: PeakRSS, Rules, Elements, FirstPacket
	Services  int
	Endpoints float64 // per Service
	Changed   int     // Services that the partial sync takes; 0: 1
}

// Basis of an answer.
type Basis string

// The bases of answers, best first.
const (
	Measured     Basis = "measured"     // at this very size
	Interpolated Basis = "interpolated" // within the sizes measured
	Extrapolated Basis = "extrapolated"
)

// Prediction is an answer: the median that cells of that size would have, in s, B or counts, and between which bounds a
// measured one would lie with the model's confidence.
type Prediction struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Basis  Basis   `json:"basis"`
	// Beyond is how many times the size is beyond what was measured; 1 within it.
	Beyond float64 `json:"beyond"`
}

// valuesOfCell is how many values a cell's median is taken to be of, where nobody says.
const valuesOfCell = 3

// Predict answers with the model's confidence.
func (s *Subject) Predict(q Query) (Prediction, error) {
	return s.predict(q, s.confidence, valuesOfCell, true)
}

// PredictAt answers with intervals of another confidence, 0 to 1.
func (s *Subject) PredictAt(q Query, confidence float64) (Prediction, error) {
	return s.predict(q, confidence, valuesOfCell, true)
}

func (q *Query) fill() {
	if q.Quantity == "" {
		q.Quantity = Total
	}
	if q.Kind == Partial && q.Changed == 0 {
		q.Changed = 1
	}
	if q.Kind != Partial {
		q.Changed = 0
	}
}

func (q Query) size() size {
	v := size{s: float64(q.Services), n: float64(q.Services) * q.Endpoints, c: float64(q.Changed), e: q.Endpoints}
	v.ce = v.c * v.e
	return v
}

// predict answers for the median of n values. Known points answer themselves, unless only laws are wanted.
func (s *Subject) predict(q Query, confidence, n float64, known bool) (Prediction, error) {
	q.fill()
	t := s.term(q.Quantity, q.Kind)
	if t == nil {
		return Prediction{}, fmt.Errorf("cost model of %s: no %s %s was measured", s.Name, q.Kind, q.Quantity)
	}
	if q.Services < 1 || q.Endpoints < 0 {
		return Prediction{}, fmt.Errorf("cost model of %s: %d Services of %g endpoints: want at least 1", s.Name, q.Services, q.Endpoints)
	}
	v := s.sized(q.size())
	value, deviation := s.at(t, v, n)
	p := Prediction{Median: value, Basis: Interpolated, Beyond: 1}
	if beyond := t.beyond(v); beyond > 1.0001 {
		p.Basis, p.Beyond = Extrapolated, beyond
	}
	if point := s.measured(q); known && point != nil && point.Value > 0 {
		own := math.Max(t.Within, leastTime)
		p.Basis, p.Beyond, p.Median = Measured, 1, point.Value
		deviation = math.Sqrt(own*own*math.Pi/2*(1/float64(point.N)+1/n) + leastCount*leastCount)
	}
	var paced float64
	p.Median, paced = s.paced(q.Quantity, p.Median)
	half := t.quantile(confidence) * math.Hypot(deviation, math.Sqrt(paced))
	p.Low, p.High = p.Median*math.Exp(-half), p.Median*math.Exp(half)
	return p, nil
}

// measured is the point at a query's size, of first packets that of the last position; nil where there is none.
func (s *Subject) measured(q Query) *Point {
	var found *Point
	for i := range s.Points {
		p := &s.Points[i]
		if p.Quantity == q.Quantity && p.Kind == q.Kind && p.Services == q.Services && p.Endpoints == q.Endpoints && p.Shape == "" &&
			math.Abs(p.Changed-float64(q.Changed)) < 0.5 && (found == nil || p.Crossed > found.Crossed) {
			found = p
		}
	}
	return found
}

// Has says whether there is a law of a quantity: subjects without tools have none of these, for instance.
func (s *Subject) Has(q Quantity, kind string) bool { return s.term(q, kind) != nil }

// MostChanged is how many changed Services the partial syncs had, at most, of which a quantity is known; 0 of none. Of CPU
// time these are often fewer than of durations, since it is not told apart where several syncs answer one burst.
func (s *Subject) MostChanged(q Quantity) int {
	if t := s.term(q, Partial); t != nil {
		return int(math.Round(t.Largest.Changed))
	}
	return 0
}

// Syncs are the syncs of a subject in a cluster of one size: what a simulation of it draws durations from. It may be used
// by several goroutines, each with its own rng.
type Syncs struct {
	full    float64 // s
	resync  float64
	partial []float64
	beyond  func(changed int) float64 // for numbers of changed Services that partial does not hold
	noise   map[string][]float64
	noiseOf map[string][]float64
}

// tabled is up to how many changed Services medians are computed ahead.
const tabled = 1024

// Syncs prepares the draws for a cluster of services with endpoints each.
func (s *Subject) Syncs(services int, endpoints float64) (*Syncs, error) {
	y := &Syncs{noise: s.Noise, noiseOf: s.NoiseOf, partial: make([]float64, tabled+1)}
	full, err := s.Predict(Query{Kind: Full, Services: services, Endpoints: endpoints})
	if err != nil {
		return nil, err
	}
	y.full, y.resync = full.Median, full.Median
	if s.Has(Total, Resync) {
		again, err := s.Predict(Query{Kind: Resync, Services: services, Endpoints: endpoints})
		if err != nil {
			return nil, err
		}
		y.resync = again.Median
	}
	t := s.term(Total, Partial)
	if t == nil {
		return nil, fmt.Errorf("cost model of %s: no partial sync was measured", s.Name)
	}
	y.beyond = func(changed int) float64 {
		q := Query{Services: services, Endpoints: endpoints, Changed: min(changed, services)}
		value, _ := s.paced(Total, s.value(t, s.sized(q.size())))
		return value
	}
	for c := range y.partial {
		y.partial[c] = y.beyond(max(c, 1))
	}
	return y, nil
}

// Median is what Sync scatters around, in seconds.
func (y *Syncs) Median(kind string, changedServices int) float64 {
	switch {
	case kind == Full:
		return y.full
	case kind == Resync:
		return y.resync
	case changedServices < len(y.partial):
		return y.partial[max(changedServices, 0)]
	}
	return y.beyond(changedServices)
}
