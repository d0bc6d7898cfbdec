package review

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"synclab/reports/comparison"
	"synclab/reports/diff"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/profiles"
	"synclab/reports/records"
)

// Main are the figures that the verdict is about, at the largest size. Few questions are asked, so that few repetitions
// answer them.
var Main = []string{comparison.FigureCold, comparison.FigureReaction, comparison.FigureCPU, comparison.FigureTotalRSS}

// Primary returns a function that reports whether the verdict is about a row: a main figure of the largest size.
func Primary(services int) func(*diff.Delta) bool {
	return func(r *diff.Delta) bool {
		return r.Cell.Services == services && slices.Contains(Main, r.Figure)
	}
}

// Review is what was found about a change.
type Review struct {
	Program  string       `json:"program"`
	Base     string       `json:"base"` // builds, as given
	Head     string       `json:"head"`
	Measured *diff.Diff   `json:"measured"`
	Observed []*diff.Diff `json:"observed,omitempty"` // once, at large sizes
	// Moved is where the time of syncs went, from one profile of each.
	Moved []profiles.Moved `json:"moved,omitempty"`
	// Unprofiled says why there are no profiles; empty: there are.
	Unprofiled string  `json:"unprofiled,omitempty"`
	Checks     []Check `json:"checks"`
	Command    string  `json:"command"` // that repeats it
	// Digests of the records, by folder.
	Digests [][2]string `json:"digests"`
	Took    float64     `json:"seconds"`

	Primary func(*diff.Delta) bool `json:"-"` // of the function Primary
}

// Check is one comparison of what base and head do.
type Check struct {
	What   string `json:"what"`   // "rules, iptables-legacy"
	Result string `json:"result"` // in words
	// Differs: the change is visible in the rules or to packets. Failed: they were not compared to the end.
	Differs bool `json:"differs"`
	Failed  bool `json:"failed"`
}

// Bad reports whether a figure is beyond its threshold, or packets end differently.
func (r *Review) Bad() bool {
	return len(r.Measured.Beyond()) > 0 || slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Differs })
}

// Write writes it for a terminal.
func (r *Review) Write(w io.Writer) error { return r.document().Text(w) }

// Markdown writes the comment.
func (r *Review) Markdown(w io.Writer) error { return r.document().Markdown(w) }

// Page writes the page.
func (r *Review) Page(w io.Writer) error { return r.document().Page(w) }

// mostMoved is the number of functions in a table, mostNamed that of figures in a line of the verdict.
const mostMoved, mostNamed = 12, 8

func (r *Review) document() *doc.Document {
	d := &doc.Document{Kind: "synclab pr", Title: fmt.Sprintf("%s: %s against %s", r.Program, r.Head, r.Base)}
	verdict := doc.Section{ID: "verdict", Title: "Verdict"}
	verdict.Add(doc.Block{Verdict: r.verdict()}, doc.Block{Table: r.primary()}, doc.Block{Folded: true, Heading: "What these figures are", Facts: r.meanings()})
	d.Sections = append(d.Sections, verdict, costs(r.Measured, "measured", "What it costs"))
	for _, o := range r.Observed {
		cell := o.Rows[0].Cell
		d.Sections = append(d.Sections, costs(o, fmt.Sprintf("observed-%d", cell.Services), "Observed once: "+records.SizesText([]records.Cell{cell})))
	}
	d.Sections = append(d.Sections, r.functions())
	same := doc.Section{ID: "same", Title: "Does it do the same?", Short: "Same"}
	checks := &doc.Table{Columns: []doc.Column{{Name: "Compared"}, {Name: "Result", Row: true}}}
	for _, c := range r.Checks {
		checks.Add(doc.Text(c.What), doc.Text(c.Result))
	}
	same.Add(doc.Block{Table: checks})
	repeat := doc.Section{ID: "repeat", Title: "Repeat it"}
	facts := slices.Concat([][2]string{{"took", (time.Duration(r.Took) * time.Second).String()}}, r.Measured.Before.VersionList(), r.Digests)
	repeat.Add(doc.Block{Code: r.Command}, doc.Block{Facts: facts})
	d.Sections = append(d.Sections, same, repeat)
	return d
}

// costs has the figures that differ. Of the verdict on them it keeps the counts: the rest is in the table or above.
func costs(d *diff.Diff, id, title string) doc.Section {
	s := d.Section(title)
	s.ID = id
	counts := slices.DeleteFunc(s.Blocks[0].Verdict, func(l doc.Line) bool { return l.Level == doc.Bad })
	s.Blocks[0].Verdict = counts[:1]
	return s
}

