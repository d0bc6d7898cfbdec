package bench

import (
	"math"
	"slices"
	"time"
)

// passTimes estimates how long repetitions take, from those that ended.
type passTimes struct {
	took map[string][]passTime // by subject
}

type passTime struct {
	cell     string
	services int
	time     time.Duration
}

func (t *passTimes) add(subject, cell string, services int, took time.Duration) {
	if t.took == nil {
		t.took = map[string][]passTime{}
	}
	t.took[subject] = append(t.took[subject], passTime{cell, services, took})
}

// of is the estimate for a repetition: the median of the same subject's in this cell. Without one, it is that of the
// subject's nearest size, growing with the square root of the number of Services, since some steps have a fixed time.
// Without the subject, it is the median of all subjects. 0: nothing ended yet.
func (t *passTimes) of(subject, cell string, services int) time.Duration {
	var same, near, all []time.Duration
	nearest := 0
	for _, one := range t.took[subject] {
		if one.cell == cell {
			same = append(same, one.time)
		}
		if nearest == 0 || distance(one.services, services) < distance(nearest, services) {
			nearest = one.services
		}
	}
	for _, one := range t.took[subject] {
		if one.services == nearest {
			near = append(near, one.time)
		}
	}
	switch {
	case len(same) > 0:
		return middle(same)
	case len(near) > 0:
		return time.Duration(float64(middle(near)) * math.Sqrt(float64(max(services, 1))/float64(max(nearest, 1))))
	}
	for _, other := range t.took {
		for _, one := range other {
			all = append(all, one.time)
		}
	}
	if len(all) == 0 {
		return 0
	}
	return middle(all)
}

// distance of two sizes, as the logarithm of their ratio.
func distance(a, b int) float64 {
	return math.Abs(math.Log(float64(max(a, 1)) / float64(max(b, 1))))
}

// middle is the median; of an even number, the upper one.
func middle(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// left is the estimate for several repetitions; 0: unknown.
func (t *passTimes) left(o *ExecuteOptions, rest []slot, stopped map[string]bool) (sum time.Duration) {
	for _, p := range rest {
		if stopped[o.slotName(p)] {
			continue
		}
		sum += t.of(p.subject, o.cellName(p.cell), p.cell.Scenario.Shape.Services)
	}
	return sum
}
