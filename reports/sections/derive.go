package sections

import (
	"maps"
	"slices"
	"strings"

	"synclab/bench/raw"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

// largestFigures returns, for each series, the line of its largest cell (the first of several settings).
func largestFigures(all []Measured) []Measured {
	var out []Measured
	for _, k := range all {
		i := slices.IndexFunc(out, func(o Measured) bool { return o.Series == k.Series })
		switch {
		case i < 0:
			out = append(out, k)
		case k.Cell.Services > out[i].Cell.Services:
			out[i] = k
		}
	}
	return out
}

func described(values estimate.Sample) *estimate.Distribution {
	if len(values) == 0 {
		return nil
	}
	d := estimate.Describe(values)
	return &d
}

func medianOf(values estimate.Sample) *float64 {
	if len(values) == 0 {
		return nil
	}
	m := values.Median()
	return &m
}

// burst is how long changes are one burst, in seconds: the default minSyncPeriod.
const burst = 1.0

// BusyShares returns one value for each repetition with churn: sync time divided by the time from the first change's
// due time until the last change is visible. Families sync one after the other in one process, so their durations add
// up. A repetition whose changes were all due within burst has none: one sync may take them all, however idle it is else.
func BusyShares(samples *records.Samples) estimate.Sample {
	type span struct{ from, to, lastDue float64 }
	spans := map[records.Repetition]span{}
	for _, r := range samples.Records {
		if r.Metric != raw.NetworkProgrammingLatency {
			continue
		}
		key := records.Repetition{Run: r.Run, Rep: r.Rep}
		s, ok := spans[key]
		if !ok {
			s = span{r.At - r.Value, r.At, r.At - r.Value}
		}
		spans[key] = span{min(s.from, r.At-r.Value), max(s.to, r.At), max(s.lastDue, r.At-r.Value)}
	}
	busy := map[records.Repetition]float64{}
	for _, r := range samples.Records {
		if r.Metric != raw.FullSync && r.Metric != raw.PartialSync {
			continue
		}
		key := records.Repetition{Run: r.Run, Rep: r.Rep}
		s := spans[key]
		busy[key] += max(0, min(r.At, s.to)-max(r.At-r.Value, s.from))
	}
	shares := estimate.Sample{}
	for key, s := range spans {
		if s.lastDue-s.from > burst {
			shares[key] = []float64{min(1, busy[key]/(s.to-s.from))}
		}
	}
	return shares
}

// Phases divides the syncs of one kind into parts, in seconds. The parts and Rest add up to Total, the median sync.
// Each part is its share of a repetition's sync time, averaged over the repetitions. Queue is not a part.
type Phases struct {
	Series   string       `json:"series"`
	Cell     records.Cell `json:"cell"`
	Kind     string       `json:"kind"`
	N        int          `json:"n"` // syncs
	Plan     float64      `json:"plan,omitempty"`
	Encode   float64      `json:"encode,omitempty"`
	Jumps    float64      `json:"jumps,omitempty"` // base chains and jumps, in full syncs
	ToolUser float64      `json:"tool_user"`
	ToolSys  float64      `json:"tool_sys"`
	// OwnUntold is true if the subject reports neither plan nor encode. Its own work is then in Rest.
	OwnUntold bool `json:"own_unreported,omitempty"`
	// PostSync is the work after the last write: health checks, metrics, stale UDP flows. It is in Rest for a subject
	// that does not report it.
	PostSync float64 `json:"post_sync,omitempty"`
	Rest     float64 `json:"rest"` // waiting, forking, bookkeeping: the time that no other part explains
	Total    float64 `json:"total"`
	Tool     string  `json:"-"` // that writes the rules; empty: netlink
}

// phases computes the Phases of each series, cell and kind of sync.
func phases(c *records.Collection) []Phases {
	var out []Phases
	for s, samples := range c.Each() {
		for _, kind := range []raw.Metric{raw.FullSync, raw.PartialSync} {
			if p, ok := PhasesOf(samples, kind); ok {
				p.Series, p.Cell, p.Tool = s.Name, samples.Cell, ToolOf(s.Name)
				p.Total = s.Of(samples.Cell, kind).Median() // the same median as in every other output
				p.Scale()
				out = append(out, p)
			}
		}
	}
	return out
}

// Scale turns shares into seconds of the median sync.
func (p *Phases) Scale() {
	for _, part := range []*float64{&p.Plan, &p.Encode, &p.Jumps, &p.ToolUser, &p.ToolSys, &p.PostSync, &p.Rest} {
		*part *= p.Total
	}
}

// phaseSums adds up the parts of a repetition's syncs.
type phaseSums struct {
	parts             map[raw.Metric]float64
	post, rest, whole float64
}

// PhasesOf returns Phases with shares instead of seconds.
func PhasesOf(samples *records.Samples, total raw.Metric) (Phases, bool) {
	parts := []raw.Metric{raw.Plan, raw.Encode, raw.Jumps, raw.ToolUser, raw.ToolSys}
	syncs := map[records.Place]map[raw.Metric]float64{}
	var order []records.Place // fixed order: sums of floats are then the same each time
	for _, r := range samples.Records {
		if r.Error != "" || (r.Metric != total && r.Metric != raw.Written && !slices.Contains(parts, r.Metric)) {
			continue
		}
		at := records.Place{Run: r.Run, Rep: r.Rep, Step: r.Step, Sync: r.Sync, Family: r.Family}
		if syncs[at] == nil {
			syncs[at], order = map[raw.Metric]float64{}, append(order, at)
		}
		syncs[at][r.Metric] += r.Value
	}
	sums := map[records.Repetition]*phaseSums{}
	p := Phases{Kind: strings.TrimSuffix(string(total), "_sync"), OwnUntold: true}
	for _, at := range order {
		sync := syncs[at]
		whole, ok := sync[total]
		if !ok || len(sync) < 2 {
			continue // a sync of the other kind, or one without phases
		}
		_, plans := sync[raw.Plan]
		_, encodes := sync[raw.Encode]
		p.OwnUntold = p.OwnUntold && !plans && !encodes
		of := records.Repetition{Run: at.Run, Rep: at.Rep}
		if sums[of] == nil {
			sums[of] = &phaseSums{parts: map[raw.Metric]float64{}}
		}
		left := whole
		for _, part := range parts {
			sums[of].parts[part] += sync[part]
			left -= sync[part]
		}
		after := 0.0
		if written, told := sync[raw.Written]; told {
			after = max(0, whole-written)
		}
		left -= after
		sums[of].post += after
		sums[of].rest += max(0, left)
		sums[of].whole += max(whole, whole-left) // parallel parts take longer than the whole
		p.N++
	}
	for _, of := range slices.SortedFunc(maps.Keys(sums), estimate.Repetition.Compare) {
		own := sums[of]
		for part, to := range map[raw.Metric]*float64{raw.Plan: &p.Plan, raw.Encode: &p.Encode, raw.Jumps: &p.Jumps, raw.ToolUser: &p.ToolUser, raw.ToolSys: &p.ToolSys} {
			*to += own.parts[part] / own.whole / float64(len(sums))
		}
		p.PostSync += own.post / own.whole / float64(len(sums))
		p.Rest += own.rest / own.whole / float64(len(sums))
	}
	return p, p.N > 0
}

// The kernel measures exactly how long a process ran. It divides user from system time by ticks, of 4 ms at 250 Hz.
// With few ticks the division is a guess, and with a single tick all time is of one kind.
const (
	ClockTick   = 0.004 // s
	EnoughTicks = 5
)

// SplitKnown reports whether the user and system time of the tools are separately meaningful.
func (p Phases) SplitKnown() bool {
	return p.Tool == "" || p.ToolUser+p.ToolSys >= EnoughTicks*ClockTick
}

// ToolOf returns the tool that a subject writes rules with; empty if it uses netlink.
func ToolOf(series string) string {
	kubeProxy := strings.Contains(series, "kube-proxy")
	switch {
	case strings.Contains(series, "nftables") && kubeProxy:
		return "nft"
	case strings.Contains(series, "nftables"):
		return ""
	}
	return "iptables-restore"
}

// growths fits the growth of sync and restore durations with size, in each repetition.
func growths(c *records.Collection) []Growth {
	var out []Growth
	for _, line := range c.SweepLines() {
		for _, what := range grown {
			for _, s := range c.Series {
				var points []estimate.Point
				var sizes []int
				for _, cell := range line.Cells {
					if values := s.KindOf(cell, what.metric, what.kind); len(values) > 0 {
						points, sizes = append(points, estimate.Point{X: float64(cell.Services), Y: values}), append(sizes, cell.Services)
					}
				}
				if law, ok := estimate.FitPower(points); ok {
					out = append(out, Growth{Series: s.Name, Scenario: line.Scenario, Settings: line.Settings,
						Metric: what.metric, Kind: what.kind, Sizes: records.Distinct(sizes), Power: law})
				}
			}
		}
	}
	return out
}

// grown lists the durations whose growth is fitted. Restores of full and of partial syncs are fitted separately.
var grown = []struct {
	metric raw.Metric
	kind   string
}{{raw.Reaction, ""}, {raw.ColdStart, ""}, {raw.FullSync, ""}, {raw.PartialSync, ""}, {raw.Restore, "full"}, {raw.Restore, "partial"}}

// traversals fits first-packet cost against position. The points are medians by position. A packet during an interrupt
// costs a hundred times as much, and would bend a line through raw samples.
func traversals(c *records.Collection) []Traversal {
	var out []Traversal
	for _, cell := range c.Cells {
		for _, s := range c.Series {
			var points []estimate.Point
			t := Traversal{Series: s.Name, Cell: cell}
			note := func(position int, values estimate.Sample) {
				if m := values.Median(); m > t.Worst {
					t.Worst, t.WorstAt = m, position
				}
			}
			for _, position := range s.Positions(cell) {
				points = append(points, estimate.Point{X: float64(position), Y: s.At(cell, position)})
				note(position, s.At(cell, position))
			}
			note(-1, s.At(cell, -1))
			t.Empty = medianOf(s.At(cell, 0))
			t.Fit, _ = estimate.FitLine(points)
			if t.Worst > 0 {
				out = append(out, t)
			}
		}
	}
	return out
}
