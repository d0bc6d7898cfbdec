package history

import (
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"synclab/reports/comparison"
	"synclab/reports/diff"
	"synclab/reports/doc"
	"synclab/reports/records"
)

// Table writes the history for a terminal.
func (h *History) Table(w io.Writer) error { return h.document().Text(w) }

// Page writes it as a page.
func (h *History) Page(w io.Writer) error { return h.document().Page(w) }

// Markdown writes it for a pull request.
func (h *History) Markdown(w io.Writer) error { return h.document().Markdown(w) }

func (h *History) document() *doc.Document {
	verdict := doc.Section{ID: "verdict", Title: "Verdict"}
	verdict.Add(doc.Block{Verdict: h.Verdict()})
	trends := doc.Section{ID: "trends", Title: "Trends", Filter: true}
	const open = doc.Page | doc.Terminal // in a pull request, tables are folded
	all, runs := h.trendTable(), h.pointTable()
	trends.Add(doc.Block{On: open, Table: all}, doc.Block{On: doc.Markdown, Folded: true, Heading: "Trends", Table: all},
		doc.Block{On: open, Note: h.method(), Soft: true})
	points := doc.Section{ID: "points", Title: "The runs behind each point", Short: "Runs"}
	points.Add(doc.Block{On: open, Table: runs}, doc.Block{On: doc.Markdown, Folded: true, Heading: "The runs behind each point", Table: runs})
	if len(h.LeftOut) > 0 {
		points.Add(doc.Block{Warn: true, Heading: "Left out, since they are not complete", List: h.LeftOut})
	}
	for group, trends := range h.groups() {
		points.Add(doc.Block{On: doc.Page, Folded: true, Heading: group, Table: h.valueTable(trends)})
	}
	return &doc.Document{Kind: "synclab history", Title: "History", Subtitle: doc.Plural(len(h.Points), "point") + ", one for each " + h.By, Sections: []doc.Section{verdict, trends, points}}
}

// groups yields the trends of each subject in each cell, on each kind of machine.
func (h *History) groups() iter.Seq2[string, []Trend] {
	return func(yield func(string, []Trend) bool) {
		for rest := h.Trends; len(rest) > 0; {
			name, n := rest[0].group(), 1
			for n < len(rest) && rest[n].group() == name {
				n++
			}
			if !yield(name, rest[:n]) {
				return
			}
			rest = rest[n:]
		}
	}
}

// group is the heading above the trends of one subject in one cell.
func (t Trend) group() string {
	text := t.Subject + " · " + records.SizesText([]records.Cell{t.Cell}) + records.SettingsTail(records.ShortSettings(t.Cell.Settings())) + " · " + t.Cell.Scenario
	if t.Machine != "" {
		text += " · " + t.Machine
	}
	return text
}

func (h *History) trendTable() *doc.Table {
	t := &doc.Table{Intervals: true, Columns: []doc.Column{{Name: "Figure"}, {Name: "Points", Numeric: true}, {Name: "Newest", Numeric: true}, {Name: "Levels", Numeric: true},
		{Name: "Last change (95 %)", Numeric: true}, {Name: "Since"}, {Name: "p", Numeric: true}, {Name: "Result"}, {Name: "Trend", On: doc.Page}}}
	for group, trends := range h.groups() {
		t.Heading(group)
		for _, one := range trends {
			t.Add(h.cells(one)...)
		}
	}
	return t
}

func (h *History) cells(t Trend) []doc.Cell {
	newest, last := t.Values[len(t.Values)-1], t.Levels[len(t.Levels)-1]
	var levels []string
	for _, l := range t.Levels {
		levels = append(levels, doc.Format(l.Value, t.Unit))
	}
	out := []doc.Cell{doc.Text("  " + t.of.Label()), doc.Int(len(t.Values)), doc.Text(comparison.FigureValue(&newest.Estimate, true)), doc.Text(strings.Join(levels, " → "))}
	if len(t.Levels) > 1 {
		p := doc.Text("exact")
		if last.Adjusted != nil {
			p = doc.Text(diff.ShortP(*last.Adjusted))
		}
		from := h.Points[t.Values[last.From].Point]
		out = append(out, doc.Text(last.ratioText()), doc.Cell{Text: from.Name, Sub: from.unlike(2)}, p, doc.Cell{Text: t.result(), Loud: t.Worse})
	} else {
		out = append(out, doc.None(), doc.None(), doc.None(), doc.Text(t.result()))
	}
	spark := doc.Cell{Text: doc.Plural(len(t.Levels), "level")}
	for _, v := range t.Values {
		spark.Spark = append(spark.Spark, v.Value)
		span := [2]float64{v.Value, v.Value}
		if v.Low != nil {
			span = [2]float64{*v.Low, *v.High}
		}
		spark.Spans = append(spark.Spans, span)
	}
	for _, l := range t.Levels[1:] {
		spark.Marks = append(spark.Marks, l.From)
	}
	return append(out, spark)
}

// ratioText is "1.16× (1.12–1.20)".
func (l Level) ratioText() string {
	if l.Ratio == nil {
		return "–"
	}
	text := diff.FineRatio(*l.Ratio) + "×"
	if l.Low != nil && !l.Exact {
		text += " (" + diff.FineRatio(*l.Low) + "–" + diff.FineRatio(*l.High) + ")"
	}
	return text
}

