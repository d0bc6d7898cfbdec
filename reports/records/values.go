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

// pick returns the values of several groups, added up by repetition; nil without samples.
func (c *Samples) pick(want func(detail) bool) estimate.Sample {
	if c == nil {
		return nil
	}
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

// KindOf is like of, limited to one kind of sync if kind is set.
func (s *Series) KindOf(cell Cell, metric raw.Metric, kind string) estimate.Sample {
	return s.Cells[cell.ID()].pick(func(d detail) bool { return d.Metric == metric && (kind == "" || d.Kind == kind) })
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

// Find returns the first element that fits; nil if there is none.
func Find[T any](list []T, fits func(T) bool) *T {
	if i := slices.IndexFunc(list, fits); i >= 0 {
		return &list[i]
	}
	return nil
}

func Abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}

// Misrouted is the outcome of a flow that was answered by an endpoint outside the permitted set.
const Misrouted = "misrouted"
