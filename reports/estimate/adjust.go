package estimate

import (
	"cmp"
	"slices"
)

// Level is how often one number or more of two runs that are alike may be said to differ.
const Level = 0.05

// Adjust makes p-values allow for their number, by Benjamini and Hochberg: of the numbers whose adjusted p-value is at
// most some level, that share at most is there by chance; and where nothing differs at all, the level is how often
// anything is said to. It holds for numbers that depend on one another positively, as those of one proxier do.
func Adjust(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(p[i], p[j]) })
	out := make([]float64, len(p))
	least := 1.0
	for rank := len(order); rank > 0; rank-- {
		i := order[rank-1]
		least = min(least, p[i]*float64(len(p))/float64(rank))
		out[i] = least
	}
	return out
}

// Found says whether the i-th of several p-values would be below the level, adjusted, if it were another one.
func Found(p []float64, i int, other float64) bool {
	changed := slices.Clone(p)
	changed[i] = other
	return Adjust(changed)[i] <= Level
}

// RepetitionsNeeded is how many repetitions of each run would show the i-th to differ, if all of one were above all of
// the other and the others stayed as they are.
func RepetitionsNeeded(p []float64, i int) int {
	n := 4
	for !Found(p, i, LeastP(n, n)) {
		n++
	}
	return n
}
