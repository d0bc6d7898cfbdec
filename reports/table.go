package reports

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"synclab/reports/estimate"
)

// tableWidth is the width of the terminal table in columns.
const tableWidth = 110

// Table writes the key figures and where syncs spend their time, for a terminal of 110 columns.
func (s *Summary) Table(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", s.Title)
	if s.allCompared() {
		s.compared(&b)
	} else {
		s.keyFigures(&b)
	}
	s.terminalTargets(&b)
	s.terminalPackets(&b)
	s.terminalDisruption(&b)
	s.terminalFaults(&b)
	s.terminalInvariants(&b)
	s.phaseTable(&b)
	for _, warning := range s.Warnings {
		b.WriteString("\n" + wrap("warning: "+warning, tableWidth, "  "))
	}
	if len(s.Warnings) > 0 {
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// allCompared reports whether every cell has a comparison, so that key figures would only repeat them.
func (s *Summary) allCompared() bool {
	return len(s.Comparisons) > 0 && len(s.Comparisons) == len(s.collected.cells)
}

func (s *Summary) keyFigures(b *strings.Builder) {
	shown := textTable{header: []string{"subject", "services", "react", "cold", "full sync", "partial", "npl p50", "npl p99", "1st packet", "rules"}}
	duration := withSpread
	if slices.ContainsFunc(s.KeyFigures, func(k KeyFigures) bool { return k.ColdStart != nil || len(k.Exceeded) > 0 }) {
		duration = func(d *estimate.Distribution) string { return shortTime(d, medianValue) } // the table is too wide with intervals
	}
	settings := ""
	for _, k := range s.KeyFigures {
		if tail := k.Cell.Settings(); tail != settings {
			settings = tail
			shown.heading(tail)
		}
		shown.add(k.Series, Grouped(int64(k.Cell.Services)), k.orStopped(figureReaction, k.Reaction, duration), k.orStopped(figureCold, k.ColdStart, duration),
			k.orStopped(figureFull, k.FullSync, duration), duration(k.PartialSync),
			shortTime(k.Programming, func(d estimate.Distribution) float64 { return d.Median }),
			shortTime(k.Programming, func(d estimate.Distribution) float64 { return d.P99 }),
			shortTime(k.FirstPacketLast, func(d estimate.Distribution) float64 { return d.Median }), countText(k.Rules))
	}
	if shown = shown.dropEmpty(); len(shown.header) > 2 {
		b.WriteString("\n")
		shown.write(b)
		b.WriteString("\n" + wrap(s.mediansText(shown.rows)+shown.legend("; react: reaction, from an isolated change until it is visible in the kernel", "react")+shown.legend("; npl: network programming latency", "npl p50", "npl p99")+
			shown.legend("; 1st packet: first packet to the last Service", "1st packet"), tableWidth, "  ") + "\n")
	}
	if len(s.Comparisons) > 0 {
		s.compared(b)
		return
	}
	for _, note := range stopped(s.collected) {
		b.WriteString(wrap(note, tableWidth, "  ") + "\n")
	}
}

// mediansText describes the values of a table, and ± where it occurs.
func (s *Summary) mediansText(table ...any) string {
	least, most := math.MaxInt, 0
	for _, r := range s.Rows {
		least, most = min(least, r.Repetitions), max(most, r.Repetitions)
	}
	text := "medians of the repetitions"
	if most > 0 && most < estimate.Enough {
		text = "medians of " + plural(most, "repetition") + ": observed, without intervals"
	}
	if strings.Contains(fmt.Sprint(table...), "±") {
		text += " ± 95 % confidence"
		if least < estimate.Enough {
			text += ", from 6 repetitions"
		}
	}
	return text
}

// phaseTable shows where syncs spend their time. A dash is a phase that the subject does not report.
func (s *Summary) phaseTable(b *strings.Builder) {
	shown := s.tablePhases()
	if len(shown) == 0 {
		return
	}
	times := textTable{header: []string{"subject", "services", "sync", "plan", "encode", "jumps", "tool user", "tool sys", "post-sync", "rest"}}
	postSync := slices.ContainsFunc(shown, func(p Phases) bool { return p.PostSync > 0 })
	if !postSync { // old runs, and subjects that do not report post-sync work
		times.header = slices.Delete(times.header, 8, 9)
	}
	settings := ""
	for _, p := range shown {
		if tail := p.Cell.Settings(); tail != settings {
			settings = tail
			times.heading(tail)
		}
		row := []string{p.Series, Grouped(int64(p.Cell.Services)), p.Kind, orDash(p.Plan), orDash(p.Encode), orDash(p.Jumps),
			orDash(p.ToolUser), orDash(p.ToolSys)}
		if postSync {
			row = append(row, orDash(p.PostSync))
		}
		times.add(append(row, Format(p.Rest, "s"))...)
	}
	b.WriteString("\nWhere a sync spends its time (shares of the median sync)\n\n")
	times.write(b)
}

// tablePhases returns all phases if they are few, else the phases of each series' largest cell.
func (s *Summary) tablePhases() []Phases {
	if len(s.Phases) <= 12 {
		return s.Phases
	}
	var out []Phases
	for _, k := range largestFigures(s.KeyFigures) {
		for _, p := range s.Phases {
			if p.Series == k.Series && p.Cell.id() == k.Cell.id() {
				out = append(out, p)
			}
		}
	}
	return out
}

// orDash formats a duration. A phase that did not happen is a dash.
func orDash(seconds float64) string {
	if seconds == 0 {
		return "–"
	}
	return Format(seconds, "s")
}

// withSpread formats like benchstat, "3.31 s ±2%", and without the interval if there is none.
func withSpread(d *estimate.Distribution) string {
	if d == nil {
		return "–"
	}
	text := Format(d.Median, "s")
	if share, ok := d.Spread(); ok {
		text += narrow(spreadText(share))
	}
	return text
}

// narrow shortens an interval for a terminal: " ±3%".
func narrow(text string) string {
	return strings.Replace(strings.Replace(text, "± ", "±", 1), " %", "%", 1)
}

func shortTime(d *estimate.Distribution, of func(estimate.Distribution) float64) string {
	if d == nil {
		return "–"
	}
	return Format(of(*d), "s")
}

func countText(v *float64) string {
	if v == nil {
		return "–"
	}
	return Format(*v, "count")
}

// textTable aligns its first column left and the others right. A heading is a row with a single cell.
type textTable struct {
	header []string
	rows   [][]string
}

func (t *textTable) add(cells ...string)      { t.rows = append(t.rows, cells) }
func (t *textTable) heading(text string)      { t.rows = append(t.rows, []string{text}) }
func runes(text string) int                   { return utf8.RuneCountInString(text) }
func (t textTable) isHeading(r []string) bool { return len(r) == 1 }

// dropEmpty removes columns without values.
func (t textTable) dropEmpty() textTable {
	out := textTable{rows: make([][]string, len(t.rows))}
	for i, name := range t.header {
		used := false
		for _, row := range t.rows {
			used = used || (!t.isHeading(row) && row[i] != "" && row[i] != "–")
		}
		if !used {
			continue
		}
		out.header = append(out.header, name)
		for j, row := range t.rows {
			if !t.isHeading(row) {
				out.rows[j] = append(out.rows[j], row[i])
			}
		}
	}
	for j, row := range t.rows {
		if t.isHeading(row) {
			out.rows[j] = row
		}
	}
	return out
}

// legend returns a text that explains columns, or nothing if the table has none of them.
func (t textTable) legend(text string, columns ...string) string {
	if slices.ContainsFunc(columns, func(name string) bool { return slices.Contains(t.header, name) }) {
		return text
	}
	return ""
}

// widths returns the widths of the columns.
func (t textTable) widths() []int {
	widths := make([]int, len(t.header))
	for _, row := range append([][]string{t.header}, t.rows...) {
		if t.isHeading(row) {
			continue
		}
		for i, cell := range row {
			widths[i] = max(widths[i], runes(cell))
		}
	}
	return widths
}

// fits reports whether the table fits into tableWidth.
func (t textTable) fits() bool {
	total := -2
	for _, w := range t.widths() {
		total += w + 2
	}
	return total <= tableWidth
}

// write writes every name in full, however wide: two names cut in the middle may look alike.
func (t textTable) write(b *strings.Builder) {
	widths := t.widths()
	line := func(row []string) {
		text := row[0] + strings.Repeat(" ", max(0, widths[0]-runes(row[0])))
		for i, cell := range row[1:] {
			text += strings.Repeat(" ", max(0, 2+widths[i+1]-runes(cell))) + cell
		}
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	if len(t.header) > 0 { // otherwise no column has a value
		line(t.header)
	}
	for _, row := range t.rows {
		if len(row) == 0 {
			continue
		}
		if t.isHeading(row) {
			b.WriteString(shorten(row[0], tableWidth) + "\n")
			continue
		}
		line(row)
	}
}

// shorten cuts the middle out of a text that is too long.
func shorten(text string, width int) string {
	r := []rune(text)
	if len(r) <= width {
		return text
	}
	head := (width - 1) / 2
	return string(r[:head]) + "…" + string(r[len(r)-(width-1-head):])
}

// wrap breaks a text at spaces. Lines after the first are indented.
func wrap(text string, width int, indent string) string {
	var b strings.Builder
	used := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case used+1+runes(word) > width:
			b.WriteString("\n" + indent)
			used = runes(indent)
		default:
			b.WriteString(" ")
			used++
		}
		b.WriteString(word)
		used += runes(word)
	}
	return b.String()
}
