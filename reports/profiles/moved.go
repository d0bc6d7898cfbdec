package profiles

import (
	"cmp"
	"math"
	"slices"

	"synclab/bench/lab/profile"
	"synclab/reports/doc"
	"synclab/reports/records"
)

// Moved is where the time of one kind of sync went before and after a change, in one cell.
type Moved struct {
	Before string       `json:"before"` // subjects
	After  string       `json:"after"`
	Cell   records.Cell `json:"cell"`
	Kind   string       `json:"kind"`
	Syncs  [2]int       `json:"syncs"`   // in the profiles
	Totals [2]float64   `json:"seconds"` // of CPU per sync
	// Functions are those whose time changed by at least leastMoved of the longer sync, and by more than chance explains;
	// the largest change first.
	Functions []MovedFunction `json:"functions"`
}

// MovedFunction is the time of one function, in seconds of CPU per sync, before and after.
type MovedFunction struct {
	Name   string     `json:"name"`
	Object string     `json:"object"`
	Origin string     `json:"origin"`
	Own    [2]float64 `json:"seconds"`
	Shares [2]float64 `json:"shares"` // of the sync
}

const (
	leastMoved = 0.01 // of a sync
	// sigmas is how many standard errors a change of samples must have. A count of samples is a Poisson count. Of a hundred
	// functions that did not change, one is beyond three in one of four comparisons.
	sigmas = 3.0
)

// Compare compares the profiles of pairs of subjects in the largest cell that both have.
func Compare(c *records.Collection, pairs [][2]string) (moved []Moved, problems []string) {
	all, _, _, problems := Load(c.Runs)
	largest := Largest(all)
	for _, pair := range pairs {
		for _, kind := range Kinds {
			side := func(name string) *Profile {
				if i := slices.IndexFunc(largest, func(p *Profile) bool { return p.Subject == name && p.Kind == kind }); i >= 0 {
					return largest[i]
				}
				return nil
			}
			if a, b := side(pair[0]), side(pair[1]); a != nil && b != nil && a.Cell.ID() == b.Cell.ID() {
				moved = append(moved, compare(a, b))
			}
		}
	}
	return moved, problems
}

func compare(a, b *Profile) Moved {
	m := Moved{Before: a.Subject, After: b.Subject, Cell: a.Cell, Kind: a.Kind, Syncs: [2]int{a.Syncs, b.Syncs}, Totals: [2]float64{a.Total.Median(), b.Total.Median()}}
	byKey := map[key]*MovedFunction{}
	for side, p := range []*Profile{a, b} {
		for _, f := range p.Functions {
			k := key{f.Name, f.Object, f.Origin}
			if f.Origin != profile.Tool { // the same kernel, whatever called it, and two builds of one proxier
				k.object = ""
			}
			one := byKey[k]
			if one == nil {
				one = &MovedFunction{Name: f.Name, Object: f.Object, Origin: f.Origin}
				byKey[k] = one
			}
			one.Own[side] += f.Own()
			one.Shares[side] = share(one.Own[side], m.Totals[side])
		}
	}
	longer := max(m.Totals[0], m.Totals[1])
	for _, f := range byKey {
		moved := math.Abs(f.Own[1] - f.Own[0])
		chance := sigmas * math.Sqrt(f.Own[0]*a.Resolution()+f.Own[1]*b.Resolution())
		if moved >= leastMoved*longer && moved > chance {
			m.Functions = append(m.Functions, *f)
		}
	}
	slices.SortFunc(m.Functions, func(x, y MovedFunction) int {
		return cmp.Or(cmp.Compare(math.Abs(y.Own[1]-y.Own[0]), math.Abs(x.Own[1]-x.Own[0])), cmp.Compare(x.Name, y.Name))
	})
	return m
}

// Unlike reports whether a profiled sync took much more or less time than the measured ones, before and after, in seconds.
// Shares of functions may still be compared then, and times may not.
func (m Moved) Unlike(measured [2]float64) bool {
	const much = 1.25
	for i, profiled := range m.Totals {
		if ratio := profiled / measured[i]; measured[i] > 0 && (ratio > much || ratio < 1/much) {
			return true
		}
	}
	return false
}

// Table has the n functions whose time changed most.
func (m Moved) Table(n int) *doc.Table {
	t := &doc.Table{Columns: []doc.Column{{Name: "Function"}, {Name: "Origin", Row: true}, {Name: "Before", Numeric: true}, {Name: "After", Numeric: true},
		{Name: "Share before", Numeric: true}, {Name: "Share after", Numeric: true}}}
	t.Add(doc.Text("(the whole sync)"), doc.None(), doc.Value(m.Totals[0], "s"), doc.Value(m.Totals[1], "s"), doc.None(), doc.None())
	for _, f := range m.Functions[:min(n, len(m.Functions))] {
		t.Add(doc.Text(f.Name), doc.Text(f.Origin), doc.Value(f.Own[0], "s"), doc.Value(f.Own[1], "s"), percentCell(f.Shares[0]), percentCell(f.Shares[1]))
	}
	return t
}
