package sections

import (
	"cmp"
	"fmt"
	"slices"

	"synclab/bench/raw"
	"synclab/reports/comparison"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

// sections make the parts of a report from a summary, in the order in which every output shows them. A part without
// content has no blocks. A new part is one function in one file, and one line here.
var sections = []func(*Summary) doc.Section{
	(*Summary).warningSection,
	(*Summary).moveSection,
	(*Summary).comparedSection,
	(*Summary).KeySection,
	(*Summary).memorySection,
	(*Summary).targetsSection,
	(*Summary).packetSection,
	(*Summary).connectionSection,
	(*Summary).FaultSection,
	(*Summary).neighbourSection,
	(*Summary).answersSection,
	(*Summary).DisruptionSection,
	(*Summary).seenSection,
	(*Summary).InvariantSection,
	(*Summary).overviewSection,
	func(s *Summary) doc.Section { return s.Profiles.Section() },
	func(s *Summary) doc.Section { return s.Profiles.GrowthSection() },
	(*Summary).sloSection,
	(*Summary).phaseSection,
	(*Summary).coldSection,
	(*Summary).plotSection,
	(*Summary).numbersSection,
	(*Summary).caveatSection,
	(*Summary).methodSection,
	(*Summary).originSection,
	(*Summary).verdictSection,
}

// Sections returns the parts of the report. Package front puts the first screen before them.
func (s *Summary) Sections() []doc.Section {
	var out []doc.Section
	for _, section := range sections {
		out = append(out, section(s))
	}
	return out
}

// warningSection has the warnings, and the differences between several runs.
func (s *Summary) warningSection() doc.Section {
	out := doc.Section{ID: doc.Caveats, Title: "Caveats", Short: "Caveats"}
	if len(s.Warnings) > 0 {
		incomplete := slices.ContainsFunc(s.Runs, func(run records.RunHead) bool { return run.Status != raw.StatusComplete })
		out.Add(doc.Block{On: doc.Page, Warn: true, Folded: !incomplete, Heading: doc.Plural(len(s.Warnings), "caveat"), List: s.Warnings})
	}
	out.Add(doc.Block{On: doc.Page, Table: s.runsTable()})
	return out
}

// caveatSection repeats the warnings at the end of the shorter outputs.
func (s *Summary) caveatSection() doc.Section {
	out := doc.Section{ID: "caveats", Title: "Caveats"}
	if len(s.Warnings) > 0 {
		out.Add(doc.Block{On: doc.Terminal | doc.Markdown, Warn: true, List: s.Warnings})
	}
	return out
}

func (s *Summary) plotSection() doc.Section {
	return doc.Section{ID: "plots", Title: "Plots", NewSheet: true, Blocks: []doc.Block{{On: doc.Page, Plots: s.Plots}}}
}

func (s *Summary) methodSection() doc.Section {
	out := doc.Section{ID: "method", Title: "How it was measured", Short: "Method"}
	for _, paragraph := range s.Method {
		out.Add(doc.Block{On: doc.Page, Note: paragraph})
	}
	return out
}

// originSection has all that is needed to repeat the runs.
func (s *Summary) originSection() doc.Section {
	out := doc.Section{ID: "origin", Title: "How to repeat it"}
	var lines []string
	for _, run := range s.Runs {
		facts := run.VersionList()
		if run.Reason != "" {
			facts = append(facts, [2]string{"reason", run.Reason})
		}
		out.Add(doc.Block{On: doc.Page, Heading: "Run " + run.Label}, doc.Block{On: doc.Page, Code: run.Command, Inert: run.Foreign}, doc.Block{On: doc.Page, Facts: facts})
		lines = append(lines, fmt.Sprintf("%s (%s): %s, seed %d, %d repetitions, %s", doc.Span(run.Label), run.Status, doc.Span(run.Command), run.Seed, run.Reps, run.VersionsText()))
		for _, host := range run.HostList() {
			lines = append(lines, host[0]+": "+host[1])
		}
	}
	out.Add(doc.Block{On: doc.Markdown, Folded: true, Heading: "Versions and how to repeat it", List: lines})
	return out
}

// SeriesCell is the name of a series, with its colour.
func (s *Summary) SeriesCell(name string) doc.Cell {
	i, _ := s.SeriesNamed(name)
	return doc.Cell{Text: name, Color: s.Color(i)}
}

// MarkedCell is the name of a series at its main figures, with badges for the warnings that concern them.
func (s *Summary) MarkedCell(name string) doc.Cell {
	cell := s.SeriesCell(name)
	for _, w := range s.warnings {
		if w.badge != "" && (w.series == "" || w.series == name) && !slices.Contains(cell.Badges, w.badge) {
			cell.Badges = append(cell.Badges, w.badge)
		}
	}
	return cell
}

// subjectCell has the colour of the subject's first series, if it was measured.
func (s *Summary) subjectCell(subject string) doc.Cell {
	cell := doc.Cell{Text: subject}
	if i := slices.IndexFunc(s.Collected.Series, func(o *records.Series) bool { return o.Subject == subject }); i >= 0 {
		cell.Color = s.Color(i)
	}
	return cell
}

// seriesColumn is a column with the values of one series.
func (s *Summary) seriesColumn(name string) doc.Column {
	i, _ := s.SeriesNamed(name)
	return doc.Column{Name: name, Numeric: true, Color: s.Color(i), Title: name}
}

// endpointsColumn and endpointsCell show the mean number of endpoints, where cells differ in it.
func endpointsColumn() doc.Column {
	return doc.Column{Name: "Endpoints", On: doc.Page, Numeric: true, Differs: true, Row: true, Title: "mean, per Service"}
}

func endpointsCell(cell records.Cell) doc.Cell {
	return doc.Cell{Text: records.EndpointsText(cell.Endpoints), Value: doc.Exact(cell.Endpoints)}
}

// settingsCell shows the swept fields of a cell in short, and their paths on the page.
func settingsCell(cell records.Cell) doc.Cell {
	return doc.Cell{Text: records.ShortSettings(cell.Settings()), Title: cell.Settings()}
}

func medianValue(d estimate.Distribution) float64 { return d.Median }
func p99Value(d estimate.Distribution) float64    { return d.P99 }

// distributionCell is one value of a distribution, with the spread of the median if wanted. A terminal's narrow table
// leaves the spread out.
func distributionCell(d *estimate.Distribution, of func(estimate.Distribution) float64, spread bool) doc.Cell {
	if d == nil {
		return doc.None()
	}
	cell := doc.Value(of(*d), "s")
	if share, ok := d.Spread(); ok && spread {
		cell.Narrow = cell.Text
		cell.Text += comparison.SpreadText(share)
	}
	return cell
}

// MediansText describes the values of a table.
func (s *Summary) MediansText() string {
	most := 0
	for _, r := range s.Rows {
		most = max(most, r.Repetitions)
	}
	if most > 0 && most < estimate.Enough {
		return "Medians of " + doc.Plural(most, "repetition") + ": observed, without intervals."
	}
	return "Medians of the repetitions."
}

// runsTable explains the labels of several runs: their differences and folders. It is empty for one run.
func (s *Summary) runsTable() *doc.Table {
	runs := s.Collected.Runs
	if len(runs) < 2 {
		return nil
	}
	t := &doc.Table{Title: "The runs", Note: "This table has only the differences between the runs. The end of the page has all their properties.",
		Columns: []doc.Column{{Name: "Run"}, {Name: "Folder"}, {Name: "Measured"}, {Name: "Repetitions", Numeric: true}}}
	for _, head := range s.Runs {
		t.Add(doc.Text(head.Label), doc.Text(head.Dir), doc.Text(head.Started.Format("2006-01-02 15:04")), doc.Int(head.Reps))
	}
	for _, part := range append(slices.Clone(records.RunParts), records.RunSeed, records.RunFeed) {
		switch part.What {
		case "CPU":
			part = records.RunPart{What: "machine", Of: func(r raw.Run) string { return records.MachineText(r.Machine) }}
		case "CPUs":
			continue // part of machine
		}
		var values []string
		for _, run := range runs {
			values = append(values, cmp.Or(part.Of(run.Info), "–"))
		}
		if len(records.Distinct(values)) < 2 {
			continue
		}
		t.Columns = append(t.Columns, doc.Column{Name: doc.UpperFirst(part.What)})
		for i, value := range values {
			t.Rows[i] = append(t.Rows[i], doc.Text(value))
		}
	}
	return t
}
