package model

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Term is the law of one quantity of one kind of sync, with what its intervals are made of.
type Term struct {
	Quantity Quantity `json:"quantity"`
	Kind     string   `json:"kind,omitempty"`
	Form     Form     `json:"form"`
	// Law is Form in letters, and Coefficients its numbers, in seconds, bytes or counts.
	Law          string             `json:"law"`
	Coefficients map[string]float64 `json:"coefficients"`
	// Score is the mean relative error at sizes that were left out of the fit, LargestOut that at sizes beyond it.
	Score      float64 `json:"score"`
	LargestOut float64 `json:"largest_out"`
	Points     int     `json:"points"`
	// Largest and Smallest sizes of the fit: what is beyond is extrapolated.
	Largest  Range `json:"largest"`
	Smallest Range `json:"smallest"`
	// Between is the standard deviation of relative errors of points that have no noise of their own, Within that of
	// single values around their median.
	Between float64 `json:"between"`
	Within  float64 `json:"within"`
	Freedom float64 `json:"freedom"` // degrees of it
	// Drift is the standard deviation that is added for each factor e beyond the largest size.
	Drift float64 `json:"drift"`
	// Exponents are the local ones, between neighbouring sizes with as many endpoints each. Where they rise, Bend is by how much
	// for each factor e, and Top the largest cell that they speak of.
	Exponents []Exponent `json:"exponents,omitempty"`
	Bend      float64    `json:"bend,omitempty"`
	Top       float64    `json:"top,omitempty"` // Services
	// Params are the law's parameters at sizes divided by Largest: logarithms of the coefficients, then the others. Draws
	// are what they might as well be, and Rivals other laws that do nearly as well.
	Params []float64   `json:"params,omitempty"`
	Draws  [][]float64 `json:"draws,omitempty"`
	Rivals []Rival     `json:"rivals,omitempty"`
	// Parts are the phases that a whole is the sum of: their terms say it, and Written is their sum in letters and numbers.
	Parts   []Quantity `json:"parts,omitempty"`
	Written string     `json:"written,omitempty"`
}

// Range is a size of a fit.
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

// Exponent is how a quantity grows between two numbers of Services: as their power P.
type Exponent struct {
	From int     `json:"from"`
	To   int     `json:"to"`
	P    float64 `json:"p"`
}

// Rival is another law. Weight is how much it counts beside the chosen one, which counts 1.
type Rival struct {
	Form   Form      `json:"form"`
	Law    string    `json:"law"`
	Score  float64   `json:"score"`
	Weight float64   `json:"weight"`
	Params []float64 `json:"params"`
}

// What a term is made of.
const (
	drawn      = 60   // draws of its parameters
	farthest   = 2.5  // that a draw or a rival counts as away from the law, on logarithms
	mostRivals = 8    // others that it keeps
	mostError  = 0.5  // of a point, as scatter counts it
	mostDrift  = 0.4  // however bad the trials were: a factor 1.5 for each factor e beyond
	leastDrift = 0.04 // caches end somewhere, even if the trials did not meet their ends
	leastTime  = 0.02 // scatter that machines have between cells, even if a fit is too good to show it
	leastCount = 0.002
	// negligible is the share of a sync that an error of a phase is not held against.
	negligible = 0.02
)

// newSample makes a sample of points at their sizes; a zero ref is the largest of these.
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

// fitTerm fits the laws of one quantity to points with their sizes. ok is false when no law fits any of them.
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
	t.Form, t.Law, t.Params, t.Score, t.LargestOut = c.form, c.form.String(), c.params, c.score, c.beyond
	t.Coefficients = c.form.readable(s.ref, c.params)
	errs := make([]float64, len(s.y))
	for i := range errs {
		errs[i] = s.error(i, c.form.at(s.at[i], c.params))
	}
	t.scatter(s, errs, c.form.params())
	t.Drift = t.driftOf(c)
	t.Rivals = s.rivals(candidates)
	t.bends(points)
	t.draw(s, rng)
	return t, s, true
}

