package sections

import (
	"slices"
	"strconv"
	"strings"

	"synclab/bench/fault"
	"synclab/bench/subject"
	"synclab/reports/comparison"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

// FaultSection shows the faults in the order of the steps, with a column for each subject.
func (s *Summary) FaultSection() doc.Section {
	out := doc.Section{ID: "faults", Title: "Faults", Dense: true}
	if len(s.Faults) == 0 {
		return out
	}
	out.Add(doc.Block{On: doc.Page, Soft: true, Note: "Below the time to recover is the time to detect: from the fault until the subject's first sync or command that answers it, " +
		"but no sync that may be for a change. Flows count that failed or were misrouted between fault and recovery. " +
		"A dash: the fault does not apply to the subject, or nothing was measured."})
	for i, cell := range s.FaultCells() {
		b := doc.Block{Table: s.faultTable(cell)}
		if i > 0 {
			b.On, b.Folded = doc.Page, true
		}
		out.Add(b)
	}
	return out
}

// FaultCells are the cells with faults, the largest first.
func (s *Summary) FaultCells() []records.Cell {
	return largestFirst(s.Faults, func(f FaultResult) records.Cell { return f.Cell })
}

// FaultsOf returns a cell's fault names in order, and the series with any fault, in the order of the collection.
func (s *Summary) FaultsOf(cell records.Cell) (names, series []string) {
	for _, f := range s.Faults {
		if f.Cell.ID() == cell.ID() {
			names = append(names, f.Fault)
		}
	}
	for _, one := range s.Collected.Series {
		if slices.ContainsFunc(s.Faults, func(f FaultResult) bool { return f.Series == one.Name && f.Cell.ID() == cell.ID() }) {
			series = append(series, one.Name)
		}
	}
	return records.Distinct(names), series
}

func (s *Summary) FaultOf(cell records.Cell, name, series string) *FaultResult {
	return records.Find(s.Faults, func(f FaultResult) bool { return f.Cell.ID() == cell.ID() && f.Fault == name && f.Series == series })
}

// faultTable has a row for each fault of a cell. Sums would be of different faults: not every fault applies to every subject.
func (s *Summary) faultTable(cell records.Cell) *doc.Table {
	names, series := s.FaultsOf(cell)
	t := &doc.Table{Title: "Faults at " + records.SizesText([]records.Cell{cell}) + records.SettingsTail(records.ShortSettings(cell.Settings())) + ": time to recover, failed and misrouted flows",
		Note: s.byTime(), Columns: []doc.Column{{Name: "Fault",
			Legend: "−12: 12 flows failed before the recovery; !3: 3 flows were misrouted; ?: no recovery was observed; a time after a fault's name is the fault's planned duration"},
			{Name: "Recovery is counted", On: doc.Page, Row: true}}}
	for _, one := range series {
		column := s.seriesColumn(one)
		column.Short = records.ShortSeries(one)
		column.Group, _, _ = strings.Cut(one, "/")
		t.Columns = append(t.Columns, column)
	}
	for _, name := range names {
		kind, _, _ := strings.Cut(FaultText(name), " ")
		row := []doc.Cell{{Text: FaultName(name, names)}, doc.Text(fault.Of(kind).Repair())}
		for _, one := range series {
			f := s.FaultOf(cell, name, one)
			if f != nil && f.Duration > 0 {
				row[0].Sub = "active " + HoldText(f.Duration)
				row[0].Terminal = row[0].Text + ", " + HoldText(f.Duration)
			}
			row = append(row, FaultCell(f))
		}
		t.Add(row...)
	}
	return t
}

// FaultCell shows one fault with one subject: the time to recover, and below it detection and flows.
func FaultCell(f *FaultResult) doc.Cell {
	if f == nil {
		return doc.None()
	}
	cell := doc.Cell{Text: "unknown", Faint: true}
	if f.Recovered != nil {
		cell = doc.Value(f.Recovered.Median, "s")
	}
	cell.Markdown = cell.Text + f.flowsText()
	var below []string
	switch {
	case f.Never > 0 && f.Recovered == nil:
		cell = doc.Cell{Text: f.notWithin(), Value: doc.Exact(f.Waited * 1e6), Markdown: f.notWithin() + f.flowsText()}
	case f.Never > 0:
		below = append(below, strconv.Itoa(f.Never)+" of "+strconv.Itoa(f.Times)+" "+f.notWithin())
		cell.Markdown = f.notWithin() + f.flowsText()
	case f.Times > 1 && f.Recovered != nil && f.Recovered.Max > f.Recovered.Median:
		below = append(below, "max "+doc.Format(f.Recovered.Max, "s"))
	}
	if f.Detected != nil {
		below = append(below, "detected after "+doc.Format(f.Detected.Median, "s"))
	}
	cell.Sub = strings.Join(append(below, f.lost()...), "\n")
	cell.Terminal = faultShort(f)
	cell.Loud = f.Never > 0 || f.Misrouted > 0
	cell.Title = strings.Trim(strings.Join([]string{cell.Title, doc.Plural(f.Times, "time"), f.Why}, ", "), ", ")
	return cell
}

// HoldText formats a fault's planned duration. No run waits for the end of an hour: a later step clears the fault.
func HoldText(seconds float64) string {
	if seconds >= 3600 {
		return "until cleared"
	}
	return "for " + strings.TrimSuffix(doc.TrimTick(doc.Format(seconds, "s")), "0s")
}

// lost states the outcomes of flows, or nothing without a stream.
func (f *FaultResult) lost() []string {
	if f.Flows == 0 {
		return nil
	}
	return []string{f.seen(f.Failed) + " failed of " + doc.Grouped(int64(f.Flows)), f.seen(f.Misrouted) + " misrouted"}
}

// flowsText has the outcomes of flows on one line: ", 12 / 3 of 4,000".
func (f *FaultResult) flowsText() string {
	if f.Flows == 0 {
		return ""
	}
	return ", " + f.seen(f.Failed) + " / " + f.seen(f.Misrouted) + " of " + doc.Grouped(int64(f.Flows))
}

// seen is the number of flows with an outcome. A zero comes with the bound of the share.
func (f *FaultResult) seen(n int) string {
	if n == 0 {
		return noneText(estimate.ShareAtMost(0, f.Flows))
	}
	return doc.Grouped(int64(n))
}

// notWithin is the text for a fault without a recovery. It has the waiting time of the check.
func (f *FaultResult) notWithin() string {
	return "not within " + doc.TrimTick(doc.Format(f.Waited, "s"))
}

// byTime explains when kube-proxy recovers later, if it did not recover within the wait.
func (s *Summary) byTime() string {
	if !slices.ContainsFunc(s.Faults, func(f FaultResult) bool { return f.Never > 0 && subject.IsKubeProxy(f.Series) }) {
		return ""
	}
	return "“Not within” does not mean “never”: kube-proxy makes a full sync once an hour, " +
		"but in mode iptables above 1,000 endpoints none by time (k/k#138571)."
}

// faultShort is a fault on a terminal: "1.2 s" or "> 45 s", with the failed and misrouted flows, if any.
func faultShort(f *FaultResult) string {
	switch {
	case f.Never > 0:
		return comparison.LimitText(f.Waited, "s")
	case f.Recovered == nil:
		return "?"
	}
	text := doc.Format(f.Recovered.Median, "s")
	if f.Failed > 0 {
		text += " −" + doc.Grouped(int64(f.Failed))
	}
	if f.Misrouted > 0 {
		text += " !" + doc.Grouped(int64(f.Misrouted))
	}
	return text
}

// InvariantSection shows the checks and the violations of each invariant.
func (s *Summary) InvariantSection() doc.Section {
	out := doc.Section{ID: "invariants", Title: "Invariants", Dense: true}
	if len(s.Invariants) == 0 {
		return out
	}
	out.Add(doc.Block{On: doc.Page, Soft: true, Note: "A cell has the number of violations and of checks. A dash: not checked."},
		doc.Block{On: doc.Page, Table: s.invariantTable()}, doc.Block{On: doc.Terminal | doc.Markdown, Table: s.violationTable()})
	var first []string
	for _, r := range s.Invariants {
		if r.Violations > 0 && r.First != "" {
			where := r.Invariant + ", " + r.Series + ": "
			first = append(first, where+r.First)
			out.Add(doc.Block{On: doc.Page, Soft: true, Note: where + "the first of " + doc.Plural(r.Violations, "violation"), Code: r.First})
		}
	}
	out.Add(doc.Block{On: doc.Terminal | doc.Markdown, List: first})
	return out
}

// invariantTable has a row for each invariant and a column for each subject.
func (s *Summary) invariantTable() *doc.Table {
	numbers, series := s.invariantNames()
	t := &doc.Table{Columns: []doc.Column{{Name: "Invariant"}}}
	for _, one := range series {
		t.Columns = append(t.Columns, s.seriesColumn(one))
	}
	for _, number := range numbers {
		row := []doc.Cell{{Text: number, Sub: invariantTexts[number]}}
		for _, one := range series {
			r := s.invariantOf(number, one)
			if r == nil {
				row = append(row, doc.None())
				continue
			}
			row = append(row, doc.Cell{Text: doc.Plural(r.Violations, "violation"), Sub: "of " + doc.Grouped(int64(r.Checked)),
				Value: strconv.Itoa(r.Violations), Loud: r.Violations > 0, Title: r.First})
		}
		t.Add(row...)
	}
	return t
}

// violationTable has a row for each subject, over all invariants.
func (s *Summary) violationTable() *doc.Table {
	t := &doc.Table{Columns: []doc.Column{{Name: "Subject"}, {Name: "Checks", Numeric: true}, {Name: "Violations", Numeric: true}, {Name: "Violated"}}}
	_, series := s.invariantNames()
	for _, one := range series {
		checked, violations, of := s.InvariantTotals(one)
		t.Add(s.SeriesCell(one), doc.Int(checked), doc.Int(violations), doc.Text(strings.Join(of, " ")))
	}
	return t
}

func (s *Summary) invariantNames() (numbers, series []string) {
	for _, r := range s.Invariants {
		numbers = append(numbers, r.Invariant)
	}
	for _, one := range s.Collected.Series {
		if slices.ContainsFunc(s.Invariants, func(r InvariantResult) bool { return r.Series == one.Name }) {
			series = append(series, one.Name)
		}
	}
	return records.Distinct(numbers), series
}

func (s *Summary) invariantOf(number, series string) *InvariantResult {
	return records.Find(s.Invariants, func(r InvariantResult) bool { return r.Invariant == number && r.Series == series })
}

// InvariantTotals returns a subject's checks and violations.
func (s *Summary) InvariantTotals(series string) (checked, violations int, of []string) {
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
