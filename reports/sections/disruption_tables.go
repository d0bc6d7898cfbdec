package sections

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/records"
	"synclab/scenarios"
)

// DisruptionSection shows the outcomes of flows: over all steps, and step by step.
func (s *Summary) DisruptionSection() doc.Section {
	out := doc.Section{ID: "disruption", Title: "Flows during changes", Dense: true}
	if len(s.Disruptions) == 0 {
		return out
	}
	out.Add(doc.Block{On: doc.Page, Soft: true, Note: "An open-loop stream of new flows runs during the steps. " +
		"Latency is from the time when a flow was due until its answer. " +
		"Failed flows were refused, reset or timed out. Misrouted flows were answered by an endpoint outside the old and the new set of their Service. " +
		"“At rest” is the first part of the stream, before any change."})
	for i, cell := range s.DisruptedCells() {
		all, steps := doc.Block{Table: s.DisruptionTotals(cell)}, doc.Block{On: doc.Page, Table: s.disruptionSteps(cell)}
		if i > 0 {
			all.On, all.Folded = doc.Page, true
		}
		steps.Folded = i > 0 || len(steps.Table.Rows) > manyRows
		out.Add(all, steps)
	}
	return out
}

// largestFirst returns the different cells of results, the largest first.
func largestFirst[T any](results []T, cell func(T) records.Cell) (out []records.Cell) {
	for _, one := range results {
		if !slices.ContainsFunc(out, func(c records.Cell) bool { return c.ID() == cell(one).ID() }) {
			out = append(out, cell(one))
		}
	}
	slices.SortStableFunc(out, func(a, b records.Cell) int { return b.Services - a.Services })
	return out
}

// manyRows is the number of rows above which a table is folded.
const manyRows = 70

// DisruptedCells are the cells with a stream, the largest first.
func (s *Summary) DisruptedCells() []records.Cell {
	return largestFirst(s.Disruptions, func(d Disruption) records.Cell { return d.Cell })
}

func (s *Summary) DisruptionsOf(cell records.Cell) []Disruption {
	return slices.DeleteFunc(slices.Clone(s.Disruptions), func(d Disruption) bool { return d.Cell.ID() != cell.ID() })
}

// Rest returns the part of the stream before any change, or nil.
func (d Disruption) Rest() *DisruptedStep {
	return records.Find(d.Steps, func(s DisruptedStep) bool { return s.Rest })
}

// DisruptionTotals has a row for each subject, over all steps of a cell.
func (s *Summary) DisruptionTotals(cell records.Cell) *doc.Table {
	const bound = "0 (< x), or < x: none observed, so the share is below x with 95 % confidence, if flows are independent"
	t := &doc.Table{Title: "Flows while the cluster changed, at " + records.SizesText([]records.Cell{cell}) + records.SettingsTail(records.ShortSettings(cell.Settings())), Columns: []doc.Column{
		{Name: "Subject"}, {Name: "Flows", Numeric: true, Title: "new flows of the stream, without the flows at rest"},
		{Name: "Failed", Numeric: true, Title: "refused, reset or timed out", Legend: bound}, {Name: "Misrouted", Numeric: true, Legend: bound},
		{Name: "p50 at rest", On: doc.Page, Numeric: true}, {Name: "p99 at rest", Short: "p99 rest", Numeric: true, Spare: 1},
		{Name: "Most added to p99", Short: "added p99", Numeric: true, Title: "the step that added most to the 99th percentile",
			Legend: "added p99: compared with the stream at rest, in the step that added most"},
		{Name: "Long-lived TCP broken", Short: "tcp broken", Numeric: true, Title: "packets of long-lived connections without an answer"},
		{Name: "Long-lived UDP on removed", Short: "udp on removed", Numeric: true, Title: "packets of long-lived UDP flows that still went to a removed endpoint"},
		{Name: "Long-lived UDP lost", On: doc.Page, Numeric: true},
		{Name: "Unobserved", Numeric: true, Title: "flows, and packets of long-lived flows, that were not observed because their observer had no CPU; " +
			"no other column counts them, and some may have failed"}}}
	for _, d := range s.DisruptionsOf(cell) {
		total := d.During()
		p50, p99 := doc.None(), doc.None()
		if rest := d.Rest(); rest != nil {
			p50, p99 = distributionCell(rest.Answered, medianValue, false), distributionCell(rest.Answered, p99Value, false)
		}
		most := doc.Optional(total.AddedP99, "s")
		if total.AddedP99 != nil {
			most.Text, most.Sub = signedTime(*total.AddedP99), "step "+total.text()
		}
		t.Add(s.SeriesCell(d.Series), doc.Int(total.Flows), countCell(total.Failed, total.Flows, total.FailedAtMost),
			countCell(total.Misrouted, total.Flows, total.MisroutedAtMost), p50, p99, most, ofCell(total.LongLivedTCPBroken, total.LongLivedTCP),
			ofCell(total.LongLivedUDPRemoved, total.LongLivedUDP), ofCell(total.LongLivedUDPLost, total.LongLivedUDP), unwatchedCell(d.Unwatched))
	}
	return t
}

