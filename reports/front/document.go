package front

import (
	"io"
	"slices"
	"strings"

	"synclab/bench/raw"
	"synclab/reports/doc"
	"synclab/reports/records"
	"synclab/reports/sections"
)

// Document is the report of a summary: the first screen, then the sections.
func Document(s *sections.Summary) *doc.Document {
	chart := chartOf(s)
	d := &doc.Document{Kind: "synclab report", Title: s.Title, Subtitle: subtitle(s),
		Footer: `Derived from run.json and records.jsonl by synclab; the same numbers in machine-readable form are in <a href="summary.json">summary.json</a>, ` +
			`repetitions for benchstat in <a href="bench.txt">bench.txt</a>.`}
	d.Sections = append(d.Sections, verdictSection(s), tileSection(s), chartSection(chart))
	rest := *s
	rest.Plots = slices.DeleteFunc(slices.Clone(s.Plots), func(p doc.Plot) bool { return chart != nil && p.Name == chart.Name })
	d.Sections = append(d.Sections, rest.Sections()...)
	return d
}

// Terminal writes the report for a terminal.
func Terminal(w io.Writer, s *sections.Summary) error { return Document(s).Text(w) }

// subtitle says when, where and what was measured, and has the descriptions of the scenarios.
func subtitle(s *sections.Summary) string {
	var facts, texts []string
	for _, run := range s.Runs {
		facts = append(facts, run.Place())
		texts = append(texts, run.Description)
	}
	facts = records.Distinct(facts)
	if len(facts) > 2 {
		facts = append(facts[:1], doc.Plural(len(facts)-1, "further run"))
	}
	return strings.Join(append(records.Distinct(texts), facts...), " · ")
}

func verdictSection(s *sections.Summary) doc.Section {
	return doc.Section{ID: "verdict", Title: "Verdict", Blocks: []doc.Block{{Verdict: Verdict(s)}}}
}

func chartSection(chart *doc.Plot) doc.Section {
	out := doc.Section{ID: "chart", Title: "The main chart", Short: "Chart"}
	if chart != nil {
		out.Add(doc.Block{On: doc.Page, Plots: []doc.Plot{*chart}})
	}
	return out
}

// charts are the beginnings of the names of plots that answer the question of a kind of run, the best first.
func charts(s *sections.Summary) []string {
	names := []string{"sync-vs-services", "compared-", "timeline"}
	switch {
	case len(s.Faults) > 0 || len(s.Moves) > 0 || len(s.Disruptions) > 0:
		names = []string{"flows-"}
	case aboutPackets(s):
		names = []string{"flows-vs-services", "first-packet-vs-services", "first-packet-by-position"}
	case len(s.Collected.SweepLines()) > 0:
		names = []string{"sync-vs-services", "first-packet-vs-services", "flows-vs"}
	case len(s.Comparisons) > 0:
		names = []string{"ratios", "compared-"}
	}
	return names
}

// aboutPackets reports whether a run measured packets, and no changes.
func aboutPackets(s *sections.Summary) bool {
	return s.ProbedDeeply() && len(s.Collected.Pooled(raw.Reaction)) == 0 && len(s.Collected.Pooled(raw.NetworkProgrammingLatency)) == 0
}

// chartOf chooses the plot for the first screen; nil if there is none.
func chartOf(s *sections.Summary) *doc.Plot {
	for _, name := range charts(s) {
		if i := slices.IndexFunc(s.Plots, func(p doc.Plot) bool { return strings.HasPrefix(p.Name, name) }); i >= 0 {
			return &s.Plots[i]
		}
	}
	if len(s.Plots) > 0 {
		return &s.Plots[0]
	}
	return nil
}
