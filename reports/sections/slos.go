package sections

import (
	"fmt"
	"slices"
	"strings"

	"synclab/reports/comparison"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

// SLOResult is the result for one series and one SLO, from measured sizes only. A size meets the SLO if its
// whole 95 % interval is within the limit, and violates the SLO if the whole interval is above.
type SLOResult struct {
	Series   string  `json:"series"`
	Scenario string  `json:"scenario"`
	Settings string  `json:"settings,omitempty"`
	Clause   string  `json:"clause"` // "full sync", "network programming latency p99", "first packet p99", or "all"
	Limit    float64 `json:"limit,omitempty"`
	// MetUpTo is the largest size up to which every measured size meets the SLO; 0: none.
	MetUpTo int `json:"met_up_to"`
	// ViolatedAt is the first measured size that violates the SLO; 0: none.
	ViolatedAt int `json:"violated_at"`
	// Unclear are measured sizes above MetUpTo and below ViolatedAt whose intervals contain the limit.
	Unclear []int `json:"unclear,omitempty"`
	// Observed: some size has no interval, so the verdict uses the observed values.
	Observed bool `json:"observed,omitempty"`
	// ValueAtMet and ValueAtViolated are the measured values at these sizes.
	ValueAtMet      *float64 `json:"value_at_met,omitempty"`
	ValueAtViolated *float64 `json:"value_at_violated,omitempty"`
	// Stopped: the subject was stopped at ViolatedAt, and ValueAtViolated is the time that it had used.
	Stopped bool   `json:"stopped,omitempty"`
	Sizes   []int  `json:"sizes"` // measured
	Verdict string `json:"verdict"`
}

const (
	ClauseFull   = "full sync"
	ClauseNPL    = "network programming latency p99"
	ClausePacket = "first packet p99"
	ClauseAll    = "all"
)

// MeasuredSize is one size's value of a clause.
type MeasuredSize struct {
	Services  int
	Value     float64
	Low, High *float64
	Stopped   bool // the subject was stopped without a value, which would be larger
}

// sloResults judges each line of sizes.
func sloResults(c *records.Collection, s *Summary) []SLOResult {
	var out []SLOResult
	for _, line := range c.SweepLines() {
		for _, one := range c.Series {
			judged := s.judged(line, one.Name)
			if len(judged) > 1 {
				judged = append(judged, strictest(judged))
			}
			out = append(out, judged...)
		}
	}
	return out
}

// SingleSizes judges each series at its largest size, for runs without a sweep.
func (s *Summary) SingleSizes() []SLOResult {
	var out []SLOResult
	for _, k := range largestFigures(s.Figures) {
		line := records.SweepLine{Scenario: k.Cell.Scenario, Settings: k.Cell.Settings(), Cells: []records.Cell{k.Cell}}
		out = append(out, s.judged(line, k.Series)...)
	}
	return out
}

// judged judges a series by each SLO that has values in the line.
func (s *Summary) judged(line records.SweepLine, series string) []SLOResult {
	limits := map[string]float64{ClauseFull: s.SLOs.FullSync, ClauseNPL: s.SLOs.Latency, ClausePacket: s.SLOs.FirstPacket}
	var out []SLOResult
	for _, clause := range []string{ClauseFull, ClauseNPL, ClausePacket} {
		if sizes := s.clauseValues(line, series, clause); len(sizes) > 0 && limits[clause] > 0 {
			one := Judge(sizes, limits[clause])
			one.Series, one.Scenario, one.Settings, one.Clause = series, line.Scenario, line.Settings, clause
			out = append(out, one)
		}
	}
	return out
}

// clauseValues are the measured values of a clause, smallest size first. If two cells have one size (with different
// endpoint counts), the worse value counts.
func (s *Summary) clauseValues(line records.SweepLine, series, clause string) []MeasuredSize {
	worst := map[int]MeasuredSize{}
	note := func(cell records.Cell, value float64, low, high *float64) {
		if m, ok := worst[cell.Services]; !ok || value > m.Value {
			worst[cell.Services] = MeasuredSize{cell.Services, value, low, high, m.Stopped}
		}
	}
	stop := func(k Measured, figures ...string) {
		for _, figure := range figures {
			if used, ok := k.StoppedAt(figure); ok {
				note(k.Cell, used, nil, nil)
				m := worst[k.Cell.Services]
				m.Stopped = true
				worst[k.Cell.Services] = m
			}
		}
	}
	inLine := func(cell records.Cell) bool {
		return slices.ContainsFunc(line.Cells, func(c records.Cell) bool { return c.ID() == cell.ID() })
	}
	for _, k := range s.Figures {
		if k.Series != series || !inLine(k.Cell) {
			continue
		}
		full, changes := s.distribution(k, comparison.FigureFull), s.distribution(k, comparison.FigureNPL99)
		if clause == ClauseFull && full != nil {
			note(k.Cell, full.Median, full.Low, full.High)
		}
		if clause == ClauseNPL && changes != nil {
			note(k.Cell, changes.P99, changes.P99Low, changes.P99High)
		}
		packet := comparison.FigureFirstPacket
		if s.onlyTCP(series) {
			packet = comparison.FigureFirstSYN
		}
		if d := s.distribution(k, packet); clause == ClausePacket && d != nil {
			note(k.Cell, d.P99, d.P99Low, d.P99High)
		}
		switch {
		case clause == ClauseFull && full == nil:
			stop(k, comparison.FigureFull, comparison.FigureCold) // the full sync is the larger part of an unfinished cold start
		case clause == ClauseNPL && changes == nil:
			stop(k, comparison.FigureFull, comparison.FigureCold, comparison.FigureNPL99)
		case clause == ClauseNPL:
			stop(k, comparison.FigureNPL99)
		}
	}
	var out []MeasuredSize
	for _, m := range worst {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b MeasuredSize) int { return a.Services - b.Services })
	return out
}

