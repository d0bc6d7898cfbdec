package sections

import (
	"fmt"
	"strconv"
	"strings"

	"synclab/bench/raw"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

// numbersSection has every number: the metrics by group, the fits, and what others measured.
func (s *Summary) numbersSection() doc.Section {
	out := doc.Section{ID: "numbers", Title: "All numbers", NewSheet: true, Filter: true}
	for _, t := range append(s.rowTables(), s.fitTables()...) {
		out.Add(doc.Block{On: doc.Page, Table: t})
	}
	others := &doc.Table{Title: "For orientation: measurements of others", Note: "Other machines, other clusters: an order of magnitude, not a comparison.",
		Columns: []doc.Column{{Name: "What"}, {Name: "Figure"}, {Name: "Source"}}}
	for _, one := range otherFigures {
		others.Add(doc.Text(one[0]), doc.Text(one[1]), doc.Text(one[2]))
	}
	out.Add(doc.Block{On: doc.Page, Table: others})
	return out
}

// otherFigures are published measurements: what, the figure, and the source.
var otherFigures = [][3]string{
	{"First packet, iptables, 5,000 / 10,000 / 30,000 Services, median", "49 / 61 / 274 µs", "Kubernetes blog, “NFTables mode for kube-proxy”, 2025 (round trip, read from its chart)"},
	{"First packet, nftables, 5,000 to 30,000 Services, median", "14 µs", "the same"},
	{"iptables-restore of 578,470 nat rules (3,595 Services, 211,876 endpoints)", "10.5 s", "kubernetes/kubernetes#138073"},
	{"Full sync, iptables, restart at 10,000 Services × 2", "40 s", "kubernetes/kubernetes#130119"},
	{"Network programming latency in a cluster of 5,000 nodes, median, minSyncPeriod 10 s → 1 s", "13 s → 5 s", "KEP-3453"},
	{"Default limit on network programming latency in scale tests, p99", "30 s", "clusterloader2"},
}

// fitTables are the fits of growth, and of first packets by position.
func (s *Summary) fitTables() []*doc.Table {
	growth := &doc.Table{Title: "Growth with the number of Services",
		Note: "duration ∝ Services^exponent, by least squares on the logarithms of the medians at each size; 1 is linear. The interval is that of the " +
			"exponents of the repetitions. “From size to size” has the exponents between neighbouring sizes. A power law does not fit if it misses a median by more than " +
			"10 %, and misses all repetitions of that size in the same direction. Then the exponent is invalid, also for other sizes.",
		Columns: []doc.Column{{Name: "Subject"}, {Name: "Settings"}, {Name: "Duration"}, {Name: "Exponent", Numeric: true}, {Name: "95 % confidence", Numeric: true},
			{Name: "From size to size", Numeric: true}, {Name: "Fits"}, {Name: "Repetitions", Numeric: true}, {Name: "Sizes"}}}
	for _, g := range s.Growth {
		exponent := doc.Cell{Text: ExponentText(g.Slope), Value: doc.Exact(g.Slope)}
		if badge := g.Badge(); badge != "" {
			exponent.Badges = []string{badge}
		}
		var sizes []string
		for _, size := range g.Sizes {
			sizes = append(sizes, doc.Grouped(int64(size)))
		}
		growth.Add(s.SeriesCell(g.Series), doc.Text(records.ShortSettings(g.Settings)), doc.Text(g.Label()),
			exponent, doc.Cell{Text: IntervalText(g.Fit, ExponentText), Faint: g.SlopeLow == nil},
			doc.Text(LocalText(g.Power)), doc.Cell{Text: FitsText(g.Power), Loud: g.Bends}, doc.Int(g.Repetitions), doc.Text(strings.Join(sizes, " ")))
	}
	packet := &doc.Table{Title: "First packet by dispatch position",
		Note: "A straight line through the medians of the positions. The slope is the cost of each position in front, for every new flow. Its interval is from the lines of the repetitions.",
		Columns: []doc.Column{{Name: "Subject"}, {Name: "Services", Numeric: true}, {Name: "Settings"}, {Name: "Per position", Numeric: true}, {Name: "95 % confidence", Numeric: true},
			{Name: "Intercept", Numeric: true}, {Name: "Empty ruleset", Numeric: true}, {Name: "Worst median", Numeric: true}, {Name: "at"}}}
	for _, f := range s.Traversal {
		if f.N < 2 {
			continue
		}
		packet.Add(s.SeriesCell(f.Series), doc.Int(f.Cell.Services), settingsCell(f.Cell),
			doc.Value(f.Slope, "s"), doc.Cell{Text: IntervalText(f.Fit, func(v float64) string { return doc.Format(v, "s") }), Faint: f.SlopeLow == nil}, doc.Value(f.Intercept, "s"),
			doc.Optional(f.Empty, "s"), doc.Value(f.Worst, "s"), doc.Text(records.PositionText(f.WorstAt)))
	}
	return []*doc.Table{growth, packet}
}

func ExponentText(v float64) string {
	return strings.Replace(strconv.FormatFloat(v, 'f', 2, 64), "-0.00", "0.00", 1)
}

// LocalText lists the exponents between neighbouring sizes: "1.02 1.35".
func LocalText(law estimate.Power) string {
	var out []string
	for _, l := range law.Local {
		out = append(out, ExponentText(l.Exponent))
	}
	return strings.Join(out, " ")
}

// FitsText states where a power law does not fit: "no power law: +34 % at 1,600". Two sizes always fit.
func FitsText(law estimate.Power) string {
	switch {
	case law.Bends:
		return fmt.Sprintf("no power law: %s at %s", signedPercent(law.Misfit), doc.Grouped(int64(law.MisfitAt)))
	case law.N < 3:
		return "–"
	}
	return "yes"
}

// IntervalText is the slope's interval, or the range of the repetitions.
func IntervalText(fit estimate.Fit, format func(float64) string) string {
	switch {
	case fit.SlopeLow != nil:
		return format(*fit.SlopeLow) + " … " + format(*fit.SlopeHigh)
	case fit.SlopeRangeLow != nil:
		return "range " + format(*fit.SlopeRangeLow) + " … " + format(*fit.SlopeRangeHigh)
	}
	return "–"
}

// rowTables are the full tables, one for each section.
func (s *Summary) rowTables() []*doc.Table {
	var out []*doc.Table
	for _, group := range raw.Groups {
		t := &doc.Table{Title: group, Columns: []doc.Column{{Name: "Metric"}, {Name: "Subject"}, {Name: "Services", Numeric: true},
			endpointsColumn(), {Name: "Scenario"}, {Name: "Settings"}, {Name: "n", Numeric: true, Title: "values"}, {Name: "Repetitions", Numeric: true},
			{Name: "Median", Numeric: true}, {Name: "95 % confidence", Numeric: true}, {Name: "p90", Numeric: true}, {Name: "p99", Numeric: true},
			{Name: "Min", Numeric: true}, {Name: "Max", Numeric: true}}}
		few := false
		for _, r := range s.Rows {
			if r.Metric.Row().Group == group {
				t.Rows = append(t.Rows, s.rowCells(r))
				few = few || r.FewForP99
			}
		}
		if few {
			t.Note = "Medians and percentiles are medians over the repetitions. A pale p99 has fewer than 100 values in a repetition, so it lies near the largest value."
		}
		out = append(out, t)
	}
	return out
}

func (s *Summary) rowCells(r Row) []doc.Cell {
	interval := doc.NoneFor("one repetition")
	switch {
	case r.Low != nil:
		interval = doc.Cell{Text: doc.Format(*r.Low, r.Unit) + " … " + doc.Format(*r.High, r.Unit), Value: doc.Exact(*r.Low)}
	case r.RangeLow != nil:
		interval = doc.Cell{Text: "range " + doc.Format(*r.RangeLow, r.Unit) + " … " + doc.Format(*r.RangeHigh, r.Unit), Value: doc.Exact(*r.RangeLow), Faint: true,
			Title: fmt.Sprintf("range of the medians of %s; no interval with fewer than %d", doc.Plural(r.Repetitions, "repetition"), estimate.Enough)}
	}
	p99 := doc.Value(r.P99, r.Unit)
	p99.Faint = r.FewForP99
	if r.P99Low != nil {
		p99.Sub = doc.Format(*r.P99Low, r.Unit) + " … " + doc.Format(*r.P99High, r.Unit)
	}
	scenario := ""
	for _, run := range s.Runs {
		if run.Scenario != r.Cell.Scenario {
			scenario = r.Cell.Scenario
		}
	}
	return []doc.Cell{{Text: r.Label()}, s.SeriesCell(r.Series), doc.Int(r.Cell.Services), endpointsCell(r.Cell),
		{Text: scenario}, settingsCell(r.Cell), {Text: doc.Grouped(int64(r.N)), Value: fmt.Sprint(r.N)}, doc.Int(r.Repetitions),
		doc.Value(r.Median, r.Unit), interval, doc.Value(r.P90, r.Unit), p99, doc.Value(r.Min, r.Unit), doc.Value(r.Max, r.Unit)}
}
