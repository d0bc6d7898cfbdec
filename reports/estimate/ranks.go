package estimate

import (
	"math"
	"slices"

	"github.com/aclements/go-moremath/stats"
	"gonum.org/v1/gonum/stat/distuv"
)

// RankP returns the p-value of a two-sided Mann-Whitney U test. It is exact up to 50 values in a group (25 with ties),
// and uses the normal approximation above. It is 1 if all values are equal.
func RankP(a, b []float64) float64 {
	test, err := stats.MannWhitneyUTest(a, b, stats.LocationDiffers)
	if err != nil {
		return 1
	}
	return min(1, test.P) // doubling a discrete tail may exceed 1
}

// LeastP returns the smallest p-value of RankP for groups of na and nb values: all of a group above all of the other.
func LeastP(na, nb int) float64 {
	if na == 0 || nb == 0 {
		return 1
	}
	log := func(n int) float64 { v, _ := math.Lgamma(float64(n + 1)); return v }
	return min(1, 2*math.Exp(log(na)+log(nb)-log(na+nb)))
}

// signP returns the p-value of a two-sided sign test, whose null hypothesis is that as many ratios are above 1 as
// below. It matches MedianInterval.
func signP(ratios []float64) float64 {
	above, below := 0, 0
	for _, r := range ratios {
		switch {
		case r > 1:
			above++
		case r < 1:
			below++
		}
	}
	if above+below == 0 {
		return 1
	}
	return min(1, 2*distuv.Binomial{N: float64(above + below), P: 0.5}.CDF(float64(min(above, below))))
}

// Above is positive if the values of b tend to be larger than those of a, and negative if they tend to be smaller.
func Above(a, b []float64) int {
	n := 0
	for _, x := range a {
		for _, y := range b {
			if y > x {
				n++
			} else if y < x {
				n--
			}
		}
	}
	return n
}

// ratioInterval returns the 95 % interval of the ratio of b to a: the ratios that a Mann-Whitney test does not reject
// (Hodges and Lehmann, on logarithms). It assumes no distribution. ok is false with too few values (4 and 4 are
// enough), or if a value is not positive.
func ratioInterval(a, b []float64) (low, high float64, ok bool) {
	var ratios []float64
	for _, x := range a {
		for _, y := range b {
			if x <= 0 || y <= 0 {
				return 0, 0, false
			}
			ratios = append(ratios, y/x)
		}
	}
	outside := ratiosOutside(len(a), len(b))
	if outside == 0 {
		return 0, 0, false
	}
	slices.Sort(ratios)
	return ratios[outside-1], ratios[len(ratios)-outside], true
}

// ratiosOutside returns the rank of the interval's ends among the sorted ratios, from either side and from 1; 0: no
// interval. A U below the rank is at most as likely as half of what the interval may miss.
func ratiosOutside(na, nb int) int {
	if na > stats.MannWhitneyExactLimit || nb > stats.MannWhitneyExactLimit {
		n, m := float64(na), float64(nb)
		return max(0, int(n*m/2-1.96*math.Sqrt(n*m*(n+m+1)/12)))
	}
	dist := stats.UDist{N1: na, N2: nb}
	low, high := 0, na*nb/2+1 // the rank is at least low and below high
	for low+1 < high {
		if middle := (low + high) / 2; dist.CDF(float64(middle-1)) <= tail {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}
