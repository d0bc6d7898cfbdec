package sections

import (
	"synclab/bench/raw"
	"synclab/reports/doc"
	"synclab/reports/estimate"
)

// seenSection compares when packets noticed changes with when the kernel's tables showed them.
func (s *Summary) seenSection() doc.Section {
	out := doc.Section{ID: "seen", Title: "When packets noticed a change", Short: "Packets"}
	moment := func(name, short, title string) doc.Column {
		return doc.Column{Name: name, Short: short, Group: "flows and tables", Numeric: true, Title: title}
	}
	t := &doc.Table{Columns: []doc.Column{{Name: "Subject"}, {Name: "Services", Numeric: true, Row: true}, endpointsColumn(), {Name: "Settings", Row: true},
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
			t.Add(s.SeriesCell(one.Name), doc.Int(cell.Services), endpointsCell(cell), settingsCell(cell), doc.Int(first.N),
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
