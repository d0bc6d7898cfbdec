package sections

import (
	"cmp"
	"image/color"
	"slices"
	"strings"

	"synclab/bench/raw"
	"synclab/reports/comparison"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/figure"
	"synclab/reports/profiles"
	"synclab/reports/records"
)

// Summary is everything derived from the raw files. Every output is written from it. Times are in seconds.
type Summary struct {
	Title string `json:"title"`
	// Verdict states the result in a few lines; package front makes it.
	Verdict []doc.Line `json:"verdict,omitempty"`
	// Method describes how the numbers were measured.
	Method    []string          `json:"method,omitempty"`
	Runs      []records.RunHead `json:"runs"`
	Warnings  []string          `json:"warnings,omitempty"`
	Figures   []Measured        `json:"figures"`
	Phases    []Phases          `json:"phases,omitempty"`
	Growth    []Growth          `json:"growth,omitempty"`
	Traversal []Traversal       `json:"traversal,omitempty"`
	// Packets are the costs of first packets, by subject, cell and method. PacketGrowth is their growth with the
	// Services.
	Packets      []PacketCost   `json:"packets,omitempty"`
	PacketGrowth []PacketGrowth `json:"packet_growth,omitempty"`
	// Memory is its growth over changes.
	Memory []MemoryGrowth `json:"memory_growth,omitempty"`
	// Disruptions are the outcomes of flows while the cluster changed. Faults are the results of the faults.
	// Invariants are the checks and the violations.
	Disruptions []Disruption      `json:"disruptions,omitempty"`
	Moves       []Move            `json:"moves,omitempty"` // from one subject to another
	Faults      []FaultResult     `json:"faults,omitempty"`
	Invariants  []InvariantResult `json:"invariants,omitempty"`
	// Comparisons compare the subjects of each cell that has several.
	Comparisons []comparison.CellComparison `json:"comparisons,omitempty"`
	// Targets are the scenarios' targets with their verdicts.
	Targets    []TargetResult  `json:"targets,omitempty"`
	SLOs       comparison.SLOs `json:"slos"`
	SLOResults []SLOResult     `json:"slo_results,omitempty"`
	// Profiles say where the time of syncs goes.
	Profiles *profiles.Report `json:"profiles,omitempty"`
	Rows     []Row            `json:"rows"`
	Plots    []doc.Plot       `json:"plots,omitempty"`

	Collected *records.Collection `json:"-"`
	looks     []figure.Look       // of the series
	warnings  []warning           // of Warnings
}

// Row is one line of the full tables: one group of values.
type Row struct {
	Series   string       `json:"series"`
	Cell     records.Cell `json:"cell"`
	Metric   raw.Metric   `json:"metric"`
	Kind     string       `json:"kind,omitempty"`
	Table    string       `json:"table,omitempty"`
	Family   string       `json:"family,omitempty"`
	Position *int         `json:"position,omitempty"`
	Target   string       `json:"target,omitempty"`   // kind of destination of a first packet
	Method   string       `json:"method,omitempty"`   // of a first packet; absent: sendto
	Protocol string       `json:"protocol,omitempty"` // of a flow
	Outcome  string       `json:"outcome,omitempty"`  // of a flow; absent: answered
	Unit     string       `json:"unit"`               // s, B, count or ratio
	estimate.Distribution
}

// Label names the row's metric and everything that distinguishes its group.
func (r Row) Label() string {
	words := []string{r.Metric.Row().Text}
	if r.Position != nil && (r.Target == "" || *r.Position == 0) {
		words = append(words, records.PositionText(*r.Position))
	}
	for _, w := range []string{r.Target, r.Method, r.Protocol, r.Outcome, r.Kind, r.Table, r.Family} {
		if w != "" {
			words = append(words, w)
		}
	}
	return strings.Join(words, ", ")
}

// Measured are the figures of one series in one cell.
type Measured struct {
	Cell records.Cell `json:"cell"`
	comparison.Side
}

// Growth is the growth of a duration with the number of Services: y ∝ Services^Slope.
type Growth struct {
	Series   string     `json:"series"`
	Scenario string     `json:"scenario"`
	Settings string     `json:"settings,omitempty"`
	Metric   raw.Metric `json:"metric"`
	Kind     string     `json:"kind,omitempty"` // of the sync a restore belongs to
	Sizes    []int      `json:"sizes"`
	estimate.Power
}

// Label names the duration that grows.
func (g Growth) Label() string {
	if g.Kind != "" {
		return "restore of a " + g.Kind + " sync"
	}
	return g.Metric.Row().Text
}

// Badges at exponents.
const (
	twoSizes = "2 sizes only"
	bends    = "no power law"
)