// distribution describes the values of a figure; nil: there are none.
func (s *Summary) distribution(m Measured, figure string) *estimate.Distribution {
	_, one := s.SeriesNamed(m.Series)
	return described(comparison.FigureOf(figure).Values(one.Cells[m.Cell.ID()], comparison.SameSource{}))
}

// Judge goes up the sizes until one violates the limit. A larger size that meets the limit again does not count.
func Judge(sizes []MeasuredSize, limit float64) SLOResult {
	c := SLOResult{Limit: limit}
	for _, m := range sizes {
		c.Sizes = append(c.Sizes, m.Services)
	}
	for _, m := range sizes {
		kept, broken := m.High != nil && *m.High <= limit, m.Stopped || m.Low != nil && *m.Low > limit
		if m.Low == nil && !m.Stopped {
			c.Observed, kept, broken = true, m.Value <= limit, m.Value > limit
		}
		switch {
		case broken:
			c.ViolatedAt, c.ValueAtViolated, c.Stopped = m.Services, &m.Value, m.Stopped
		case !kept:
			c.Unclear = append(c.Unclear, m.Services)
		case len(c.Unclear) == 0:
			c.MetUpTo, c.ValueAtMet = m.Services, &m.Value
		}
		if broken {
			break
		}
	}
	c.Verdict = sloVerdict(c)
	return c
}

// strictest combines all clauses: each size is as bad as its worst clause.
func strictest(judged []SLOResult) SLOResult {
	all := SLOResult{Series: judged[0].Series, Scenario: judged[0].Scenario, Settings: judged[0].Settings, Clause: ClauseAll,
		MetUpTo: judged[0].MetUpTo, Sizes: judged[0].Sizes}
	for _, c := range judged {
		all.MetUpTo, all.Observed = min(all.MetUpTo, c.MetUpTo), all.Observed || c.Observed
		all.Unclear = append(all.Unclear, c.Unclear...)
		if c.ViolatedAt != 0 && (all.ViolatedAt == 0 || c.ViolatedAt < all.ViolatedAt) {
			all.ViolatedAt = c.ViolatedAt
		}
	}
	all.Unclear = slices.DeleteFunc(all.Unclear, func(n int) bool { return all.ViolatedAt != 0 && n >= all.ViolatedAt })
	slices.Sort(all.Unclear)
	all.Unclear = slices.Compact(all.Unclear)
	all.Verdict = sloVerdict(all)
	return all
}

