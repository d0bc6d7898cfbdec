package sections

import (
	"fmt"
	"slices"

	"synclab/bench/raw"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/records"
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
	for _, cell := range s.Collected.Cells {
		for _, one := range s.Collected.Series {
			samples := one.Cells[cell.ID()]
			if samples == nil || !samples.Has(raw.WriterWait) {
				continue
			}
			for _, tool := range []string{raw.MethodIptables, raw.MethodNft} {
				s.addWaits(whole, one.Name, cell, samples, "", tool)
				for _, step := range samples.Steps() {
					s.addWaits(steps, one.Name, cell, samples, step, tool)
				}
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
	for _, cell := range s.Collected.Cells {
		for _, one := range s.Collected.Series {
			samples := one.Cells[cell.ID()]
			if samples == nil || len(samples.Records) == 0 {
				continue
			}
			foreign, any := "–", false
			for i, step := range s.Collected.Runs[samples.Records[0].Run].Info.Scenario.Steps {
				if f := step.Fault; f != nil && f.Kind == scenarios.FaultForeign {
					foreign, any = fmt.Sprintf("%s, %s", doc.Plural(f.Elements, "element"), doc.Plural(f.Rules, "rule")), true
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
			if !any {
				return &doc.Table{}
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

// Stalls are the stalls that the kernel logged during the repetitions of a series, and how long other processes had to wait.
type Stalls struct {
	Series string
	Cells  []records.Cell // in which there were any
	// Repetitions counts those that had any, and Of those that were observed.
	Repetitions, Of int
	Longest         float64 // in seconds; 0: the kernel does not say
	Kinds, Tasks    []string
	// Gap is the longest time that another process could not run, Wait the longest call of one that writes rules.
	Gap, Wait Longest
}

// Longest is the longest of some times, in seconds, with the size of its cell and the kind of its step.
type Longest struct {
	Seconds    float64
	Size, Step string
}

func (l *Longest) take(r records.Record, cell records.Cell) {
	if r.Value > l.Seconds {
		_, kind := scenarios.StepOf(r.Step)
		*l = Longest{r.Value, records.SizesText([]records.Cell{cell}), kind}
	}
}

// AllStalls has one entry for each series.
func (s *Summary) AllStalls() []Stalls {
	var out []Stalls
	for _, one := range s.Collected.Series {
		all := Stalls{Series: one.Name}
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
					all.Gap.take(r, cell)
				case raw.WriterWait:
					all.Wait.take(r, cell)
				}
			}
			if len(with) > before {
				all.Cells = append(all.Cells, cell)
			}
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
	for _, one := range c.Series {
		for _, cell := range c.Cells {
			if samples := one.Cells[cell.ID()]; samples != nil {
				for _, r := range samples.Records {
					if r.Metric == raw.StallsUnobserved {
						n, why = n+1, r.Error
					}
				}
			}
		}
	}
	if n == 0 {
		return nil
	}
	return []warning{{text: fmt.Sprintf("stalls of the kernel were not observed in %s: %s", doc.Plural(n, "repetition"), why)}}
}
