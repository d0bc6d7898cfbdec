package sections

import (
	"fmt"

	"synclab/bench/raw"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

// ColdShares are the percentages of Services that are shown of a cold start.
var ColdShares = []int{1, 10, 25, 50, 75, 90, 99, 100}

// coldTimes returns the times from the start of a series until a share of the Services was visible; nil if unknown.
func coldTimes(s *records.Series, cell records.Cell, share int) estimate.Sample {
	if share == 100 {
		return s.Of(cell, raw.ColdStart)
	}
	return s.OfTable(cell, raw.ColdStartShare, records.ShareText(share))
}

// coldFrom returns the earliest times of a share of the Services, by repetition: with many Services, a commit may have been
// seen late.
func coldFrom(s *records.Series, cell records.Cell, share int) float64 {
	metric, from := raw.ColdStartShare, estimate.Sample{}
	if share == 100 {
		metric, share = raw.ColdStart, 0
	}
	for _, r := range s.Cells[cell.ID()].Records {
		if r.Metric == metric && r.Share == share {
			of := records.Repetition{Run: r.Run, Rep: r.Rep}
			from[of] = append(from[of], r.Value-r.Uncertainty)
		}
	}
	return from.Median()
}

// coldSection has the times until shares of the Services were visible after the start of the subject.
func (s *Summary) coldSection() doc.Section {
	out := doc.Section{ID: "cold", Title: "How Services became visible after the start", Short: "Cold start"}
	t := &doc.Table{Columns: []doc.Column{{Name: "Subject"}, {Name: "Services", Numeric: true}, endpointsColumn(), {Name: "Settings"}}}
	for _, share := range ColdShares {
		t.Columns = append(t.Columns, doc.Column{Name: records.ShareText(share), Numeric: true, Title: "from the start of the subject's process until this share of the Services was visible in the kernel"})
	}
	var atOnce []string
	for _, cell := range s.Collected.Cells {
		for _, one := range s.Collected.Series {
			if len(coldTimes(one, cell, ColdShares[0])) == 0 {
				continue
			}
			first, last := coldFrom(one, cell, ColdShares[0]), coldTimes(one, cell, ColdShares[len(ColdShares)-1]).Median()
			if last <= first*(1+onceWithin) {
				atOnce = append(atOnce, fmt.Sprintf("%s at %s%s: all at once, after %s", one.Name, records.SizesText([]records.Cell{cell}),
					records.SettingsTail(records.ShortSettings(cell.Settings())), doc.Format(last, "s")))
				continue
			}
			row := []doc.Cell{s.SeriesCell(one.Name), doc.Int(cell.Services), endpointsCell(cell), settingsCell(cell)}
			for _, share := range ColdShares {
				at := coldTimes(one, cell, share).Median()
				value := doc.Value(at, "s")
				if from := coldFrom(one, cell, share); from < at*(1-onceWithin) {
					value.Sub = "from " + doc.Format(from, "s")
				}
				row = append(row, value)
			}
			t.Add(row...)
		}
	}
	if len(t.Rows)+len(atOnce) > 0 {
		out.Add(doc.Block{On: doc.Page, Soft: true, Note: "Medians of the repetitions, from the start of the subject's process, at the latest. " +
			"The small line is the earliest time: with many Services, the lab reads a few of them after a commit, and the rest only if some of these have arrived."},
			doc.Block{On: doc.Page, Table: t}, doc.Block{On: doc.Page, List: atOnce})
	}
	return out
}

// onceWithin is the share of the time until the first Services are visible within which the last ones follow if a subject
// writes all rules at once.
const onceWithin = 0.02