// unwatchedCell shows unobserved flows. It is loud, since these flows may have failed.
func unwatchedCell(n int) doc.Cell {
	if n == 0 {
		return doc.None()
	}
	cell := doc.Int(n)
	cell.Loud = true
	return cell
}

// countCell shows how many of n flows had an outcome, and below that the share or its bound. Any such flow makes it
// loud.
func countCell(k, n int, atMost float64) doc.Cell {
	if n == 0 {
		return doc.None()
	}
	cell := doc.Int(k)
	cell.Title = fmt.Sprintf("of %s; the share is at most %s, with 95 %% confidence, if flows fail independently", doc.Grouped(int64(n)), shareText(atMost))
	if k > 0 {
		cell.Loud, cell.Sub = true, shareText(float64(k)/float64(n))
		return cell
	}
	cell.Sub = "< " + shareText(atMost)
	cell.Terminal, cell.Narrow = noneText(atMost), cell.Sub
	return cell
}

// ofCell shows how many packets of long-lived flows had an outcome; a dash if none was recorded.
func ofCell(k, n int) doc.Cell {
	if n == 0 {
		return doc.None()
	}
	cell := doc.Int(k)
	cell.Title = "of " + doc.Plural(n, "recorded packet") + "; only some of the answered packets are recorded"
	if k > 0 {
		cell.Loud = true
		return cell
	}
	atMost := estimate.ShareAtMost(0, n)
	cell.Terminal, cell.Markdown, cell.Narrow = noneText(atMost), noneText(atMost), "< "+shareText(atMost)
	return cell
}

// noneText is a zero with the bound of the share.
func noneText(atMost float64) string { return "0 (< " + shareText(atMost) + ")" }

// shareText formats a share in percent with two digits: "0.012 %".
func shareText(share float64) string {
	percent := 100 * share
	switch {
	case percent >= 9.5:
		return fmt.Sprintf("%.0f %%", percent)
	case percent >= 0.95:
		return fmt.Sprintf("%.1f %%", percent)
	}
	return fmt.Sprintf("%.2g %%", percent)
}

// signedTime formats a difference of two times with its sign.
func signedTime(seconds float64) string {
	if seconds < 0 {
		return "−" + doc.Format(-seconds, "s")
	}
	return "+" + doc.Format(seconds, "s")
}

