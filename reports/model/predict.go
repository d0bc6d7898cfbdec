package model

import (
	"fmt"
	"math"
)

// Query asks for a quantity of a kind of sync, at a size. The zero Quantity is Total.
type Query struct {
	Quantity  Quantity
	Kind      string // Full, Resync or Partial; empty for quantities of the state: PeakRSS, Rules, Elements, FirstPacket
	Services  int
	Endpoints float64 // per Service
	Changed   int     // Services that the partial sync changes; 0 means 1
}

// Basis is the basis of a prediction.
type Basis string

// The bases of predictions, best first.
const (
	Measured     Basis = "measured"     // at exactly this size
	Interpolated Basis = "interpolated" // within the measured sizes
	Extrapolated Basis = "extrapolated"
)

// Prediction is the predicted median of a cell of that size, in s, B or counts. With the model's confidence, a measured
// median lies between Low and High.
type Prediction struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Basis  Basis   `json:"basis"`
	// Beyond is the factor by which the size is beyond the measured sizes; 1 within them.
	Beyond float64 `json:"beyond"`
}

// valuesOfCell is the default number of values for the median of a cell.
const valuesOfCell = 3

// Predict returns a prediction with the model's confidence.
func (s *Subject) Predict(q Query) (Prediction, error) {
	return s.predict(q, s.confidence, valuesOfCell, true)
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

// predict predicts the median of n values. If known is set, a measured point at that size is the prediction.
func (s *Subject) predict(q Query, confidence, n float64, known bool) (Prediction, error) {
	q.fill()
	t := s.term(q.Quantity, q.Kind)
	if t == nil {
		return Prediction{}, fmt.Errorf("cost model of %s: no %s %s was measured", s.Name, q.Kind, q.Quantity)
	}
	if q.Services < 1 || q.Endpoints < 0 {
		return Prediction{}, fmt.Errorf("cost model of %s: %d Services with %g endpoints each: want at least 1 Service and 0 endpoints", s.Name, q.Services, q.Endpoints)
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

// measured returns the point at a query's size, or nil; for first packets, the point at the last position.
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

// Has reports whether a quantity has a fit. For instance, subjects without tools have no fit for times of tools.
func (s *Subject) Has(q Quantity, kind string) bool { return s.term(q, kind) != nil }

// MostChanged returns the largest number of changed Services for which a quantity of partial syncs is known; 0: none.
// For CPU time it is often smaller than for durations, since CPU time cannot be divided between the syncs of a burst.
func (s *Subject) MostChanged(q Quantity) int {
	if t := s.term(q, Partial); t != nil {
		return int(math.Round(t.Largest.Changed))
	}
	return 0
}

// Syncs has the sync durations of a subject in a cluster of one size, for simulations. Several goroutines may use it,
// each with its own rng.
type Syncs struct {
	full    float64 // s
	resync  float64
	partial []float64
	beyond  func(changed int) float64 // for numbers of changed Services that partial does not contain
	noise   map[string][]float64
	noiseOf map[string][]float64
}

// tabled is the largest number of changed Services with a precomputed median.
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

// Median returns the median of the durations that Sync draws, in seconds.
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
