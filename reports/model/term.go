package model

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Term is the fit of one quantity of one kind of sync, with the components of its intervals.
type Term struct {
	Quantity Quantity `json:"quantity"`
	Kind     string   `json:"kind,omitempty"`
	Form     Form     `json:"form"`
	// Law is Form in letters. Coefficients are its numbers, in seconds, bytes or counts.
	FormText     string             `json:"formula"`
	Coefficients map[string]float64 `json:"coefficients"`
	// Score is the mean relative error at sizes that were left out of the fit. LargestOut is the mean relative error at
	// sizes beyond the fit.
	Score      float64 `json:"score"`
	LargestOut float64 `json:"largest_out"`
	Points     int     `json:"points"`
	// Largest and Smallest are the bounds of the fitted sizes. Predictions beyond them are extrapolated.
	Largest  Range `json:"largest"`
	Smallest Range `json:"smallest"`
	// Between is the standard deviation of the relative errors of points, without the points' own noise. Within is that
	// of single values around their median.
	Between float64 `json:"between"`
	Within  float64 `json:"within"`
	Freedom float64 `json:"freedom"` // degrees of freedom
	// Drift is the standard deviation that is added for each factor e beyond the largest size.
	Drift float64 `json:"drift"`
	// Exponents are the local exponents, between neighbouring sizes with the same number of endpoints per Service. If
	// they rise, Bend is the rise for each factor e, and Top is their largest size.
	Exponents []Exponent `json:"exponents,omitempty"`
	Bend      float64    `json:"bend,omitempty"`
	Top       float64    `json:"top,omitempty"` // Services
	// Params are the parameters at sizes divided by Largest: logarithms of the coefficients, then the others. Draws are
	// bootstrap draws of Params. Alternatives are alternatives that fit nearly as well.
	Params       []float64     `json:"params,omitempty"`
	Draws        [][]float64   `json:"draws,omitempty"`
	Alternatives []Alternative `json:"alternatives,omitempty"`
	// Parts are the phases whose fits add up to a whole sync. Written is their sum in letters and numbers.
	Parts   []Quantity `json:"parts,omitempty"`
	Written string     `json:"written,omitempty"`
}

// Range is one end of the fitted sizes.
type Range struct {
	Services float64 `json:"services"`
	Total    float64 `json:"endpoints"` // in all
	Rules    float64 `json:"rules,omitempty"`
	Changed  float64 `json:"changed,omitempty"`
	ChangedE float64 `json:"changed_endpoints,omitempty"`
	Each     float64 `json:"endpoints_each,omitempty"` // endpoints per Service
	Crossed  float64 `json:"crossed,omitempty"`
}

func (r Range) size() size {
	return size{r.Services, r.Total, r.Rules, r.Changed, r.ChangedE, r.Each, r.Crossed}
}

func rangeOf(v size) Range { return Range{v.s, v.n, v.rules, v.c, v.ce, v.e, v.x} }

// Exponent is the growth of a quantity between two numbers of Services, as their power P.
type Exponent struct {
	From int     `json:"from"`
	To   int     `json:"to"`
	P    float64 `json:"p"`
}

// Alternative is an alternative to the chosen formula. Weight is relative to the chosen formula, whose weight is 1.
type Alternative struct {
	Form     Form      `json:"form"`
	FormText string    `json:"formula"`
	Score    float64   `json:"score"`
	Weight   float64   `json:"weight"`
	Params   []float64 `json:"params"`
}

// Constants of a fit.
const (
	drawn            = 60    // bootstrap draws of the parameters
	farthest         = 2.5   // maximum distance of a draw or an alternative from the fit, on logarithms
	mostAlternatives = 8     // maximum number of alternatives
	mostError        = 0.5   // maximum error of a point in the scatter
	mostDrift        = 0.4   // maximum Drift: a factor 1.5 for each factor e beyond the fit
	leastDrift       = 0.04  // minimum Drift: caches have an end, even if cross-validation did not reach it
	leastTime        = 0.02  // minimum scatter of times between cells, even if a fit is too good to show it
	leastCount       = 0.002 // minimum scatter of counts
	// negligible is the share of a sync below which the error of a phase does not matter.
	negligible = 0.02
)

