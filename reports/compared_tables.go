package reports

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// pageComparison is one cell's part of the comparison section.
type pageComparison struct {
	Title  string
	Values pageTable
	Ratios pageTable
	Notes  []string
}

// pageComparisons returns the comparisons of the cells, the largest size first.
func (s *Summary) pageComparisons() []pageComparison {
	largest := s.largestComparison()
	var out []pageComparison
	for i := range s.Comparisons {
		c := &s.Comparisons[i]
		one := pageComparison{Title: sizesText([]Cell{c.Cell}) + settingsTail(shortSettings(c.Cell.Settings())),
			Values: s.sidesTable(c).wrapping(), Ratios: s.ratiosTable(c).wrapping()}
		if slices.ContainsFunc(s.Comparisons, func(o CellComparison) bool { return o.Cell.Scenario != c.Cell.Scenario }) {
			one.Title = c.Cell.Scenario + ": " + one.Title
		}
		for _, side := range c.Sides {
			one.Notes = append(one.Notes, stoppedNotes(side.Series, c.Cell, side.Exceeded, side.Repetitions)...)
		}
		if c == largest {
			out = append([]pageComparison{one}, out...)
		} else {
			out = append(out, one)
		}
	}
	return out
}

// sidesTable has the figures, and below each its ratio to the nearest baseline.
func (s *Summary) sidesTable(c *CellComparison) pageTable {
	t := pageTable{Columns: []pageColumn{{Name: "Subject"}}}
	for _, text := range figureTexts {
		column := pageColumn{Name: text.column(), Numeric: true, Title: text.title}
		if text.name == figureRSS {
			column.Title = s.rssOf()
		}
		t.Columns = append(t.Columns, column)
	}
	for _, side := range c.Sides {
		baseline := c.nearest(side)
		subject := s.seriesCell(side.Series)
		subject.Sub = "baseline"
		if baseline != "" {
			subject.Sub = "baseline: " + baseline
		}
		cells := []pageCell{subject}
		for _, text := range figureTexts {
			cell := figureCell(side, text)
			if r := c.ratio(side.Series, baseline, text.name); r != nil {
				cell.Sub = r.Words
			}
			cells = append(cells, cell)
		}
		t.Rows = append(t.Rows, cells)
	}
	for _, r := range c.Ratios {
		if r.Observed {
			t.Note = upperFirst(r.Warning) + "."
			break
		}
	}
	return t.dropEmpty()
}

func figureCell(side Side, text figureText) pageCell {
	f := side.figure(text.name)
	if f == nil {
		if side.notReached(text.name) {
			return pageCell{Text: "not reached", Faint: true, Title: "the subject was stopped before this figure was complete"}
		}
		return pageCell{Text: "–", Faint: true, Title: "not measured"}
	}
	cell := valueCell(f.Value, f.Unit)
	cell.Text = figureValue(f, true)
	if f.Low != nil {
		cell.Title += fmt.Sprintf(", 95 %% confidence %s … %s", Format(*f.Low, f.Unit), Format(*f.High, f.Unit))
	}
	if f.RangeLow != nil {
		cell.Title += fmt.Sprintf(", observed range %s … %s", Format(*f.RangeLow, f.Unit), Format(*f.RangeHigh, f.Unit))
	}
	cell.Title += fmt.Sprintf(", %s, n = %d", plural(f.Repetitions(), "repetition"), f.N)
	return cell
}

