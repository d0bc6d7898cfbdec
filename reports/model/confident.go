package model

import "synclab/bench"

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
