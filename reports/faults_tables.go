package reports

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"synclab/reports/estimate"
)

// faultSection is the faults in the order of the steps, the subjects side by side.
func (s *Summary) faultSection() *pageSection {
	if len(s.Faults) == 0 {
		return nil
	}
	section := &pageSection{ID: "faults", Title: "What a fault costs", Notes: []string{"Repaired after: from the fault until what it took away was back; of a fault that takes nothing away, from its end until the changes made before it were visible; of watches that were dropped, and of what meets single changes (references, events repeated or swapped), how long one of them waited at most. " +
		"Below: seen after (the subject's first sync or command that answers it), and the flows of the stream that failed or were misrouted from the fault until it was repaired. A dash: the subject cannot have such a fault, or nothing was measured."}}
	for i, cell := range s.faultCells() {
		t := s.faultTable(cell)
		if i == 0 {
			section.Tables = append(section.Tables, t)
		} else {
			section.Folded = append(section.Folded, t)
		}
	}
	return section
}

// faultCells are the cells with faults, the largest first.
func (s *Summary) faultCells() []Cell {
	var out []Cell
	for _, f := range s.Faults {
		if !slices.ContainsFunc(out, func(c Cell) bool { return c.id() == f.Cell.id() }) {
			out = append(out, f.Cell)
		}
	}
	slices.SortStableFunc(out, func(a, b Cell) int { return b.Services - a.Services })
	return out
}

// faultsOf a cell: their names in order, and the series that had any, in the order of the collection.
func (s *Summary) faultsOf(cell Cell) (names, series []string) {
	for _, f := range s.Faults {
		if f.Cell.id() == cell.id() {
			names = append(names, f.Fault)
		}
	}
	for _, one := range s.collected.series {
		if slices.ContainsFunc(s.Faults, func(f FaultResult) bool { return f.Series == one.name && f.Cell.id() == cell.id() }) {
			series = append(series, one.name)
		}
	}
	return distinct(names), series
}

func (s *Summary) faultOf(cell Cell, name, series string) *FaultResult {
	i := slices.IndexFunc(s.Faults, func(f FaultResult) bool { return f.Cell.id() == cell.id() && f.Fault == name && f.Series == series })
	if i < 0 {
		return nil
	}
	return &s.Faults[i]
}

func (s *Summary) faultTable(cell Cell) pageTable {
	names, series := s.faultsOf(cell)
	t := pageTable{Title: sizesText([]Cell{cell}) + settingsTail(shortSettings(cell.Settings())), Columns: []pageColumn{{Name: "Fault"}}}
	for _, one := range series {
		t.Columns = append(t.Columns, s.seriesColumn(one))
	}
	for _, name := range names {
		first := pageCell{Text: faultText(name)}
		row := []pageCell{}
		for _, one := range series {
			f := s.faultOf(cell, name, one)
			if f != nil && f.Holds > 0 {
				first.Sub = "holds " + holdText(f.Holds)
			}
			row = append(row, faultCell(f))
		}
		t.Rows = append(t.Rows, append([]pageCell{first}, row...))
	}
	all := []pageCell{{Text: "all faults"}}
	for _, one := range series {
		all = append(all, allFaultsCell(s.faultTotals(cell, one)))
	}
	t.Rows = append(t.Rows, all)
	t.Note = s.byTime()
	return t.dropEmpty()
}

// faultCell is one fault with one subject: repaired after, and below it what it cost.
func faultCell(f *FaultResult) pageCell {
	if f == nil {
		return pageCell{Text: "–", Faint: true}
	}
	cell := pageCell{Text: "not known", Faint: true, Loud: f.Never > 0 || f.Misrouted > 0}
	if f.Repaired != nil {
		cell = valueCell(f.Repaired.Median, "s")
		cell.Loud = f.Never > 0 || f.Misrouted > 0
	}
	switch {
	case f.Never > 0 && f.Repaired == nil:
		cell = pageCell{Text: f.notWithin(), Loud: true, Value: exact(f.Waited * 1e6)}
	case f.Never > 0:
		cell.Sub = fmt.Sprintf("%d of %d %s", f.Never, f.Times, f.notWithin())
	case f.Times > 1 && f.Repaired != nil && f.Repaired.Max > f.Repaired.Median:
		cell.Sub = "max " + Format(f.Repaired.Max, "s")
	}
	var parts []string
	if cell.Sub != "" {
		parts = append(parts, cell.Sub)
	}
	if f.Detected != nil {
		parts = append(parts, "seen "+Format(f.Detected.Median, "s"))
	}
	cell.Sub = fewLines(append(parts, f.lost()...))
	cell.Title = strings.TrimPrefix(strings.Join([]string{cell.Title, plural(f.Times, "time"), f.Why}, ", "), ", ")
	cell.Title = strings.TrimSuffix(cell.Title, ", ")
	return cell
}

