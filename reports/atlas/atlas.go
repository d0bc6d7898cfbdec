// Package atlas answers each question about Service proxies with one table of many runs: subjects as columns, sizes as rows.
package atlas

import (
	"fmt"
	"path/filepath"
	"slices"

	"synclab/bench/subject"
	"synclab/reports/comparison"
	"synclab/reports/doc"
	"synclab/reports/records"
)

// question is a table: some figures of every cell that has one of them.
type question struct {
	title   string
	note    string // at most two sentences
	figures []string
}

var questions = []question{
	{"How long does a start take?", "From the start of the subject's process until every Service is in the kernel, measured from outside.",
		[]string{comparison.FigureCold}},
	{"How long until a change is in the kernel?", "From the change until the kernel's tables show it. Reaction is of one change in an idle cluster; latency is under churn, with the wait for minSyncPeriod, the least time between two syncs.",
		[]string{comparison.FigureReaction, comparison.FigureNPL50, comparison.FigureNPL99}},
	{"What does the first packet of a flow pay?", "The first UDP packet, or TCP's SYN where the row says so, to the Service whose rule is met last. Without rules, a packet pays a part of it too.",
		[]string{comparison.FigureFirstPacket, comparison.FigureFirstSYN}},
	{"How many connections?", "Each request has its own connection. CPU time is that of both ends and of the node between them.",
		[]string{comparison.FigureConnection, comparison.FigureConnCPU}},
	{"How much CPU and memory?", "CPU time of the subject and of the tools that it starts. Peak memory is the sum of their peaks without the kernel's, and has no difference below 5 %, as equal proxiers differ by so much.",
		[]string{comparison.FigureColdCPU, comparison.FigureCPU, comparison.FigureTotalRSS, "kernel_memory"}},
	{"How long do other programs wait?", "A stall is the longest time, the start included, for which a process that was ready to run on a CPU did not run. Others' calls of iptables and nft are those of two programs that write rules all the time.",
		[]string{comparison.FigureIptablesWait, comparison.FigureNftWait, "schedule_gap"}},
	{"What is lost?", "New flows without an answer, or with one of a wrong endpoint, while endpoints change or faults occur; syncs that failed. Violations are states of the kernel that no proxy may leave behind.",
		[]string{"flows_failed", "flows_misrouted", "syncs_failed", "violations"}},
	{"How many rules?", "Rules, and elements: entries of sets and maps, as the kernel has them at the end of a repetition. Of cilium/lb, rules are entries of its map of Services, and elements those of backends.",
		[]string{comparison.FigureRules, comparison.FigureElements}},
	{"How steady was the machine?", "One load from 4 MiB that a cache holds unless other tenants use it: the median of the CPUs and of both ends of each repetition. No subject changes it.",
		[]string{comparison.Machine.Name}},
}

// mostSubjects is the number of columns with subjects: more do not fit on a page of text.
const mostSubjects = 7

// row is one figure of one cell, in one run.
type row struct {
	run    string // folder
	cell   records.Cell
	figure comparison.Figure
	values map[string]doc.Cell // by subject
}

// Of makes the document from the folders of runs. Each run stands for itself: its subjects took turns, those of two runs did
// not.
func Of(dirs []string) (*doc.Document, error) {
	var rows []row
	var subjects []string
	for _, dir := range dirs {
		run, err := records.Load(dir)
		if err != nil {
			return nil, err
		}
		c := records.Collect([]*records.Run{run})
		compared := comparison.OfCells(c)
		for _, cell := range c.Cells {
			i := slices.IndexFunc(compared, func(one comparison.CellComparison) bool { return one.Cell.ID() == cell.ID() })
			var own *comparison.CellComparison // nil: one subject
			if i >= 0 {
				own = &compared[i]
			}
			rows = append(rows, rowsOf(c, own, row{run: filepath.Base(dir), cell: cell})...)
		}
		for _, one := range c.Series {
			subjects = append(subjects, one.Name)
		}
	}
	subjects = records.Distinct(subjects)
	if len(subjects) > mostSubjects {
		return nil, fmt.Errorf("%d subjects %v: at most %d fit into a table", len(subjects), subjects, mostSubjects)
	}
	// First what others are compared with.
	others := slices.DeleteFunc(slices.Clone(subjects), subject.IsKubeProxy)
	subjects = slices.Concat(slices.DeleteFunc(subjects, func(s string) bool { return !subject.IsKubeProxy(s) }), others)
	d := &doc.Document{Kind: "synclab atlas", Title: "Atlas", Subtitle: "Medians of the repetitions, ± their 95 % interval; with fewer than six repetitions, their range in brackets. " +
		"~ means that no difference from kube-proxy on the same backend was shown, for kube-proxy itself from kube-proxy/iptables-legacy; ranges that overlap show none. A size that names no scenario is of the first run's."}
	for _, q := range questions {
		if s, ok := q.section(rows, subjects); ok {
			d.Sections = append(d.Sections, s)
		}
	}
	return d, nil
}

