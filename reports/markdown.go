package reports

import (
	"fmt"
	"io"
	"strings"

	"synclab/reports/estimate"
)

// writeMarkdown writes the summary for a pull request, at most one screen.
func (s *Summary) writeMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n%s\n\n", s.Title, strings.Join(s.Sentences, " "))
	s.markdownTargets(&b)
	s.markdownPackets(&b)
	if flows := s.flowTable(); len(flows.Rows) > 0 {
		flows.markdown(&b)
	}
	s.markdownDisruption(&b)
	s.markdownFaults(&b)
	s.markdownInvariants(&b)
	s.markdownOverview(&b)
	s.markdownComparisons(&b)
	if !s.allCompared() {
		s.markdownKeyFigures(&b)
	}
	if len(s.Capacity) > 0 {
		b.WriteString("\n### SLOs at measured sizes\n\n")
		markdownTable(&b, []string{"subject", "settings", "SLO", "verdict"}, -1, len(s.Capacity), func(i int) []string {
			c := s.Capacity[i]
			return []string{c.Series, c.Settings, c.sloText(), c.Verdict}
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
		for _, host := range run.hostList() {
			fmt.Fprintf(&b, "  - %s: %s\n", host[0], host[1])
		}
	}
	b.WriteString("\n</details>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (s *Summary) markdownKeyFigures(b *strings.Builder) {
	markdownTable(b, []string{"subject", "services", "settings", "reaction", "cold start", "full sync", "partial sync", "npl p50", "npl p99", "first packet, last", "rules"},
		2, len(s.KeyFigures), func(i int) []string {
			k := s.KeyFigures[i]
			return []string{k.Series, Grouped(int64(k.Cell.Services)), k.Cell.Settings(), k.orStopped(figureReaction, k.Reaction, withSpread), k.orStopped(figureCold, k.ColdStart, withSpread),
				k.orStopped(figureFull, k.FullSync, withSpread), withSpread(k.PartialSync),
				shortTime(k.Programming, func(d estimate.Distribution) float64 { return d.Median }),
				shortTime(k.Programming, func(d estimate.Distribution) float64 { return d.P99 }),
				shortTime(k.FirstPacketLast, func(d estimate.Distribution) float64 { return d.Median }), countText(k.Rules)}
		})
	b.WriteString("\n" + upperFirst(s.mediansText("±")) + "; npl: network programming latency.\n")
	if len(s.Comparisons) == 0 {
		for _, note := range stopped(s.collected) {
			b.WriteString("\n- " + note + "\n")
		}
	}
}

// markdownTable writes rows. It omits the column optional if that is empty in all rows.
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

// markdown writes a table of the page.
func (t pageTable) markdown(b *strings.Builder) {
	fmt.Fprintf(b, "### %s\n\n", t.Title)
	var header []string
	for _, c := range t.Columns {
		header = append(header, lowerFirst(c.Name))
	}
	markdownTable(b, header, -1, len(t.Rows), func(i int) []string {
		var cells []string
		for _, cell := range t.Rows[i] {
			cells = append(cells, strings.TrimSpace(cell.Text+" "+cell.Sub))
		}
		return cells
	})
	if t.Note != "" {
		fmt.Fprintf(b, "\n%s\n", t.Note)
	}
	b.WriteString("\n")
}

// promiseText is the text of an SLO: "full sync ≤ 1 s".
func (c Capacity) sloText() string {
	if c.Clause == clauseAll {
		return "all SLOs"
	}
	return c.Clause + " ≤ " + trimTick(Format(c.Limit, "s"))
}

// versionsText is one line with the versions and the CPU.
func (r RunHead) versionsText() string {
	var parts []string
	for _, v := range [][2]string{{"synclab", r.Versions.Synclab}, {"kernel", r.Versions.Kernel}, {"", r.Versions.IPTablesLegacy},
		{"", r.Versions.IPTablesNft}, {"", r.Versions.Nft}, {"kube-proxy", r.Versions.KubeProxy}, {"", r.Versions.Go}, {"", r.Machine.CPU}} {
		if v[1] != "" {
			parts = append(parts, strings.TrimSpace(v[0]+" "+v[1]))
		}
	}
	return strings.Join(parts, ", ")
}
