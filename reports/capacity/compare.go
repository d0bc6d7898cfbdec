package capacity

import (
	"fmt"
	"math"
	"strings"

	"synclab/reports/model"
)

// compare states whether changing from one subject to another pays.
func compare(from, to *SubjectAnswer, q Question) Comparison {
	c := Comparison{From: from.Name, To: to.Name}
	a, b, p := from.Largest, to.Largest, q.SLOs
	if a.Size.Median > 0 && b.Size.Median > 0 && !(a.Unbounded && b.Unbounded) {
		c.Ratio = b.Size.Median / a.Size.Median
		c.AtLeast, c.AtMost = b.Unbounded && !a.Unbounded, a.Unbounded && !b.Unbounded
	}
	for _, name := range p.Given() {
		if crossing, ok := cross(from.Curve, to.Curve, name); ok {
			c.Crossings = append(c.Crossings, crossing)
		}
	}
	c.Words = c.words(from, to, q.Growth.Unit())
	return c
}

// sameness is the ratio up to which two values count as equal.
const sameness = 1.02

// cross finds the size at which one curve of a quantity goes below the other. Between their points, both curves are
// straight lines on logarithmic axes.
func cross(from, to []Evaluation, name string) (Crossing, bool) {
	x := Crossing{SLO: name}
	var before, beforeAt float64
	better, seen := 0, 0
	for _, o := range to {
		e, ok := o.Quantities[name]
		other, known := along(from, name, o.Size)
		if !ok || !known || e.Median <= 0 || other <= 0 {
			continue
		}
		d := math.Log(e.Median / other)
		at := math.Log(o.Size)
		if seen++; d < -math.Log(sameness) {
			better++
		}
		if seen > 1 && x.Size == 0 && (d < 0) != (before < 0) && math.Max(math.Abs(d), math.Abs(before)) > math.Log(sameness) {
			x.Size = math.Exp(beforeAt + (at-beforeAt)*before/(before-d))
			x.Until, x.Basis = before < 0, e.Basis
		}
		before, beforeAt = d, at
	}
	x.Always, x.Never = better == seen, better == 0
	if x.Always || x.Never {
		x.Size, x.Until, x.Basis = 0, false, ""
	}
	return x, seen > 0 && (x.Always || x.Never || x.Size > 0)
}

// along reads a curve at a size; known is false beyond its ends.
func along(curve []Evaluation, name string, reach float64) (v float64, known bool) {
	for i, o := range curve {
		e, ok := o.Quantities[name]
		at := o.Size
		switch {
		case !ok || e.Median <= 0:
			return 0, false
		case at == reach:
			return e.Median, true
		case at > reach && i > 0:
			last := curve[i-1]
			lastAt, lastValue := last.Size, last.Quantities[name].Median
			share := math.Log(reach/lastAt) / math.Log(at/lastAt)
			return lastValue * math.Pow(e.Median/lastValue, share), true
		case at > reach:
			return 0, false
		}
	}
	return 0, false
}

func (c Comparison) words(from, to *SubjectAnswer, u Unit) string {
	var parts []string
	a, b := from.Largest, to.Largest
	switch {
	case a.SLO == "" || b.SLO == "":
		parts = append(parts, fmt.Sprintf("%s and %s cannot be compared: at least one has no measured quantity of an SLO.", c.To, c.From))
	case a.Unbounded && b.Unbounded:
		parts = append(parts, fmt.Sprintf("No limit was found for %s and %s: they meet all SLOs up to %s, and up to %s.", c.To, c.From, u.upTo(b), u.upTo(a)))
	case a.Size.Median == 0 && b.Size.Median > 0:
		parts = append(parts, fmt.Sprintf("%s meets all SLOs up to %s, %s at no evaluated size.", c.To, u.upTo(b), c.From))
	case b.Size.Median == 0 && a.Size.Median > 0:
		parts = append(parts, fmt.Sprintf("%s meets all SLOs at no evaluated size, %s up to %s.", c.To, c.From, u.upTo(a)))
	case c.Ratio == 0:
		parts = append(parts, fmt.Sprintf("%s does not meet all SLOs at any evaluated size either.", c.To))
	case c.AtLeast || c.AtMost || math.Abs(math.Log(c.Ratio)) > 0.05:
		bound := ""
		if c.AtLeast {
			bound = " or more"
		} else if c.AtMost {
			bound = " or less"
		}
		breaks := ""
		if !b.Unbounded {
			breaks = fmt.Sprintf("; the SLO that is violated first is %s: %s", words[b.SLO].name, b.Why)
		}
		size := "the size of"
		if u != InServices {
			size = fmt.Sprintf("as many %s as", u)
		}
		parts = append(parts, fmt.Sprintf("%s meets all SLOs up to %s times %s %s%s%s.", c.To, digits(c.Ratio, model.Extrapolated), size, c.From, bound, breaks))
	default:
		parts = append(parts, fmt.Sprintf("%s meets all SLOs up to the same size as %s.", c.To, c.From))
	}
	var always, never []string
	for _, x := range c.Crossings {
		name := words[x.SLO].name
		switch {
		case x.Always:
			always = append(always, name)
		case x.Never:
			never = append(never, name)
		case x.Until:
			parts = append(parts, fmt.Sprintf("Its %s is better below about %s %s.", name, digits(x.Size, model.Extrapolated), u))
		default:
			parts = append(parts, fmt.Sprintf("Its %s is better from about %s %s on.", name, digits(x.Size, model.Extrapolated), u))
		}
	}
	if len(always) > 0 {
		parts = append(parts, fmt.Sprintf("Better at all sizes: %s.", strings.Join(always, ", ")))
	}
	if len(never) > 0 {
		parts = append(parts, fmt.Sprintf("Better at no size: %s.", strings.Join(never, ", ")))
	}
	return strings.Join(parts, " ")
}

// upTo formats the size of a limit.
func (u Unit) upTo(l Limit) string {
	s := u.count(l.Size.Median, model.Extrapolated)
	if l.Unbounded {
		s += " or more (the search ended there)"
	}
	return s
}
