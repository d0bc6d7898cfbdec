package reports

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"synclab/reports/estimate"
)

// disruptionSection shows the outcomes of flows: over all steps, and step by step.
func (s *Summary) disruptionSection() *pageSection {
	if len(s.Disruptions) == 0 {
		return nil
	}
	section := &pageSection{ID: "disruption", Title: "Flows during changes", Notes: []string{"An open-loop stream of new flows runs during the steps. Latency is from the time when a flow was due until its answer. " +
		"Failed flows were refused, reset or timed out. Misrouted flows were answered by an endpoint outside the old and the new set of their Service. “At rest” is the first part of the stream, before any change."}}
	for i, cell := range s.disruptedCells() {
		all, steps := s.disruptionTotals(cell), s.disruptionSteps(cell)
		if i == 0 {
			section.Tables = append(section.Tables, all)
			if len(steps.Rows) > manyRows {
				section.Folded = append(section.Folded, steps)
			} else {
				section.Tables = append(section.Tables, steps)
			}
		} else {
			section.Folded = append(section.Folded, all, steps)
		}
	}
	return section
}

// manyRows is the number of rows above which a table is folded.
const manyRows = 70

// disruptedCells are the cells with a stream, the largest first.
func (s *Summary) disruptedCells() []Cell {
	var out []Cell
	for _, d := range s.Disruptions {
		if !slices.ContainsFunc(out, func(c Cell) bool { return c.id() == d.Cell.id() }) {
			out = append(out, d.Cell)
		}
	}
	slices.SortStableFunc(out, func(a, b Cell) int { return b.Services - a.Services })
	return out
}

func (s *Summary) disruptionsOf(cell Cell) []Disruption {
	var out []Disruption
	for _, d := range s.Disruptions {
		if d.Cell.id() == cell.id() {
			out = append(out, d)
		}
	}
	return out
}

// rest returns the part of the stream before any change, or nil.
func (d Disruption) rest() *DisruptedStep {
	i := slices.IndexFunc(d.Steps, func(s DisruptedStep) bool { return s.Rest })
	if i < 0 {
		return nil
	}
	return &d.Steps[i]
}

func (s *Summary) disruptionTotals(cell Cell) pageTable {
	t := pageTable{Title: sizesText([]Cell{cell}) + settingsTail(shortSettings(cell.Settings())) + ": all steps", Columns: []pageColumn{{Name: "Subject"}, {Name: "Flows", Numeric: true, Title: "new flows of the stream, without the flows at rest"},
		{Name: "Failed", Numeric: true, Title: "refused, reset or timed out"}, {Name: "Misrouted", Numeric: true}, {Name: "p50 at rest", Numeric: true}, {Name: "p99 at rest", Numeric: true},
		{Name: "Most added to p99", Numeric: true, Title: "the step that added most to the 99th percentile"}, {Name: "Long-lived TCP broken", Numeric: true, Title: "packets of long-lived connections without an answer"},
		{Name: "Long-lived UDP on removed", Numeric: true, Title: "packets of long-lived UDP flows that still went to a removed endpoint"}, {Name: "Long-lived UDP lost", Numeric: true},
		{Name: "Unobserved", Numeric: true, Title: "flows, and packets of long-lived flows, that were not observed because their observer had no CPU; no other column counts them, and some may have failed"}}}
	for _, d := range s.disruptionsOf(cell) {
		total := d.during()
		row := []pageCell{s.seriesCell(d.Series), intCell(total.Flows), countCell(total.Failed, total.Flows, total.FailedAtMost), countCell(total.Misrouted, total.Flows, total.MisroutedAtMost)}
		if rest := d.rest(); rest != nil {
			row = append(row, distributionCell(rest.Answered, medianValue, false), distributionCell(rest.Answered, p99Value, false))
		} else {
			row = append(row, pageCell{Text: "–", Faint: true}, pageCell{Text: "–", Faint: true})
		}
		most := optionalCell(total.AddedP99, "s")
		if total.AddedP99 != nil {
			most.Text, most.Sub = signedTime(*total.AddedP99), "step "+total.text()
		}
		t.Rows = append(t.Rows, append(row, most, ofCell(total.LongLivedTCPBroken, total.LongLivedTCP), ofCell(total.LongLivedUDPRemoved, total.LongLivedUDP), ofCell(total.LongLivedUDPLost, total.LongLivedUDP), unwatchedCell(d.Unwatched)))
	}
	return t.dropEmpty()
}