// rowsOf makes the rows of a cell, one a figure.
func rowsOf(c *records.Collection, compared *comparison.CellComparison, of row) (rows []row) {
	var all []*records.Samples
	for _, one := range c.Series {
		all = append(all, one.Cells[of.cell.ID()])
	}
	source := comparison.SourceOf(all)
	for _, f := range append(slices.Clone(comparison.Figures), comparison.Machine) {
		r := of
		r.figure, r.values = f, map[string]doc.Cell{}
		for i, one := range c.Series {
			if all[i] == nil {
				continue
			}
			value := f.Of(all[i], source, comparison.ExceededOf(all[i]))
			if value == nil {
				continue
			}
			text := comparison.FigureValue(value, true)
			if wide, ok := value.Spread(); ok && wide > 1 { // half of it says nothing about the other half
				text = fmt.Sprintf("%s (95 %%: %s–%s)", comparison.FigureValue(value, false), doc.Format(*value.Low, value.Unit), doc.Format(*value.High, value.Unit))
			}
			if value.RangeLow != nil && !value.AtLeast {
				text += fmt.Sprintf(" (%s–%s)", doc.Format(*value.RangeLow, value.Unit), doc.Format(*value.RangeHigh, value.Unit))
			}
			if alike(compared, one.Name, f.Name) {
				text += " ~"
			}
			r.values[one.Name] = doc.Text(text)
		}
		if len(r.values) > 0 {
			rows = append(rows, r)
		}
	}
	return rows
}

// alike reports whether no difference of a subject from its baseline was shown. c is nil where nothing was compared.
func alike(c *comparison.CellComparison, series, figure string) bool {
	if c == nil || !slices.ContainsFunc(c.Sides, func(s comparison.Side) bool { return s.Series == series }) {
		return false
	}
	side := c.SideOf(series)
	baseline := c.Nearest(side)
	r := c.Ratio(series, baseline, figure)
	if r == nil || r.Counted {
		return false
	}
	own, other := side.Figure(figure), c.SideOf(baseline).Figure(figure)
	few := r.Observed && own.RangeLow != nil && other.RangeLow != nil
	return !r.Apart() || few && *own.RangeLow <= *other.RangeHigh && *other.RangeLow <= *own.RangeHigh
}

// section is the question's table; false: no run answers it.
func (q question) section(rows []row, subjects []string) (doc.Section, bool) {
	var own []row
	for _, name := range q.figures {
		for _, r := range rows {
			if r.figure.Name == name {
				own = append(own, r)
			}
		}
	}
	if len(own) == 0 {
		return doc.Section{}, false
	}
	fields := []doc.Field[row]{
		{Column: doc.Column{Name: "figure", Row: true}, Cell: func(r row) doc.Cell { return doc.Text(r.figure.Text) }},
		{Column: doc.Column{Name: "services × endpoints", Row: true}, Cell: func(r row) doc.Cell {
			text := fmt.Sprintf("%s × %s", doc.Grouped(int64(r.cell.Services)), records.EndpointsText(r.cell.Endpoints))
			if r.cell.Scenario != rows[0].cell.Scenario {
				text += ", " + r.cell.Scenario
			}
			return doc.Text(text)
		}},
	}
	for _, s := range subjects {
		if slices.ContainsFunc(own, func(r row) bool { _, there := r.values[s]; return there }) {
			fields = append(fields, doc.Field[row]{Column: doc.Column{Name: s, Numeric: true}, Cell: func(r row) doc.Cell {
				if value, there := r.values[s]; there {
					return value
				}
				return doc.None()
			}})
		}
	}
	fields = append(fields, doc.Field[row]{Column: doc.Column{Name: "run", Row: true}, Cell: func(r row) doc.Cell {
		text := r.run
		if settings := r.cell.Settings(); settings != "" {
			text += " (" + settings + ")"
		}
		return doc.Text(text)
	}})
	s := doc.Section{Title: q.title}
	s.Add(doc.Block{Note: q.note, Table: doc.TableOf(own, fields...)})
	return s, true
}
