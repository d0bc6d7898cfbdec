package profiles

import (
	"cmp"
	"math"
	"slices"

	"synclab/reports/estimate"
)

// Growth is how one kind of sync of a subject grows with the Services.
type Growth struct {
	Subject  string  `json:"subject"`
	Scenario string  `json:"scenario"`
	Settings string  `json:"settings,omitempty"`
	Kind     string  `json:"kind"`
	Sizes    []int   `json:"sizes"` // Services
	From     int     `json:"from"`
	To       int     `json:"to"`
	Total    float64 `json:"total"` // seconds of CPU per sync at To
	// Law is the power law of the whole sync.
	Law estimate.Power `json:"law"`
	// Functions have at least leastShare of the sync at To.
	Functions []FunctionGrowth `json:"functions"`
	// Shares of a sync at To by the exponent of its functions, in the order of Classes.
	Shares []float64 `json:"shares"`
	// Rules is the function that makes the sync superlinear, the index in Functions; -1: none does.
	Rules int `json:"rules"`
	// From RulesFrom Services on, the superlinear functions take more time than all others. Seen: it was measured, not
	// computed from the fits. 0: not up to farthest times the largest size.
	RulesFrom float64 `json:"rules_from,omitempty"`
	Seen      bool    `json:"seen,omitempty"`
}

// FunctionGrowth is the growth of one function.
type FunctionGrowth struct {
	Name   string    `json:"name"`
	Object string    `json:"object"`
	Origin string    `json:"origin"`
	Share  float64   `json:"share"`   // of the sync at the largest size
	Times  []float64 `json:"seconds"` // per sync, by size
	With   float64   `json:"-"`       // with the functions that it calls, at the largest size; NaN: of several functions
	// Law is absent if the function has fewer than leastSamples samples at all but one size.
	Law *estimate.Power `json:"law,omitempty"`
}

// Classes are the classes of exponents, by their upper bounds.
var Classes = []struct {
	Below float64
	Text  string
}{
	{0.5, "hardly grows"}, {1.25, "linear"}, {1.75, "between linear and quadratic"}, {math.Inf(1), "quadratic or more"},
}

const (
	superlinear  = 1.25 // more than n log n, whose exponent is 1 + 1/ln n: 1.22 at 100 Services
	farthest     = 10   // times the largest size, for what fits say
	leastShare   = 0.005
	leastSamples = 4.0 // of a function in a size, for its exponent: a count of 4 has a standard error of a half
)

// Grow fits each kind of each subject over the sizes of its sweep.
func Grow(all []*Profile) []Growth {
	var out []Growth
	for len(all) > 0 {
		same := func(p *Profile) bool {
			f := all[0]
			return p.Subject == f.Subject && p.Kind == f.Kind && p.Cell.Scenario == f.Cell.Scenario && p.Cell.Settings() == f.Cell.Settings()
		}
		var line, rest []*Profile
		for _, p := range all {
			if same(p) {
				line = append(line, p)
			} else {
				rest = append(rest, p)
			}
		}
		all = rest
		slices.SortStableFunc(line, func(a, b *Profile) int { return a.Cell.Services - b.Cell.Services })
		if line[0].Cell.Services < line[len(line)-1].Cell.Services {
			out = append(out, grow(line))
		}
	}
	return out
}

// Superlinear is the share of a sync in functions that grow faster than the cluster.
func (g Growth) Superlinear() (share float64) {
	for i, c := range Classes {
		if c.Below > superlinear {
			share += g.Shares[i]
		}
	}
	return share
}

func grow(line []*Profile) Growth {
	first, last := line[0], line[len(line)-1]
	g := Growth{Subject: last.Subject, Scenario: last.Cell.Scenario, Settings: last.Cell.Settings(), Kind: last.Kind,
		From: first.Cell.Services, To: last.Cell.Services, Total: last.Total.Median(), Shares: make([]float64, len(Classes)+1), Rules: -1}
	var points []estimate.Point
	for _, p := range line {
		g.Sizes = append(g.Sizes, p.Cell.Services)
		points = append(points, estimate.Point{X: float64(p.Cell.Services), Y: p.Total})
	}
	g.Law, _ = estimate.FitPower(points)
	var sum float64
	for _, f := range last.Functions {
		sum += f.Own()
	}
	if sum == 0 {
		return g
	}
	over, others := make([]float64, len(line)), make([]float64, len(line)) // times of superlinear functions, and of others
	for _, one := range growEach(line) {
		one.Share = one.Times[len(line)-1] / sum
		class := len(Classes) // too few samples
		into := others
		if one.Law != nil {
			class = classOf(one.Law.Slope)
			if one.Law.Slope >= superlinear {
				into = over
			}
		}
		g.Shares[class] += one.Share
		for i, t := range one.Times {
			into[i] += t
		}
		if one.Share >= leastShare {
			g.Functions = append(g.Functions, one)
		}
	}
	g.Rules = slices.IndexFunc(g.Functions, func(f FunctionGrowth) bool { return f.Name != Rest && f.Law != nil && f.Law.Slope >= superlinear })
	if g.Rules >= 0 {
		g.RulesFrom, g.Seen = crossing(line, over, others)
	}
	return g
}

