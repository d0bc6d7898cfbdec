package reports

import (
	"slices"
	"strings"

	"synclab/bench"
)

// keyFigures is one line for each series and cell.
func keyFigures(c *collection) []KeyFigures {
	var out []KeyFigures
	for _, cell := range c.cells {
		for _, s := range c.series {
			samples := s.cells[cell.id()]
			if samples == nil {
				continue
			}
			k := KeyFigures{Series: s.name, Cell: cell, Exceeded: samples.exceeded(),
				ColdStart:   described(s.of(cell, bench.ColdStart)),
				FullSync:    described(s.of(cell, bench.FullSync)),
				PartialSync: described(s.of(cell, bench.PartialSync)),
				Programming: described(s.of(cell, bench.NetworkProgrammingLatency)),
				SyncBusy:    medianOf(busyShares(samples)),
				SyncsFailed: int(sum(s.of(cell, bench.SyncFailed))),
				Rules:       rulesTotal(samples),
			}
			if rss := s.of(cell, bench.PeakRSS); len(rss) > 0 {
				largest := slices.Max(rss)
				k.PeakRSS = &largest
			}
			if p := s.positions(cell); len(p) > 0 {
				k.FirstPacketFirst = described(s.at(cell, p[0]))
				k.FirstPacketLast = described(s.at(cell, p[len(p)-1]))
			}
			k.FirstPacketMiss = described(s.at(cell, -1))
			out = append(out, k)
		}
	}
	return out
}

func described(values []float64) *Distribution {
	if len(values) == 0 {
		return nil
	}
	d := describe(values)
	return &d
}

func medianOf(values []float64) *float64 {
	if len(values) == 0 {
		return nil
	}
	m := median(values)
	return &m
}

func sum(values []float64) float64 {
	var total float64
	for _, v := range values {
		total += v
	}
	return total
}

// rulesTotal adds up the medians of all tables and families.
func rulesTotal(samples *cellSamples) *float64 {
	rules := func(table string) bool { return !isElements(table) }
	total, ok := samples.countTotal(bench.Rules, rules)
	if !ok {
		total, ok = samples.countTotal(bench.RulesKernel, rules)
	}
	if !ok {
		return nil
	}
	return &total
}

// countTotal adds up the medians of a count over tables and families. Counts after full syncs are taken where there are
// any: a partial sync's may be of what it wrote.
func (c *cellSamples) countTotal(metric bench.Metric, want func(table string) bool) (total float64, ok bool) {
	type part struct{ table, family string }
	full, others := map[part][]float64{}, map[part][]float64{}
	for d, values := range c.groups {
		if d.metric != metric || !want(d.table) {
			continue
		}
		into := full
		if d.kind == "partial" {
			into = others
		}
		key := part{d.table, d.family}
		into[key] = append(into[key], values...)
	}
	for key, values := range others {
		if full[key] == nil {
			full[key] = values
		}
	}
	for _, values := range full {
		total += median(values)
	}
	return total, len(full) > 0
}

// busyShares is, for each repetition with a churn, the time spent in syncs as a share of the time from the first
// change's due time to the last change's arrival in the kernel. Families sync one after the other in one process, so
// their durations add up.
func busyShares(samples *cellSamples) []float64 {
	type span struct{ from, to float64 }
	spans := map[repetition]span{}
	var order []repetition
	for _, r := range samples.records {
		if r.Metric != bench.NetworkProgrammingLatency {
			continue
		}
		key := repetition{r.run, r.Rep}
		s, ok := spans[key]
		if !ok {
			s = span{r.At - r.Value, r.At}
			order = append(order, key)
		}
		spans[key] = span{min(s.from, r.At-r.Value), max(s.to, r.At)}
	}
	busy := map[repetition]float64{}
	for _, r := range samples.records {
		if r.Metric != bench.FullSync && r.Metric != bench.PartialSync {
			continue
		}
		key := repetition{r.run, r.Rep}
		s := spans[key]
		busy[key] += max(0, min(r.At, s.to)-max(r.At-r.Value, s.from))
	}
	var shares []float64
	for _, key := range order {
		if s := spans[key]; s.to > s.from {
			shares = append(shares, min(1, busy[key]/(s.to-s.from)))
		}
	}
	return shares
}