// disruptionSteps has a row for each step and subject.
func (s *Summary) disruptionSteps(cell records.Cell) *doc.Table {
	t := &doc.Table{Title: records.SizesText([]records.Cell{cell}) + records.SettingsTail(records.ShortSettings(cell.Settings())) + ": step by step", Columns: []doc.Column{
		{Name: "Step"}, {Name: "Subject"}, {Name: "Flows", Numeric: true},
		{Name: "p50", Numeric: true, Title: "of answered flows"}, {Name: "p99", Numeric: true}, {Name: "Max", Numeric: true},
		{Name: "Added to p99", Numeric: true, Title: "minus the 99th percentile of the same stream at rest"},
		{Name: "Failed", Numeric: true}, {Name: "Misrouted", Numeric: true},
		{Name: "Removed endpoint served for", Numeric: true, Title: "median, and the longest: removal due → last answer"},
		{Name: "New endpoint delay", Numeric: true, Title: "median, and the longest: due → first answer"},
		{Name: "Long-lived UDP stayed with removed for", Numeric: true,
			Title: "long-lived flows: removal due → first answer of another endpoint; median, and the longest"},
		{Name: "Long-lived TCP broken", Numeric: true}, {Name: "Long-lived UDP on removed", Numeric: true}},
		Note: "Each step includes the settle and check steps after it. A pale p99 is from fewer than 100 flows."}
	all := s.DisruptionsOf(cell)
	names := map[string]bool{}
	for _, d := range all {
		for _, step := range d.Steps {
			names[step.Step] = true
		}
	}
	for _, name := range scenarios.SortedSteps(names) {
		for _, d := range all {
			i := slices.IndexFunc(d.Steps, func(step DisruptedStep) bool { return step.Step == name })
			if i >= 0 {
				t.Add(s.disruptedRow(d, d.Steps[i])...)
			}
		}
	}
	return t
}

func (s *Summary) disruptedRow(d Disruption, step DisruptedStep) []doc.Cell {
	name := doc.Cell{Text: step.text()}
	if step.Rest {
		name.Sub = "at rest"
	}
	p99 := distributionCell(step.Answered, p99Value, false)
	p99.Faint = p99.Faint || step.Answered.N < 100
	added := doc.Optional(step.AddedP99, "s")
	if step.AddedP99 != nil {
		added.Text = signedTime(*step.AddedP99)
		if step.AddedP99Low != nil {
			added.Sub = signedTime(*step.AddedP99Low) + " … " + signedTime(*step.AddedP99High)
		}
	}
	failed := countCell(step.Failed, step.Flows, step.FailedAtMost)
	if step.Failed > 0 {
		failed.Sub = step.outcomes()
	}
	longest := func(d estimate.Distribution) float64 { return d.Max }
	return []doc.Cell{name, s.SeriesCell(d.Series), doc.Int(step.Flows), distributionCell(step.Answered, medianValue, false), p99,
		distributionCell(step.Answered, longest, false), added, failed, countCell(step.Misrouted, step.Flows, step.MisroutedAtMost),
		longestCell(step.RemovedEndpointServing), step.AddedCell(), longestCell(step.LongLivedLeft),
		ofCell(step.LongLivedTCPBroken, step.LongLivedTCP), ofCell(step.LongLivedUDPRemoved, step.LongLivedUDP)}
}

// outcomes lists the outcomes of failed flows: "12 refused, 3 timeout".
func (d DisruptedStep) outcomes() string {
	var parts []string
	for _, outcome := range []string{"refused", "reset", "timeout"} {
		if n := d.ByOutcome[outcome]; n > 0 {
			parts = append(parts, doc.Grouped(int64(n))+" "+outcome)
		}
	}
	return strings.Join(parts, ", ")
}

// longestCell shows a median, and the largest value below it.
func longestCell(d *estimate.Distribution) doc.Cell {
	if d == nil {
		return doc.None()
	}
	cell := doc.Value(d.Median, "s")
	cell.Sub = "max " + doc.Format(d.Max, "s")
	cell.Title += ", n = " + strconv.Itoa(d.N)
	return cell
}

// AddedCell shows the delays of new endpoints, and how many endpoints had not answered when the observation ended.
func (d DisruptedStep) AddedCell() doc.Cell {
	cell := longestCell(d.NewEndpointDelay)
	if d.AddedNotYet == 0 {
		return cell
	}
	text := doc.Grouped(int64(d.AddedNotYet)) + " not yet"
	cell.Title = strings.TrimPrefix(cell.Title+", "+text+" by the end, after "+doc.Format(d.AddedNotYetFor, "s")+" at most", ", ")
	if d.NewEndpointDelay == nil {
		cell.Text, cell.Faint = text, false
	} else {
		cell.Sub += ", " + text
	}
	return cell
}
