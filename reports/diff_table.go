package reports

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// maxUnlike bounds the listed differences of two scenarios. The JSON has all.
const maxUnlike = 12

// Table writes the whole comparison: the different conditions, one line for each figure, and the result.
func (d *Diff) Table(w io.Writer) error {
	var b strings.Builder
	for _, one := range []struct {
		when string
		head RunHead
	}{{"before", d.Before}, {"after ", d.After}} {
		fmt.Fprintf(&b, "%s  %s: %s, %s, synclab %s, %s\n", one.when, one.head.Label, one.head.Scenario, plural(one.head.Reps, "repetition"),
			cmp.Or(one.head.Versions.Synclab, "unknown"), one.head.Started.UTC().Format("2006-01-02 15:04 UTC"))
	}
	d.remarks(&b)
	table := textTable{header: []string{"", "before", "after", "ratio (95 %)", "p", "n", ""}}
	group := ""
	for _, r := range d.Rows {
		if next := r.group(); next != group {
			group = next
			table.heading(group)
		}
		table.add(r.cells()...)
	}
	b.WriteString("\n")
	table.write(&b)
	for _, a := range d.Absent {
		fmt.Fprintf(&b, "%s: %s\n", Delta{Subject: a.Subject, Cell: a.Cell}.group(), strings.ReplaceAll(string(a.Verdict), "-", " "))
	}
	b.WriteString("\n")
	for _, line := range d.Sentences() {
		b.WriteString(wrap(line, tableWidth, "  ") + "\n")
	}
	b.WriteString("\n" + wrap(d.method(), tableWidth, "") + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// remarks lists the conditions that differ between the runs, and the warnings.
func (d *Diff) remarks(b *strings.Builder) {
	shown, left := d.Unlike, 0
	if len(shown) > maxUnlike {
		shown, left = shown[:maxUnlike], len(shown)-maxUnlike
	}
	for _, u := range shown {
		word := "warning: different "
		if u.Compared {
			word = "compared: "
		}
		b.WriteString(wrap(word+u.What+": "+u.Before+" → "+u.After, tableWidth, "  ") + "\n")
	}
	if left > 0 {
		fmt.Fprintf(b, "warning: %s more differ; use -o json for all\n", plural(left, "field"))
	}
	for _, warning := range d.Warnings {
		b.WriteString(wrap("warning: "+warning, tableWidth, "  ") + "\n")
	}
}

// group is the heading above the rows of one subject in one cell.
func (r Delta) group() string {
	return r.Subject + " · " + sizesText([]Cell{r.Cell}) + settingsTail(shortSettings(r.Cell.Settings())) + " · " + r.Cell.Scenario
}

// Name is the figure's display name.
func (r Delta) Name() string {
	if r.Detail != "" {
		return r.of.text + ", " + r.Detail
	}
	return r.of.text
}

func (r Delta) cells() []string {
	p := "–"
	switch {
	case r.Exact:
		p = "exact"
	case r.Adjusted != nil:
		p = shortP(*r.Adjusted)
	}
	return []string{"  " + r.Name(), figureValue(r.Before, false), figureValue(r.After, false), r.ratioText(), p,
		fmt.Sprintf("%d+%d", r.RepetitionsBefore, r.RepetitionsAfter), r.verdictText()}
}

func shortP(p float64) string {
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
	text := fineRatio(*r.Ratio) + "×"
	switch {
	case r.Before.Stopped != r.After.Stopped:
		text = map[bool]string{true: "> ", false: "< "}[r.After.Stopped] + text
	case r.Low != nil && !r.Exact:
		text += " (" + fineRatio(*r.Low) + "–" + fineRatio(*r.High) + ")"
	}
	return text
}

// fineRatio keeps two decimals, which a threshold of some percent needs.
func fineRatio(v float64) string {
	switch {
	case v >= 9.995:
		return times(v)
	case v >= 0.1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

func (r Delta) verdictText() string {
	var text string
	switch r.Verdict {
	case Slower:
		text = r.of.more
	case Faster:
		return r.of.less
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
		text += ", beyond " + percentText(*r.Threshold)
	case r.Threshold != nil && r.Ratio != nil && *r.Ratio > 1+*r.Threshold:
		text += ", not shown to exceed " + percentText(*r.Threshold)
	case r.Threshold != nil:
		text += ", within " + percentText(*r.Threshold)
	}
	return text
}

func percentText(share float64) string { return strconv.FormatFloat(100*share, 'g', 4, 64) + " %" }

// Sentences state the result: the rows beyond their thresholds, the number of each verdict, and the repetitions
// needed.
func (d *Diff) Sentences() []string {
	var out []string
	for _, r := range d.Beyond() {
		out = append(out, r.Sentence())
	}
	counts := map[Verdict]int{}
	for _, r := range d.Rows {
		counts[r.Verdict]++
	}
	var parts []string
	for _, v := range []struct {
		verdict Verdict
		text    string
	}{{Slower, "slower or more"}, {Faster, "faster or less"}, {Same, "the same"}, {Unclear, "without a difference shown"},
		{TooFew, "with too few repetitions"}, {OnlyBefore, "only before"}, {OnlyAfter, "only after"}} {
		if n := counts[v.verdict]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", Grouped(int64(n)), v.text))
		}
	}
	text := plural(len(d.Rows), "figure") + ": " + joinWords(parts)
	if n := len(out); n > 0 {
		text += fmt.Sprintf("; %d beyond thresholds", n)
	}
	out = append(out, text+".")
	if d.RepetitionsNeeded > 0 {
		out = append(out, fmt.Sprintf("Too few repetitions: with so many figures, a verdict on one of them needs %d repetitions of each run (--reps %d).",
			d.RepetitionsNeeded, d.RepetitionsNeeded))
	}
	return out
}

// Sentence describes one row: "synclab/nftables at 1,000 Services: full sync 1.31× (1.22–1.40), from 1.00 s to 1.31 s,
// …".
func (r Delta) Sentence() string {
	text := fmt.Sprintf("%s at %s: %s from %s to %s", r.Subject, strings.TrimSuffix(sizesText([]Cell{r.Cell})+settingsTail(shortSettings(r.Cell.Settings())), " endpoints"),
		lowerFirst(r.Name()), figureValue(r.Before, false), figureValue(r.After, false))
	if r.Ratio != nil {
		text += ", " + r.ratioText()
	}
	if r.Threshold != nil {
		text += "; " + percentText(*r.Threshold) + " more is allowed"
	}
	return text
}

// method explains the verdicts.
func (d *Diff) method() string {
	return fmt.Sprintf("Medians of the repetitions' medians (or 99th percentiles); n: repetitions with a value, before and after, the unit of tests and intervals. "+
		"Ratio: after over before, with its 95 %% interval by ranks (Hodges-Lehmann; from 4 repetitions on). p: Mann-Whitney U, two-sided, adjusted for %s "+
		"(%s); at most %v is a difference. A row is beyond its threshold if the same test shows that it exceeds it. "+
		"Counts that never vary within a run are compared exactly. “No difference shown” is not “same”: noise may hide a difference as large as the threshold. "+
		"A slower machine during one of the runs looks like a difference, too.", plural(d.Tests, "test"), d.Correction, d.Level)
}
