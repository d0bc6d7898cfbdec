package scenarios

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Cell is one combination of a sweep's values.
type Cell struct {
	// Scenario has the cell's values set, and no sweep.
	Scenario Scenario
	// Params maps the axes' fields to the cell's values, as written; nil without a sweep.
	Params map[string]string
	// Subjects are those that targets name; nil means the requested ones. Those in Once need one repetition only.
	Subjects, Once []string
}

// Cells expands the sweep: one cell of each combination, the last axis fastest.
// A scenario without a sweep is its own single cell. Each cell is validated.
func (s *Scenario) Cells() ([]Cell, error) {
	base, err := s.clone()
	if err != nil {
		return nil, err
	}
	base.Sweep = nil
	base.Fill()
	if len(s.Targets) > 0 {
		return base.targetCells()
	}
	if len(s.Sweep) == 0 {
		return []Cell{{Scenario: *base}}, base.Validate()
	}
	axes := make([][]string, len(s.Sweep))
	total := 1
	for i, a := range s.Sweep {
		if axes[i], err = base.valuesOf(a); err != nil {
			return nil, Problems{{Path: fmt.Sprintf("sweep.%d", i), Text: err.Error()}}
		}
		if total *= len(axes[i]); total > maxCells {
			return nil, Problems{{Path: "sweep", Text: fmt.Sprintf("makes more than %s cells, each a separate run", thousands(maxCells))}}
		}
	}
	base.Shape.forgetDerived()
	var failed cellProblems
	cells := make([]Cell, 0, total)
	for i := range total {
		values := make([]string, len(axes))
		for a, rest := len(axes)-1, i; a >= 0; a-- {
			values[a], rest = axes[a][rest%len(axes[a])], rest/len(axes[a])
		}
		cell, err := base.cell(s.Sweep, values)
		if err != nil {
			failed.add(s.Sweep, values, err)
			continue
		}
		cells = append(cells, cell)
	}
	if len(failed) > 0 {
		return nil, failed.problems()
	}
	return cells, nil
}

// cellProblems are the distinct problems of a sweep's cells, each with its first cell: one bad value is in many cells.
type cellProblems []cellProblem

type cellProblem struct {
	text string
	cell string // "shape.services=10 proxy.burst=3"
	more int    // cells after it with the same problem
}

func (f *cellProblems) add(axes []Axis, values []string, found Problems) {
	name := make([]string, len(axes))
	for i, a := range axes {
		name[i] = a.Field + "=" + values[i]
	}
	for _, p := range found {
		p.Where = ""
		text := p.String()
		i := slices.IndexFunc(*f, func(q cellProblem) bool { return q.text == text })
		if i < 0 {
			*f = append(*f, cellProblem{text: text, cell: strings.Join(name, " ")})
			continue
		}
		(*f)[i].more++
	}
}

func (f cellProblems) problems() Problems {
	var ps Problems
	for _, q := range f {
		text := "cell " + q.cell
		if q.more > 0 {
			text += fmt.Sprintf(" and %d more", q.more)
		}
		ps.add("sweep", text+": "+q.text)
	}
	return ps
}

// cell returns the scenario with one combination of values.
func (s *Scenario) cell(axes []Axis, values []string) (Cell, Problems) {
	text, err := s.YAML()
	if err != nil {
		return Cell{}, Problems{{Path: "sweep", Text: err.Error()}}
	}
	params := make(map[string]string, len(axes))
	for i, a := range axes {
		params[a.Field] = values[i]
	}
	t, err := parse(s.Name, text)
	if err != nil {
		return Cell{}, err.(Problems) // parse has no other errors
	}
	var mean int
	for i, a := range axes {
		if a.Field == "shape.endpoints.count" {
			// This value scales the whole distribution, as Sizes do.
			if mean, err = strconv.Atoi(values[i]); err != nil || mean < 1 {
				return Cell{}, Problems{{Path: a.Field, Text: quote(values[i]) + " is not allowed: want " + expected(a.Field, reflect.TypeFor[int]())}}
			}
			continue
		}
		if p := t.set(a.Field, values[i], "sweep"); p != nil {
			return Cell{}, Problems{*p}
		}
	}
	cell, d := t.scenario()
	if len(d.problems) > 0 {
		return Cell{}, d.problems
	}
	if mean > 0 {
		cell.Shape.Endpoints.setMean(mean)
	}
	cell.Fill()
	if zeros := d.explicitZeros(); len(zeros) > 0 {
		return Cell{}, zeros
	}
	if err := cell.Validate(); err != nil {
		return Cell{}, err.(Problems) // Validate has no other errors
	}
	return Cell{Scenario: *cell, Params: params}, nil
}

