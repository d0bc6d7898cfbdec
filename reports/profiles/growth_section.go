package profiles

import (
	"fmt"
	"strings"

	"synclab/reports/doc"
	"synclab/reports/estimate"
)

// mostGrowing is the number of functions in a table of growth.
const mostGrowing = 15

// GrowthSection says how the time of each function grows with the Services.
func (r *Report) GrowthSection() doc.Section {
	out := doc.Section{ID: "function-growth", Title: "Which functions grow", Short: "Growth"}
	if r == nil || len(r.Growth) == 0 {
		return out
	}
	out.Add(doc.Block{Soft: true, Note: "The exponent of a function is that of its own time against the Services: 1 means that twice the Services take twice as long, 2 four times. " +
		"Functions with too few samples for one are added up."})
	out.Add(doc.Block{Table: growthOverview(r.Growth)})
	for _, g := range r.Growth {
		out.Add(doc.Block{Heading: fmt.Sprintf("%s, %s", g.Subject, KindText(g.Kind)), List: functionGrowthWords(g)}, doc.Block{Table: growthTable(g)})
	}
	return out
}

// growthOverview has a row for each kind of sync: its exponent, and what makes it grow faster than the cluster.
func growthOverview(all []Growth) *doc.Table {
	t := doc.TableOf(all,
		doc.Field[Growth]{Column: doc.Column{Name: "Subject"}, Cell: func(g Growth) doc.Cell { return doc.Text(g.Subject) }},
		doc.Field[Growth]{Column: doc.Column{Name: "Sync", Row: true}, Cell: func(g Growth) doc.Cell { return doc.Text(g.Kind) }},
		doc.Field[Growth]{Column: doc.Column{Name: "Services", Numeric: true}, Cell: func(g Growth) doc.Cell { return doc.Int(g.To) }},
		doc.Field[Growth]{Column: doc.Column{Name: "CPU time", Numeric: true, Title: "per sync at that size"}, Cell: func(g Growth) doc.Cell { return doc.Value(g.Total, "s") }},
		doc.Field[Growth]{Column: doc.Column{Name: "Exponent", Numeric: true}, Cell: func(g Growth) doc.Cell {
			return doc.Cell{Text: fmt.Sprintf("%.2f", g.Law.Slope), Value: doc.Exact(g.Law.Slope), Title: exponent(&g.Law)}
		}},
		doc.Field[Growth]{Column: doc.Column{Name: "Superlinear", Numeric: true, Title: "share of the sync in functions that grow faster than the cluster"}, Cell: func(g Growth) doc.Cell { return percentCell(g.Superlinear()) }},
		doc.Field[Growth]{Column: doc.Column{Name: "Most of it"}, Cell: func(g Growth) doc.Cell {
			if g.Rules < 0 {
				return doc.None()
			}
			f := g.Functions[g.Rules]
			return doc.Cell{Text: fmt.Sprintf("%s (%s), %.2f", f.Name, f.Origin, f.Law.Slope), Title: "the function with the largest share of it, and its exponent"}
		}},
		doc.Field[Growth]{Column: doc.Column{Name: "Rules from", Numeric: true, Title: "Services from which on the superlinear functions take more time than all others; ≈: by the fits, beyond what was measured"}, Cell: func(g Growth) doc.Cell {
			if g.RulesFrom == 0 {
				return doc.None()
			}
			text := doc.Grouped(int64(g.RulesFrom))
			if !g.Seen {
				text = "≈ " + doc.Significant(g.RulesFrom)
			}
			return doc.Cell{Text: text, Value: doc.Exact(g.RulesFrom)}
		}})
	t.Title = "What makes syncs grow"
	return t
}

// functionGrowthWords say which exponents a sync consists of, and which function rules.
func functionGrowthWords(g Growth) []string {
	var shares []string
	for i := range g.Shares {
		if g.Shares[i] < 0.0005 {
			continue
		}
		text := "of unknown growth"
		if i < len(Classes) {
			text = Classes[i].Text
		}
		shares = append(shares, fmt.Sprintf("%.3g %% %s", 100*g.Shares[i], text))
	}
	out := []string{fmt.Sprintf("From %s to %s Services, a sync's CPU time grows with exponent %s.", doc.Grouped(int64(g.From)), doc.Grouped(int64(g.To)), exponent(&g.Law)),
		fmt.Sprintf("At %s Services, of %s: %s.", doc.Grouped(int64(g.To)), doc.Format(g.Total, "s"), strings.Join(shares, ", "))}
	out = append(out, g.Most())
	switch {
	case g.Rules < 0:
		return out
	case g.RulesFrom == 0:
		return append(out, "At sizes that the fits can speak of, what grows faster than the cluster does not take more time than all the rest.")
	case g.Seen:
		return append(out, fmt.Sprintf("From %s Services on, what grows faster than the cluster takes more time than all the rest: measured.", doc.Grouped(int64(g.RulesFrom))))
	}
	return append(out, fmt.Sprintf("From about %s Services on, what grows faster than the cluster would take more time than all the rest, by the fits: not measured.", doc.Significant(g.RulesFrom)))
}

// Most says which function has the largest share of what grows faster than the cluster.
func (g Growth) Most() string {
	if g.Rules < 0 {
		return "No function that takes a share worth naming grows faster than the cluster."
	}
	f := g.Functions[g.Rules]
	return fmt.Sprintf("Most of what grows faster than the cluster is %s (%s): %.3g %% of the sync, exponent %s.", f.Name, f.Origin, 100*f.Share, exponent(f.Law))
}

// exponent is a law's exponent with its interval or range.
func exponent(law *estimate.Power) string {
	text := fmt.Sprintf("%.2f", law.Slope)
	switch {
	case law.SlopeLow != nil:
		text += fmt.Sprintf(" (95 %% %.2f to %.2f)", *law.SlopeLow, *law.SlopeHigh)
	case law.SlopeRangeLow != nil && law.Repetitions > 1:
		text += fmt.Sprintf(" (range %.2f to %.2f)", *law.SlopeRangeLow, *law.SlopeRangeHigh)
	}
	return text
}

func growthTable(g Growth) *doc.Table {
	t := &doc.Table{Title: fmt.Sprintf("Growth: %s, %s", g.Subject, KindText(g.Kind)), Columns: []doc.Column{{Name: "Function"}, {Name: "In", Row: true}, {Name: "Origin", Row: true}, {Name: "Exponent", Numeric: true},
		{Name: "Range", Spare: 2, Title: "of the exponents of the repetitions; 95 % interval from six repetitions on"}, {Name: "Share", Numeric: true, Title: "of the sync at the largest size"},
		{Name: "Own time", Short: "own", Numeric: true, Title: "per sync at the largest size; the line has all sizes"}, {Name: "With calls", Numeric: true, Spare: 1}}}
	for _, f := range g.Functions[:min(len(g.Functions), mostGrowing)] {
		slope, spread := doc.NoneFor("too few samples"), doc.None()
		if f.Law != nil {
			slope = doc.Cell{Text: fmt.Sprintf("%.2f", f.Law.Slope), Value: doc.Exact(f.Law.Slope)}
			if _, interval, ok := strings.Cut(exponent(f.Law), "("); ok {
				spread = doc.Text(strings.TrimSuffix(interval, ")"))
			}
		}
		own := doc.Value(f.Times[len(f.Times)-1], "s")
		own.Spark = f.Times
		t.Add(doc.Text(f.Name), doc.Text(f.Object), doc.Text(f.Origin), slope, spread, percentCell(f.Share), own, doc.Value(f.With, "s"))
	}
	return t
}