// unwatchedCell shows unobserved flows. It is loud, since these flows may have failed.
func unwatchedCell(n int) pageCell {
	if n == 0 {
		return pageCell{Text: "–", Faint: true}
	}
	cell := intCell(n)
	cell.Loud = true
	return cell
}

// countCell shows how many of n flows had an outcome, and below that the share or its bound. Any such flow makes it
// loud.
func countCell(k, n int, atMost float64) pageCell {
	if n == 0 {
		return pageCell{Text: "–", Faint: true}
	}
	cell := intCell(k)
	cell.Loud = k > 0
	if k > 0 {
		cell.Sub = shareText(float64(k) / float64(n))
	} else {
		cell.Sub = "< " + shareText(atMost)
	}
	cell.Title = fmt.Sprintf("of %s; the share is at most %s, with 95 %% confidence, if flows fail independently", Grouped(int64(n)), shareText(atMost))
	return cell
}

// ofCell shows how many packets of long-lived flows had an outcome; a dash if none was recorded.
func ofCell(k, n int) pageCell {
	if n == 0 {
		return pageCell{Text: "–", Faint: true}
	}
	return pageCell{Text: Grouped(int64(k)), Value: fmt.Sprint(k), Loud: k > 0, Title: "of " + plural(n, "recorded packet") + "; only some of the answered packets are recorded"}
}

// shareText formats a share in percent with two digits: "0.012 %".
func shareText(share float64) string {
	percent := 100 * share
	switch {
	case percent >= 9.5:
		return fmt.Sprintf("%.0f\u00a0%%", percent)
	case percent >= 0.95:
		return fmt.Sprintf("%.1f\u00a0%%", percent)
	}
	return fmt.Sprintf("%.2g\u00a0%%", percent)
}

// signedTime formats a difference of two times with its sign.
func signedTime(seconds float64) string {
	if seconds < 0 {
		return "−" + Format(-seconds, "s")
	}
	return "+" + Format(seconds, "s")
}

// disruptionSteps has a row for each step and subject.
func (s *Summary) disruptionSteps(cell Cell) pageTable {
	t := pageTable{Title: sizesText([]Cell{cell}) + settingsTail(shortSettings(cell.Settings())) + ": step by step", Columns: []pageColumn{{Name: "Step"}, {Name: "Subject"}, {Name: "Flows", Numeric: true},
		{Name: "p50", Numeric: true, Title: "of answered flows"}, {Name: "p99", Numeric: true}, {Name: "Max", Numeric: true}, {Name: "Added to p99", Numeric: true, Title: "minus the 99th percentile of the same stream at rest"},
		{Name: "Failed", Numeric: true}, {Name: "Misrouted", Numeric: true}, {Name: "Removed endpoint served for", Numeric: true, Title: "median, and the longest: removal due → last answer"},
		{Name: "New endpoint delay", Numeric: true, Title: "median, and the longest: due → first answer"}, {Name: "Long-lived UDP stayed with removed for", Numeric: true, Title: "long-lived flows: removal due → first answer of another endpoint; median, and the longest"}, {Name: "Long-lived TCP broken", Numeric: true}, {Name: "Long-lived UDP on removed", Numeric: true}},
		Note: "Each step includes the settle and check steps after it. A pale p99 is from fewer than 100 flows."}
	all := s.disruptionsOf(cell)
	names := map[string]bool{}
	for _, d := range all {
		for _, step := range d.Steps {
			names[step.Step] = true
		}
	}
	for _, name := range sortedSteps(names) {
		for _, d := range all {
			i := slices.IndexFunc(d.Steps, func(step DisruptedStep) bool { return step.Step == name })
			if i < 0 {
				continue
			}
			t.Rows = append(t.Rows, s.disruptedRow(d, d.Steps[i]))
		}
	}
	return t.dropEmpty()
}

