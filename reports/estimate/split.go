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

	// permutationsPerTest suffice for a p-value that is small enough after its adjustment for many tests. enoughExtreme
	// permutations show that it is not small.
	permutationsPerTest = 100
	enoughExtreme       = 10
)

// Split returns the index where the distribution of a series changes most, and the p-value of that change. This is one
// step of E-divisive: Matteson and James, "A nonparametric approach for multiple change point analysis of multivariate
// data", JASA 109 (2014), with exponent 1. Repeated on both parts, it finds several changes.
//
// The p-value is of a permutation test, and covers the choice of the index. Permutations are drawn one by one, until
// enough of them are as extreme (Besag and Clifford, Biometrika 78, 1991). Their seed is fixed. tests is the number of
// p-values that will be adjusted together.
func Split(values []float64, tests int) (at int, p float64) {
	at, observed := divergence(values)
	if observed <= 0 {
		return at, 1
	}
	random := rand.New(rand.NewPCG(1, uint64(len(values))))
	shuffled := slices.Clone(values)
	extreme := 0
	permutations := permutationsPerTest*max(tests, 20) - 1
	for n := 1; n <= permutations; n++ {
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if _, q := divergence(shuffled); q >= observed*(1-1e-12) { // sums in another order differ by rounding
			extreme++
		}
		if extreme == enoughExtreme {
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

// Step compares the last values of a series with those of the level before.
type Step struct {
	Ratio     float64 // to the level
	Low, High float64 // 95 % interval of the ratio
	P         float64
}

// StepOf compares the last values with those of the last of several levels: Student's t on logarithms, with the variance
// within all levels and within the last values, which may be one. wider is how much larger the variance of the last values
// is. ok is false with fewer than three degrees of freedom, if values do not vary, or if one is not positive.
func StepOf(levels [][]float64, last []float64, wider float64) (s Step, ok bool) {
	var squares float64
	free := 0
	var means []float64
	for _, level := range append(slices.Clone(levels), last) {
		mean := 0.0
		for _, v := range level {
			mean += math.Log(v) / float64(len(level))
		}
		for _, v := range level {
			squares += (math.Log(v) - mean) * (math.Log(v) - mean)
		}
		free += len(level) - 1
		means = append(means, mean)
	}
	if free < 3 || !(squares > 0) || math.IsInf(squares, 0) {
		return Step{}, false
	}
	t := distuv.StudentsT{Sigma: 1, Nu: float64(free)}
	size := means[len(means)-1] - means[len(means)-2]
	deviation := math.Sqrt(squares / float64(free) * (wider/float64(len(last)) + 1/float64(len(levels[len(levels)-1]))))
	half := t.Quantile(1-tail) * deviation
	return Step{Ratio: math.Exp(size), Low: math.Exp(size - half), High: math.Exp(size + half), P: 2 * t.Survival(math.Abs(size)/deviation)}, true
}
