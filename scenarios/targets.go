package scenarios

import (
	"fmt"
	"slices"
	"strings"
)

// checkTargets checks each target by itself and against the sweep.
func (s *Scenario) checkTargets(ps *Problems) {
	if len(s.Targets) > 0 && len(s.Sweep) > 0 {
		ps.add("sweep", "cannot be combined with targets: their sizes are the cells")
	}
	for i, t := range s.Targets {
		at := fmt.Sprintf("targets.%d", i)
		kinds := 0
		for _, said := range []bool{t.Times != 0, t.AtMost != 0, t.Exponent != 0} {
			if said {
				kinds++
			}
		}
		switch {
		case kinds != 1:
			ps.add(at, "needs exactly one of minRatio, atMost and exponent")
		case (t.Times != 0) != (t.Beside != ""):
			ps.add(at, "needs minRatio and baseline together")
		case t.Once && t.Beside == "":
			ps.add(join(at, "once"), "needs a subject in baseline")
		case (t.Exponent != 0) != (t.From != 0) || t.From >= t.Services:
			ps.add(at, "needs exponent and from together, and from below services")
		case t.Subject == "":
			ps.add(join(at, "subject"), "is empty")
		}
	}
}

// targetCells returns one cell for each size that targets name, in the order of the sizes. If the shape is smaller
// than all of them, it is the only cell, with every subject.
func (s *Scenario) targetCells() ([]Cell, error) {
	var sizes []int
	for _, t := range s.Targets {
		sizes = append(sizes, t.Services)
		if t.From > 0 {
			sizes = append(sizes, t.From)
		}
	}
	slices.Sort(sizes)
	sizes = slices.DeleteFunc(slices.Compact(sizes), func(n int) bool { return n > s.Shape.Services })
	small := len(sizes) == 0
	if small {
		sizes = []int{s.Shape.Services}
	}
	var cells []Cell
	for _, size := range sizes {
		one, err := s.clone()
		if err != nil {
			return nil, err
		}
		one.Fill()
		one.Shape.Services = size
		cell := Cell{Scenario: *one}
		often := map[string]bool{}
		add := func(subject string, once bool) {
			if !slices.Contains(cell.Subjects, subject) {
				cell.Subjects = append(cell.Subjects, subject)
			}
			often[subject] = often[subject] || !once
		}
		for _, t := range s.Targets {
			if here := t.Services == size || small; here || t.From == size {
				add(t.Subject, false)
				if here && t.Beside != "" {
					add(t.Beside, t.Once && !small)
				}
			}
		}
		for _, subject := range cell.Subjects {
			if !often[subject] {
				cell.Once = append(cell.Once, subject)
			}
		}
		if err := one.Validate(); err != nil {
			return nil, err
		}
		cells = append(cells, cell)
	}
	return cells, nil
}

// String describes a target in one line.
func (t Target) String() string {
	text := fmt.Sprintf("%s of %s at %s Services", strings.ReplaceAll(t.Figure, "_", " "), t.Subject, thousands(t.Services))
	switch {
	case t.Times != 0:
		return fmt.Sprintf("%s: %v times less than %s", text, t.Times, t.Beside)
	case t.AtMost != 0:
		return fmt.Sprintf("%s: at most %s", text, showDuration(t.AtMost))
	}
	return fmt.Sprintf("%s: grows with a power of at most %v from %s on", text, t.Exponent, thousands(t.From))
}

// KnownFigure reports whether a target may name a figure.
func KnownFigure(name string) bool { return slices.Contains(rules["targets.N.figure"].words, name) }
