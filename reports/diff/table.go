package diff

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"synclab/reports/comparison"
	"synclab/reports/doc"
	"synclab/reports/records"
)

// maxUnlike bounds the listed differences of two scenarios. The JSON has all.
const maxUnlike = 12

// Table writes the whole comparison for a terminal: the different conditions, one line for each figure, and the result.
func (d *Diff) Table(w io.Writer) error { return d.document().Text(w) }

// Page writes it as a page.
func (d *Diff) Page(w io.Writer) error { return d.document().Page(w) }

// mostRows bounds the table of all figures in Markdown: a comment on GitHub has at most 65,536 characters.
const mostRows = 200

// Markdown writes it for a pull request: the verdict and the figures that differ, and the rest folded.
func (d *Diff) Markdown(w io.Writer) error {
	return (&doc.Document{Title: d.title(), Sections: []doc.Section{d.Section("Result")}}).Markdown(w)
}

// Section has the verdict and the figures that differ, and the rest folded: not on a terminal, which folds nothing.
func (d *Diff) Section(title string) doc.Section {
	s := doc.Section{ID: "measured", Title: title}
	differ := d.tableOf(func(r Delta) bool { return r.visible() })
	s.Add(doc.Block{Verdict: d.Verdict()}, doc.Block{Table: differ})
	heading := "All " + doc.Plural(len(d.Rows), "figure")
	n, all := 0, d.tableOf(func(Delta) bool { return true })
	first := d.tableOf(func(Delta) bool { n++; return n <= mostRows })
	if n > mostRows {
		first.Note = fmt.Sprintf("The first %d of them; the page and the data (-o json) have all.", mostRows)
	}
	s.Add(doc.Block{On: doc.Page, Folded: true, Heading: heading, Table: all, Facts: d.absent()},
		doc.Block{On: doc.Markdown, Folded: true, Heading: heading, Table: first, Facts: d.absent()},
		doc.Block{On: doc.Page | doc.Markdown, Folded: true, Heading: "Conditions, caveats and method", Note: d.method(), Facts: d.conditions(), List: d.caveats()})
	return s
}

// visible reports whether a difference is shown that the printed ratio does not hide.
func (r Delta) visible() bool {
	return (r.Verdict == Slower || r.Verdict == Faster) && (r.Beyond || !r.Exact || r.Ratio == nil || FineRatio(*r.Ratio) != "1.00")
}

func (d *Diff) document() *doc.Document {
	verdict, s := doc.Section{ID: "verdict", Title: "Verdict"}, doc.Section{ID: "diff", Title: "Figures"}
	verdict.Add(doc.Block{Verdict: d.Verdict()}, doc.Block{Facts: d.conditions()})
	if caveats := d.caveats(); len(caveats) > 0 {
		verdict.Add(doc.Block{Warn: true, Heading: "Conditions and caveats", List: caveats})
	}
	s.Add(doc.Block{Table: d.tableOf(func(Delta) bool { return true })})
	s.Add(doc.Block{Facts: d.absent()}, doc.Block{Note: d.method(), Soft: true})
	return &doc.Document{Kind: "synclab diff", Title: d.title(), Sections: []doc.Section{verdict, s}}
}

func (d *Diff) title() string {
	if d.Pairs != nil {
		return "Two subjects compared"
	}
	return "Two runs compared"
}

// absent lists the subjects in cells that only one of the runs has.
func (d *Diff) absent() [][2]string {
	var out [][2]string
	for _, a := range d.Absent {
		out = append(out, [2]string{Delta{Subject: a.Subject, Cell: a.Cell}.group(), strings.ReplaceAll(string(a.Verdict), "-", " ")})
	}
	return out
}

// conditions describe both runs, and what was compared.
func (d *Diff) conditions() [][2]string {
	if d.Pairs != nil {
		var out [][2]string
		for _, pair := range d.Pairs {
			out = append(out, [2]string{"before", pair[0]}, [2]string{"after", pair[1]})
		}
		return append(out, [2]string{"run", headText(&d.Before)})
	}
	out := [][2]string{{"before", headText(&d.Before)}, {"after", headText(&d.After)}}
	for _, u := range d.Unlike {
		if u.Compared {
			out = append(out, [2]string{"compared", u.Text()})
		}
	}
	return out
}

