package reports

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"synclab/bench/raw"
	"synclab/reports/estimate"
)

// methods of first packets, in the order of the page. The empty string is sendto.
var methods = []string{"", "handshake", "echo", "established"}

func methodName(method string) string { return cmp.Or(method, "sendto") }

// packets returns the values of a metric at a position, by one method; nil without samples.
func (c *cellSamples) packets(metric raw.Metric, method string, position int) estimate.Sample {
	if c == nil {
		return nil
	}
	return c.pick(func(d detail) bool {
		return d.metric == metric && d.target == "" && d.method == method && d.hasPos && d.position == position
	})
}

// toTarget returns the values of a metric for a kind of destination, by one method. empty selects the packets in an
// empty ruleset, which have position 0.
func (c *cellSamples) toTarget(metric raw.Metric, method, target string, empty bool) estimate.Sample {
	return c.pick(func(d detail) bool {
		return d.metric == metric && d.target == target && d.method == method && (d.hasPos && d.position == 0) == empty
	})
}

// pick returns the values of several groups, added up by repetition.
func (c *cellSamples) pick(want func(detail) bool) estimate.Sample {
	values := estimate.Sample{}
	for _, d := range c.details() {
		if want(d) {
			values.Add(c.groups[d])
		}
	}
	return values
}