// Rest is the name of the functions of an origin that have too few samples for exponents of their own.
const Rest = "(all others)"

// growEach fits the functions of the largest size. Those with too few samples are added up for each origin.
func growEach(line []*Profile) []FunctionGrowth {
	var out []FunctionGrowth
	rest := map[string][]key{}
	for _, f := range line[len(line)-1].Functions {
		k := key{f.Name, f.Object, f.Origin}
		one := growOne(line, k)
		if one.Law == nil {
			rest[f.Origin] = append(rest[f.Origin], k)
			continue
		}
		one.Name, one.Object, one.Origin, one.With = f.Name, f.Object, f.Origin, f.With.Median()
		out = append(out, one)
	}
	for _, origin := range Origins {
		if keys := rest[origin]; len(keys) > 0 {
			one := growOne(line, keys...)
			one.Name, one.Origin, one.With = Rest, origin, math.NaN()
			out = append(out, one)
		}
	}
	slices.SortStableFunc(out, func(a, b FunctionGrowth) int { return cmp.Compare(b.Times[len(line)-1], a.Times[len(line)-1]) })
	return out
}

// growOne fits the sum of some functions.
func growOne(line []*Profile, keys ...key) (one FunctionGrowth) {
	var points []estimate.Point
	for _, p := range line {
		self := estimate.Sample{}
		for _, k := range keys {
			f := p.byKey[k]
			if f == nil {
				continue
			}
			for of, values := range f.Self {
				if len(self[of]) == 0 {
					self[of] = []float64{0}
				}
				self[of][0] += values[0]
			}
		}
		t := 0.0
		if len(self) > 0 {
			t = self.Median()
		}
		one.Times = append(one.Times, t)
		if t >= leastSamples*p.Resolution() {
			points = append(points, estimate.Point{X: float64(p.Cell.Services), Y: self})
		}
	}
	if law, ok := estimate.FitPower(points); ok {
		one.Law = &law
	}
	return one
}

func classOf(exponent float64) int {
	for i, c := range Classes {
		if exponent < c.Below {
			return i
		}
	}
	return len(Classes) - 1
}

// crossing returns the size from which on the superlinear functions take more than half of the time.
func crossing(line []*Profile, over, others []float64) (size float64, seen bool) {
	from := len(line)
	for i := range slices.Backward(line) {
		if over[i] <= others[i] {
			break
		}
		from = i
	}
	if from < len(line) {
		return float64(line[from].Cell.Services), true
	}
	law := func(times []float64) (estimate.Power, bool) {
		var points []estimate.Point
		for i, p := range line {
			if times[i] >= leastSamples*p.Resolution() {
				points = append(points, estimate.Point{X: float64(p.Cell.Services), Y: estimate.Single(times[i])})
			}
		}
		return estimate.FitPower(points)
	}
	a, ok := law(over)
	b, ok2 := law(others)
	if !ok || !ok2 || a.Slope <= b.Slope {
		return 0, false
	}
	size = math.Exp((b.Intercept - a.Intercept) / (a.Slope - b.Slope))
	// Below the largest size, it would have been seen: then the fits are not good enough to say.
	if largest := float64(line[len(line)-1].Cell.Services); size < largest || size > farthest*largest {
		return 0, false
	}
	return size, false
}

// Top returns the n functions of an origin with the most time.
func (p *Profile) Top(origin string, n int) []Function {
	var out []Function
	for _, f := range p.Functions {
		if f.Origin == origin && f.Own() > 0 && len(out) < n {
			out = append(out, f)
		}
	}
	return out
}

// Largest returns the profiles of each subject at its largest size.
func Largest(all []*Profile) []*Profile {
	var out []*Profile
	for _, p := range all {
		if !slices.ContainsFunc(all, func(o *Profile) bool {
			return o.Subject == p.Subject && o.Kind == p.Kind && o.Cell.Scenario == p.Cell.Scenario && o.Cell.Settings() == p.Cell.Settings() &&
				cmp.Compare(o.Cell.Services, p.Cell.Services) > 0
		}) {
			out = append(out, p)
		}
	}
	return out
}
