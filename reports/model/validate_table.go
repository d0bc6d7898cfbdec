package model

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// headline reports whether plans use a quantity of a kind of sync. The other quantities explain these.
func headline(q Quantity, kind string) bool {
	switch q {
	case Total, CPU, PeakRSS, Rules, Elements, FirstPacket:
		return true
	case ChildPeakRSS:
		return kind == Full
	}
	return false
}

// bands are the upper ends of ranges of the distance beyond the fit, as factors.
var bands = []float64{1.5, 2.5, 4.5, math.Inf(1)}

func band(beyond float64) string {
	low := 1.0
	for _, high := range bands {
		if beyond <= high {
			if math.IsInf(high, 1) {
				return fmt.Sprintf("over %g times", low)
			}
			return fmt.Sprintf("%g to %g times", low, high)
		}
		low = high
	}
	return ""
}

// Sum has the median absolute error and the coverage of a group of rows.
type Sum struct {
	Of       string  `json:"of"`
	Points   int     `json:"points"`
	Error    float64 `json:"median_absolute_error"`
	Worst    float64 `json:"ninth_decile"` // 90th percentile of absolute errors
	Coverage float64 `json:"coverage"`
}

// Sums groups the rows by the name that of returns, in the order of the rows. Rows without a name are left out.
func (v *Validation) Sums(of func(Validated) string) []Sum {
	errs, covered := map[string][]float64{}, map[string]int{}
	var order []string
	for _, r := range v.Rows {
		name := of(r)
		if name == "" {
			continue
		}
		if errs[name] == nil {
			order = append(order, name)
		}
		errs[name] = append(errs[name], math.Abs(r.Error))
		if r.Covered {
			covered[name]++
		}
	}
	var out []Sum
	for _, name := range order {
		e := slices.Sorted(slices.Values(errs[name]))
		n := len(e)
		out = append(out, Sum{Of: name, Points: n, Error: median(e), Worst: e[min(n-1, n*9/10)], Coverage: float64(covered[name]) / float64(n)})
	}
	return out
}

// WriteTable prints the errors of the quantities that plans use: by quantity, by subject, and by distance beyond the
// fit. Then it prints those of the phases.
func (v *Validation) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "Fitted to small cells and compared with large ones; intervals of %.0f %%.\n", 100*v.Confidence)
	heads := func(name func(Validated) string) func(Validated) string {
		return func(r Validated) string {
			if r.Slight || !headline(r.Quantity, r.Kind) {
				return ""
			}
			return name(r)
		}
	}
	for _, table := range []struct {
		title, column string
		of            func(Validated) string
	}{
		{"Quantities that plans use", "", heads(func(Validated) string { return "all" })},
		{"By quantity", "quantity", heads(func(r Validated) string { return strings.TrimSpace(r.Kind + " " + string(r.Quantity)) })},
		{"By subject", "subject", heads(func(r Validated) string { return r.Subject })},
		{"By distance beyond the fit", "sizes", heads(func(r Validated) string { return band(r.Predicted.Beyond) })},
		{"Whole syncs by distance beyond the fit", "sizes", func(r Validated) string {
			if r.Quantity != Total {
				return ""
			}
			return r.Kind + ", " + band(r.Predicted.Beyond)
		}},
	} {
		sums := v.Sums(table.of)
		if table.column == "sizes" {
			slices.SortFunc(sums, func(a, b Sum) int { return cmp.Compare(a.Of, b.Of) })
		}
		if err := writeSums(w, table.title, table.column, sums); err != nil {
			return err
		}
	}
	if err := v.writeMeans(w, "By subject and quantity", func(m ValidatedMean) bool { return headline(m.Quantity, m.Kind) }); err != nil {
		return err
	}
	if err := v.writeFurthest(w); err != nil {
		return err
	}
	if err := v.writeMeans(w, "Other quantities: phases and tools with a relevant share of their sync, and the slowest packets", func(m ValidatedMean) bool { return !headline(m.Quantity, m.Kind) }); err != nil {
		return err
	}
	err, coverage, points := v.Overall("")
	_, failed := fmt.Fprintf(w, "\nwhole syncs: median absolute error %.1f %%, %.0f %% of %d points within their intervals\n", 100*err, 100*coverage, points)
	return failed
}

// writeFurthest prints each prediction of quantities that plans use, at the largest size of each subject.
func (v *Validation) writeFurthest(w io.Writer) error {
	largest := map[string]int{} // by subject
	for _, r := range v.Rows {
		largest[r.Subject] = max(largest[r.Subject], r.Services)
	}
	fmt.Fprint(w, "\nThe largest cells, one by one:\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "subject\tservices\tendpoints\tshape\tquantity\tsync\tchanged\tpredicted\tinterval\tmeasured\terror\tcovered")
	for _, r := range v.Rows {
		if r.Services < largest[r.Subject] || r.Slight || !headline(r.Quantity, r.Kind) {
			continue
		}
		changed, covered := "", "no"
		if r.Changed > 0 {
			changed = fmt.Sprintf("%.0f", r.Changed)
		}
		if r.Covered {
			covered = "yes"
		}
		fmt.Fprintf(t, "%s\t%d\t%.3g\t%s\t%s\t%s\t%s\t%s\t%s … %s\t%s\t%+.0f %%\t%s\n", r.Subject, r.Services, r.Endpoints, cmp.Or(r.Shape, "even"), r.Quantity, r.Kind, changed,
			Amount(r.Quantity, r.Predicted.Median), Amount(r.Quantity, r.Predicted.Low), Amount(r.Quantity, r.Predicted.High), Amount(r.Quantity, r.Value), 100*r.Error, covered)
	}
	return t.Flush()
}

func writeSums(w io.Writer, title, column string, sums []Sum) error {
	fmt.Fprintf(w, "\n%s:\n", title)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s\tpoints\tmedian error\tp90 error\tcovered\n", column)
	for _, s := range sums {
		fmt.Fprintf(t, "%s\t%d\t%.1f %%\t%.1f %%\t%.0f %%\n", s.Of, s.Points, 100*s.Error, 100*s.Worst, 100*s.Coverage)
	}
	return t.Flush()
}

func (v *Validation) writeMeans(w io.Writer, title string, wanted func(ValidatedMean) bool) error {
	fmt.Fprintf(w, "\n%s:\n", title)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "subject\tquantity\tsync\tpoints\tfitted up to\theld out up to\tbeyond\tmedian error\tcovered")
	for _, m := range v.Subjects {
		if wanted(m) {
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%.1fx\t%.1f %%\t%.0f %%\n", m.Subject, m.Quantity, m.Kind, m.Points, m.FitUpTo, m.Largest, m.Beyond, 100*m.Error, 100*m.Coverage)
		}
	}
	return t.Flush()
}
