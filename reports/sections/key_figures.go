package sections

import (
	"slices"

	"synclab/bench/raw"
	"synclab/reports/comparison"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

// KeySection has the figures of each series in each cell. Comparisons have them too: then it is empty.
func (s *Summary) KeySection() doc.Section {
	out := doc.Section{ID: "key", Title: "Key figures"}
	if len(s.Figures) == 0 || s.allCompared() {
		return out
	}
	t := s.keyTable()
	t.Note = s.MediansText()
	if t.Empty(doc.Page) {
		return out
	}
	out.Add(doc.Block{Table: t})
	out.Add(doc.Block{On: doc.Page, Soft: true, Note: "± is the wider half of the 95 % confidence interval, from 6 repetitions. " +
		"Latency is network programming latency: from the time when a change was due in the cluster until the change was visible in the kernel."})
	if len(s.Comparisons) == 0 {
		out.Add(doc.Block{On: doc.Terminal | doc.Markdown, List: comparison.Stopped(s.Collected)})
	}
	return out
}

// allCompared reports whether every cell has a comparison, so that key figures would only repeat them.
func (s *Summary) allCompared() bool {
	return len(s.Comparisons) > 0 && len(s.Comparisons) == len(s.Collected.Cells)
}

// keyTable has a row for each series in each cell.
func (s *Summary) keyTable() *doc.Table {
	t := &doc.Table{Intervals: true, Columns: append([]doc.Column{{Name: "Subject"}, {Name: "Services", Numeric: true, Row: true}, endpointsColumn(),
		{Name: "Settings", Above: true, Row: true}}, s.figureColumns()...)}
	for _, m := range s.Figures {
		cells := []doc.Cell{s.MarkedCell(m.Series), doc.Int(m.Cell.Services), endpointsCell(m.Cell), settingsCell(m.Cell)}
		for _, figure := range comparison.Compared {
			cells = append(cells, FigureCell(m.Side, figure))
		}
		t.Add(cells...)
	}
	return t
}

// OfOwnProcess reports whether the subjects were processes, so that the peak RSS is theirs alone.
func (s *Summary) OfOwnProcess() bool {
	return !slices.ContainsFunc(s.Runs, func(run records.RunHead) bool { return run.Feed != raw.FeedAPI })
}

// rssOf names the process of the peak RSS.
func (s *Summary) rssOf() string {
	if s.OfOwnProcess() {
		return "of the subject's process"
	}
	return "of the lab's process: simulated cluster and proxier"
}

// phaseSection shows where syncs spend their time, on a terminal. The page has plots of it.
func (s *Summary) phaseSection() doc.Section {
	out := doc.Section{ID: "phases", Title: "Where a sync spends its time (shares of the median sync)"}
	t := &doc.Table{Columns: []doc.Column{{Name: "subject"}, {Name: "services", Numeric: true}, {Name: "settings", Above: true}, {Name: "sync"}, {Name: "plan", Numeric: true}, {Name: "encode", Numeric: true},
		{Name: "jumps", Numeric: true}, {Name: "tool user", Numeric: true}, {Name: "tool sys", Numeric: true}, {Name: "post-sync", Numeric: true}, {Name: "rest", Numeric: true}}}
	phase := func(seconds float64) doc.Cell {
		if seconds == 0 {
			return doc.None() // it did not happen, or the subject does not report it
		}
		return doc.Value(seconds, "s")
	}
	for _, p := range s.tablePhases() {
		t.Add(s.SeriesCell(p.Series), doc.Int(p.Cell.Services), settingsCell(p.Cell), doc.Text(p.Kind), phase(p.Plan), phase(p.Encode), phase(p.Jumps),
			phase(p.ToolUser), phase(p.ToolSys), phase(p.PostSync), doc.Value(p.Rest, "s"))
	}
	out.Add(doc.Block{On: doc.Terminal, Table: t})
	return out
}

// tablePhases returns all phases if they are few, else the phases of each series' largest cell.
func (s *Summary) tablePhases() []Phases {
	if len(s.Phases) <= 12 {
		return s.Phases
	}
	var out []Phases
	for _, k := range largestFigures(s.Figures) {
		out = append(out, slices.DeleteFunc(slices.Clone(s.Phases), func(p Phases) bool { return p.Series != k.Series || p.Cell.ID() != k.Cell.ID() })...)
	}
	return out
}

// MemoryGrowth is the line through the resident set of a subject's process by the changes made before, in bytes.
type MemoryGrowth struct {
	Series  string       `json:"series"`
	Cell    records.Cell `json:"cell"`
	Changes int          `json:"changes"` // of a repetition
	estimate.Fit
}

// memoryGrowths leaves out the first quarter of the changes, in which heaps grow to their usual size, and runs with fewer than
// leastChanges.
func memoryGrowths(c *records.Collection) (out []MemoryGrowth) {
	const leastChanges = 100
	for one, samples := range c.Each() {
		at, most := map[int]bool{}, 0
		for _, r := range samples.Records {
			if r.Metric == raw.RSS {
				at[r.Change], most = true, max(most, r.Change)
			}
		}
		var points []estimate.Point
		for change := range at {
			if 4*change >= most && most >= leastChanges {
				points = append(points, estimate.Point{X: float64(change), Y: samples.ByRepetition(func(r *raw.Record) bool { return r.Metric == raw.RSS && r.Change == change })})
			}
		}
		if fit, ok := estimate.FitLine(points); ok {
			out = append(out, MemoryGrowth{one.Name, samples.Cell, most, fit})
		}
	}
	return out
}

// memorySection says whose memory grows with changes, as where something is kept for each of them.
func (s *Summary) memorySection() doc.Section {
	out := doc.Section{ID: "memory", Title: "Memory over changes"}
	t := &doc.Table{Columns: []doc.Column{{Name: "Subject"}, {Name: "Services", Numeric: true, Row: true}, endpointsColumn(), {Name: "Settings", Above: true, Row: true},
		{Name: "Changes", Numeric: true}, {Name: "At the end", Numeric: true}, {Name: "Growth per 1,000 changes", Short: "per 1,000", Numeric: true}, {Name: "95 % confidence", Numeric: true}},
		Note: "Resident set of the process, after the first quarter of the changes: a straight line by least squares. ~: the interval of the growth contains 0, or there are too few repetitions for one (6)."}
	bytes := func(slope float64) string { return doc.Format(1000*slope, "B") }
	for _, m := range s.Memory {
		growth := doc.Cell{Text: bytes(m.Slope), Value: doc.Exact(1000 * m.Slope)}
		if m.SlopeLow == nil || m.HoldsZero() {
			growth.Text = "~"
		}
		t.Add(s.SeriesCell(m.Series), doc.Int(m.Cell.Services), endpointsCell(m.Cell), settingsCell(m.Cell), doc.Int(m.Changes), doc.Value(m.At(float64(m.Changes)), "B"),
			growth, doc.Cell{Text: IntervalText(m.Fit, bytes), Faint: m.SlopeLow == nil})
	}
	out.Add(doc.Block{Table: t})
	return out
}
