package model

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"synclab/bench/raw"
)

// Validation compares large cells with their predictions from small cells.
type Validation struct {
	Confidence float64         `json:"confidence"`
	Rows       []Validated     `json:"rows"`
	Subjects   []ValidatedMean `json:"subjects"` // by subject and quantity, whole syncs first
}

// Validated is one point that was held out.
type Validated struct {
	Subject string `json:"subject"`
	Point
	FitUpTo   int        `json:"fit_up_to"`
	Predicted Prediction `json:"predicted"`
	// Error is predicted / measured − 1.
	Error   float64 `json:"error"`
	Covered bool    `json:"covered"` // by the interval
	// Slight: the phase is a negligible share of its sync, so its error does not matter.
	Slight bool `json:"slight,omitempty"`
}

// ValidatedMean sums up the points of a subject and quantity.
type ValidatedMean struct {
	Subject  string   `json:"subject"`
	Quantity Quantity `json:"quantity"`
	Kind     string   `json:"kind,omitempty"`
	Points   int      `json:"points"`
	Error    float64  `json:"median_absolute_error"` // relative
	Coverage float64  `json:"coverage"`              // share of points within their intervals
	Beyond   float64  `json:"beyond"`                // the largest factor beyond the fit
	FitUpTo  int      `json:"fit_up_to"`             // Services of the largest cell of the fit
	Largest  int      `json:"largest"`               // Services of the largest held-out cell
}

// Validate fits the cells of each subject up to a share of its largest size (0: a fifth), and predicts the larger
// cells.
func Validate(run raw.Run, records []raw.Record, share float64, o FitOptions) (*Validation, error) {
	o.fill()
	share = cmp.Or(share, 1.0/5)
	v := &Validation{Confidence: o.Confidence}
	points := Points(records)
	var lacking error
	for _, name := range slices.Sorted(maps.Keys(points)) {
		all := points[name]
		o.MostServices = int(share * float64(slices.MaxFunc(all, func(a, b Point) int { return cmp.Compare(a.Services, b.Services) }).Services))
		s := fitSubject(name, all, o)
		if s == nil {
			lacking = fmt.Errorf("validation: %s was not measured at two sizes of up to %d Services", name, o.MostServices)
			continue
		}
		v.predict(s, all, o)
	}
	if len(v.Rows) == 0 {
		return nil, cmp.Or(lacking, fmt.Errorf("validation of run %s: no cell was held out", run.ID))
	}
	v.sum()
	return v, nil
}

// predict compares the points of a subject beyond its fit with their predictions.
func (v *Validation) predict(s *Subject, all []Point, o FitOptions) {
	for _, p := range slices.Concat(lastPositions(of(all, FirstPacket)), lastPositions(of(all, FirstPacketP99)), others(all)) {
		if p.Services <= o.MostServices || p.Value <= 0 {
			continue
		}
		q := Query{Quantity: p.Quantity, Kind: p.Kind, Services: p.Services, Endpoints: p.Endpoints, Changed: int(math.Round(p.Changed))}
		predicted, err := s.predict(q, o.Confidence, float64(p.N), false)
		if err != nil {
			continue // too small to be measured at the fitted sizes
		}
		v.Rows = append(v.Rows, Validated{Subject: s.Name, Point: p, FitUpTo: o.MostServices, Predicted: predicted, Error: predicted.Median/p.Value - 1,
			Covered: predicted.Low <= p.Value && p.Value <= predicted.High, Slight: p.Whole > 0 && p.Value < 2*negligible*p.Whole})
	}
}

func of(points []Point, q Quantity) []Point {
	return slices.DeleteFunc(slices.Clone(points), func(p Point) bool { return p.Quantity != q })
}

func others(points []Point) []Point {
	return slices.DeleteFunc(slices.Clone(points), func(p Point) bool { return p.Quantity.ofPackets() })
}

func (v *Validation) sum() {
	type group struct {
		subject  string
		quantity Quantity
		kind     string
	}
	rows := map[group][]Validated{}
	var order []group
	for _, r := range v.Rows {
		if r.Slight {
			continue
		}
		g := group{r.Subject, r.Quantity, r.Kind}
		if rows[g] == nil {
			order = append(order, g)
		}
		rows[g] = append(rows[g], r)
	}
	rank := append([]Quantity{Total}, append(slices.Clone(phases), CPU, PeakRSS, ChildPeakRSS, Rules, Elements, FirstPacket, FirstPacketP99)...)
	slices.SortStableFunc(order, func(a, b group) int {
		return cmp.Or(strings.Compare(a.subject, b.subject), cmp.Compare(slices.Index(rank, a.quantity), slices.Index(rank, b.quantity)), strings.Compare(a.kind, b.kind))
	})
	for _, g := range order {
		m := ValidatedMean{Subject: g.subject, Quantity: g.quantity, Kind: g.kind}
		var errs []float64
		for _, r := range rows[g] {
			errs = append(errs, math.Abs(r.Error))
			if r.Covered {
				m.Coverage++
			}
			m.Beyond, m.FitUpTo, m.Largest = max(m.Beyond, r.Predicted.Beyond), r.FitUpTo, max(m.Largest, r.Services)
		}
		m.Points, m.Error, m.Coverage = len(errs), median(errs), m.Coverage/float64(len(errs))
		v.Subjects = append(v.Subjects, m)
	}
}

// Overall returns the median absolute error, the coverage and the number of points of whole syncs, for one subject. An
// empty name means all subjects.
func (v *Validation) Overall(subject string) (err, coverage float64, points int) {
	var errs []float64
	covered := 0
	for _, r := range v.Rows {
		if r.Quantity != Total || subject != "" && r.Subject != subject {
			continue
		}
		errs = append(errs, math.Abs(r.Error))
		if r.Covered {
			covered++
		}
	}
	if len(errs) == 0 {
		return 0, 0, 0
	}
	return median(errs), float64(covered) / float64(len(errs)), len(errs)
}
