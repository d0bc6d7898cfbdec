package records

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	"synclab/bench/raw"
	"synclab/reports/estimate"
)

// NodeMethods are the methods of first packets that the node itself sends, in one system call: sendto (the empty string)
// and, where the cluster has no UDP Service, connect. A cell of a run has one of them.
var NodeMethods = []string{"", raw.MethodConnect}

// FlowMethods are the methods of first packets that travel between namespaces, in the order of the page.
var FlowMethods = []string{"handshake", "echo", "established"}

// Methods of first packets.
var Methods = slices.Concat(NodeMethods, FlowMethods)

func MethodName(method string) string { return cmp.Or(method, "sendto") }

// Packets returns the values of a metric at a position, by one method; nil without samples.
func (c *Samples) Packets(metric raw.Metric, method string, position int) estimate.Sample {
	if c == nil {
		return nil
	}
	return c.pick(func(d detail) bool {
		return d.Metric == metric && d.Target == "" && d.Method == method && d.HasPos && d.Position == position
	})
}

// ToTarget returns the values of a metric for a kind of destination, by one method. empty selects the packets in an
// empty ruleset, which have position 0.
func (c *Samples) ToTarget(metric raw.Metric, method, target string, empty bool) estimate.Sample {
	return c.pick(func(d detail) bool {
		return d.Metric == metric && d.Target == target && d.Method == method && (d.HasPos && d.Position == 0) == empty
	})
}

// pick returns the values of several groups, added up by repetition.
func (c *Samples) pick(want func(detail) bool) estimate.Sample {
	values := estimate.Sample{}
	for _, d := range c.Details() {
		if want(d) {
			values.Add(c.Groups[d])
		}
	}
	return values
}

// Positions are the positions probed by one method, in order, without the miss and the empty ruleset.
func (c *Samples) Positions(method string) []int { return c.PositionsOf(raw.FirstPacket, method) }