// ratiosTable has every ratio with its interval, by baseline.
func (s *Summary) ratiosTable(c *CellComparison) pageTable {
	t := pageTable{Columns: []pageColumn{{Name: "Subject"}}}
	for _, text := range figureTexts {
		t.Columns = append(t.Columns, pageColumn{Name: text.column(), Numeric: true, Title: "ratio and its 95 % confidence interval; " + text.title})
	}
	for _, pair := range c.pairs() {
		subject := s.seriesCell(pair[0])
		subject.Sub = "baseline: " + pair[1]
		cells := []pageCell{subject}
		for _, text := range figureTexts {
			r := c.ratio(pair[0], pair[1], text.name)
			if r == nil {
				cells = append(cells, pageCell{Text: "–", Faint: true})
				continue
			}
			cell := pageCell{Text: r.Words, Value: exact(r.Ratio), Sub: r.intervalText(), Title: exact(r.Ratio) + ", p " + r.pText(), Faint: !r.apart()}
			cells = append(cells, cell)
		}
		t.Rows = append(t.Rows, cells)
	}
	return t.dropEmpty()
}

// pairs lists the side and the baseline of each ratio. Ratios to kube-proxy on the same backend come first.
func (c *CellComparison) pairs() [][2]string {
	var variant, overall [][2]string
	for _, r := range c.Ratios {
		pair := [2]string{r.B, r.A}
		if r.Against[0] == "variant" {
			variant = append(variant, pair)
		} else {
			overall = append(overall, pair)
		}
	}
	return distinct(append(variant, overall...))
}

// terminalFigures are the columns of the terminal's first table, terminalRatios those of its second.
var (
	terminalFigures = []string{figureReaction, figureCold, figureNPL50, figureNPL99, figureFull, figurePartial, figureCPU, figureRSS, figureFirstPacket, figureRules}
	terminalRatios  = []string{figureReaction, figureCold, figureNPL99, figureFull, figurePartial, figureCPU}
)

// compared writes the sides of each cell and then their ratios, for a terminal.
func (s *Summary) compared(b *strings.Builder) {
	sides := s.terminalSides(terminalFigures, true)
	if !sides.fits() {
		sides = s.terminalSides(terminalFigures, false)
	}
	// A table that is too wide loses these columns first. The page has them too.
	names := terminalFigures
	for _, dropped := range []string{figureRules, figureNPL50} {
		if !sides.fits() {
			names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == dropped })
			sides = s.terminalSides(names, false)
		}
	}
	b.WriteString("\n")
	sides.write(b)
	b.WriteString("\n" + wrap(s.mediansText(sides.rows)+sides.legend("; react: reaction, from an isolated change until it is visible in the kernel", "react")+sides.legend("; npl: network programming latency", "npl p50", "npl p99")+
		sides.legend("; *: self-reported", "full*", "partial*")+
		sides.legend("; packet: first packet to the last Service", "packet"), tableWidth, "  ") + "\n\n")
	if ratios := s.terminalRatios(); len(ratios.header) > 1 {
		ratios.write(b)
		b.WriteString("\n")
	}
	b.WriteString("~: no difference shown; ?: observed, in too few repetitions for a verdict; the page has the intervals\n")
	s.terminalFloors(b)
	for _, note := range stopped(s.collected) {
		b.WriteString(wrap(note, tableWidth, "  ") + "\n")
	}
}

func (s *Summary) terminalSides(names []string, spread bool) textTable {
	t := figureTable(names)
	for i := range s.Comparisons {
		c := &s.Comparisons[i]
		if heading := s.cellHeading(c.Cell); heading != "" {
			t.heading(heading)
		}
		for _, side := range c.Sides {
			cells := []string{side.Series}
			for _, name := range names {
				text := narrow(figureValue(side.figure(name), spread))
				if side.notReached(name) {
					text = "stopped"
				}
				cells = append(cells, text)
			}
			t.add(cells...)
		}
	}
	return t.dropEmpty()
}

func (s *Summary) terminalRatios() textTable {
	t := figureTable(terminalRatios)
	t.header[0] = "ratio"
	for i := range s.Comparisons {
		c := &s.Comparisons[i]
		heading := s.cellHeading(c.Cell)
		if heading != "" {
			heading += ", "
		}
		beside := ""
		for _, pair := range c.pairs() {
			if pair[1] != beside {
				beside = pair[1]
				t.heading(heading + "baseline: " + beside)
			}
			cells := []string{pair[0]}
			for _, name := range terminalRatios {
				cells = append(cells, c.ratio(pair[0], pair[1], name).short())
			}
			t.add(cells...)
		}
	}
	return t.dropEmpty()
}

