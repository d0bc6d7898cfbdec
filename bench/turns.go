package bench

import (
	"math/rand/v2"
	"slices"

	"synclab/scenarios"
)

// slot is one repetition of one cell with one subject.
type slot struct {
	cell    scenarios.Cell
	subject string // as in Subjects
	rep     int
	number  int // of the cell, from 0
	turn    int // of the subject in this repetition of the cell, from 1
}

// slots returns the repetitions of a run, cell by cell. In each repetition of a cell, the subjects take turns.
func slots(cells []scenarios.Cell, subjects []string, reps int, seed uint64) []slot {
	var all []slot
	for number := range cells {
		for rep := 1; rep <= reps; rep++ {
			all = append(all, turn(cells, number, rep, subjects, seed)...)
		}
	}
	return all
}

// turn returns one repetition of a cell: its subjects in the order of a Williams design. Subjects named by targets are
// measured only in those cells, others in every cell.
func turn(cells []scenarios.Cell, number, rep int, subjects []string, seed uint64) []slot {
	cell := cells[number]
	var here []string // subjects of the cell
	for _, subject := range subjects {
		named := slices.ContainsFunc(cells, func(c scenarios.Cell) bool { return slices.Contains(c.Subjects, subject) })
		if !named || slices.Contains(cell.Subjects, subject) {
			here = append(here, subject)
		}
	}
	var all []slot
	for _, subject := range inTurn(here, rep, rand.New(rand.NewPCG(seed, uint64(number)))) {
		if rep == 1 || !slices.Contains(cell.Once, subject) {
			all = append(all, slot{cell: cell, subject: subject, rep: rep, number: number, turn: len(all) + 1})
		}
	}
	return all
}

// inTurn returns the order of subjects in a repetition, from 1. What a subject leaves behind in the machine (a used-up
// allowance of CPU, caches, kernel memory) falls on the next one, and pairing by repetition cannot remove that. So each
// subject follows each other one equally often: the orders are the rows of a Williams design (E. J. Williams,
// "Experimental designs balanced for the estimation of residual effects of treatments", 1949). random decides which
// subject has which place in the design, and the order of its rows. It must be the same for all repetitions of a cell.
func inTurn(subjects []string, rep int, random *rand.Rand) []string {
	n := len(subjects)
	if n < 2 {
		return subjects
	}
	rows := n
	if n%2 == 1 {
		rows = 2 * n // an odd number needs each row also backwards
	}
	place := random.Perm(n)
	order := random.Perm(rows)
	for range (rep - 1) / rows {
		order = random.Perm(rows)
	}
	row := order[(rep-1)%rows]
	out := make([]string, n)
	for i := range out {
		// 0, 1, n-1, 2, n-2, …: no two neighbours of this sequence have the same distance modulo n.
		step := (i + 1) / 2
		if i%2 == 0 {
			step = n - step
		}
		out[i] = subjects[place[(step+row)%n]]
	}
	if row >= n {
		slices.Reverse(out)
	}
	return out
}