// holdText is how long a fault holds: "6 s", "1h".
func holdText(seconds float64) string {
	text := trimTick(Format(seconds, "s"))
	return strings.TrimSuffix(strings.TrimSuffix(text, "0s"), "h0m") + map[bool]string{true: "h"}[strings.HasSuffix(text, "h0m0s")]
}

// faultTotals adds up a subject's faults: how many there were and never were repaired, and what flows met.
func (s *Summary) faultTotals(cell Cell, series string) (total FaultResult) {
	for _, f := range s.Faults {
		if f.Cell.id() != cell.id() || f.Series != series {
			continue
		}
		total.Times += f.Times
		total.Never += f.Never
		total.Flows += f.Flows
		total.Failed += f.Failed
		total.Misrouted += f.Misrouted
		if f.Repaired != nil && (total.Repaired == nil || f.Repaired.Max > total.Repaired.Max) {
			total.Repaired, total.Fault = f.Repaired, f.Fault
		}
	}
	return total
}

func allFaultsCell(total FaultResult) pageCell {
	cell := pageCell{Text: fmt.Sprintf("%d of %d repaired", total.Times-total.Never, total.Times), Loud: total.Never > 0 || total.Misrouted > 0}
	var parts []string
	if total.Repaired != nil {
		parts = append(parts, "slowest "+Format(total.Repaired.Max, "s"))
	}
	cell.Sub = fewLines(append(parts, total.lost()...))
	return cell
}

// fewLines are small lines below a cell's text, which do not break before a unit.
func fewLines(parts []string) string {
	return beforeUnit.ReplaceAllString(strings.Join(parts, "\n"), "$1\u00a0$2")
}

// lost says what flows met; nothing without a stream.
func (f *FaultResult) lost() []string {
	if f.Flows == 0 {
		return nil
	}
	return []string{f.seen(f.Failed) + " failed of " + Grouped(int64(f.Flows)), f.seen(f.Misrouted) + " misrouted"}
}

// seen is how many flows met something; none has the bound of its share.
func (f *FaultResult) seen(n int) string {
	if n == 0 {
		return "0 (< " + shareText(estimate.ShareAtMost(0, f.Flows)) + ")"
	}
	return Grouped(int64(n))
}

// notWithin is what is known of a fault that was not repaired while it was waited for.
func (f *FaultResult) notWithin() string { return "not within " + trimTick(Format(f.Waited, "s")) }

// byTime says what would repair later what was not repaired while it was waited for, if that was a kube-proxy in iptables mode.
func (s *Summary) byTime() string {
	if !slices.ContainsFunc(s.Faults, func(f FaultResult) bool { return f.Never > 0 && strings.HasPrefix(f.Series, kubeProxy+"iptables") }) {
		return ""
	}
	return "“Not within” is no “never”: kube-proxy in iptables mode makes a full sync once an hour, and none by time above 1,000 endpoints (k/k#138571)."
}

// faultShort is a fault in a narrow table: "1.2 s", "> 45 s", with failed and misrouted flows behind it where there are any.
func faultShort(f *FaultResult) string {
	switch {
	case f == nil:
		return "–"
	case f.Never > 0:
		return limitText(f.Waited, "s")
	case f.Repaired == nil:
		return "?"
	}
	text := Format(f.Repaired.Median, "s")
	if f.Failed > 0 {
		text += " −" + Grouped(int64(f.Failed))
	}
	if f.Misrouted > 0 {
		text += " !" + Grouped(int64(f.Misrouted))
	}
	return text
}

// terminalFaults writes the faults for a terminal: as many subjects of a proxier side by side as fit, the others below.
func (s *Summary) terminalFaults(b *strings.Builder) {
	cells := s.faultCells()
	if len(cells) == 0 {
		return
	}
	names, series := s.faultsOf(cells[0])
	fmt.Fprintf(b, "\nFaults at %s: repaired after, flows lost\n", sizesText(cells[:1]))
	for len(series) > 0 {
		proxier, _, _ := strings.Cut(series[0], "/")
		n := 1
		for n < len(series) && strings.HasPrefix(series[n], proxier+"/") && s.faultRows(cells[0], names, series[:n+1]).fits() {
			n++
		}
		fmt.Fprintf(b, "\n%s\n", proxier)
		s.faultRows(cells[0], names, series[:n]).write(b)
		series = series[n:]
	}
	b.WriteString("\n" + wrap("−12: so many flows failed until it was repaired; !3: so many were misrouted; the time behind a fault is how long it holds", tableWidth, "  ") + "\n")
	if note := s.byTime(); note != "" {
		b.WriteString(wrap(note, tableWidth, "  ") + "\n")
	}
}