func (s *Summary) disruptedRow(d Disruption, step DisruptedStep) []pageCell {
	name := pageCell{Text: step.text()}
	if step.Rest {
		name.Sub = "at rest"
	}
	p99 := distributionCell(step.Answered, p99Value, false)
	p99.Faint = p99.Faint || step.Answered.N < 100
	added := optionalCell(step.AddedP99, "s")
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
	return []pageCell{name, s.seriesCell(d.Series), intCell(step.Flows), distributionCell(step.Answered, medianValue, false), p99,
		distributionCell(step.Answered, func(d estimate.Distribution) float64 { return d.Max }, false), added, failed, countCell(step.Misrouted, step.Flows, step.MisroutedAtMost),
		longestCell(step.RemovedEndpointServing), step.addedCell(), longestCell(step.LongLivedLeft), ofCell(step.LongLivedTCPBroken, step.LongLivedTCP), ofCell(step.LongLivedUDPRemoved, step.LongLivedUDP)}
}

// outcomes lists the outcomes of failed flows: "12 refused, 3 timeout".
func (d DisruptedStep) outcomes() string {
	var parts []string
	for _, outcome := range []string{"refused", "reset", "timeout"} {
		if n := d.ByOutcome[outcome]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", Grouped(int64(n)), outcome))
		}
	}
	return strings.Join(parts, ", ")
}

// longestCell shows a median, and the largest value below it.
func longestCell(d *estimate.Distribution) pageCell {
	if d == nil {
		return pageCell{Text: "–", Faint: true}
	}
	cell := valueCell(d.Median, "s")
	cell.Sub = "max " + Format(d.Max, "s")
	cell.Title += fmt.Sprintf(", n = %d", d.N)
	return cell
}

// addedCell shows the delays of new endpoints, and how many endpoints had not answered when the observation ended.
func (d DisruptedStep) addedCell() pageCell {
	cell := longestCell(d.NewEndpointDelay)
	if d.AddedNotYet == 0 {
		return cell
	}
	text := fmt.Sprintf("%s not yet", Grouped(int64(d.AddedNotYet)))
	cell.Title = strings.TrimPrefix(cell.Title+fmt.Sprintf(", %s by the end, after %s at most", text, Format(d.AddedNotYetFor, "s")), ", ")
	if d.NewEndpointDelay == nil {
		cell.Text, cell.Faint = text, false
	} else {
		cell.Sub += ", " + text
	}
	return cell
}

var disruptionHeader = []string{"subject", "flows", "failed", "misrouted", "p99 rest", "added p99", "tcp broken", "udp on removed"}

// disruptionLines are the essential lines for the terminal and for markdown, at the largest size.
func (s *Summary) disruptionLines() (Cell, [][]string) {
	cells := s.disruptedCells()
	if len(cells) == 0 {
		return Cell{}, nil
	}
	count := func(n, of int, atMost float64) string {
		switch {
		case of == 0:
			return "–"
		case n == 0:
			return "0 (< " + shareText(atMost) + ")"
		}
		return Grouped(int64(n))
	}
	var lines [][]string
	for _, d := range s.disruptionsOf(cells[0]) {
		total, rest, added := d.during(), "–", "–"
		if r := d.rest(); r != nil && r.Answered != nil {
			rest = Format(r.Answered.P99, "s")
		}
		if total.AddedP99 != nil {
			added = signedTime(*total.AddedP99)
		}
		lines = append(lines, []string{d.Series, Grouped(int64(total.Flows)), count(total.Failed, total.Flows, total.FailedAtMost), count(total.Misrouted, total.Flows, total.MisroutedAtMost), rest, added,
			count(total.LongLivedTCPBroken, total.LongLivedTCP, estimate.ShareAtMost(0, total.LongLivedTCP)), count(total.LongLivedUDPRemoved, total.LongLivedUDP, estimate.ShareAtMost(0, total.LongLivedUDP))})
	}
	return cells[0], lines
}

