package model

import (
	"math"
	"time"

	"synclab/bench"
	"synclab/bench/raw"
)

// figures are the quantities that a calibration predicts for the requested cluster, with their weights.
var figures = []struct {
	Query
	counts float64
}{
	{Query{Quantity: Total, Kind: Full}, 1},
	{Query{Quantity: Total, Kind: Partial, Changed: 1}, 1},
	{Query{Quantity: FirstPacket}, 0.5},
	{Query{Quantity: PeakRSS}, 0.5},
}

// Judge uses the fits to a subject's records so far. For each cell it estimates the durations of its syncs, and how
// much a measurement would narrow the intervals for the requested cluster. Without fits it returns nil.
func Judge(subject string, records []raw.Record, o FitOptions, asked bench.CalibrationCell, cells []bench.CalibrationCell) []bench.Judgement {
	o.Quantities = []Quantity{Total, FirstPacket, PeakRSS}
	m, err := Fit(raw.Run{}, records, o)
	if err != nil {
		return nil
	}
	s, err := m.Subject(subject)
	if err != nil {
		return nil
	}
	out := make([]bench.Judgement, len(cells))
	for i, c := range cells {
		out[i].Full, out[i].Partial = s.bounds(Full, c), s.bounds(Partial, c)
		for _, f := range figures {
			out[i].Gain += f.counts * s.gain(f.Query, asked, c)
		}
	}
	return out
}

// bounds returns the median and the upper bound of a sync in a cell; 0 without a fit.
func (s *Subject) bounds(kind string, c bench.CalibrationCell) (out [2]time.Duration) {
	p, err := s.Predict(Query{Kind: kind, Services: c.Services, Endpoints: float64(c.Endpoints)})
	if err != nil {
		return out
	}
	const longest = float64(24 * time.Hour / time.Second)
	for i, v := range []float64{p.Median, p.High} {
		out[i] = time.Duration(min(v, longest) * float64(time.Second))
	}
	return out
}

// gain returns the value of measuring cell c for a quantity in the requested cluster: the uncertainty there, reduced by
// the distance of c and by its repetitions so far.
func (s *Subject) gain(q Query, asked, c bench.CalibrationCell) float64 {
	q.fill()
	t := s.term(q.Quantity, q.Kind)
	if t == nil {
		return 0
	}
	q.Services, q.Endpoints = asked.Services, float64(asked.Endpoints)
	there := s.sized(q.size())
	q.Services, q.Endpoints = c.Services, float64(c.Endpoints)
	here := s.sized(q.size())
	// A measurement reduces the uncertainty more if its cell is nearer. Each further repetition of a cell adds less.
	apart := 0.0
	for _, variable := range []string{"s", "e"} {
		apart += math.Abs(math.Log(max(there.of(variable), 1) / max(here.of(variable), 1)))
	}
	n := s.repetitions(q, c)
	return (s.doubt(t, there) + math.Hypot(t.Between, t.Within)) * math.Exp(-apart/tells) / ((n + 1) * (n + 2) / 2)
}

// tells is the distance between cells, on logarithms, over which the gain falls by a factor e.
const tells = 1.5

// doubt returns the standard deviation of a prediction at a size, without scatter.
func (s *Subject) doubt(t *Term, v size) float64 {
	_, deviation := s.at(t, v, math.Inf(1))
	return math.Sqrt(max(0, deviation*deviation-t.Between*t.Between))
}

// repetitions returns the number of repetitions of a cell so far.
func (s *Subject) repetitions(q Query, c bench.CalibrationCell) float64 {
	shape := ""
	if c.Skewed {
		shape = "zipf"
	}
	for _, p := range s.Points {
		if p.Quantity == q.Quantity && p.Kind == q.Kind && p.Services == c.Services && p.Endpoints == float64(c.Endpoints) && p.Shape == shape {
			return float64(p.N)
		}
	}
	return 0
}
