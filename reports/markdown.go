package reports

import (
	"fmt"
	"io"
	"strings"
)

// writeMarkdown writes the summary for a pull request: what changed hands, in one screen.
func (s *Summary) writeMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n%s\n\n", s.Title, strings.Join(s.Sentences, " "))
	markdownTable(&b, []string{"subject", "services", "settings", "full sync", "partial sync", "npl p50", "npl p99", "first packet, last", "rules"},
		2, len(s.KeyFigures), func(i int) []string {
			k := s.KeyFigures[i]
			return []string{k.Series, Grouped(int64(k.Cell.Services)), k.Cell.Settings(), withSpread(k.FullSync), withSpread(k.PartialSync),
				shortTime(k.Programming, func(d Distribution) float64 { return d.Median }),
				shortTime(k.Programming, func(d Distribution) float64 { return d.P99 }),
				shortTime(k.FirstPacketLast, func(d Distribution) float64 { return d.Median }), countText(k.Rules)}
		})
	b.WriteString("\nMedians ± 95 % confidence; npl: network programming latency.\n")
	if len(s.Capacity) > 0 {
		b.WriteString("\n### Capacity, from measured sizes\n\n")
		markdownTable(&b, []string{"subject", "settings", "promise", "verdict"}, -1, len(s.Capacity), func(i int) []string {
			c := s.Capacity[i]
			return []string{c.Series, c.Settings, c.promiseText(), c.Verdict}
		})
	}
	if len(s.Comparisons) > 0 {
		b.WriteString("\n### Side by side\n\n")
		markdownTable(&b, []string{"metric", "services", "B against A", "median B / A", "p"}, -1, len(s.Comparisons), func(i int) []string {
			c := s.Comparisons[i]
			return []string{c.Metric, Grouped(int64(c.Cell.Services)), c.B + " against " + c.A, c.ratioText(), c.pText()}
		})
	}
	if len(s.Warnings) > 0 {
		b.WriteString("\n### Warnings\n\n")
		for _, warning := range s.Warnings {
			fmt.Fprintf(&b, "- %s\n", warning)
		}
	}
	b.WriteString("\n<details><summary>Versions and how to repeat it</summary>\n\n")
	for _, run := range s.Runs {
		fmt.Fprintf(&b, "- `%s` (%s): `%s`, seed %d, %d repetitions, %s\n", run.Label, run.Status, run.Command, run.Seed, run.Reps, run.versionsText())
	}
	b.WriteString("\n</details>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// markdownTable writes rows; the column optional is left out when it is empty in all of them.
func markdownTable(b *strings.Builder, header []string, optional, n int, row func(int) []string) {
	rows := make([][]string, n)
	keep := optional < 0
	for i := range rows {
		rows[i] = row(i)
		keep = keep || rows[i][optional] != ""
	}
	write := func(cells []string) {
		for i, cell := range cells {
			if keep || i != optional {
				fmt.Fprintf(b, "| %s ", strings.ReplaceAll(cell, "|", "\\|"))
			}
		}
		b.WriteString("|\n")
	}
	write(header)
	marks := make([]string, len(header))
	for i := range marks {
		marks[i] = "---"
	}
	write(marks)
	for _, cells := range rows {
		write(cells)
	}
}

// ratioText is "1.32 ×"; with "?" where there are too few values to tell, and "~" where there is nothing to tell.
func (c Comparison) ratioText() string {
	switch {
	case c.Differs:
		return significant(c.Ratio) + " ×"
	case c.Warning != "":
		return significant(c.Ratio) + " × ?"
	default:
		return "~"
	}
}

func (c Comparison) pText() string {
	text := fmt.Sprintf("%.3f", c.P)
	if c.P < 0.001 {
		text = "< 0.001"
	}
	return fmt.Sprintf("%s (n = %d, %d)", text, c.NA, c.NB)
}

// promiseText is "full sync ≤ 1.00 s".
func (c Capacity) promiseText() string {
	if c.Clause == clauseAll {
		return "all of them"
	}
	return c.Clause + " ≤ " + trimTick(Format(c.Limit, "s"))
}

// versionsText is one line with what a number depends on.
func (r RunHead) versionsText() string {
	var parts []string
	for _, v := range [][2]string{{"synclab", r.Versions.Synclab}, {"kernel", r.Versions.Kernel}, {"", r.Versions.IPTablesLegacy},
		{"", r.Versions.IPTablesNft}, {"", r.Versions.Nft}, {"", r.Versions.Go}, {"", r.Machine.CPU}} {
		if v[1] != "" {
			parts = append(parts, strings.TrimSpace(v[0]+" "+v[1]))
		}
	}
	return strings.Join(parts, ", ")
}