// Phases are the medians of the phases of one kind of sync, in seconds. Queue is not part of a sync.
type Phases struct {
	Series   string  `json:"series"`
	Cell     Cell    `json:"cell"`
	Kind     string  `json:"kind"`
	N        int     `json:"n"`
	Plan     float64 `json:"plan,omitempty"`
	Encode   float64 `json:"encode,omitempty"`
	Jumps    float64 `json:"jumps,omitempty"` // base chains and jumps, in full syncs
	ToolUser float64 `json:"tool_user"`
	ToolSys  float64 `json:"tool_sys"`
	// OwnUntold says that the subject tells neither plan nor encode: its own work is in Rest.
	OwnUntold bool    `json:"own_untold,omitempty"`
	Rest      float64 `json:"rest"` // what the others do not explain: waiting, forking, bookkeeping
	Total     float64 `json:"total"`
	tool      string  // as toolOf says
}

// phases breaks the syncs of each series × cell × kind down. Each sync's rest is computed from its own phases.
func phases(c *collection) []Phases {
	var out []Phases
	for _, cell := range c.cells {
		for _, s := range c.series {
			samples := s.cells[cell.id()]
			if samples == nil {
				continue
			}
			for _, kind := range []bench.Metric{bench.FullSync, bench.PartialSync} {
				if p, ok := phasesOf(samples, kind); ok {
					p.Series, p.Cell, p.tool = s.name, cell, toolOf(s.name)
					out = append(out, p)
				}
			}
		}
	}
	return out
}

func phasesOf(samples *cellSamples, total bench.Metric) (Phases, bool) {
	parts := []bench.Metric{bench.Plan, bench.Encode, bench.Jumps, bench.ToolUser, bench.ToolSys}
	syncs := map[place]map[bench.Metric]float64{}
	for _, r := range samples.records {
		if r.Error != "" || (r.Metric != total && !slices.Contains(parts, r.Metric)) {
			continue
		}
		at := place{run: r.run, rep: r.Rep, step: r.Step, sync: r.Sync, family: r.Family}
		if syncs[at] == nil {
			syncs[at] = map[bench.Metric]float64{}
		}
		syncs[at][r.Metric] += r.Value
	}
	values := map[bench.Metric][]float64{}
	var rest []float64
	untold := true
	for _, sync := range syncs {
		whole, ok := sync[total]
		if !ok || len(sync) < 2 {
			continue // a sync of the other kind, or one without phases
		}
		_, plans := sync[bench.Plan]
		_, encodes := sync[bench.Encode]
		untold = untold && !plans && !encodes
		left := whole
		for _, part := range parts {
			values[part] = append(values[part], sync[part])
			left -= sync[part]
		}
		values[total] = append(values[total], whole)
		rest = append(rest, max(0, left))
	}
	if len(rest) == 0 {
		return Phases{}, false
	}
	kind := strings.TrimSuffix(string(total), "_sync")
	return Phases{Kind: kind, N: len(rest), Plan: median(values[bench.Plan]), Encode: median(values[bench.Encode]),
		Jumps: median(values[bench.Jumps]), ToolUser: median(values[bench.ToolUser]), ToolSys: median(values[bench.ToolSys]),
		OwnUntold: untold, Rest: median(rest), Total: median(values[total])}, true
}

// sweepLine is the cells of one scenario with the same settings, by size: what a line versus Services goes through.
type sweepLine struct {
	scenario, settings string
	cells              []Cell
}