func (s *Summary) faultRows(cell Cell, names, series []string) textTable {
	t := textTable{header: []string{"fault"}}
	for _, one := range series {
		t.header = append(t.header, shortSeries(one))
	}
	for _, name := range names {
		row := []string{faultText(name)}
		for _, one := range series {
			if f := s.faultOf(cell, name, one); f != nil && f.Holds > 0 && row[0] == faultText(name) {
				row[0] += ", " + holdText(f.Holds)
			}
			row = append(row, faultShort(s.faultOf(cell, name, one)))
		}
		t.add(row...)
	}
	return t
}

func (s *Summary) markdownFaults(w io.Writer) {
	cells := s.faultCells()
	if len(cells) == 0 {
		return
	}
	names, series := s.faultsOf(cells[0])
	b := &strings.Builder{}
	fmt.Fprintf(b, "### Faults at %s: repaired after, flows failed / misrouted\n\n", sizesText(cells[:1]))
	markdownTable(b, append([]string{"fault"}, series...), -1, len(names), func(i int) []string {
		row := []string{faultText(names[i])}
		for _, one := range series {
			f := s.faultOf(cells[0], names[i], one)
			text := "–"
			if f != nil {
				text = faultCell(f).Text
				if f.Never > 0 {
					text = f.notWithin()
				}
				if f.Flows > 0 {
					text += fmt.Sprintf(", %s / %s of %s", f.seen(f.Failed), f.seen(f.Misrouted), Grouped(int64(f.Flows)))
				}
			}
			row = append(row, text)
		}
		return row
	})
	if note := s.byTime(); note != "" {
		b.WriteString("\n" + note + "\n")
	}
	fmt.Fprintln(w, b)
}

// faultAnswers say who repaired all faults and who did not, and what flows met until then.
func (s *Summary) faultAnswers() []string {
	cells := s.faultCells()
	if len(cells) == 0 {
		return nil
	}
	_, series := s.faultsOf(cells[0])
	var all, others, lost, astray []string
	flows, least := 0, math.MaxInt
	for _, one := range series {
		total := s.faultTotals(cells[0], one)
		text := fmt.Sprintf("%s (%d", one, total.Times)
		if total.Never > 0 {
			text = fmt.Sprintf("%s (%d of %d", one, total.Times-total.Never, total.Times)
		}
		if total.Repaired != nil {
			text += ", the slowest after " + Format(total.Repaired.Max, "s")
		}
		if total.Never > 0 {
			others = append(others, text+")")
		} else {
			all = append(all, text+")")
		}
		flows += total.Flows
		if total.Flows > 0 {
			least = min(least, total.Flows)
		}
		if total.Failed > 0 {
			lost = append(lost, fmt.Sprintf("%s of %s with %s", Grouped(int64(total.Failed)), Grouped(int64(total.Flows)), one))
		}
		if total.Misrouted > 0 {
			astray = append(astray, fmt.Sprintf("%s with %s", Grouped(int64(total.Misrouted)), one))
		}
	}
	where := " at " + sizesText(cells[:1])
	var out []string
	if len(all) > 0 {
		out = append(out, "Every fault"+where+" was repaired by "+joinWords(all)+".")
	}
	if len(others) > 0 {
		out = append(out, "Not every fault"+where+" was repaired by "+joinWords(others)+".")
	}
	if flows > 0 {
		text := fmt.Sprintf("Until they were repaired, none of %s failed (with each subject the share is below %s with 95 %% confidence, if flows are independent)",
			plural(flows, "flow"), shareText(estimate.ShareAtMost(0, least)))
		if len(lost) > 0 {
			text = "Until they were repaired, flows failed: " + joinWords(lost)
		}
		if len(astray) > 0 {
			text += "; misrouted were " + joinWords(astray)
		} else {
			text += "; none of " + plural(flows, "flow") + " was misrouted"
		}
		out = append(out, text+".")
	}
	return out
}