// Badge is the caveat about the exponent; empty: there is none.
func (g Growth) Badge() string {
	switch {
	case len(g.Sizes) < 3:
		return twoSizes
	case g.Bends:
		return bends
	}
	return ""
}

// Exponent is the exponent as in ExponentText. A ! follows it if it has a badge.
func (g Growth) Exponent() string {
	if g.Badge() != "" {
		return ExponentText(g.Slope) + " !"
	}
	return ExponentText(g.Slope)
}

// Traversal is a line fitted to the first-packet medians by position in one cell. Slope is in seconds per dispatch
// position (one rule in the classic layout). Intercept is the cost before the first position.
type Traversal struct {
	Series string       `json:"series"`
	Cell   records.Cell `json:"cell"`
	estimate.Fit
	// Empty is the median in an empty ruleset, if that was probed. Worst is the largest median of a position or the
	// miss.
	Empty   *float64 `json:"empty,omitempty"`
	Worst   float64  `json:"worst"`
	WorstAt int      `json:"worst_at"` // -1 is the miss
}

// Summarize derives everything except the plots.
func Summarize(runs []*records.Run, slos comparison.SLOs) *Summary {
	c := records.Collect(runs)
	s := &Summary{Collected: c, looks: looksOf(c), SLOs: slos, Runs: records.RunHeads(c), Rows: rows(c)}
	s.Title = records.Title(c)
	for _, cell := range c.Cells {
		for _, side := range comparison.SidesOf(c, cell) {
			s.Figures = append(s.Figures, Measured{cell, side})
		}
	}
	s.Phases = phases(c)
	s.Growth = growths(c)
	s.Traversal = traversals(c)
	s.Packets = packetCosts(c)
	s.PacketGrowth = packetGrowths(c)
	s.Memory = memoryGrowths(c)
	s.Disruptions, s.Moves = Disruptions(c), AllMoves(c)
	s.Faults = faultResults(c)
	s.Invariants = invariantResults(c)
	s.Comparisons = comparison.OfCells(c)
	s.Targets = targetResults(c, s)
	s.SLOResults = sloResults(c, s)
	s.warnings = warnings(c, s)
	var unread []string
	s.Profiles, unread = profiles.Read(c)
	for _, text := range unread {
		s.warnings = append(s.warnings, warning{text: text})
	}
	for _, w := range s.warnings {
		s.Warnings = append(s.Warnings, w.text)
	}
	s.Method = s.method()
	return s
}

// rows are the full tables, by section, metric, cell and series.
func rows(c *records.Collection) []Row {
	var out []Row
	for s, samples := range c.Each() {
		cell := samples.Cell
		for _, d := range samples.Details() {
			row := Row{Series: s.Name, Cell: cell, Metric: d.Metric, Kind: d.Kind, Table: d.Table, Family: d.Family,
				Target: d.Target, Method: d.Method,
				Protocol: d.Protocol, Outcome: d.Outcome, Unit: samples.Unit(d.Metric), Distribution: estimate.Describe(samples.Groups[d])}
			if d.HasPos {
				row.Position = &d.Position
			}
			out = append(out, row)
		}
		if busy := BusyShares(samples); len(busy) > 0 {
			out = append(out, Row{Series: s.Name, Cell: cell, Metric: raw.SyncBusy, Unit: "ratio", Distribution: estimate.Describe(busy)})
		}
	}
	slices.SortStableFunc(out, func(a, b Row) int { // the rest is in the order of Details
		return cmp.Or(a.Metric.Order()-b.Metric.Order(), strings.Compare(string(a.Metric), string(b.Metric)),
			strings.Compare(a.Kind, b.Kind), strings.Compare(b.Table, a.Table), strings.Compare(a.Family, b.Family),
			a.Cell.ID().Compare(b.Cell.ID()), strings.Compare(a.Series, b.Series))
	})
	return out
}

// looksOf returns the looks of the series.
func looksOf(c *records.Collection) []figure.Look {
	var subjects []string
	for _, one := range c.Series {
		subjects = append(subjects, one.Subject)
	}
	return figure.GiveLooks(subjects)
}

// Color returns the colour of the i-th series.
func (s *Summary) Color(i int) color.NRGBA {
	if i < len(s.looks) {
		return s.looks[i].Color
	}
	return figure.OtherLooks[0].Color
}

func (s *Summary) Look(i int) figure.Look { return s.looks[i] }

func (s *Summary) SeriesNamed(name string) (int, *records.Series) {
	for i, one := range s.Collected.Series {
		if one.Name == name {
			return i, one
		}
	}
	return 0, nil
}
