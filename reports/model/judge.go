package model

import (
	"math"
	"time"

	"synclab/bench"
)

// figures are what a calibration is to know of the asked-for cluster, and what each counts.
var figures = []struct {
	Query
	counts float64
}{
	{Query{Quantity: Total, Kind: Full}, 1},
	{Query{Quantity: Total, Kind: Partial, Changed: 1}, 1},
	{Query{Quantity: FirstPacket}, 0.5},
	{Query{Quantity: PeakRSS}, 0.5},
}

// otherShape is what a cell of another shape than the asked-for one is worth.
const otherShape = 0.3

// Judge says, by the laws that a subject's records have so far, how long the syncs of cells take, and by how much each cell
// would narrow what is known of the cluster asked for. Without laws it says nothing.
func Judge(subject string, records []bench.Record, o FitOptions, asked bench.CalibrationCell, cells []bench.CalibrationCell) []bench.Judgement {
	o.Quantities = []Quantity{Total, FirstPacket, PeakRSS}
	m, err := Fit(bench.Run{}, records, o)
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
		if c.Skewed != asked.Skewed { // another shape says how much shapes matter, and less of the size
			out[i].Gain *= otherShape
		}
	}
	return out
}

// bounds are the median and the upper bound of a sync in a cell; 0 where there is no law.
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

// gain is what measuring a cell is worth for a quantity in the asked-for cluster: what is not known of it there, as far as the
// cell tells of it.
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
	// Doubts shrink the more, the nearer a cell is to what is asked for, and once more by repetitions.
	apart := 0.0
	for _, variable := range []string{"s", "e"} {
		apart += math.Abs(math.Log(max(there.of(variable), 1) / max(here.of(variable), 1)))
	}
	n := s.repetitions(q, c)
	return (s.doubt(t, there) + math.Hypot(t.Between, t.Within)) * math.Exp(-apart/tells) / ((n + 1) * (n + 2) / 2)
}

// tells is the factor, on logarithms, within which a cell tells of another.
const tells = 1.5

// doubt is the standard deviation of what the law says of a size, without scatter.
func (s *Subject) doubt(t *Term, v size) float64 {
	_, deviation := s.at(t, v, math.Inf(1))
	return math.Sqrt(max(0, deviation*deviation-t.Between*t.Between))
}

// repetitions of a cell so far.
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