func (s *Summary) terminalDisruption(b *strings.Builder) {
	cell, lines := s.disruptionLines()
	if len(lines) == 0 {
		return
	}
	t := textTable{header: disruptionHeader}
	for _, line := range lines {
		t.add(line...)
	}
	fmt.Fprintf(b, "\nFlows while the cluster changed, at %s\n\n", sizesText([]Cell{cell}))
	t.dropEmpty().write(b)
	b.WriteString("\n" + wrap("added p99: compared with the stream at rest, in the step that added most; 0 (< x): none observed, so the share is below x with 95 % confidence, if flows are independent", tableWidth, "  ") + "\n")
}

func (s *Summary) markdownDisruption(w io.Writer) {
	cell, lines := s.disruptionLines()
	if len(lines) == 0 {
		return
	}
	b := &strings.Builder{}
	fmt.Fprintf(b, "### Flows while the cluster changed, at %s\n\n", sizesText([]Cell{cell}))
	markdownTable(b, disruptionHeader, -1, len(lines), func(i int) []string { return lines[i] })
	fmt.Fprintln(w, b)
}

// disruptionAnswers states the outcomes of flows, by subject at the largest size.
func (s *Summary) disruptionAnswers() []string {
	cells := s.disruptedCells()
	if len(cells) == 0 || len(s.Faults) > 0 { // the fault answers cover flows
		return nil
	}
	var clean, others []string
	flows, least, unwatched := 0, math.MaxInt, 0
	for _, d := range s.disruptionsOf(cells[0]) {
		total := d.during()
		unwatched += d.Unwatched
		if total.Flows == 0 {
			continue
		}
		var parts []string
		for _, one := range []struct {
			n    int
			text string
		}{{total.Failed, "%s failed"}, {total.Misrouted, "%s were misrouted"}, {total.LongLivedTCPBroken, "%s packets of long-lived TCP connections were lost"},
			{total.LongLivedUDPRemoved, "%s packets of long-lived UDP flows still went to removed endpoints"}} {
			if one.n > 0 {
				parts = append(parts, fmt.Sprintf(one.text, Grouped(int64(one.n))))
			}
		}
		late := ""
		if total.AddedP99 != nil {
			late = " (p99 " + signedTime(*total.AddedP99) + " at most, in step " + total.text() + ")"
		}
		if len(parts) == 0 {
			clean = append(clean, d.Series+late)
			flows, least = flows+total.Flows, min(least, total.Flows)
			continue
		}
		others = append(others, d.Series+": of "+plural(total.Flows, "new flow")+" "+joinWords(parts)+late)
	}
	var out []string
	if len(clean) > 0 {
		out = append(out, fmt.Sprintf("While %s changed, none of %s failed or was misrouted (each share is below %s with 95 %% confidence, if flows are independent), and no long-lived flow broke, with %s.",
			sizesText(cells[:1]), plural(flows, "new flow"), shareText(estimate.ShareAtMost(0, least)), joinWords(clean)))
	}
	if len(others) > 0 {
		out = append(out, "Flows failed or were misrouted while "+sizesText(cells[:1])+" changed, with "+strings.Join(others, "; ")+".")
	}
	if unwatched > 0 {
		out = append(out, fmt.Sprintf("Not observed: %s more, including packets of long-lived flows. Their observer had no CPU.", plural(unwatched, "flow")))
	}
	return out
}
