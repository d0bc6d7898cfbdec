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