// newSample makes a sample of points at their sizes. A zero ref means the largest of these sizes.
func newSample(points []Point, at []size, within float64, ref size) *sample {
	s := &sample{}
	for i, p := range points {
		floor := negligible * p.Whole
		if p.Value <= 0 && floor == 0 {
			continue
		}
		s.at, s.y, s.floor = append(s.at, at[i]), append(s.y, p.Value), append(s.floor, floor)
		own := within * within * math.Pi / 2 / float64(p.N)
		s.weight, s.count = append(s.weight, 1/(1+own/(0.05*0.05))), append(s.count, float64(p.N))
		s.ref = most(s.ref, at[i])
	}
	s.counts = len(points) > 0 && points[0].Quantity.counted()
	if ref != (size{}) {
		s.ref = ref
	}
	for i := range s.at {
		s.at[i] = s.at[i].per(s.ref)
	}
	return s
}

// fitTerm fits the candidate formulas to points of one quantity, and chooses one. ok is false if no formula can be
// fitted.
func fitTerm(points []Point, at []size, tried []Form, rng *rand.Rand) (t Term, s *sample, ok bool) {
	first := points[0]
	t = Term{Quantity: first.Quantity, Kind: first.Kind, Within: within(points)}
	s = newSample(points, at, t.Within, size{})
	if t.Points = len(s.y); t.Points == 0 || slices.Max(s.y) == 0 {
		return t, s, false
	}
	small := s.at[0]
	for _, v := range s.at {
		small = least(small, v)
	}
	t.Largest, t.Smallest = rangeOf(s.ref), rangeOf(small.times(s.ref))
	candidates := choose(s, tried)
	if len(candidates) == 0 {
		return t, s, false
	}
	c := candidates[0]
	t.Form, t.FormText, t.Params, t.Score, t.LargestOut = c.form, c.form.String(), c.params, c.score, c.beyond
	t.Coefficients = c.form.readable(s.ref, c.params)
	errs := make([]float64, len(s.y))
	for i := range errs {
		errs[i] = s.error(i, c.form.at(s.at[i], c.params))
	}
	t.scatter(s, errs, c.form.params())
	t.Drift = t.driftOf(c)
	t.Alternatives = s.rivals(candidates)
	t.bends(points)
	t.draw(s, rng)
	return t, s, true
}

// alternativeWeight returns the weight of a formula by its score and that of the chosen one. Alternatives below leastWeight
// are dropped.
func alternativeWeight(score, chosen float64) float64 {
	return min(1, math.Exp(-(score-chosen)/(0.3*chosen+0.004)))
}

const leastWeight = 0.05

func most(a, b size) size {
	return size{max(a.s, b.s), max(a.n, b.n), max(a.rules, b.rules), max(a.c, b.c), max(a.ce, b.ce), max(a.e, b.e), max(a.x, b.x)}
}

func least(a, b size) size {
	return size{min(a.s, b.s), min(a.n, b.n), min(a.rules, b.rules), min(a.c, b.c), min(a.ce, b.ce), min(a.e, b.e), min(a.x, b.x)}
}

// within returns the robust scatter of repetitions around their point; 0 if each cell has one repetition.
func within(points []Point) float64 {
	var all []float64
	for _, p := range points {
		for _, l := range p.ofReps {
			all = append(all, math.Abs(l)*math.Sqrt(float64(p.N)/float64(p.N-1)))
		}
	}
	return min(1, 1.4826*median(all)) // from the median to the standard deviation of a normal distribution
}

// scatter computes Between: the errors without the noise of the values. Freedom counts cells, not points, since the
// points of a cell share the same machine in the same minutes.
func (t *Term) scatter(s *sample, errs []float64, params int) {
	cells, _ := s.cells()
	t.Freedom = max(1, float64(len(cells)-params))
	if len(s.y) > len(cells) { // the points of each cell determine the change part
		t.Freedom = max(t.Freedom, float64(len(cells))/2)
	}
	var squares, own, weights float64
	for i, r := range errs {
		r = max(-mostError, min(mostError, r))
		squares += s.weight[i] * r * r
		own += s.weight[i] * t.Within * t.Within * math.Pi / 2 / s.count[i]
		weights += s.weight[i]
	}
	n := float64(len(s.y))
	variance := (squares*n/max(1, n-float64(params)) - own) / weights
	floor := leastTime
	if t.Quantity.counted() {
		floor = leastCount
		t.Freedom = max(t.Freedom, 5) // counts have no noise
	}
	t.Between = max(floor, math.Sqrt(max(0, variance)))
}

// driftOf returns how fast errors grew beyond the fit in cross-validation, without the part that scatter explains. It
// is a standard deviation, computed from the median.
func (t *Term) driftOf(c candidate) float64 {
	switch {
	case t.Quantity.counted():
		return c.score
	case len(c.astray) == 0:
		return mostDrift / 2 // too few sizes: unknown
	}
	var rates []float64
	for _, m := range c.astray {
		excess := math.Sqrt(max(0, m.err*m.err-t.Between*t.Between-t.Within*t.Within))
		rates = append(rates, excess/math.Log(m.factor))
	}
	return min(mostDrift, max(leastDrift, 1.4826*median(rates))) // half of a normal distribution is within 1/1.4826 deviations
}

