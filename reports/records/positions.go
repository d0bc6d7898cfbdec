package records

import (
	"cmp"
	"slices"

	"synclab/bench/raw"
)

// probe identifies values of a metric in one repetition: of Services at some positions of the dispatch.
type probe struct {
	metric                  raw.Metric
	subject, method, family string
	cell                    cellID
}

func probeOf(r *raw.Record) probe {
	return probe{r.Metric, r.Subject, MethodOf(r), r.Family, Cell{r.Scenario, r.Services, r.Endpoints, r.Params}.ID()}
}

// alignPositions maps the position of a packet or of connections to a position that all repetitions share. kube-proxy writes its
// dispatch rules in another order at each start: the last probed Service is at position 995 in one repetition and at
// 989 in the next. So the k-th positions of all repetitions belong together, at their median position. Of repetitions with
// different numbers of positions, the first and the last ones belong together, at the outermost.
func alignPositions(records []raw.Record) func(*raw.Record) int {
	probed := map[probe]map[int][]int{} // positions by repetition
	for i := range records {
		r := &records[i]
		if r.Position == nil || *r.Position <= 0 {
			continue
		}
		p := probeOf(r)
		if probed[p] == nil {
			probed[p] = map[int][]int{}
		}
		if at, found := slices.BinarySearch(probed[p][r.Rep], *r.Position); !found {
			probed[p][r.Rep] = slices.Insert(probed[p][r.Rep], at, *r.Position)
		}
	}
	aligned, first, last := map[probe][]int{}, map[probe]int{}, map[probe]int{}
	for p, byRep := range probed {
		if middle, ok := middlePositions(byRep); ok {
			aligned[p] = middle
			continue
		}
		for _, own := range byRep {
			first[p], last[p] = min(cmp.Or(first[p], own[0]), own[0]), max(last[p], own[len(own)-1])
		}
	}
	return func(r *raw.Record) int {
		p := probeOf(r)
		own := probed[p][r.Rep]
		at, found := slices.BinarySearch(own, *r.Position)
		switch {
		case !found:
		case aligned[p] != nil:
			return aligned[p][at]
		case at == len(own)-1:
			return last[p]
		case at == 0:
			return first[p]
		}
		return *r.Position
	}
}

// middlePositions returns for each k the median of the k-th positions of all repetitions. It returns false if
// repetitions have different numbers of positions, or if two medians are equal.
func middlePositions(byRep map[int][]int) ([]int, bool) {
	var columns [][]int
	for _, own := range byRep {
		if columns == nil {
			columns = make([][]int, len(own))
		}
		if len(own) != len(columns) {
			return nil, false
		}
		for k, position := range own {
			columns[k] = append(columns[k], position)
		}
	}
	var middle []int
	for _, column := range columns {
		slices.Sort(column)
		middle = append(middle, column[len(column)/2])
	}
	return middle, len(slices.Compact(slices.Clone(middle))) == len(columns)
}