// PositionsOf are those of a metric.
func (c *Samples) PositionsOf(metric raw.Metric, method string) []int {
	if c == nil {
		return nil
	}
	seen := map[int]bool{}
	for d := range c.Groups {
		if d.Metric == metric && d.Target == "" && d.Method == method && d.HasPos && d.Position > 0 {
			seen[d.Position] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// Targets are the kinds of destinations probed by one method.
func (c *Samples) Targets(method string) []string {
	seen := map[string]bool{}
	for d := range c.Groups {
		if d.Metric == raw.FirstPacket && d.Target != "" && d.Method == method && !(d.HasPos && d.Position == 0) {
			seen[d.Target] = true
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

// Each yields what each series has of each cell, cell by cell.
func (c *Collection) Each() iter.Seq2[*Series, *Samples] {
	return func(yield func(*Series, *Samples) bool) {
		for _, cell := range c.Cells {
			for _, one := range c.Series {
				if samples := one.Cells[cell.ID()]; samples != nil && !yield(one, samples) {
					return
				}
			}
		}
	}
}

func (c *Collection) Pooled(metric raw.Metric) []float64 {
	var out []float64
	for _, one := range c.Series {
		for _, cell := range c.Cells {
			out = append(out, one.Of(cell, metric).Pooled()...)
		}
	}
	return out
}

// CountTotal adds up the medians of a count over tables and families. It prefers counts after full syncs: after a
// partial sync, a count may cover only the tables that this sync wrote.
func (c *Samples) CountTotal(metric raw.Metric, want func(table string) bool) (total float64, ok bool) {
	type part struct{ table, family string }
	full, others := map[part]estimate.Sample{}, map[part]estimate.Sample{}
	for d, values := range c.Groups {
		if d.Metric != metric || !want(d.Table) {
			continue
		}
		into := full
		if d.Kind == "partial" {
			into = others
		}
		key := part{d.Table, d.Family}
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

func (s *Series) LastPosition(cell Cell) estimate.Sample {
	p := s.Positions(cell)
	if len(p) == 0 {
		return nil
	}
	return s.At(cell, p[len(p)-1])
}

// SweepLines groups the cells. It returns only lines with at least two sizes.
func (c *Collection) SweepLines() []SweepLine {
	var lines []SweepLine
	for _, cell := range c.Cells {
		i := slices.IndexFunc(lines, func(l SweepLine) bool {
			return l.Scenario == cell.Scenario && l.Settings == cell.Settings()
		})
		if i < 0 {
			lines = append(lines, SweepLine{Scenario: cell.Scenario, Settings: cell.Settings()})
			i = len(lines) - 1
		}
		lines[i].Cells = append(lines[i].Cells, cell)
	}
	return slices.DeleteFunc(lines, func(l SweepLine) bool { return len(l.Sizes()) < 2 })
}

// SweepLine holds the cells of one scenario with the same settings, by size: one line in a plot versus Services.
type SweepLine struct {
	Scenario, Settings string
	Cells              []Cell
}

// Samples returns a subject's samples in a cell, or nil.
func (c *Collection) Samples(subject string, cell Cell) *Samples {
	i := slices.IndexFunc(c.Series, func(s *Series) bool { return s.Subject == subject })
	if i < 0 {
		return nil
	}
	return c.Series[i].Cells[cell.ID()]
}

func (c *Samples) PacketsAt(method string, position int) estimate.Sample {
	return c.ByRepetition(func(r *raw.Record) bool {
		return r.Metric == raw.FirstPacket && r.Target == "" && MethodOf(r) == method && r.Position != nil && *r.Position == position
	})
}

// CountIn counts records. A repetition with any record of the metric "of" has at least the value 0.
func (c *Samples) CountIn(of raw.Metric, want func(*raw.Record) bool) estimate.Sample {
	out := estimate.Sample{}
	for _, r := range c.Records {
		at := Repetition{Run: r.Run, Rep: r.Rep}
		if r.Metric == of && out[at] == nil {
			out[at] = []float64{0}
		}
	}
	for _, r := range c.Records {
		if at := (Repetition{Run: r.Run, Rep: r.Rep}); want(r.Record) && out[at] != nil {
			out[at][0]++
		}
	}
	return out
}

func (c *Samples) ByRepetition(want func(*raw.Record) bool) estimate.Sample {
	out := estimate.Sample{}
	for _, r := range c.Records {
		if r.Error == "" && want(r.Record) {
			of := Repetition{Run: r.Run, Rep: r.Rep}
			out[of] = append(out[of], r.Value)
		}
	}
	return out
}

// IsElements reports whether a count is of set and map elements ("nftables/elements"), not of rules.
func IsElements(table string) bool { return strings.HasSuffix(table, "elements") }

// LastCounts adds up the last counts of tables and families in each repetition. It prefers counts that do not follow a
// partial sync: after one, a count may cover only the tables that this sync wrote.
func (c *Samples) LastCounts(metric raw.Metric, want func(table string) bool) estimate.Sample {
	type part struct {
		Repetition
		table, family string
	}
	last, whole := map[part]float64{}, map[part]bool{}
	for _, r := range c.Records {
		if r.Metric != metric || r.Error != "" || !want(r.Table) {
			continue
		}
		key := part{Repetition{Run: r.Run, Rep: r.Rep}, r.Table, r.Family}
		if r.Kind != "partial" || !whole[key] {
			last[key] = r.Value
			whole[key] = whole[key] || r.Kind != "partial"
		}
	}
	out := estimate.Sample{}
	for key, value := range last {
		if out[key.Repetition] == nil {
			out[key.Repetition] = []float64{0}
		}
		out[key.Repetition][0] += value
	}
	return out
}

func (c *Samples) HasElements(metric raw.Metric) bool {
	return slices.ContainsFunc(c.Records, func(r Record) bool { return r.Metric == metric && IsElements(r.Table) })
}

func (c *Samples) Has(metric raw.Metric) bool {
	return slices.ContainsFunc(c.Records, func(r Record) bool { return r.Metric == metric })
}

// MiddlePosition is the probed position nearest to half the last.
func (s *Series) MiddlePosition(cell Cell) estimate.Sample {
	positions := s.Positions(cell)
	if len(positions) < 3 {
		return nil
	}
	half, best := positions[len(positions)-1]/2, positions[1]
	for _, position := range positions[1 : len(positions)-1] {
		if Abs(position-half) < Abs(best-half) {
			best = position
		}
	}
	return s.At(cell, best)
}

// KindOf is like of, limited to one kind of sync if kind is set.
func (s *Series) KindOf(cell Cell, metric raw.Metric, kind string) estimate.Sample {
	samples := s.Cells[cell.ID()]
	if samples == nil {
		return nil
	}
	return samples.pick(func(d detail) bool { return d.Metric == metric && (kind == "" || d.Kind == kind) })
}

// Tables lists the tables with counted rules, nat and filter first.
func (s *Series) Tables(cells []Cell) []string {
	var out []string
	for _, cell := range cells {
		if samples := s.Cells[cell.ID()]; samples != nil {
			for _, d := range samples.Details() {
				if d.Metric == raw.Rules || d.Metric == raw.RulesExpected {
					out = append(out, d.Table)
				}
			}
		}
	}
	order := map[string]int{"nat": 1, "filter": 2}
	slices.SortFunc(out, func(a, b string) int {
		x, y := cmp.Or(order[a], 3), cmp.Or(order[b], 3)
		return cmp.Or(x-y, strings.Compare(a, b))
	})
	return Distinct(out)
}

// TableMedian is the median count of a table in a cell, families added up.
func (s *Series) TableMedian(cell Cell, metric raw.Metric, table string) float64 {
	samples := s.Cells[cell.ID()]
	if samples == nil {
		return 0
	}
	total, _ := samples.CountTotal(metric, func(t string) bool { return t == table })
	return total
}

func (c *Samples) RepetitionCount() int {
	seen := map[Repetition]bool{}
	for _, r := range c.Records {
		seen[Repetition{Run: r.Run, Rep: r.Rep}] = true
	}
	return len(seen)
}

// Unit returns the unit of a metric's records.
func (c *Samples) Unit(m raw.Metric) string {
	for _, r := range c.Records {
		if r.Metric == m {
			return r.Unit
		}
	}
	return ""
}

// Repetition is the unit of every interval: the values within one repetition depend on one another.
type Repetition = estimate.Repetition

func (l SweepLine) Sizes() []int {
	var sizes []int
	for _, cell := range l.Cells {
		sizes = append(sizes, cell.Services)
	}
	return Distinct(sizes)
}

func Abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}

// Misrouted is the outcome of a flow that was answered by an endpoint outside the permitted set.
const Misrouted = "misrouted"
