package estimate

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// ShareAtMost returns the upper bound of a share after k events in n independent trials, one-sided with 95 % confidence
// (Clopper and Pearson). For k = 0 it is nearly 3/n.
func ShareAtMost(k, n int) float64 {
	switch {
	case n == 0 || k >= n:
		return 1
	case k == 0:
		return 1 - math.Pow(1-Confidence, 1/float64(n))
	}
	return distuv.Beta{Alpha: float64(k + 1), Beta: float64(n - k)}.Quantile(Confidence)
}
