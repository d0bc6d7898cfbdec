package sections

import (
	"synclab/bench/raw"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

// ColdShares are the percentages of Services that are shown of a cold start.
var ColdShares = []int{1, 10, 25, 50, 75, 90, 99, 100}

// ColdTimes returns the times from the start of a series until a share of the Services was visible; nil if unknown.
func ColdTimes(s *records.Series, cell records.Cell, share int) estimate.Sample {
	if share == 100 {
		return s.Of(cell, raw.ColdStart)
	}
	return s.OfTable(cell, raw.ColdStartShare, records.ShareText(share))
}

// coldSection has the times until shares of the Services were visible after the start of the subject.
func (s *Summary) coldSection() doc.Section {
	out := doc.Section{ID: "cold", Title: "How Services became visible after the start", Short: "Cold start"}
	t := &doc.Table{Columns: []doc.Column{{Name: "Subject"}, {Name: "Services", Numeric: true}, endpointsColumn(), {Name: "Settings"}}}
	for _, share := range ColdShares {
		t.Columns = append(t.Columns, doc.Column{Name: records.ShareText(share), Numeric: true, Title: "from the start of the subject's process until this share of the Services was visible in the kernel"})
	}
	for _, cell := range s.Collected.Cells {
		for _, one := range s.Collected.Series {
			if len(ColdTimes(one, cell, ColdShares[0])) == 0 {
				continue
			}
			row := []doc.Cell{s.seriesCell(one.Name), doc.Int(cell.Services), endpointsCell(cell), settingsCell(cell)}
			for _, share := range ColdShares {
				row = append(row, doc.Value(ColdTimes(one, cell, share).Median(), "s"))
			}
			t.Add(row...)
		}
	}
	if len(t.Rows) > 0 {
		out.Add(doc.Block{On: doc.Page, Soft: true, Note: "Medians of the repetitions, from the start of the subject's process. A subject that writes all rules at once shows the same time in all columns."},
			doc.Block{On: doc.Page, Table: t})
	}
	return out
}

// seenSection compares when packets noticed changes with when the kernel's tables showed them.
func (s *Summary) seenSection() doc.Section {
	out := doc.Section{ID: "seen", Title: "When packets noticed a change", Short: "Packets"}
	moment := func(name, short, title string) doc.Column {
		return doc.Column{Name: name, Short: short, Group: "flows and tables", Numeric: true, Title: title}
	}
	t := &doc.Table{Columns: []doc.Column{{Name: "Subject"}, {Name: "Services", Numeric: true}, endpointsColumn(), {Name: "Settings"},
		moment("Changes", "changes", "of which a flow to a new endpoint was seen"),
		moment("Tables", "tables", "change due → the kernel's tables show it; median"),
		moment("First new", "first new", "change due → the first new flow that an added endpoint answers; median"),
		moment("Last old", "last old", "change due → the last new flow that a removed endpoint answers; median"),
		moment("First new − tables", "new − tables", "the first flow to an added endpoint, counted from when the tables showed it; median"),
		moment("p99", "p99", "of the same difference"),
		moment("Last old − tables", "old − tables", "the last flow to a removed endpoint, counted from when the tables showed it; median"),
		moment("p99", "p99", "of the same difference"),
	}}
	for _, cell := range s.Collected.Cells {
		for _, one := range s.Collected.Series {
			first := described(one.Of(cell, raw.Reachable))
			if first == nil {
				continue
			}
			tables := described(one.Of(cell, raw.NetworkProgrammingLatency))
			if tables == nil {
				tables = described(one.Of(cell, raw.Reaction))
			}
			newAfter, oldAfter := described(one.Of(cell, raw.ReachableAfterVisible)), described(one.Of(cell, raw.UnreachableAfterVisible))
			t.Add(s.seriesCell(one.Name), doc.Int(cell.Services), endpointsCell(cell), settingsCell(cell), doc.Int(first.N),
				distributionCell(tables, medianValue, true),
				distributionCell(first, medianValue, true), distributionCell(described(one.Of(cell, raw.Unreachable)), medianValue, true),
				differenceCell(newAfter), distributionCell(newAfter, p99Value, false),
				differenceCell(oldAfter), distributionCell(oldAfter, p99Value, false))
		}
	}
	if len(t.Rows) > 0 {
		out.Add(doc.Block{On: doc.Page | doc.Markdown, Soft: true, Note: "New flows to the cluster IP of the Service that changes. They are as exact as they are frequent: a first flow to a new endpoint comes late by the time between two such flows, and a last flow to an old one early."},
			doc.Block{Table: t})
	}
	return out
}

// differenceCell is the median of differences with half of its interval, in absolute terms: the median may be near zero.
func differenceCell(d *estimate.Distribution) doc.Cell {
	cell := distributionCell(d, medianValue, false)
	if d != nil && d.Low != nil && d.High != nil {
		cell.Narrow = cell.Text
		cell.Text += " ± " + doc.Format((*d.High-*d.Low)/2, "s")
	}
	return cell
}