// rivalWeight is how much a law with a score counts beside the chosen one. leastWeight is that of one to be kept.
func rivalWeight(score, chosen float64) float64 {
	return min(1, math.Exp(-(score-chosen)/(0.3*chosen+0.004)))
}

const leastWeight = 0.05

func most(a, b size) size {
	return size{max(a.s, b.s), max(a.n, b.n), max(a.rules, b.rules), max(a.c, b.c), max(a.ce, b.ce), max(a.e, b.e), max(a.x, b.x)}
}

func least(a, b size) size {
	return size{min(a.s, b.s), min(a.n, b.n), min(a.rules, b.rules), min(a.c, b.c), min(a.ce, b.ce), min(a.e, b.e), min(a.x, b.x)}
}

// within is how repetitions scatter around their point, robustly: 0 where each cell was measured once.
func within(points []Point) float64 {
	var all []float64
	for _, p := range points {
		for _, l := range p.ofReps {
			all = append(all, math.Abs(l)*math.Sqrt(float64(p.N)/float64(p.N-1)))
		}
	}
	return min(1, 1.4826*median(all)) // of the normal distribution
}

// scatter finds Between: what is left of the errors without the values' own noise. Points of one cell know of the same
// machine in the same minutes: the cells are what counts for the freedom.
func (t *Term) scatter(s *sample, errs []float64, params int) {
	cells, _ := s.cells()
	t.Freedom = max(1, float64(len(cells)-params))
	if len(s.y) > len(cells) { // the law of the change is known from the points of each
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
		t.Freedom = max(t.Freedom, 5) // counts are no noise
	}
	t.Between = max(floor, math.Sqrt(max(0, variance)))
}

// driftOf is how fast the trials beyond their fits went astray, beyond what scatter explains: for half of them.
func (t *Term) driftOf(c candidate) float64 {
	switch {
	case t.Quantity.counted():
		return c.score
	case len(c.astray) == 0:
		return mostDrift / 2 // too few sizes: nobody knows
	}
	var rates []float64
	for _, m := range c.astray {
		excess := math.Sqrt(max(0, m.err*m.err-t.Between*t.Between-t.Within*t.Within))
		rates = append(rates, excess/math.Log(m.factor))
	}
	return min(mostDrift, max(leastDrift, 1.4826*median(rates))) // half of a normal distribution is within 1/1.4826 deviations
}

// draw refits the law to points that might have been measured as well: the law's own values with its errors, shuffled.
// What the points of one cell have in common is shuffled apart from what they have not.
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

// cells are the points of each cell, and the cell of each point.
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

// uncertain is the variance of the logarithm of what the law says of a size, by what its parameters might be and by its
// rivals.
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
		// Two of three draws are within one deviation, whatever few wild ones are.
		deviation := stat.Quantile(0.6827, stat.LinInterp, spread, nil)
		variance += deviation * deviation
	}
	weights, apart := 1.0, 0.0
	for _, r := range t.Rivals {
		d := differs(r.Form, r.Params)
		weights, apart = weights+r.Weight, apart+r.Weight*d*d
	}
	return variance + apart/weights + t.bent(v, value)
}

// drifted is the variance that going beyond the sizes of the fit adds.
func (t *Term) drifted(v size) float64 {
	drift := t.Drift * math.Log(t.beyond(v))
	return drift * drift
}

// beyond is how many times a size is larger than any of the fit, or smaller; at most 1 within it.
func (t *Term) beyond(v size) float64 {
	factor := 1.0
	variables := []string{"s", "n", "e", "c"}
	if t.Form.X == "crossed" { // a packet knows of nothing else
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

// quantile of Student's distribution with a term's freedom.
func (t *Term) quantile(level float64) float64 {
	return distuv.StudentsT{Sigma: 1, Nu: max(2, t.Freedom)}.Quantile(1 - (1-level)/2)
}