// verdict says in a few lines what a reviewer must know.
func (r *Review) verdict() []doc.Line {
	var out []doc.Line
	say := func(level doc.Level, text string, of func(*diff.Delta) bool) {
		var what []string
		last := ""
		for _, row := range r.Measured.Rows {
			if !of(&row) {
				continue
			}
			if where := row.Where(); where != last {
				last = where
				what = append(what, where+": "+row.Short())
			} else {
				what = append(what, row.Short())
			}
		}
		if n := len(what); n > mostNamed {
			what = append(what[:mostNamed], fmt.Sprintf("and %d more", n-mostNamed))
		}
		if len(what) > 0 {
			out = append(out, doc.Line{Level: level, Text: text + ": " + strings.Join(what, "; ") + "."})
		}
	}
	say(doc.Bad, "The head costs more", func(row *diff.Delta) bool { return row.Beyond && r.Primary(row) })
	say(doc.Care, "The head costs more, not shown to exceed the threshold", func(row *diff.Delta) bool {
		return row.Verdict == diff.Slower && !row.Beyond && r.Primary(row)
	})
	say(doc.Good, "The head costs less", func(row *diff.Delta) bool { return row.Verdict == diff.Faster && r.Primary(row) })
	if len(out) == 0 {
		out = append(out, doc.Line{Level: doc.Info, Text: "No difference is shown in the main figures (" + figureNames() + " at the largest size)."})
	}
	say(doc.Info, "Not precise enough for a verdict", func(row *diff.Delta) bool { return row.Verdict == diff.Unclear && r.Primary(row) })
	say(doc.Bad, "Beyond the threshold, of the other figures", func(row *diff.Delta) bool { return row.Beyond && !r.Primary(row) })
	if n := r.Measured.RepetitionsNeeded; n > 0 {
		out = append(out, doc.Line{Level: doc.Care, Text: fmt.Sprintf("Some main figures had too few repetitions for a verdict: %d would suffice, with a larger --budget.", n)})
	}
	for _, c := range r.Checks {
		switch {
		case c.Failed:
			out = append(out, doc.Line{Level: doc.Care, Text: "Not compared: " + c.What + ": " + c.Result})
		case c.Differs:
			out = append(out, doc.Line{Level: doc.Bad, Text: "Differs: " + c.What + ": " + c.Result})
		}
	}
	if !slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Differs || c.Failed }) && len(r.Checks) > 0 {
		out = append(out, doc.Line{Level: doc.Good, Text: "Both do the same, by every comparison below."})
	}
	return out
}

// figureNames are the names of the primary figures.
func figureNames() string {
	var names []string
	for _, name := range Main {
		names = append(names, doc.LowerFirst(comparison.FigureOf(name).Text))
	}
	return doc.JoinWords(names)
}

// primary is a table of the main figures: a row for each cell and mode, a column for each figure.
func (r *Review) primary() *doc.Table {
	t := &doc.Table{Title: "Head over base", Columns: []doc.Column{{Name: "Subject"}, {Name: "Size", Row: true}}}
	for _, name := range mainTable {
		t.Columns = append(t.Columns, doc.Column{Name: comparison.FigureOf(name).Text, Numeric: true})
	}
	type place struct {
		subject string
		cell    string
	}
	var places []place
	ratios := map[place]map[string]doc.Cell{}
	for _, row := range r.Measured.Rows {
		at := place{row.Subject, records.SizesText([]records.Cell{row.Cell}) + records.SettingsTail(records.ShortSettings(row.Cell.Settings()))}
		if ratios[at] == nil {
			ratios[at], places = map[string]doc.Cell{}, append(places, at)
		}
		ratios[at][row.Figure] = row.RatioCell()
	}
	for _, at := range places {
		cells := []doc.Cell{doc.Text(at.subject), doc.Text(at.cell)}
		for _, name := range mainTable {
			cell, ok := ratios[at][name]
			if !ok {
				cell = doc.None()
			}
			cells = append(cells, cell)
		}
		t.Add(cells...)
	}
	t.Note = "With the 95 % interval; ~: no difference is shown, =: nor is there one as large as the threshold, " + diff.PercentText(diff.DefaultThreshold) + " unless set otherwise."
	return t
}

// meanings are what the figures of the first table are.
func (r *Review) meanings() (facts [][2]string) {
	for _, name := range mainTable {
		f := comparison.FigureOf(name)
		facts = append(facts, [2]string{doc.LowerFirst(f.Text), f.Title})
	}
	return facts
}

// mainTable has the figures of the first table.
var mainTable = []string{comparison.FigureCold, comparison.FigureReaction, comparison.FigureNPL99, comparison.FigurePartial, comparison.FigureFull, comparison.FigureCPU, comparison.FigureTotalRSS}

// medians returns how long the syncs of a profile took in the repetitions without one.
func (r *Review) medians(m profiles.Moved) (before, after *estimate.Estimate, ok bool) {
	figure := []string{comparison.FigureCold, comparison.FigureFull, comparison.FigurePartial}[slices.Index(profiles.Kinds, m.Kind)]
	for _, row := range r.Measured.Rows {
		same := row.Cell.Services == m.Cell.Services && row.Cell.Endpoints == m.Cell.Endpoints
		if same && row.Subject == m.After && row.Figure == figure && row.Before != nil && row.After != nil {
			return row.Before, row.After, true
		}
	}
	return nil, nil, false
}

// functions says which functions changed their share.
func (r *Review) functions() doc.Section {
	s := doc.Section{ID: "functions", Title: "Where the time went", Short: "Functions"}
	note := "CPU time of each function per sync, from one profile of each side. Only functions whose time changed by 1 % of the sync, and by three standard errors of their samples."
	if r.Unprofiled != "" {
		note = "There are no profiles: " + r.Unprofiled + "."
	}
	if r.Unprofiled == "" && !slices.ContainsFunc(r.Moved, func(m profiles.Moved) bool { return len(m.Functions) > 0 }) {
		note += " There is none."
	}
	s.Add(doc.Block{Soft: true, Note: note})
	for _, m := range r.Moved {
		if len(m.Functions) == 0 {
			continue
		}
		heading := fmt.Sprintf("%s, %s, %s", m.After, profiles.KindText(m.Kind), records.SizesText([]records.Cell{m.Cell}))
		b := doc.Block{Folded: true, Heading: heading, Table: m.Table(mostMoved)}
		if before, after, ok := r.medians(m); ok && m.Unlike([2]float64{before.Value, after.Value}) {
			b.Heading += ": not a typical sync"
			b.Table.Note = fmt.Sprintf("The measured medians are %s and %s, so compare shares of the sync, and not times.",
				comparison.FigureValue(before, false), comparison.FigureValue(after, false))
		}
		s.Add(b)
	}
	return s
}
