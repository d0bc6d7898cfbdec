package sections

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"synclab/bench/raw"
	"synclab/reports/comparison"
	"synclab/reports/doc"
	"synclab/reports/records"
)

// comparedSection compares the subjects of each cell that has several, the largest cell first.
func (s *Summary) comparedSection() doc.Section {
	out := doc.Section{ID: "compared", Title: "Comparison of subjects", Short: "Comparison", Dense: true}
	if len(s.Comparisons) == 0 {
		return out
	}
	out.Add(doc.Block{On: doc.Page | doc.Markdown, Soft: true, Note: "Medians of the repetitions ± 95 % confidence, from 6 repetitions; with fewer repetitions, observed values. " +
		"The small lines, or the text in brackets, are the ratio to the baseline and its 95 % confidence interval."})
	ratios := false
	for i, c := range s.comparisonsBySize() {
		sides, short := s.SidesTable(c), s.shortRatiosTable(c)
		sides.Title = s.cellTitle(c.Cell)
		out.Add(doc.Block{On: doc.Page, Folded: i > 0, Table: sides}, doc.Block{On: doc.Terminal | doc.Markdown, Table: sides})
		var notes []string
		for _, side := range c.Sides {
			notes = append(notes, comparison.StoppedNotes(side.Series, c.Cell, side.Exceeded, side.Repetitions)...)
		}
		out.Add(doc.Block{On: doc.Page | doc.Markdown, List: notes}, doc.Block{On: doc.Terminal, Table: short})
		ratios = ratios || len(short.Rows) > 0
	}
	if ratios {
		out.Add(doc.Block{On: doc.Terminal, Note: "~: no difference shown; ?: observed, in too few repetitions for a verdict; the page has the intervals"})
	}
	out.Add(doc.Block{On: doc.Terminal, Table: s.floorTable()}, doc.Block{On: doc.Terminal, List: comparison.Stopped(s.Collected)})
	return out
}

// comparisonsBySize has the largest comparison first.
func (s *Summary) comparisonsBySize() []*comparison.CellComparison {
	largest := s.LargestComparison()
	var out []*comparison.CellComparison
	for i := range s.Comparisons {
		if c := &s.Comparisons[i]; c != largest {
			out = append(out, c)
		}
	}
	return append([]*comparison.CellComparison{largest}, out...)
}

// LargestComparison returns the comparison with the most Services; of several settings the first.
func (s *Summary) LargestComparison() *comparison.CellComparison {
	var largest *comparison.CellComparison
	for i, c := range s.Comparisons {
		onHost := largest != nil && c.Cell.Services == largest.Cell.Services && c.Cell.Params["kernel"] == raw.HostKernel
		if largest == nil || c.Cell.Services > largest.Cell.Services || onHost {
			largest = &s.Comparisons[i]
		}
	}
	return largest
}

// cellTitle is a cell's size and settings, with its scenario if there are several.
func (s *Summary) cellTitle(cell records.Cell) string {
	title := records.SizesText([]records.Cell{cell}) + records.SettingsTail(records.ShortSettings(cell.Settings()))
	if slices.ContainsFunc(s.Comparisons, func(o comparison.CellComparison) bool { return o.Cell.Scenario != cell.Scenario }) {
		title = cell.Scenario + ": " + title
	}
	return title
}

// shortRatios are the ratios on a terminal.
var shortRatios = []string{comparison.FigureReaction, comparison.FigureCold, comparison.FigureNPL99, comparison.FigureFull, comparison.FigurePartial, comparison.FigureCPU}

// SidesTable has the figures of each side, and below each its ratio to the nearest baseline.
func (s *Summary) SidesTable(c *comparison.CellComparison) *doc.Table {
	t := &doc.Table{Intervals: true, Columns: append([]doc.Column{{Name: "Subject"}, {Name: "Baseline", On: doc.Markdown, Row: true}}, s.figureColumns()...)}
	for _, side := range c.Sides {
		baseline := c.Nearest(side)
		subject := s.MarkedCell(side.Series)
		subject.Markdown, subject.Sub = side.Series, "baseline"
		if baseline != "" {
			subject.Sub = "baseline: " + baseline
		}
		cells := []doc.Cell{subject, doc.Text(baseline)}
		for _, text := range comparison.Compared {
			cell := FigureCell(side, text)
			if r := c.Ratio(side.Series, baseline, text.Name); r != nil {
				words := strings.TrimSuffix(r.Words+", "+r.IntervalText(), ", ")
				cell.Sub, cell.Markdown, cell.Heat = words, cell.Text+" ("+words+")", heat(r)
				cell.Title += fmt.Sprintf("; ratio %s, p %s", doc.Exact(r.Ratio), r.PText())
			}
			cells = append(cells, cell)
		}
		t.Add(cells...)
	}
	t.Note = s.MediansText() + " The colour of a cell grows with its ratio to the baseline: from 1.1×, 1.5× and 5×."
	var notes []string
	for _, noise := range c.Noise {
		if noise.A == "" {
			notes = append(notes, fmt.Sprintf("Differences of memory of less than %.2g %% are not named: resident sets count the pages of the program's file, "+
				"of which there are more or fewer as the page cache has them.", 100*noise.Share))
			continue
		}
		notes = append(notes, fmt.Sprintf("Noise of the %s: %s and %s have the same rules and differ by %.2g %%, so smaller differences are not named.",
			doc.LowerFirst(comparison.FigureOf(noise.Metric).Text), noise.A, noise.B, 100*noise.Share))
	}
	t.Note = strings.Join(append([]string{t.Note}, records.Distinct(notes)...), " ")
	return t
}

