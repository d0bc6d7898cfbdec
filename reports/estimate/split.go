package estimate

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

const (
	// LeastSegment is the fewest values on each side of a split.
	LeastSegment = 2

	permutations = 1999 // at most; enough for the smallest p-value that one of a hundred tests needs
	enoughTies   = 20   // as extreme permutations, after which more would not change the conclusion
)

// Split returns the index where the distribution of a series changes most, and the p-value of that change. This is one
// step of E-divisive: Matteson and James, "A nonparametric approach for multiple change point analysis of multivariate
// data", JASA 109 (2014), with exponent 1. Repeated on both parts, it finds several changes.
//
// The p-value is of a permutation test, and covers the choice of the index. Permutations are drawn one by one, until
// enough of them are as extreme (Besag and Clifford, Biometrika 78, 1991). Their seed is fixed.
func Split(values []float64) (at int, p float64) {
	at, observed := divergence(values)
	if observed <= 0 {
		return at, 1
	}
	random := rand.New(rand.NewPCG(1, uint64(len(values))))
	shuffled := slices.Clone(values)
	extreme := 0
	for n := 1; n <= permutations; n++ {
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if _, q := divergence(shuffled); q >= observed*(1-1e-12) { // sums in another order differ by rounding
			extreme++
		}
		if extreme == enoughTies {
			return at, float64(extreme) / float64(n)
		}
	}
	return at, float64(extreme+1) / float64(permutations+1)
}

// divergence returns the best split of a series, and how far apart its two parts are: the scaled energy distance, which
// is the mean distance between values of both parts less the mean distances within them.
func divergence(values []float64) (at int, most float64) {
	var between, left, right float64 // sums of distances over pairs
	for i, x := range values {
		for _, y := range values[:i] {
			right += math.Abs(x - y)
		}
	}
	for i, x := range values { // moves from the right to the left
		for _, y := range values[:i] {
			left += math.Abs(x - y)
			between -= math.Abs(x - y)
		}
		for _, y := range values[i+1:] {
			right -= math.Abs(x - y)
			between += math.Abs(x - y)
		}
		n, m := float64(i+1), float64(len(values)-i-1)
		if n < LeastSegment || m < LeastSegment {
			continue
		}
		q := n * m / (n + m) * (2*between/(n*m) - 2*left/(n*(n-1)) - 2*right/(m*(m-1)))
		if q > most {
			at, most = i+1, q
		}
	}
	return at, most
}

// Step is the next value of a series, compared with the values of the series' last level.
type Step struct {
	Ratio     float64 // to the level
	Low, High float64 // 95 % interval of the ratio
	P         float64
}

// StepOf compares a value with those of the last of several levels. It assumes that logarithms of values of one level are
// normal, with the same variance in all levels: the interval is Student's for one more value. wider is how much larger
// the variance of the value is. ok is false with fewer than three degrees of freedom, or if values do not vary.
func StepOf(levels [][]float64, next, wider float64) (s Step, ok bool) {
	var squares, mean float64
	free := 0
	for _, level := range levels {
		mean = 0
		for _, v := range level {
			mean += math.Log(v) / float64(len(level))
		}
		for _, v := range level {
			squares += (math.Log(v) - mean) * (math.Log(v) - mean)
		}
		free += len(level) - 1
	}
	if free < 3 || !(squares > 0) || math.IsInf(squares, 0) || next <= 0 {
		return Step{}, false
	}
	t := distuv.StudentsT{Sigma: 1, Nu: float64(free)}
	size := math.Log(next) - mean
	deviation := math.Sqrt(squares / float64(free) * (wider + 1/float64(len(levels[len(levels)-1]))))
	half := t.Quantile(1-tail) * deviation
	return Step{Ratio: math.Exp(size), Low: math.Exp(size - half), High: math.Exp(size + half), P: 2 * t.Survival(math.Abs(size)/deviation)}, true
}
