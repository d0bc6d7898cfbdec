package sections

import (
	"fmt"
	"slices"

	"synclab/bench/raw"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/records"
	"synclab/reports/verdict"
	"synclab/scenarios"
)

// neighbourSection has what subjects do to other programs on the node.
func (s *Summary) neighbourSection() doc.Section {
	out := doc.Section{ID: "neighbours", Title: "Other programs on the node", Short: "Neighbours"}
	table := func(title string) *doc.Table {
		return &doc.Table{Title: title, Columns: []doc.Column{{Name: "Subject"}, {Name: "Services", Numeric: true}, endpointsColumn(), {Name: "Settings"}, {Name: "Step", Differs: true},
			{Name: "Tool", Title: "with which the other program writes its own rules"},
			{Name: "Waits for", Title: "lock: the xtables lock; commit: commits of nf_tables in the namespace"},
			{Name: "Calls", Numeric: true, Title: "in all repetitions, one after the other"}, {Name: "Failed", Numeric: true, Title: "that wrote nothing"},
			{Name: "p50", Numeric: true, Title: "start of the call → its end"}, {Name: "p99", Numeric: true, Title: "of the same"},
			{Name: "Longest", Numeric: true, Title: "of the same"}}}
	}
	whole, steps := table("What other programs waited for"), table("By step")
	for one, samples := range s.Collected.Each() {
		if !samples.Has(raw.WriterWait) {
			continue
		}
		for _, tool := range []string{raw.MethodIptables, raw.MethodNft} {
			s.addWaits(whole, one.Name, samples.Cell, samples, "", tool)
			for _, step := range samples.Steps() {
				s.addWaits(steps, one.Name, samples.Cell, samples, step, tool)
			}
		}
	}
	if beside := s.besideTable(); len(beside.Rows) > 0 {
		out.Add(doc.Block{Table: beside})
	}
	if len(whole.Rows) > 0 {
		out.Add(doc.Block{On: doc.Page | doc.Markdown, Soft: true, Note: "Other programs wrote rules of their own all the time, one call after the other. A call that waits long is one of few, so look at the longest. A call of iptables includes the start of the tool, and the reading and writing of the table; the steps without syncs show how long that takes."},
			doc.Block{Table: whole}, doc.Block{On: doc.Page | doc.Markdown, Table: steps})
	}
	return out
}

// besideTable has the syncs of each step, alone and beside what fault foreign put there.
func (s *Summary) besideTable() *doc.Table {
	t := &doc.Table{Title: "Syncs beside the tables and rules of other programs", Columns: []doc.Column{{Name: "Subject"}, {Name: "Services", Numeric: true},
		endpointsColumn(), {Name: "Settings"}, {Name: "Step"}, {Name: "Foreign", Title: "elements of a foreign map and foreign rules that stood there"},
		{Name: "Full sync", Numeric: true, Title: "median; self-reported"}, {Name: "Partial sync", Numeric: true, Title: "median; self-reported"}}}
	for one, samples := range s.Collected.Each() {
		if len(samples.Records) == 0 {
			continue
		}
		cell, steps := samples.Cell, s.Collected.Runs[samples.Records[0].Run].Info.Scenario.Steps
		if !slices.ContainsFunc(steps, func(step scenarios.Step) bool { return step.Fault != nil && step.Fault.Kind == scenarios.FaultForeign }) {
			continue
		}
		foreign := "–"
		for i, step := range steps {
			if f := step.Fault; f != nil && f.Kind == scenarios.FaultForeign {
				foreign = fmt.Sprintf("%s, %s", doc.Plural(f.Elements, "element"), doc.Plural(f.Rules, "rule"))
			} else if f != nil && f.Kind == scenarios.FaultClear {
				foreign = "–"
			}
			name := scenarios.StepName(i, step.Kind())
			of := func(metric raw.Metric) estimate.Sample {
				return samples.ByRepetition(func(r *raw.Record) bool { return r.Metric == metric && r.Step == name })
			}
			full, partial := of(raw.FullSync), of(raw.PartialSync)
			if len(full)+len(partial) > 0 {
				t.Add(s.SeriesCell(one.Name), doc.Int(cell.Services), endpointsCell(cell), settingsCell(cell), doc.Text(name), doc.Text(foreign),
					distributionCell(described(full), medianValue, false), distributionCell(described(partial), medianValue, false))
			}
		}
	}
	return t
}