// figureColumns are the columns of the figures of a side.
func (s *Summary) figureColumns() (out []doc.Column) {
	for _, text := range comparison.Compared {
		column := doc.Column{Name: text.Column(), Short: text.Short, Numeric: true, Title: text.Title, On: doc.Page, Legend: text.Legend, Spare: text.Spare}
		if text.Brief {
			column.On = 0
		}
		if text.Name == comparison.FigureRSS {
			column.Title = s.rssOf()
		}
		out = append(out, column)
	}
	return out
}

// heat returns the colour of a ratio: it grows from 1.1×, 1.5× and 5×, where a difference is shown.
func heat(r *comparison.Comparison) int {
	level, size := 0, math.Max(r.Ratio, 1/r.Ratio)
	if !r.Apart() {
		return 0
	}
	for _, from := range []float64{1.1, 1.5, 5} {
		if size >= from {
			level++
		}
	}
	if r.Ratio < 1 {
		return -level
	}
	return level
}

func FigureCell(side comparison.Side, text comparison.Figure) doc.Cell {
	f := side.Figure(text.Name)
	if f == nil {
		if side.NotReached(text.Name) {
			return doc.Cell{Text: "not reached", Terminal: "stopped", Narrow: "stopped", Faint: true, Title: "the subject was stopped before this figure was complete"}
		}
		return doc.NoneFor("not measured")
	}
	cell := doc.Value(f.Value, f.Unit)
	cell.Text, cell.Narrow = comparison.FigureValue(f, true), comparison.FigureValue(f, false)
	if f.Low != nil {
		cell.Title += fmt.Sprintf(", 95 %% confidence %s … %s", doc.Format(*f.Low, f.Unit), doc.Format(*f.High, f.Unit))
	}
	if f.RangeLow != nil {
		cell.Title += fmt.Sprintf(", observed range %s … %s", doc.Format(*f.RangeLow, f.Unit), doc.Format(*f.RangeHigh, f.Unit))
	}
	cell.Title += fmt.Sprintf(", %s, n = %d", doc.Plural(f.Repetitions(), "repetition"), f.N)
	return cell
}

// shortRatiosTable has the ratios of shortRatios below the name of their baseline.
func (s *Summary) shortRatiosTable(c *comparison.CellComparison) *doc.Table {
	t := &doc.Table{Columns: []doc.Column{{Name: "ratio"}}}
	for _, name := range shortRatios {
		t.Columns = append(t.Columns, doc.Column{Name: comparison.FigureOf(name).Short, Numeric: true})
	}
	baseline := ""
	for _, pair := range c.Pairs() {
		if pair[1] != baseline {
			baseline = pair[1]
			t.Heading("baseline: " + baseline)
		}
		cells := []doc.Cell{s.SeriesCell(pair[0])}
		for _, name := range shortRatios {
			cells = append(cells, doc.Text(c.Ratio(pair[0], pair[1], name).Short()))
		}
		t.Add(cells...)
	}
	return t
}

// cellHeading distinguishes a cell from the others. It is empty for a single cell. It omits a size that all cells
// share.
func (s *Summary) cellHeading(cell records.Cell) string {
	settings := records.ShortSettings(cell.Settings())
	if slices.ContainsFunc(s.Collected.Cells, func(c records.Cell) bool { return c.Services != cell.Services || c.Endpoints != cell.Endpoints }) {
		return records.SizesText([]records.Cell{cell}) + records.SettingsTail(settings)
	}
	if len(s.Collected.Cells) == 1 {
		return ""
	}
	return settings
}
