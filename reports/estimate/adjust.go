package estimate

import (
	"cmp"
	"slices"
)

// Level is the probability of finding any difference between two runs that do not differ.
const Level = 0.05

// Adjust adjusts p-values for multiple testing (Benjamini and Hochberg). Of the findings with an adjusted p-value up to
// a level, at most that share is there by chance. If nothing differs, the level is the probability of any finding. This
// is valid for numbers that depend on each other positively, as those of one proxier do.
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

// Found reports whether the adjusted i-th p-value would be at most Level if its value were other.
func Found(p []float64, i int, other float64) bool {
	changed := slices.Clone(p)
	changed[i] = other
	return Adjust(changed)[i] <= Level
}

// RepetitionsNeeded returns how many repetitions of both would show that the i-th number differs. least is the smallest
// p-value with so many. It assumes that the other p-values stay the same.
func RepetitionsNeeded(p []float64, i int, least func(repetitions int) float64) int {
	n := 4
	for !Found(p, i, least(n)) {
		n++
	}
	return n
}
