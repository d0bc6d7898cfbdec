package sections

import (
	"text/template"

	"synclab/reports/comparison"
	"synclab/reports/doc"
	"synclab/reports/records"
)

// sloSection shows up to which measured size each subject meets each SLO.
func (s *Summary) sloSection() doc.Section {
	out := doc.Section{ID: "slos", Title: "SLOs at measured sizes", Short: "SLOs"}
	if len(s.Capacity) == 0 {
		return out
	}
	out.Add(doc.Block{On: doc.Page, Note: doc.Sentence(sloNote, s.SLOs)}, doc.Block{On: doc.Page | doc.Markdown, Table: s.sloTable()})
	return out
}

var sloNote = template.Must(template.New("slos").Funcs(doc.SentenceFuncs).Parse(
	`The numbers of Services at which each subject meets these SLOs: full sync ≤ {{limit .FullSync}} (median), network programming latency p99 ≤ {{limit .ProgrammingP99}}, ` +
		`first packet ≤ {{limit .FirstPacket}} (median at the slowest position, minus the cost in an empty ruleset). Only measured sizes count. ` +
		`“Met up to” is the largest size up to which every measured size meets an SLO. “Violated at” is the first measured size that violates the SLO. ` +
		`At sizes between the two, the SLO is unclear or was not measured.`))

func (s *Summary) sloTable() *doc.Table {
	t := &doc.Table{Columns: []doc.Column{{Name: "Subject"}, {Name: "Scenario", Differs: true}, {Name: "Settings"}, {Name: "SLO"},
		{Name: "Met up to", On: doc.Page, Numeric: true, Title: "the largest number of Services up to which every measured size meets the SLO"},
		{Name: "value at this size", On: doc.Page, Numeric: true}, {Name: "Violated at", On: doc.Page, Numeric: true, Title: "the first measured size that violates the SLO"},
		{Name: "value at this size", On: doc.Page, Numeric: true}, {Name: "Verdict"}}}
	for _, c := range s.Capacity {
		met, violated := doc.Cell{Text: "none", Value: "0"}, doc.None()
		if c.MetUpTo > 0 {
			met = doc.Int(c.MetUpTo)
		}
		if c.ViolatedAt > 0 {
			violated = doc.Int(c.ViolatedAt)
		}
		atViolated := doc.Optional(c.ValueAtViolated, "s")
		if c.Stopped {
			atViolated.Text = comparison.LimitText(*c.ValueAtViolated, "s")
		}
		t.Add(s.seriesCell(c.Series), doc.Text(c.Scenario), doc.Text(records.ShortSettings(c.Settings)), doc.Text(c.sloText()),
			met, doc.Optional(c.ValueAtMet, "s"), violated, atViolated, doc.Text(c.Verdict))
	}
	return t
}

// sloText is the text of an SLO: "full sync ≤ 1 s".
func (c Capacity) sloText() string {
	if c.Clause == ClauseAll {
		return "all SLOs"
	}
	return c.Clause + " ≤ " + doc.TrimTick(doc.Format(c.Limit, "s"))
}