// positions are the positions probed by one method, in order, without the miss and the empty ruleset.
func (c *cellSamples) positions(method string) []int {
	if c == nil {
		return nil
	}
	seen := map[int]bool{}
	for d := range c.groups {
		if d.metric == raw.FirstPacket && d.target == "" && d.method == method && d.hasPos && d.position > 0 {
			seen[d.position] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// targets are the kinds of destinations probed by one method.
func (c *cellSamples) targets(method string) []string {
	seen := map[string]bool{}
	for d := range c.groups {
		if d.metric == raw.FirstPacket && d.target != "" && d.method == method && !(d.hasPos && d.position == 0) {
			seen[d.target] = true
		}
	}
	known := []string{"reject", "node-port", "external-ip", "load-balancer", "affinity-first", "affinity-again"}
	order := func(target string) int {
		if i := slices.Index(known, target); i >= 0 {
			return i
		}
		return len(known)
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b string) int { return cmp.Or(order(a)-order(b), cmp.Compare(a, b)) })
}

func (c *collection) pooled(metric raw.Metric) []float64 {
	var out []float64
	for _, one := range c.series {
		for _, cell := range c.cells {
			out = append(out, one.of(cell, metric).Pooled()...)
		}
	}
	return out
}

// countTotal adds up the medians of a count over tables and families. It prefers counts after full syncs: after a
// partial sync, a count may cover only the tables that this sync wrote.
func (c *cellSamples) countTotal(metric raw.Metric, want func(table string) bool) (total float64, ok bool) {
	type part struct{ table, family string }
	full, others := map[part]estimate.Sample{}, map[part]estimate.Sample{}
	for d, values := range c.groups {
		if d.metric != metric || !want(d.table) {
			continue
		}
		into := full
		if d.kind == "partial" {
			into = others
		}
		key := part{d.table, d.family}
		if into[key] == nil {
			into[key] = estimate.Sample{}
		}
		into[key].Add(values)
	}
	for key, values := range others {
		if full[key] == nil {
			full[key] = values
		}
	}
	for _, values := range full {
		total += values.Median()
	}
	return total, len(full) > 0
}

func (s *series) lastPosition(cell Cell) estimate.Sample {
	p := s.positions(cell)
	if len(p) == 0 {
		return nil
	}
	return s.at(cell, p[len(p)-1])
}

// sweepLines groups the cells. It returns only lines with at least two sizes.
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

// sweepLine holds the cells of one scenario with the same settings, by size: one line in a plot versus Services.
type sweepLine struct {
	scenario, settings string
	cells              []Cell
}

// samples returns a subject's samples in a cell, or nil.
func (c *collection) samples(subject string, cell Cell) *cellSamples {
	i := slices.IndexFunc(c.series, func(s *series) bool { return s.subject == subject })
	if i < 0 {
		return nil
	}
	return c.series[i].cells[cell.id()]
}

func (c *cellSamples) packetsAt(position int) estimate.Sample {
	return c.byRepetition(func(r *raw.Record) bool {
		return r.Metric == raw.FirstPacket && r.Target == "" && methodOf(r) == "" && r.Position != nil && *r.Position == position
	})
}

// countIn counts records. A repetition with any record of the metric "of" has at least the value 0.
func (c *cellSamples) countIn(of raw.Metric, want func(*raw.Record) bool) estimate.Sample {
	out := estimate.Sample{}
	for _, r := range c.records {
		at := repetition{Run: r.run, Rep: r.Rep}
		if r.Metric == of && out[at] == nil {
			out[at] = []float64{0}
		}
	}
	for _, r := range c.records {
		if at := (repetition{Run: r.run, Rep: r.Rep}); want(r.Record) && out[at] != nil {
			out[at][0]++
		}
	}
	return out
}

func (c *cellSamples) byRepetition(want func(*raw.Record) bool) estimate.Sample {
	out := estimate.Sample{}
	for _, r := range c.records {
		if r.Error == "" && want(r.Record) {
			of := repetition{Run: r.run, Rep: r.Rep}
			out[of] = append(out[of], r.Value)
		}
	}
	return out
}

// isElements reports whether a count is of set and map elements ("nftables/elements"), not of rules.
func isElements(table string) bool { return strings.HasSuffix(table, "elements") }

// lastCounts adds up the last counts of tables and families in each repetition. It prefers counts that do not follow a
// partial sync: after one, a count may cover only the tables that this sync wrote.
func (c *cellSamples) lastCounts(metric raw.Metric, want func(table string) bool) estimate.Sample {
	type part struct {
		repetition
		table, family string
	}
	last, whole := map[part]float64{}, map[part]bool{}
	for _, r := range c.records {
		if r.Metric != metric || r.Error != "" || !want(r.Table) {
			continue
		}
		key := part{repetition{Run: r.run, Rep: r.Rep}, r.Table, r.Family}
		if r.Kind != "partial" || !whole[key] {
			last[key] = r.Value
			whole[key] = whole[key] || r.Kind != "partial"
		}
	}
	out := estimate.Sample{}
	for key, value := range last {
		if out[key.repetition] == nil {
			out[key.repetition] = []float64{0}
		}
		out[key.repetition][0] += value
	}
	return out
}

func (c *cellSamples) hasElements(metric raw.Metric) bool {
	return slices.ContainsFunc(c.records, func(r taggedRecord) bool { return r.Metric == metric && isElements(r.Table) })
}

func (c *cellSamples) has(metric raw.Metric) bool {
	return slices.ContainsFunc(c.records, func(r taggedRecord) bool { return r.Metric == metric })
}

// middlePosition is the probed position nearest to half the last.
func (s *series) middlePosition(cell Cell) estimate.Sample {
	positions := s.positions(cell)
	if len(positions) < 3 {
		return nil
	}
	half, best := positions[len(positions)-1]/2, positions[1]
	for _, position := range positions[1 : len(positions)-1] {
		if abs(position-half) < abs(best-half) {
			best = position
		}
	}
	return s.at(cell, best)
}

// kindOf is like of, limited to one kind of sync if kind is set.
func (s *series) kindOf(cell Cell, metric raw.Metric, kind string) estimate.Sample {
	samples := s.cells[cell.id()]
	if samples == nil {
		return nil
	}
	return samples.pick(func(d detail) bool { return d.metric == metric && (kind == "" || d.kind == kind) })
}

// tables lists the tables with counted rules, nat and filter first.
func (s *series) tables(cells []Cell) []string {
	var out []string
	for _, cell := range cells {
		if samples := s.cells[cell.id()]; samples != nil {
			for _, d := range samples.details() {
				if d.metric == raw.Rules || d.metric == raw.RulesExpected {
					out = append(out, d.table)
				}
			}
		}
	}
	order := map[string]int{"nat": 1, "filter": 2}
	slices.SortFunc(out, func(a, b string) int {
		x, y := cmp.Or(order[a], 3), cmp.Or(order[b], 3)
		return cmp.Or(x-y, strings.Compare(a, b))
	})
	return distinct(out)
}

// tableMedian is the median count of a table in a cell, families added up.
func (s *series) tableMedian(cell Cell, metric raw.Metric, table string) float64 {
	samples := s.cells[cell.id()]
	if samples == nil {
		return 0
	}
	total, _ := samples.countTotal(metric, func(t string) bool { return t == table })
	return total
}

func (c *cellSamples) repetitionCount() int {
	seen := map[repetition]bool{}
	for _, r := range c.records {
		seen[repetition{Run: r.run, Rep: r.Rep}] = true
	}
	return len(seen)
}

// unit returns the unit of a metric's records.
func (c *cellSamples) unit(m raw.Metric) string {
	for _, r := range c.records {
		if r.Metric == m {
			return r.Unit
		}
	}
	return ""
}

// repetition is the unit of every interval: the values within one repetition depend on one another.
type repetition = estimate.Repetition

func (l sweepLine) sizes() []int {
	var sizes []int
	for _, cell := range l.cells {
		sizes = append(sizes, cell.Services)
	}
	return distinct(sizes)
}

func abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}