// draw refits the formula to bootstrap samples: the values of the fit with its errors, resampled. The common error of
// each cell is resampled separately from the errors of single points.
func (t *Term) draw(s *sample, rng *rand.Rand) {
	all := indices(len(s.y))
	fitted, errs := make([]float64, len(all)), make([]float64, len(all))
	for i := range all {
		fitted[i] = t.Form.at(s.at[i], t.Params)
		errs[i] = -s.error(i, fitted[i]) * math.Sqrt(float64(len(all))/max(1, float64(len(all)-t.Form.params())))
	}
	cells, cellOf := s.cells()
	common := make([]float64, len(cells))
	for k, members := range cells {
		var of []float64
		for _, i := range members {
			of = append(of, errs[i])
		}
		common[k] = median(of)
	}
	for i := range errs {
		errs[i] -= common[cellOf[i]]
	}
	center := median(common)
	shifts := make([]float64, len(cells))
	for range drawn {
		again := *s
		again.y = make([]float64, len(all))
		for k := range shifts {
			shifts[k] = common[rng.IntN(len(common))] - center
		}
		for i := range all {
			r := shifts[cellOf[i]] + errs[rng.IntN(len(errs))]
			again.y[i] = max(0, (fitted[i]+s.floor[i])*math.Exp(max(-1, min(1, r)))-s.floor[i])
			if again.y[i] == 0 && s.floor[i] == 0 {
				again.y[i] = s.y[i]
			}
		}
		params, _ := again.refine(t.Form, t.Params, all)
		for i := range params {
			params[i] = float64(float32(params[i]))
		}
		t.Draws = append(t.Draws, params)
	}
}

// cells returns the points of each cell, and the cell of each point.
func (s *sample) cells() (cells [][]int, of []int) {
	index := map[[2]float64]int{}
	of = make([]int, len(s.at))
	for i, v := range s.at {
		k, ok := index[[2]float64{v.s, v.e}]
		if !ok {
			k = len(cells)
			index[[2]float64{v.s, v.e}] = k
			cells = append(cells, nil)
		}
		cells[k], of[i] = append(cells[k], i), k
	}
	return cells, of
}

// uncertain returns the variance of the logarithm of a prediction that comes from the draws, the alternatives and the
// bend.
func (t *Term) uncertain(v size, value float64) float64 {
	if value <= 0 {
		return 0
	}
	u := v.per(t.Largest.size())
	differs := func(f Form, params []float64) float64 {
		l := math.Log(max(f.at(u, params), value*1e-3) / value)
		return max(-farthest, min(farthest, l))
	}
	var spread []float64
	for _, d := range t.Draws {
		spread = append(spread, math.Abs(differs(t.Form, d)))
	}
	variance := 0.0
	if len(spread) > 0 {
		slices.Sort(spread)
		// Two of three draws are within one standard deviation, without the effect of a few outliers.
		deviation := stat.Quantile(0.6827, stat.LinInterp, spread, nil)
		variance += deviation * deviation
	}
	weights, apart := 1.0, 0.0
	for _, r := range t.Alternatives {
		d := differs(r.Form, r.Params)
		weights, apart = weights+r.Weight, apart+r.Weight*d*d
	}
	return variance + apart/weights + t.bent(v, value)
}

// drifted returns the variance that the distance beyond the fit adds.
func (t *Term) drifted(v size) float64 {
	drift := t.Drift * math.Log(t.beyond(v))
	return drift * drift
}

// beyond returns the factor by which a size is larger than the largest of the fit, or smaller than the smallest; 1
// within them.
func (t *Term) beyond(v size) float64 {
	factor := 1.0
	variables := []string{"s", "n", "e", "c"}
	if t.Form.X == "crossed" { // a packet's cost depends on nothing else
		variables = []string{"crossed"}
	}
	for _, variable := range variables {
		x, high, low := v.of(variable), t.Largest.size().of(variable), t.Smallest.size().of(variable)
		if x > 0 && high > 0 {
			factor = max(factor, x/high)
		}
		if x > 0 && low > 0 {
			factor = max(factor, low/x)
		}
	}
	return factor
}

// quantile returns the two-sided quantile of Student's t distribution with the degrees of freedom of the fit.
func (t *Term) quantile(level float64) float64 {
	return distuv.StudentsT{Sigma: 1, Nu: max(2, t.Freedom)}.Quantile(1 - (1-level)/2)
}
