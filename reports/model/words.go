package model

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"
)

// Formula returns the formula with its numbers: "31 ms + 4.2 µs·n^1.08 + 1.1 ms·c".
func (t *Term) Formula() string {
	if t.Written != "" {
		return t.Written
	}
	var parts []string
	t.summands(func(rest string, value, _ float64) { parts = append(parts, t.Amount(value)+rest) })
	return strings.Join(parts, " + ")
}

// summands calls tell for each part of the formula: the text after its coefficient, the coefficient, and the amount of
// the part at the largest size of the fit. Negligible parts are omitted.
func (t *Term) summands(tell func(rest string, value, weight float64)) {
	c, x := t.Coefficients, t.Form.X
	add := func(name, rest string) {
		if weight := math.Exp(t.logOf(name)); c[name] > 0 && weight > 1e-9*t.largest() {
			tell(rest, c[name], weight)
		}
	}
	switch t.Form.State {
	case "const":
		add("a", "")
	case "power", "offset-power", "root":
		add("a", "")
		add("b", fmt.Sprintf("·%s^%.2f", x, c["p"]))
	case "line":
		add("a", "")
		add("b", "·"+x)
	case "square":
		add("a", "")
		add("b", "·"+x)
		add("d", "·"+x+"²")
	case "bend":
		add("a", "")
		add("b", "·"+x)
		add("d", fmt.Sprintf("·max(0, %s−%.0f)", x, c["x0"]))
	case "plane":
		add("a", "")
		add("b", "·s")
		add("d", "·n")
	case "quadratic":
		add("a", "")
		add("b", "·"+x+"²")
	case "plane-square":
		add("a", "")
		add("b", "·n")
		add("d", "·s²")
	case "plane-cubic":
		add("a", "")
		add("b", "·n")
		add("d", "·s³")
	case "plane-power":
		add("a", "")
		add("b", "·n")
		add("d", fmt.Sprintf("·s^%.2f", c["p"]))
	}
	switch t.Form.Change {
	case "line":
		add("g", "·"+t.Form.Y)
	case "power":
		add("g", fmt.Sprintf("·(%s)^%.2f", t.Form.Y, c["q"]))
	}
}

// logOf returns the logarithm of a part's amount at the largest size of the fit, by the name of its coefficient.
func (t *Term) logOf(name string) float64 {
	for i, n := range t.Form.names() {
		if n == name {
			return t.Params[i]
		}
	}
	return math.Inf(-1)
}

func (t *Term) largest() float64 { return t.Form.at(t.Largest.size().per(t.Largest.size()), t.Params) }

// Amount formats a value of the term's quantity with its unit.
func (t *Term) Amount(v float64) string { return Amount(t.Quantity, v) }

// Amount formats a value of a quantity with its unit, to three digits.
func Amount(q Quantity, v float64) string {
	switch q {
	case Rules, Elements:
		return fmt.Sprintf("%.3g", v)
	case PeakRSS, ChildPeakRSS:
		for _, unit := range []string{"B", "KiB", "MiB"} {
			if v < 1024 {
				return fmt.Sprintf("%.3g %s", v, unit)
			}
			v /= 1024
		}
		return fmt.Sprintf("%.3g GiB", v)
	}
	for _, unit := range []struct {
		name string
		of   time.Duration
	}{{"s", time.Second}, {"ms", time.Millisecond}, {"µs", time.Microsecond}} {
		if s := unit.of.Seconds(); v >= s {
			return fmt.Sprintf("%.3g %s", v/s, unit.name)
		}
	}
	return fmt.Sprintf("%.3g ns", v*1e9)
}

// ErrorText formats a Score or LargestOut in percent. Errors are capped at worst. At the cap, the real error is at
// least that large.
func ErrorText(err float64) string {
	if astray(err) {
		return fmt.Sprintf("≥ %.0f %%", 100*worst)
	}
	return fmt.Sprintf("%.1f %%", 100*err)
}

// WriteTable prints the fits of whole syncs, memory, rules and first packets of each subject, aligned.
func (m *Model) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "subject\tquantity\tsync\tcost model\terror at sizes left out\tbeyond the fit")
	for _, s := range m.Subjects {
		for _, what := range []struct {
			q    Quantity
			kind string
		}{{Total, Full}, {Total, Partial}, {PeakRSS, ""}, {ChildPeakRSS, Full}, {Rules, ""}, {Elements, ""}, {FirstPacket, ""}} {
			if term := s.term(what.q, what.kind); term != nil {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", s.Name, what.q, what.kind, term.Formula(), ErrorText(term.Score), ErrorText(term.LargestOut))
			}
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\ns: Services, n: endpoints in all, c: changed Services, c·e: their endpoints, crossed: rules that a packet crosses")
	return err
}
