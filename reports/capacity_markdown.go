package reports

import (
	"fmt"
	"strings"

	"synclab/reports/capacity"
)

// markdown is the answer for a pull request, at most one screen.
func (r *capacityReport) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "## How far can this cluster grow?\n\n%s\n\n", r.subtitle())
	for _, words := range r.Words {
		fmt.Fprintf(&b, "- %s\n", words)
	}
	if len(r.Words) > 0 {
		b.WriteString("\n")
	}
	markdownTable(&b, []string{"subject", "largest cluster, " + string(r.Unit), "SLO violated first", "SLOs met today", "SLOs met at target", "recommended minSyncPeriod", "latency p99 with it", "CPUs with it", "memory limit"}, 4, len(r.Subjects), func(i int) []string {
		s := r.Subjects[i]
		target := ""
		if s.Target != nil {
			target = oneLine(r.holdsCell(*s.Target))
		}
		return []string{s.Name, oneLine(r.limitCell(s.Largest)), firstBreak(s).Text, oneLine(r.holdsCell(s.Today)), target, periodText(s.Recommended.Policy.MinSyncPeriod) + " (" + policyText(s.Recommended.Policy) + ")",
			oneLine(promisedCell(s.Recommended.Outlook, capacity.ProgrammingP99)), oneLine(promisedCell(s.Recommended.Outlook, capacity.CPU)), oneLine(r.memoryCell(s))}
	})
	b.WriteString("\n● measured, ◐ interpolated, ○ extrapolated (× the largest measured size, or below the smallest).\n")
	if sentences := r.backendSentences(); len(sentences) > 0 {
		b.WriteString("\n### When a change of backend pays\n\n")
		for _, sentence := range sentences {
			fmt.Fprintf(&b, "- %s\n", sentence)
		}
	}
	if remarks := r.remarks(); len(remarks) > 0 {
		b.WriteString("\n### Caveats\n\n")
		for _, remark := range remarks {
			fmt.Fprintf(&b, "- %s\n", remark)
		}
	}
	if r.Command != "" {
		fmt.Fprintf(&b, "\n`%s`, seed %d, calibration %s\n", r.Command, r.Question.Seed, r.Run)
	}
	return b.String()
}

// oneLine writes a cell of the page as a cell of Markdown.
func oneLine(c pageCell) string {
	if c.Sub == "" {
		return c.Text
	}
	return c.Text + " (" + strings.ReplaceAll(c.Sub, "\n", ", ") + ")"
}