// clone copies a scenario, with all that it points to.
func (s *Scenario) clone() (*Scenario, error) {
	text, err := s.YAML()
	if err != nil {
		return nil, err
	}
	t, err := parse(s.Name, text)
	if err != nil {
		return nil, err
	}
	c, d := t.scenario()
	return c, d.problems.err()
}

// checkSweep checks every axis and every cell.
func (s *Scenario) checkSweep(ps *Problems) {
	if len(s.Sweep) == 0 {
		return
	}
	before := len(*ps)
	for i, a := range s.Sweep {
		at := fmt.Sprintf("sweep.%d", i)
		if text := a.check(); text != "" {
			ps.add(at, text)
		}
		if slices.ContainsFunc(s.Sweep[:i], func(b Axis) bool { return b.Field == a.Field }) {
			ps.add(at, a.Field+" is swept twice")
		}
	}
	if len(*ps) > before {
		return
	}
	var found Problems
	if _, err := s.Cells(); errors.As(err, &found) {
		*ps = append(*ps, found...)
	}
}

// check returns what is wrong with the axis by itself, or "".
func (a Axis) check() string {
	series := a.From != 0 || a.To != 0 || a.Points != 0
	switch root, _, _ := strings.Cut(a.Field, "."); {
	case root != "shape" && root != "proxy" && root != "steps" && root != "seed":
		return fmt.Sprintf("field %s cannot be swept: want a path below shape, proxy or steps, or seed", quote(a.Field))
	case len(a.Values) > 0 && series:
		return "has values and a series (from, to, points): want one of them"
	case len(a.Values) == 0 && a.From == 0:
		return "has no values: want values: [a, b], or from: n with to and points"
	case a.To != 0 && a.To < a.From:
		return fmt.Sprintf("to %d is below from %d", a.To, a.From)
	}
	for i, v := range a.Values {
		if slices.Contains(a.Values[:i], v) {
			return quote(v) + " is among the values twice"
		}
	}
	return ""
}

// valuesOf returns the values of an axis in s.
func (s *Scenario) valuesOf(a Axis) ([]string, error) {
	if text := a.check(); text != "" {
		return nil, errors.New(text)
	}
	if len(a.Values) > 0 {
		return a.Values, nil
	}
	to := a.To
	if to == 0 {
		own, err := s.number(a.Field)
		if err != nil {
			return nil, err
		}
		to = own
	}
	points := a.Points
	or(&points, defaultPoints)
	var values []string
	for _, n := range geometric(a.From, to, points) {
		values = append(values, strconv.Itoa(n))
	}
	return values, nil
}

// number returns the whole number at a path.
func (s *Scenario) number(path string) (int, error) {
	text, err := s.YAML()
	if err != nil {
		return 0, err
	}
	t, err := parse(s.Name, text)
	if err != nil {
		return 0, err
	}
	n, typ, _, p := t.find(path, "")
	switch {
	case p != nil:
		return 0, fmt.Errorf("field %s: %w", quote(path), Problems{*p})
	case typ.Kind() != reflect.Int || isNull(n):
		return 0, fmt.Errorf("field %s is not a whole number: want values: [a, b]", path)
	}
	return strconv.Atoi(n.Value)
}

// geometric returns about n numbers from low to high, in equal ratios. Between the exact ends they are rounded to two
// digits, for readability, and duplicates are dropped. If high is below low, high is the only number.
func geometric(low, high, n int) []int {
	if high <= low || n < 2 {
		return []int{high}
	}
	series := []int{low}
	ratio := math.Log(float64(high) / float64(low))
	for i := 1; i < n-1; i++ {
		v := roundTwoDigits(float64(low) * math.Exp(ratio*float64(i)/float64(n-1)))
		if v > series[len(series)-1] && v < high {
			series = append(series, v)
		}
	}
	return append(series, high)
}

func roundTwoDigits(v float64) int {
	unit := math.Pow(10, max(0, math.Floor(math.Log10(v))-1))
	return int(math.Round(v/unit) * unit)
}
