package reports

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"synclab/reports/estimate"
)

// faultSection shows the faults in the order of the steps, with a column for each subject.
func (s *Summary) faultSection() *pageSection {
	if len(s.Faults) == 0 {
		return nil
	}
	section := &pageSection{ID: "faults", Title: "Faults", Notes: []string{"The first line of a cell is the time to recover. It starts at the fault and ends when the kernel has everything again that the fault removed. For a fault that removes nothing, it starts at the end of the fault and ends when all earlier changes are visible. For dropped watches, and for faults that delay single changes (references, events duplicated or reordered), it is the longest delay of one change. " +
		"Below is the time to detect: from the fault until the subject's first sync or command that answers it. The last lines count the flows that failed or were misrouted between fault and recovery. A dash: the fault does not apply to the subject, or nothing was measured."}}
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

// faultsOf returns a cell's fault names in order, and the series with any fault, in the order of the collection.
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
			if f != nil && f.Duration > 0 {
				first.Sub = "active for " + holdText(f.Duration)
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

// faultCell shows one fault with one subject: the time to recover, and below it detection and flows.
func faultCell(f *FaultResult) pageCell {
	if f == nil {
		return pageCell{Text: "–", Faint: true}
	}
	cell := pageCell{Text: "unknown", Faint: true, Loud: f.Never > 0 || f.Misrouted > 0}
	if f.Recovered != nil {
		cell = valueCell(f.Recovered.Median, "s")
		cell.Loud = f.Never > 0 || f.Misrouted > 0
	}
	switch {
	case f.Never > 0 && f.Recovered == nil:
		cell = pageCell{Text: f.notWithin(), Loud: true, Value: exact(f.Waited * 1e6)}
	case f.Never > 0:
		cell.Sub = fmt.Sprintf("%d of %d %s", f.Never, f.Times, f.notWithin())
	case f.Times > 1 && f.Recovered != nil && f.Recovered.Max > f.Recovered.Median:
		cell.Sub = "max " + Format(f.Recovered.Max, "s")
	}
	var parts []string
	if cell.Sub != "" {
		parts = append(parts, cell.Sub)
	}
	if f.Detected != nil {
		parts = append(parts, "detected after "+Format(f.Detected.Median, "s"))
	}
	cell.Sub = fewLines(append(parts, f.lost()...))
	cell.Title = strings.TrimPrefix(strings.Join([]string{cell.Title, plural(f.Times, "time"), f.Why}, ", "), ", ")
	cell.Title = strings.TrimSuffix(cell.Title, ", ")
	return cell
}

// holdText formats a fault's duration: "6 s", "1h".
func holdText(seconds float64) string {
	text := trimTick(Format(seconds, "s"))
	return strings.TrimSuffix(strings.TrimSuffix(text, "0s"), "h0m") + map[bool]string{true: "h"}[strings.HasSuffix(text, "h0m0s")]
}

// faultTotals adds up a subject's faults: their number, the faults without a recovery, and the outcomes of flows.
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
		if f.Recovered != nil && (total.Recovered == nil || f.Recovered.Max > total.Recovered.Max) {
			total.Recovered, total.Fault = f.Recovered, f.Fault
		}
	}
	return total
}

func allFaultsCell(total FaultResult) pageCell {
	cell := pageCell{Text: fmt.Sprintf("%d of %d recovered", total.Times-total.Never, total.Times), Loud: total.Never > 0 || total.Misrouted > 0}
	var parts []string
	if total.Recovered != nil {
		parts = append(parts, "slowest "+Format(total.Recovered.Max, "s"))
	}
	cell.Sub = fewLines(append(parts, total.lost()...))
	return cell
}

// fewLines joins small lines below a cell's text, without line breaks before units.
func fewLines(parts []string) string {
	return beforeUnit.ReplaceAllString(strings.Join(parts, "\n"), "$1\u00a0$2")
}

// lost states the outcomes of flows, or nothing without a stream.
func (f *FaultResult) lost() []string {
	if f.Flows == 0 {
		return nil
	}
	return []string{f.seen(f.Failed) + " failed of " + Grouped(int64(f.Flows)), f.seen(f.Misrouted) + " misrouted"}
}

// seen is the number of flows with an outcome. A zero comes with the bound of the share.
func (f *FaultResult) seen(n int) string {
	if n == 0 {
		return "0 (< " + shareText(estimate.ShareAtMost(0, f.Flows)) + ")"
	}
	return Grouped(int64(n))
}