// result says what the last level is: the same since the first point, better, or worse.
func (t Trend) result() string {
	if len(t.Levels) < 2 {
		if len(t.Values) < fewest {
			return "too few points"
		}
		return "no change shown"
	}
	last, before := t.Levels[len(t.Levels)-1], t.Levels[len(t.Levels)-2]
	word := t.of.Words.More
	if last.Value < before.Value {
		word = t.of.Words.Less
	}
	switch {
	case t.Worse:
		return word + ", new"
	case t.beyond(t.Levels):
		return word + ", known before"
	case word == t.of.Words.More && t.Threshold != nil:
		return word + ", within " + diff.PercentText(*t.Threshold)
	}
	return word
}

// fewest points can show a change: the last one against the level of four.
const fewest = 5

// pointTable has the runs of each point, and what was different.
func (h *History) pointTable() *doc.Table {
	t := &doc.Table{Columns: []doc.Column{{Name: "Point"}, {Name: "Runs"}, {Name: "Started"}, {Name: "Synclab", Differs: true}, {Name: "kube-proxy", Differs: true}, {Name: "Kernel", Differs: true},
		{Name: "Repetitions", Numeric: true}, {Name: "Different from the point before"}}}
	for _, p := range h.Points {
		v := p.run.Versions
		ids, started := strings.Join(p.Runs, ", "), p.run.Started.UTC().Format("2006-01-02 15:04")
		if h.By == ByRun {
			ids, started = "", "" // the point's name has both
		}
		t.Add(doc.Text(p.Name), doc.Text(ids), doc.Text(started), doc.Text(v.Synclab), doc.Text(v.KubeProxy), doc.Text(v.Kernel),
			doc.Int(p.run.Reps), doc.Text(p.unlike(4)))
	}
	return t
}

// unlike names the first differences from the point before. The JSON has all.
func (p Point) unlike(most int) string {
	var out []string
	for _, u := range p.Unlike {
		out = append(out, u.Text())
	}
	if n := len(out) - most; n > 0 {
		out = append(out[:most], doc.Plural(n, "field")+" more")
	}
	return strings.Join(out, "; ")
}

// valueTable has a row for each point, and a column for each trend of one subject in one cell.
func (h *History) valueTable(trends []Trend) *doc.Table {
	t := &doc.Table{Intervals: true, Columns: []doc.Column{{Name: "Point"}}}
	for _, one := range trends {
		t.Columns = append(t.Columns, doc.Column{Name: one.of.Label(), Numeric: true})
	}
	for i, p := range h.Points {
		row := []doc.Cell{doc.Text(p.Name)}
		for _, one := range trends {
			at := slices.IndexFunc(one.Values, func(v Value) bool { return v.Point == i })
			if at < 0 {
				row = append(row, doc.None())
				continue
			}
			cell := doc.Cell{Text: comparison.FigureValue(&one.Values[at].Estimate, true), Value: doc.Exact(one.Values[at].Value)}
			if slices.ContainsFunc(one.Levels[1:], func(l Level) bool { return l.From == at }) {
				cell.Sub = "a new level"
			}
			row = append(row, cell)
		}
		t.Add(row...)
	}
	return t
}

// Verdict states the result: each worse level, and the number of trends with changes.
func (h *History) Verdict() []doc.Line {
	var out []doc.Line
	changed := 0
	for _, t := range h.Trends {
		if t.Worse {
			out = append(out, doc.Line{Level: doc.Bad, Text: h.Sentence(t)})
		}
		if len(t.Levels) > 1 {
			changed++
		}
	}
	text := fmt.Sprintf("%s over %s; %s with a change.", doc.Plural(len(h.Trends), "trend"), doc.Plural(len(h.Points), "point"), doc.Grouped(int64(changed)))
	if len(out) == 0 {
		text = "The newest point shows no new worse level. " + text
	}
	out = append(out, doc.Line{Level: doc.Info, Text: text})
	if len(h.Points) < fewest {
		out = append(out, doc.Line{Level: doc.Care, Text: fmt.Sprintf("Too few points: a change can be shown from %d on. Two runs are compared by synclab diff.", fewest)})
	}
	return out
}

// Sentence describes the last change of a trend.
func (h *History) Sentence(t Trend) string {
	last, before := t.Levels[len(t.Levels)-1], t.Levels[len(t.Levels)-2]
	where := records.ShortSizes([]records.Cell{t.Cell}) + records.SettingsTail(records.ShortSettings(t.Cell.Settings()))
	text := fmt.Sprintf("%s at %s: %s from %s to %s", t.Subject, where, doc.LowerFirst(t.of.Label()), doc.Format(before.Value, t.Unit), doc.Format(last.Value, t.Unit))
	if last.Ratio != nil {
		text += ", " + last.ratioText()
	}
	from := h.Points[t.Values[last.From].Point]
	text += ", since " + from.Name
	if unlike := from.unlike(2); unlike != "" {
		text += " (" + unlike + ")"
	}
	if t.Threshold != nil {
		text += "; " + diff.PercentText(*t.Threshold) + " more is allowed"
	}
	return text
}

// method explains the levels.
func (h *History) method() string {
	return fmt.Sprintf("Points are medians of the repetitions' medians (or 99th percentiles), with their 95 %% interval. Levels are medians of points. "+
		"A level starts where Student's t on logarithms shows a change from the level before. p: adjusted for %s "+
		"(%s) after a factor for the starts tried; it shows a change up to %v. Counts that never vary are compared exactly. "+
		"A slower machine looks like a new level, too: the list of runs says what was different. Small lines of trends begin at 60 %% of their largest value, or below their least one.",
		doc.Plural(h.Tests, "test"), h.Correction, h.Level)
}