// invariantSection is what was looked at for each invariant, and what was violated.
func (s *Summary) invariantSection() *pageSection {
	if len(s.Invariants) == 0 {
		return nil
	}
	section := &pageSection{ID: "invariants", Title: "Invariants", Notes: []string{"How often each was violated, and how much was looked at for it. A dash: it was not looked at."}}
	numbers, series := s.invariantNames()
	t := pageTable{Columns: []pageColumn{{Name: "Invariant"}}}
	for _, one := range series {
		t.Columns = append(t.Columns, s.seriesColumn(one))
	}
	for _, number := range numbers {
		row := []pageCell{{Text: number, Sub: invariantTexts[number]}}
		for _, one := range series {
			r := s.invariantOf(number, one)
			if r == nil {
				row = append(row, pageCell{Text: "–", Faint: true})
				continue
			}
			row = append(row, pageCell{Text: plural(r.Violations, "violation"), Sub: "of " + Grouped(int64(r.Checked)), Value: fmt.Sprint(r.Violations), Loud: r.Violations > 0, Title: r.First})
			if r.Violations > 0 && r.First != "" {
				section.Texts = append(section.Texts, pageNote{fmt.Sprintf("%s, %s: the first of %s", number, one, plural(r.Violations, "violation")), r.First})
			}
		}
		t.Rows = append(t.Rows, row)
	}
	section.Tables = []pageTable{t.dropEmpty()}
	return section
}

func (s *Summary) invariantNames() (numbers, series []string) {
	for _, r := range s.Invariants {
		numbers = append(numbers, r.Invariant)
	}
	for _, one := range s.collected.series {
		if slices.ContainsFunc(s.Invariants, func(r InvariantResult) bool { return r.Series == one.name }) {
			series = append(series, one.name)
		}
	}
	return distinct(numbers), series
}

func (s *Summary) invariantOf(number, series string) *InvariantResult {
	i := slices.IndexFunc(s.Invariants, func(r InvariantResult) bool { return r.Invariant == number && r.Series == series })
	if i < 0 {
		return nil
	}
	return &s.Invariants[i]
}

// invariantTotals are, for each subject, how much was looked at and what was violated.
func (s *Summary) invariantTotals(series string) (checked, violations int, of []string) {
	for _, r := range s.Invariants {
		if r.Series != series {
			continue
		}
		checked += r.Checked
		violations += r.Violations
		if r.Violations > 0 {
			of = append(of, r.Invariant)
		}
	}
	return checked, violations, of
}

func (s *Summary) invariantAnswers() []string {
	_, series := s.invariantNames()
	var clean, others []string
	looked := 0
	for _, one := range series {
		checked, violations, of := s.invariantTotals(one)
		if violations == 0 {
			clean = append(clean, one)
			looked += checked
			continue
		}
		others = append(others, fmt.Sprintf("%s violated %s, %s", one, joinWords(of), plural(violations, "time")))
	}
	var out []string
	if len(others) > 0 {
		out = append(out, "Of the invariants "+strings.Join(others, "; ")+".")
	}
	if len(clean) > 0 {
		out = append(out, fmt.Sprintf("No invariant was violated by %s (%s looked at).", joinWords(clean), plural(looked, "thing")))
	}
	return out
}

func (s *Summary) terminalInvariants(b *strings.Builder) {
	_, series := s.invariantNames()
	if len(series) == 0 {
		return
	}
	b.WriteString("\nInvariants\n\n")
	t := textTable{header: []string{"subject", "looked at", "violations", "of"}}
	for _, one := range series {
		checked, violations, of := s.invariantTotals(one)
		t.add(one, Grouped(int64(checked)), Grouped(int64(violations)), strings.Join(of, " "))
	}
	t.dropEmpty().write(b)
	for _, r := range s.Invariants {
		if r.Violations > 0 {
			b.WriteString(wrap(r.Invariant+", "+r.Series+": "+r.First, tableWidth, "  ") + "\n")
		}
	}
}

func (s *Summary) markdownInvariants(w io.Writer) {
	_, series := s.invariantNames()
	if len(series) == 0 {
		return
	}
	b := &strings.Builder{}
	b.WriteString("### Invariants\n\n")
	markdownTable(b, []string{"subject", "looked at", "violations", "of"}, -1, len(series), func(i int) []string {
		checked, violations, of := s.invariantTotals(series[i])
		return []string{series[i], Grouped(int64(checked)), Grouped(int64(violations)), strings.Join(of, " ")}
	})
	for _, r := range s.Invariants {
		if r.Violations > 0 {
			fmt.Fprintf(b, "\n- %s, %s: %s\n", r.Invariant, r.Series, strings.Join(strings.Fields(r.First), " "))
		}
	}
	fmt.Fprintln(w, b)
}