// addWaits adds a row for the calls of one tool that began in a step; without a step: in all.
func (s *Summary) addWaits(t *doc.Table, series string, cell records.Cell, samples *records.Samples, step, tool string) {
	waits, failed := "", 0
	calls := samples.ByRepetition(func(r *raw.Record) bool {
		if r.Metric != raw.WriterWait || r.Method != tool || step != "" && r.Step != step {
			return false
		}
		if waits = r.Kind; r.Outcome == raw.WriteFailed {
			failed++
		}
		return true
	}).Pooled()
	if len(calls) > 0 {
		t.Add(s.SeriesCell(series), doc.Int(cell.Services), endpointsCell(cell), settingsCell(cell), doc.Text(step), doc.Text(tool), doc.Text(waits), doc.Int(len(calls)),
			doc.Int(failed), doc.Value(estimate.Median(calls), "s"), doc.Value(estimate.Percentile(calls, 99), "s"), doc.Value(slices.Max(calls), "s"))
	}
}

// takeLongest keeps the longer one of a time and that of a record.
func takeLongest(l *verdict.Longest, r records.Record, cell records.Cell) {
	if r.Value > l.Seconds {
		_, kind := scenarios.StepOf(r.Step)
		*l = verdict.Longest{Seconds: r.Value, Size: records.SizesText([]records.Cell{cell}), Step: kind}
	}
}

// AllStalls has one entry for each series.
func (s *Summary) AllStalls() []verdict.Stalls {
	var out []verdict.Stalls
	for _, one := range s.Collected.Series {
		all := verdict.Stalls{Series: one.Name}
		var cells []records.Cell                               // with stalls in the kernel's log
		observed, with := map[[3]int]bool{}, map[[3]int]bool{} // by cell, run and repetition
		for i, cell := range s.Collected.Cells {
			samples := one.Cells[cell.ID()]
			if samples == nil {
				continue
			}
			before := len(with)
			for _, r := range samples.Records {
				of := [3]int{i, r.Run, r.Rep}
				switch r.Metric {
				case raw.KernelStalls:
					observed[of] = true
				case raw.KernelStall: // of a repetition that was killed, there is nothing else
					observed[of], with[of] = true, true
					all.Longest = max(all.Longest, r.Value)
					all.Kinds = addOnce(all.Kinds, r.Kind)
					all.Tasks = addOnce(all.Tasks, r.Task)
				case raw.ScheduleGap:
					takeLongest(&all.Gap, r, cell)
				case raw.WriterWait:
					takeLongest(&all.Wait, r, cell)
				}
			}
			if len(with) > before {
				cells = append(cells, cell)
			}
		}
		if len(cells) > 0 {
			all.Size = records.SizesText(cells)
		}
		all.Repetitions, all.Of = len(with), len(observed)
		out = append(out, all)
	}
	return out
}

func addOnce(list []string, text string) []string {
	if text == "" || slices.Contains(list, text) {
		return list
	}
	return append(list, text)
}

// unobservedStalls warns of repetitions without a readable kernel log.
func unobservedStalls(c *records.Collection) []warning {
	n, why := 0, ""
	for _, samples := range c.Each() {
		for _, r := range samples.Records {
			if r.Metric == raw.StallsUnobserved {
				n, why = n+1, r.Error
			}
		}
	}
	if n == 0 {
		return nil
	}
	return []warning{{text: fmt.Sprintf("stalls of the kernel were not observed in %s: %s", doc.Plural(n, "repetition"), why)}}
}