// notWithin is the text for a fault without a recovery. It has the waiting time of the check.
func (f *FaultResult) notWithin() string { return "not within " + trimTick(Format(f.Waited, "s")) }

// byTime explains when kube-proxy in iptables mode recovers later, if it did not recover within the wait.
func (s *Summary) byTime() string {
	if !slices.ContainsFunc(s.Faults, func(f FaultResult) bool { return f.Never > 0 && strings.HasPrefix(f.Series, kubeProxy+"iptables") }) {
		return ""
	}
	return "“Not within” does not mean “never”: kube-proxy in iptables mode makes a full sync once an hour. Above 1,000 endpoints, it makes no periodic full sync (k/k#138571)."
}

// faultShort is a fault in a narrow table: "1.2 s" or "> 45 s", with the failed and misrouted flows, if any.
func faultShort(f *FaultResult) string {
	switch {
	case f == nil:
		return "–"
	case f.Never > 0:
		return limitText(f.Waited, "s")
	case f.Recovered == nil:
		return "?"
	}
	text := Format(f.Recovered.Median, "s")
	if f.Failed > 0 {
		text += " −" + Grouped(int64(f.Failed))
	}
	if f.Misrouted > 0 {
		text += " !" + Grouped(int64(f.Misrouted))
	}
	return text
}

// terminalFaults writes the faults for a terminal. Each table has as many subjects of a proxier as fit.
func (s *Summary) terminalFaults(b *strings.Builder) {
	cells := s.faultCells()
	if len(cells) == 0 {
		return
	}
	names, series := s.faultsOf(cells[0])
	fmt.Fprintf(b, "\nFaults at %s: time to recover, failed and misrouted flows\n", sizesText(cells[:1]))
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
	b.WriteString("\n" + wrap("−12: 12 flows failed before the recovery; !3: 3 flows were misrouted; the time after a fault's name is the fault's duration", tableWidth, "  ") + "\n")
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
			if f := s.faultOf(cell, name, one); f != nil && f.Duration > 0 && row[0] == faultText(name) {
				row[0] += ", " + holdText(f.Duration)
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
	fmt.Fprintf(b, "### Faults at %s: time to recover, failed / misrouted flows\n\n", sizesText(cells[:1]))
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

// faultAnswers states which subjects recovered from all faults, which did not, and the outcomes of flows until then.
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
		text := fmt.Sprintf("%s (%d of %[2]d", one, total.Times)
		if total.Never > 0 {
			text = fmt.Sprintf("%s (%d of %d", one, total.Times-total.Never, total.Times)
		}
		if total.Recovered != nil {
			text += ", the slowest after " + Format(total.Recovered.Max, "s")
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
		out = append(out, joinWords(all)+" recovered from every fault"+where+".")
	}
	if len(others) > 0 {
		out = append(out, joinWords(others)+" did not recover from every fault"+where+".")
	}
	if flows > 0 {
		text := fmt.Sprintf("Until the recoveries, none of %s failed (with each subject the share is below %s with 95 %% confidence, if flows are independent)",
			plural(flows, "flow"), shareText(estimate.ShareAtMost(0, least)))
		if len(lost) > 0 {
			text = "Until the recoveries, flows failed: " + joinWords(lost)
		}
		if len(astray) > 0 {
			text += "; flows were misrouted: " + joinWords(astray)
		} else {
			text += "; none of " + plural(flows, "flow") + " was misrouted"
		}
		out = append(out, text+".")
	}
	return out
}

// invariantSection shows the checks and the violations of each invariant.
func (s *Summary) invariantSection() *pageSection {
	if len(s.Invariants) == 0 {
		return nil
	}
	section := &pageSection{ID: "invariants", Title: "Invariants", Notes: []string{"A cell has the number of violations and of checks. A dash: not checked."}}
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

// invariantTotals returns a subject's checks and violations.
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
		out = append(out, "Invariants: "+strings.Join(others, "; ")+".")
	}
	if len(clean) > 0 {
		out = append(out, fmt.Sprintf("No invariant was violated by %s (%s).", joinWords(clean), plural(looked, "check")))
	}
	return out
}

func (s *Summary) terminalInvariants(b *strings.Builder) {
	_, series := s.invariantNames()
	if len(series) == 0 {
		return
	}
	b.WriteString("\nInvariants\n\n")
	t := textTable{header: []string{"subject", "checks", "violations", "violated"}}
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
	markdownTable(b, []string{"subject", "checks", "violations", "violated"}, -1, len(series), func(i int) []string {
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
