package estimate

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// LeastPairs is the least number of pairs whose ratios have an interval by Student's t.
const LeastPairs = 3

// LeastSpread is the least standard deviation that is believed of what is measured, as a share: a few repetitions may
// agree by chance, and clocks and timers round. Counts need none.
const LeastSpread = 0.01

// mean returns the mean of values, its standard error, and Student's t of so many.
func mean(values []float64, leastSpread float64) (mean, err float64, t distuv.StudentsT, ok bool) {
	n := len(values)
	if n < LeastPairs {
		return 0, 0, t, false
	}
	mean, spread := stat.MeanStdDev(values, nil)
	return mean, max(spread, leastSpread) / math.Sqrt(float64(n)), distuv.StudentsT{Sigma: 1, Nu: float64(n - 1)}, true
}

// tP returns the two-sided p-value of a mean that is not 0; 1 with too few values.
func tP(values []float64, leastSpread float64) float64 {
	m, err, t, ok := mean(values, leastSpread)
	switch {
	case !ok || m == 0:
		return 1
	case err == 0:
		return 0
	}
	return 2 * t.Survival(math.Abs(m)/err)
}

func logs(ratios []float64) []float64 {
	all := make([]float64, len(ratios))
	for i, r := range ratios {
		all[i] = math.Log(r)
	}
	return all
}

// BoundFew sets the interval of a ratio that has too few pairs for order statistics, widened to contain its value.
func (r *Ratio) BoundFew(a, b *Estimate, leastSpread float64) {
	low, high, ok := pairedInterval(a, b, leastSpread)
	if !ok || r.Low != nil || r.P == nil {
		return
	}
	low, high = min(low, r.Value), max(high, r.Value)
	r.Low, r.High = &low, &high
}

// pairedInterval returns the 95 % interval of the geometric mean of the pairs' ratios, by Student's t on logarithms. ok
// is false below LeastPairs. Above Enough pairs, the interval of Compare assumes less.
func pairedInterval(a, b *Estimate, leastSpread float64) (low, high float64, ok bool) {
	m, err, t, ok := mean(logs(a.ratios(b, Paired)), leastSpread)
	if !ok {
		return 0, 0, false
	}
	reach := err * t.Quantile(1-tail)
	return math.Exp(m - reach), math.Exp(m + reach), true
}

// PairedP returns the p-value of the pairs' ratios not being 1 + share. It is twice the smaller one of Student's t on
// logarithms, which sees large differences in few pairs, and of the sign test, which no single bad repetition misleads.
func PairedP(a, b *Estimate, share, leastSpread float64) float64 {
	return pairedP(a.ratios(b, Paired), 1+share, leastSpread)
}

func pairedP(ratios []float64, than, leastSpread float64) float64 {
	scaled := make([]float64, len(ratios))
	for i, r := range ratios {
		scaled[i] = r / than
	}
	return min(1, 2*min(signP(scaled), tP(logs(scaled), leastSpread)))
}

// ChangedP is PairedP for values that have no ratio, as one side is 0: by Student's t on differences.
func ChangedP(a, b *Estimate, leastSpread float64) float64 {
	var differences []float64
	size := 0.0
	for _, x := range a.ByRepetition {
		for _, y := range b.ByRepetition {
			if x.Repetition == y.Repetition {
				differences = append(differences, y.Value-x.Value)
				size = max(size, math.Abs(x.Value), math.Abs(y.Value))
			}
		}
	}
	return tP(differences, leastSpread*size)
}

// BeyondPairedP is BeyondP for estimates whose repetitions are pairs.
func BeyondPairedP(a, b *Estimate, share, leastSpread float64) float64 {
	if ratios := a.ratios(b, Paired); Median(ratios) <= 1+share {
		return 1
	}
	return PairedP(a, b, share, leastSpread)
}