func sloVerdict(c SLOResult) string {
	var parts []string
	switch {
	case c.ViolatedAt == 0 && len(c.Unclear) == 0:
		parts = append(parts, "met at all measured sizes, up to "+doc.Grouped(int64(c.MetUpTo)))
	case c.MetUpTo == 0 && len(c.Unclear) == 0:
		parts = append(parts, "met at none of the measured sizes, "+doc.Grouped(int64(c.ViolatedAt))+" and up")
	case c.MetUpTo > 0:
		parts = append(parts, "met up to "+doc.Grouped(int64(c.MetUpTo)))
	}
	var unclear []string
	for _, n := range c.Unclear {
		unclear = append(unclear, doc.Grouped(int64(n)))
	}
	if len(unclear) > 0 {
		parts = append(parts, "unclear at "+doc.JoinWords(unclear))
	}
	if c.ViolatedAt > 0 && (c.MetUpTo > 0 || len(unclear) > 0) {
		parts = append(parts, "violated at "+doc.Grouped(int64(c.ViolatedAt)))
	}
	text := strings.Join(parts, ", ")
	if c.Observed {
		text = "observed: " + text
	}
	return text
}

// sloSection shows up to which measured size each subject meets each SLO.
func (s *Summary) sloSection() doc.Section {
	out := doc.Section{ID: "slos", Title: "SLOs at measured sizes", Short: "SLOs"}
	if len(s.SLOResults) == 0 {
		return out
	}
	limit := func(v float64) string { return doc.TrimTick(doc.Format(v, "s")) } // "1 s", not "1.00 s"
	note := fmt.Sprintf("The numbers of Services at which each subject meets these SLOs: full sync ≤ %s (median), network programming latency p99 ≤ %s, "+
		"first packet to the last Service p99 ≤ %s. Only measured sizes count. "+
		"“Met up to” is the largest size up to which every measured size meets an SLO. “Violated at” is the first measured size that violates the SLO. "+
		"At sizes between the two, the SLO is unclear or was not measured.", limit(s.SLOs.FullSync), limit(s.SLOs.Latency), limit(s.SLOs.FirstPacket))
	out.Add(doc.Block{On: doc.Page, Note: note}, doc.Block{On: doc.Page | doc.Markdown, Table: s.sloTable()})
	return out
}

func (s *Summary) sloTable() *doc.Table {
	t := &doc.Table{Columns: []doc.Column{{Name: "Subject"}, {Name: "Scenario", Differs: true}, {Name: "Settings"}, {Name: "SLO"},
		{Name: "Met up to", On: doc.Page, Numeric: true, Title: "the largest number of Services up to which every measured size meets the SLO"},
		{Name: "value at this size", On: doc.Page, Numeric: true}, {Name: "Violated at", On: doc.Page, Numeric: true, Title: "the first measured size that violates the SLO"},
		{Name: "value at this size", On: doc.Page, Numeric: true}, {Name: "Verdict"}}}
	for _, c := range s.SLOResults {
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
		t.Add(s.SeriesCell(c.Series), doc.Text(c.Scenario), doc.Text(records.ShortSettings(c.Settings)), doc.Text(c.sloText()),
			met, doc.Optional(c.ValueAtMet, "s"), violated, atViolated, doc.Text(c.Verdict))
	}
	return t
}

// sloText is the text of an SLO: "full sync ≤ 1 s".
func (c SLOResult) sloText() string {
	if c.Clause == ClauseAll {
		return "all SLOs"
	}
	return c.Clause + " ≤ " + doc.TrimTick(doc.Format(c.Limit, "s"))
}

// onlyTCP reports whether the first packets of a series are all of TCP: a bound for several sizes is judged by one protocol.
func (s *Summary) onlyTCP(series string) bool {
	return !slices.ContainsFunc(s.Figures, func(k Measured) bool { return k.Series == series && k.Figure(comparison.FigureFirstPacket) != nil })
}