// caveats are the conditions that should not differ between the runs but do, and the warnings.
func (d *Diff) caveats() []string {
	var out []string
	for _, u := range d.Unlike {
		if !u.Compared {
			out = append(out, "different "+u.Text())
		}
	}
	if n := len(out) - maxUnlike; n > 0 {
		out = append(out[:maxUnlike], doc.Plural(n, "field")+" more differ; use -o json for all")
	}
	return append(out, d.Warnings...)
}

// group is the heading above the rows of one subject in one cell.
func (r Delta) group() string {
	return r.Subject + " · " + records.SizesText([]records.Cell{r.Cell}) + records.SettingsTail(records.ShortSettings(r.Cell.Settings())) + " · " + r.Cell.Scenario
}

// Name is the figure's display name.
func (r Delta) Name() string { return r.of.Label() }

func (r Delta) cells() []doc.Cell {
	p := doc.None()
	switch {
	case r.Exact:
		p = doc.Text("exact")
	case r.Adjusted != nil:
		p = doc.Text(ShortP(*r.Adjusted))
	}
	return []doc.Cell{doc.Text("  " + r.Name()), doc.Text(comparison.FigureValue(r.Before, false)), doc.Text(comparison.FigureValue(r.After, false)), doc.Text(r.ratioText()), p,
		doc.Text(fmt.Sprintf("%d+%d", r.RepetitionsBefore, r.RepetitionsAfter)), doc.Text(r.verdictText())}
}

// ShortP writes a p-value.
func ShortP(p float64) string {
	if p < 0.001 {
		return "< 0.001"
	}
	return strconv.FormatFloat(p, 'f', 3, 64)
}

// ratioText is "1.31× (1.22–1.40)".
func (r Delta) ratioText() string {
	if r.Ratio == nil {
		return "–"
	}
	text := FineRatio(*r.Ratio) + "×"
	switch {
	case r.Before.Stopped != r.After.Stopped:
		text = map[bool]string{true: "> ", false: "< "}[r.After.Stopped] + text
	case r.Low != nil && !r.Exact:
		text += " (" + FineRatio(*r.Low) + "–" + FineRatio(*r.High) + ")"
	}
	return text
}

// RatioCell is the ratio with its interval, marked with ~ where no difference is shown, and with = where none as large as
// the threshold is.
func (r Delta) RatioCell() doc.Cell {
	if r.Ratio == nil {
		return doc.None()
	}
	text := r.ratioText()
	switch r.Verdict {
	case Slower, Faster:
	case Same:
		text = "= " + text
	default:
		text = "~ " + text
	}
	return doc.Cell{Text: text, Value: doc.Exact(*r.Ratio)}
}

