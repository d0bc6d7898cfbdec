package estimate

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// LeastPairs is the least number of pairs whose ratios have an interval by Student's t.
const LeastPairs = 3

// leastSpread is the least standard deviation of the logarithms of ratios that is believed: a few repetitions may agree
// by chance, and clocks and timers round.
const leastSpread = 0.01

// logs returns the mean of the logarithms of ratios, the mean's standard error, and Student's t of so many.
func logs(ratios []float64) (mean, err float64, t distuv.StudentsT, ok bool) {
	n := len(ratios)
	if n < LeastPairs {
		return 0, 0, t, false
	}
	all := make([]float64, n)
	for i, r := range ratios {
		all[i] = math.Log(r)
	}
	mean, spread := stat.MeanStdDev(all, nil)
	return mean, max(spread, leastSpread) / math.Sqrt(float64(n)), distuv.StudentsT{Sigma: 1, Nu: float64(n - 1)}, true
}

// PairedInterval returns the 95 % interval of the geometric mean of the pairs' ratios, by Student's t on logarithms. ok
// is false below LeastPairs. Above Enough pairs, the interval of Compare assumes less.
func PairedInterval(a, b *Estimate) (low, high float64, ok bool) {
	mean, err, t, ok := logs(a.ratios(b, Paired))
	if !ok {
		return 0, 0, false
	}
	reach := err * t.Quantile(1-tail)
	return math.Exp(mean - reach), math.Exp(mean + reach), true
}

// PairedP returns the p-value of the pairs' ratios not being 1 + share. It is twice the smaller one of Student's t on
// logarithms, which sees large differences in few pairs, and of the sign test, which no single bad repetition misleads.
func PairedP(a, b *Estimate, share float64) float64 { return pairedP(a.ratios(b, Paired), 1+share) }

func pairedP(ratios []float64, than float64) float64 {
	scaled := make([]float64, len(ratios))
	for i, r := range ratios {
		scaled[i] = r / than
	}
	p := signP(scaled)
	if mean, err, t, ok := logs(scaled); ok {
		p = min(p, 2*t.Survival(math.Abs(mean)/err))
	}
	return min(1, 2*p)
}

// BeyondPairedP is BeyondP for estimates whose repetitions are pairs.
func BeyondPairedP(a, b *Estimate, share float64) float64 {
	if ratios := a.ratios(b, Paired); Median(ratios) <= 1+share {
		return 1
	}
	return PairedP(a, b, share)
}

// LeastPairedP returns a p-value that so many pairs can have: next to nothing from LeastPairs on.
func LeastPairedP(pairs int) float64 {
	if pairs < LeastPairs {
		return 1
	}
	return 0
}