// sweepLines groups cells; only lines with two sizes or more are returned.
func (c *collection) sweepLines() []sweepLine {
	var lines []sweepLine
	for _, cell := range c.cells {
		i := slices.IndexFunc(lines, func(l sweepLine) bool {
			return l.scenario == cell.Scenario && l.settings == cell.Settings()
		})
		if i < 0 {
			lines = append(lines, sweepLine{scenario: cell.Scenario, settings: cell.Settings()})
			i = len(lines) - 1
		}
		lines[i].cells = append(lines[i].cells, cell)
	}
	return slices.DeleteFunc(lines, func(l sweepLine) bool { return len(l.sizes()) < 2 })
}

func (l sweepLine) sizes() []int {
	var sizes []int
	for _, cell := range l.cells {
		sizes = append(sizes, cell.Services)
	}
	return distinct(sizes)
}

// growths fits the growth of sync and restore durations over the sizes. Each point is the median of one repetition at
// one size, so that a size with many syncs weighs no more than one with few, and an outlier moves nothing.
func growths(c *collection) []Growth {
	var out []Growth
	for _, line := range c.sweepLines() {
		for _, what := range grown {
			for _, s := range c.series {
				var x, y []float64
				var sizes []int
				for _, cell := range line.cells {
					for _, m := range s.repMedians(cell, what.metric, what.kind) {
						x, y = append(x, float64(cell.Services)), append(y, m)
						sizes = append(sizes, cell.Services)
					}
				}
				if fit, ok := fitPower(x, y); ok {
					out = append(out, Growth{Series: s.name, Scenario: line.scenario, Settings: line.settings,
						Metric: what.metric, Kind: what.kind, Sizes: distinct(sizes), Fit: fit})
				}
			}
		}
	}
	return out
}

// grown are the durations whose growth is fitted. A full sync's restore is another thing than a partial sync's.
var grown = []struct {
	metric bench.Metric
	kind   string
}{{bench.ColdStart, ""}, {bench.FullSync, ""}, {bench.PartialSync, ""}, {bench.Restore, "full"}, {bench.Restore, "partial"}}

// repMedians is the median of a metric (of one kind of sync, when named) in each repetition of a cell.
func (s *series) repMedians(cell Cell, metric bench.Metric, kind string) []float64 {
	samples := s.cells[cell.id()]
	if samples == nil {
		return nil
	}
	values := map[repetition][]float64{}
	var order []repetition
	for _, r := range samples.records {
		if r.Metric != metric || r.Error != "" || (kind != "" && r.Kind != kind) {
			continue
		}
		key := repetition{r.run, r.Rep}
		if values[key] == nil {
			order = append(order, key)
		}
		values[key] = append(values[key], r.Value)
	}
	var medians []float64
	for _, key := range order {
		medians = append(medians, median(values[key]))
	}
	return medians
}

// traversals fits first-packet cost against position. The points are the medians of the positions: single packets that
// met an interrupt cost a hundred times the rest and would bend a line through raw samples.
func traversals(c *collection) []Traversal {
	var out []Traversal
	for _, cell := range c.cells {
		for _, s := range c.series {
			var x, y []float64
			t := Traversal{Series: s.name, Cell: cell}
			for _, position := range s.positions(cell) {
				m := median(s.at(cell, position))
				x, y = append(x, float64(position)), append(y, m)
				if m > t.Worst {
					t.Worst, t.WorstAt = m, position
				}
			}
			if miss := s.at(cell, -1); len(miss) > 0 {
				if m := median(miss); m > t.Worst {
					t.Worst, t.WorstAt = m, -1
				}
			}
			t.Empty = medianOf(s.at(cell, 0))
			t.Fit, _ = fitLine(x, y)
			if t.Worst > 0 {
				out = append(out, t)
			}
		}
	}
	return out
}

func (s *series) lastPosition(cell Cell) []float64 {
	p := s.positions(cell)
	if len(p) == 0 {
		return nil
	}
	return s.at(cell, p[len(p)-1])
}
