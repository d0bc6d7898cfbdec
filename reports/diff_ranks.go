package reports

import (
	"math"
	"slices"

	"github.com/aclements/go-moremath/stats"
)

// diffLevel is how often one figure or more of two runs that are alike may be said to differ.
const diffLevel = 0.05

// rankP is the p-value of a two-sided Mann-Whitney U test: exact up to 50 values in a group (25 where some are equal), by
// normal approximation above. It is 1 where all values are equal.
func rankP(a, b []float64) float64 {
	test, err := stats.MannWhitneyUTest(a, b, stats.LocationDiffers)
	if err != nil {
		return 1
	}
	return min(1, test.P) // doubling a discrete tail may exceed 1
}

// leastP is the smallest p-value that so many values can give: every one of a group above every one of the other.
func leastP(na, nb int) float64 {
	if na == 0 || nb == 0 {
		return 1
	}
	log := func(n int) float64 { v, _ := math.Lgamma(float64(n + 1)); return v }
	return min(1, 2*math.Exp(log(na)+log(nb)-log(na+nb)))
}

// above says which group tends to be larger: positive when it is b.
func above(a, b []float64) int {
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

// ratioInterval is the 95 % interval of the ratio of b to a: the ratios that, taken off b, leave a Mann-Whitney test
// nothing to find (Hodges and Lehmann, on logarithms). No distribution is assumed. There is none with fewer than 4 values
// in each group, or where a value is not positive.
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

// ratiosOutside is the rank of the interval's ends among the sorted ratios, from either side and from 1; 0: there is no
// interval. A U below the rank has to be less likely than half of what the interval may miss.
func ratiosOutside(na, nb int) int {
	const tail = (1 - confidence) / 2
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

// adjusted are p-values that allow for their number, by Benjamini and Hochberg: of the figures whose adjusted p-value is
// at most some level, that share at most is there by chance; and where nothing differs at all, the level is how often
// anything is said to. It holds for figures that depend on one another positively, as those of one proxier do.
func adjusted(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		switch {
		case p[i] < p[j]:
			return -1
		case p[i] > p[j]:
			return 1
		}
		return 0
	})
	out := make([]float64, len(p))
	least := 1.0
	for rank := len(order); rank > 0; rank-- {
		i := order[rank-1]
		least = min(least, p[i]*float64(len(p))/float64(rank))
		out[i] = least
	}
	return out
}

// found says whether the i-th of several p-values would be below the level, adjusted, if it were another one.
func found(p []float64, i int, other float64) bool {
	changed := slices.Clone(p)
	changed[i] = other
	return adjusted(changed)[i] <= diffLevel
}

// repetitionsNeeded is how many repetitions of each run would show the i-th to differ, if all of one were above all of
// the other and the others stayed as they are.
func repetitionsNeeded(p []float64, i int) int {
	n := 4
	for !found(p, i, leastP(n, n)) {
		n++
	}
	return n
}