// cellHeading distinguishes a cell from the others. It is empty for a single cell. It omits a size that all cells
// share.
func (s *Summary) cellHeading(cell Cell) string {
	settings := shortSettings(cell.Settings())
	if slices.ContainsFunc(s.collected.cells, func(c Cell) bool { return c.Services != cell.Services || c.Endpoints != cell.Endpoints }) {
		return sizesText([]Cell{cell}) + settingsTail(settings)
	}
	if len(s.collected.cells) == 1 {
		return ""
	}
	return settings
}

func figureTable(names []string) textTable {
	t := textTable{header: []string{"subject"}}
	for _, name := range names {
		t.header = append(t.header, figureTextOf(name).short)
	}
	return t
}

// short is the ratio in a narrow column: "31× faster", "31× faster?" without an interval, "~".
func (c *Comparison) short() string {
	switch {
	case c == nil || c.Words == "unknown":
		return "–"
	case !c.apart():
		return "~"
	case c.Observed:
		return strings.TrimPrefix(c.Words, "observed ") + "?"
	}
	return c.Words
}

// markdownFigures are few enough for the table of a pull request. The page has the others.
var markdownFigures = []string{figureReaction, figureCold, figureNPL50, figureNPL99, figureFull, figurePartial, figureCPU, figureRSS, figureFirstPacket, figureRules}

func upperFirst(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// lowerFirst leaves abbreviations as they are.
func lowerFirst(text string) string {
	if len(text) > 1 && strings.ToUpper(text[:2]) == text[:2] {
		return text
	}
	return strings.ToLower(text[:1]) + text[1:]
}

// markdownComparisons writes one table for each cell, with ratios in brackets.
func (s *Summary) markdownComparisons(w io.Writer) {
	for i := range s.Comparisons {
		c := &s.Comparisons[i]
		fmt.Fprintf(w, "### %s%s\n\n", sizesText([]Cell{c.Cell}), settingsTail(shortSettings(c.Cell.Settings())))
		t := pageTable{Columns: []pageColumn{{Name: "subject"}, {Name: "baseline"}}}
		few := ""
		for _, name := range markdownFigures {
			t.Columns = append(t.Columns, pageColumn{Name: lowerFirst(figureTextOf(name).column())})
		}
		for _, side := range c.Sides {
			baseline := c.nearest(side)
			cells := []pageCell{{Text: side.Series}, {Text: baseline}}
			for _, name := range markdownFigures {
				cell := pageCell{Text: figureCell(side, figureTextOf(name)).Text}
				if r := c.ratio(side.Series, baseline, name); r != nil {
					cell.Text += " (" + strings.TrimSuffix(r.Words+", "+r.intervalText(), ", ") + ")"
					if r.Observed {
						few = r.Warning
					}
				}
				cells = append(cells, cell)
			}
			t.Rows = append(t.Rows, cells)
		}
		t = t.dropEmpty()
		var header []string
		for _, column := range t.Columns {
			header = append(header, column.Name)
		}
		b := &strings.Builder{}
		markdownTable(b, header, -1, len(t.Rows), func(i int) []string {
			var texts []string
			for _, cell := range t.Rows[i] {
				texts = append(texts, cell.Text)
			}
			return texts
		})
		b.WriteString("\n" + upperFirst(s.mediansText(t.Rows)) + "; in brackets the ratio to the baseline, with its 95 % interval")
		if few != "" {
			b.WriteString(" (" + few + ")")
		}
		b.WriteString(".\n\n")
		for _, side := range c.Sides {
			for _, note := range stoppedNotes(side.Series, c.Cell, side.Exceeded, side.Repetitions) {
				b.WriteString("- " + note + "\n")
			}
		}
		fmt.Fprint(w, strings.TrimRight(b.String(), "\n"), "\n\n")
	}
}