// FineRatio keeps two decimals, which a threshold of some percent needs.
func FineRatio(v float64) string {
	switch {
	case v >= 9.995:
		return comparison.Times(v)
	case v >= 0.1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

func (r Delta) verdictText() string {
	var text string
	switch r.Verdict {
	case Slower:
		text = r.of.Words.More
	case Faster:
		return r.of.Words.Less
	case Same:
		return "same"
	case Unclear:
		return "no difference shown"
	case TooFew:
		return "too few repetitions"
	default:
		return strings.ReplaceAll(string(r.Verdict), "-", " ")
	}
	switch {
	case r.Beyond:
		text += ", beyond " + PercentText(*r.Threshold)
	case r.Threshold != nil && r.Ratio != nil && *r.Ratio > 1+*r.Threshold:
		text += ", not shown to exceed " + PercentText(*r.Threshold)
	case r.Threshold != nil:
		text += ", within " + PercentText(*r.Threshold)
	}
	return text
}

// PercentText writes a share.
func PercentText(share float64) string { return strconv.FormatFloat(100*share, 'g', 4, 64) + " %" }

// Verdict states the result: the rows beyond their thresholds, the number of each verdict, and the repetitions needed.
func (d *Diff) Verdict() []doc.Line {
	var out []doc.Line
	for _, r := range d.Beyond() {
		out = append(out, doc.Line{Level: doc.Bad, Text: r.Sentence()})
	}
	counts, worse := map[Verdict]int{}, false
	for _, r := range d.Rows {
		counts[r.Verdict]++
		worse = worse || r.Verdict == Slower && r.visible()
	}
	text, verdicts := "", []string(nil)
	if len(out) > 0 {
		text = fmt.Sprintf("; %d beyond thresholds", len(out))
	}
	for _, v := range []struct {
		verdict Verdict
		text    string
	}{{Slower, "slower or more"}, {Faster, "faster or less"}, {Same, "the same"}, {Unclear, "without a difference shown"},
		{TooFew, "with too few repetitions"}, {OnlyBefore, "only before"}, {OnlyAfter, "only after"}} {
		if n := counts[v.verdict]; n > 0 {
			verdicts = append(verdicts, doc.Grouped(int64(n))+" "+v.text)
		}
	}
	level := doc.Good
	switch {
	case worse:
		level = doc.Care
	case d.RepetitionsNeeded > 0:
		level = doc.Info
	}
	out = append(out, doc.Line{Level: level, Text: doc.Plural(len(d.Rows), "figure") + ": " + doc.JoinWords(verdicts) + text + "."})
	if d.Tests > 0 && d.Scattered < len(d.Rows) && d.Pairs == nil {
		out = append(out, doc.Line{Level: doc.Info, Text: "Two runs, not measured in turn: differences below " + percent(d.Least) + " mean nothing. " +
			"To see smaller ones, measure both programs in turn in one run, as two subjects."})
	}
	if d.RepetitionsNeeded > 0 {
		each := ""
		if len(d.Pairs) == 0 {
			each = " of each run"
		}
		out = append(out, doc.Line{Level: doc.Care, Text: fmt.Sprintf("Too few repetitions: with so many figures, a verdict on one of them needs %d repetitions%s (--reps %d).",
			d.RepetitionsNeeded, each, d.RepetitionsNeeded)})
	}
	return out
}

// Sentence describes one row: "synclab/nftables at 1,000 Services × 10: full sync from 1.00 s to 1.31 s, 1.31× (1.22–1.40); …".
func (r Delta) Sentence() string {
	where := records.ShortSizes([]records.Cell{r.Cell}) + records.SettingsTail(records.ShortSettings(r.Cell.Settings()))
	text := fmt.Sprintf("%s at %s: %s from %s to %s", r.Subject, where, doc.LowerFirst(r.Name()), comparison.FigureValue(r.Before, false), comparison.FigureValue(r.After, false))
	if r.Ratio != nil {
		text += ", " + r.ratioText()
	}
	if r.Threshold != nil {
		text += "; " + PercentText(*r.Threshold) + " more is allowed"
	}
	return text
}

// Where is the row's subject and size: "synclab/nftables at 1,000 Services × 10".
func (r Delta) Where() string { return r.Subject + " at " + records.ShortSizes([]records.Cell{r.Cell}) }

// Short describes one row without these and its threshold: "full sync 1.31× (1.22–1.40), 1.00 s to 1.31 s".
func (r Delta) Short() string {
	return fmt.Sprintf("%s %s, %s to %s", doc.LowerFirst(r.Name()), r.ratioText(),
		comparison.FigureValue(r.Before, false), comparison.FigureValue(r.After, false))
}

// tableOf has a heading for each subject in each cell, and below it a row for each chosen figure.
func (d *Diff) tableOf(chosen func(Delta) bool) *doc.Table {
	t := &doc.Table{Columns: []doc.Column{{Name: "Figure"}, {Name: "Before", Numeric: true}, {Name: "After", Numeric: true}, {Name: "Ratio (95 %)", Numeric: true},
		{Name: "p", Numeric: true}, {Name: "n", Numeric: true}, {Name: "Result"}}}
	group := ""
	for _, r := range d.Rows {
		if !chosen(r) {
			continue
		}
		if next := r.group(); next != group {
			group = next
			t.Heading(group)
		}
		t.Add(r.cells()...)
	}
	return t
}
