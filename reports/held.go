package reports

import (
	"slices"
	"strings"
)

// Promise is what a cluster's owner promises its users, in seconds.
type Promise struct {
	// FullSync is the longest median of a full sync. Default 1 s.
	FullSync float64 `json:"full_sync"`
	// ProgrammingP99 is the longest 99th percentile of network programming latency. Default 5 s.
	ProgrammingP99 float64 `json:"network_programming_latency_p99"`
	// FirstPacket is the largest median at the slowest position, the empty ruleset's cost taken off. Default 20 µs.
	FirstPacket float64 `json:"first_packet"`
}

func (p Promise) withDefaults() Promise {
	if p.FullSync == 0 {
		p.FullSync = 1
	}
	if p.ProgrammingP99 == 0 {
		p.ProgrammingP99 = 5
	}
	if p.FirstPacket == 0 {
		p.FirstPacket = 20e-6
	}
	return p
}

// Capacity is the answer for one series and one clause of the promise, from measured sizes only. A size keeps the promise
// if all of its 95 % interval does, and breaks it if none does.
type Capacity struct {
	Series   string  `json:"series"`
	Scenario string  `json:"scenario"`
	Settings string  `json:"settings,omitempty"`
	Clause   string  `json:"clause"` // "full sync", "network programming latency p99", "first packet", or "all"
	Limit    float64 `json:"limit,omitempty"`
	// Holds is the largest measured size below which every measured size keeps the promise; 0 when none does.
	Holds int `json:"holds"`
	// Breaks is the first measured size that does not; 0 when all hold.
	Breaks int `json:"breaks"`
	// Unclear are measured sizes behind Holds, and before Breaks, whose intervals hold the limit.
	Unclear []int `json:"unclear,omitempty"`
	// Observed: some size has no interval, so that the verdict goes by what was observed.
	Observed bool `json:"observed,omitempty"`
	// AtHolds and AtBreaks are the measured values there.
	AtHolds  *float64 `json:"at_holds,omitempty"`
	AtBreaks *float64 `json:"at_breaks,omitempty"`
	// Stopped says that the subject was stopped at Breaks: AtBreaks is what it had used.
	Stopped bool   `json:"stopped,omitempty"`
	Sizes   []int  `json:"sizes"` // measured
	Verdict string `json:"verdict"`
}

const (
	clauseFull   = "full sync"
	clauseNPL    = "network programming latency p99"
	clausePacket = "first packet"
	clauseAll    = "all"
)

// measuredSize is one size's value of a clause.
type measuredSize struct {
	services  int
	value     float64
	low, high *float64
	stopped   bool // the subject was, before there was a value: it would be larger
}

// capacities judges every line of sizes.
func capacities(c *collection, s *Summary, promise Promise) []Capacity {
	var out []Capacity
	for _, line := range c.sweepLines() {
		for _, one := range c.series {
			limits := map[string]float64{clauseFull: promise.FullSync, clauseNPL: promise.ProgrammingP99, clausePacket: promise.FirstPacket}
			var judged []Capacity
			for _, clause := range []string{clauseFull, clauseNPL, clausePacket} {
				if sizes := s.clauseValues(line, one.name, clause); len(sizes) > 0 {
					judged = append(judged, judge(sizes, limits[clause]))
					last := &judged[len(judged)-1]
					last.Series, last.Scenario, last.Settings, last.Clause = one.name, line.scenario, line.settings, clause
				}
			}
			if len(judged) > 1 {
				judged = append(judged, strictest(judged))
			}
			out = append(out, judged...)
		}
	}
	return out
}

// clauseValues are the measured values of a clause by size, smallest size first. Two cells of one size (other endpoint
// counts) count with the worse value.
func (s *Summary) clauseValues(line sweepLine, series, clause string) []measuredSize {
	worst := map[int]measuredSize{}
	note := func(cell Cell, value float64, low, high *float64) {
		if m, ok := worst[cell.Services]; !ok || value > m.value {
			worst[cell.Services] = measuredSize{cell.Services, value, low, high, m.stopped}
		}
	}
	stop := func(k KeyFigures, figures ...string) {
		for _, figure := range figures {
			if used, ok := k.stoppedAt(figure); ok {
				note(k.Cell, used, nil, nil)
				m := worst[k.Cell.Services]
				m.stopped = true
				worst[k.Cell.Services] = m
			}
		}
	}
	inLine := func(cell Cell) bool {
		return slices.ContainsFunc(line.cells, func(c Cell) bool { return c.id() == cell.id() })
	}
	for _, k := range s.KeyFigures {
		if k.Series != series || !inLine(k.Cell) {
			continue
		}
		if clause == clauseFull && k.FullSync != nil {
			note(k.Cell, k.FullSync.Median, k.FullSync.Low, k.FullSync.High)
		}
		if clause == clauseNPL && k.Programming != nil {
			note(k.Cell, k.Programming.P99, k.Programming.P99Low, k.Programming.P99High)
		}
		switch {
		case clause == clauseFull && k.FullSync == nil:
			stop(k, figureFull, figureCold) // of a cold start that did not end, the full sync is the greater part
		case clause == clauseNPL && k.Programming == nil:
			stop(k, figureFull, figureCold, figureNPL99)
		case clause == clauseNPL:
			stop(k, figureNPL99)
		}
	}
	for _, t := range s.Traversal {
		if clause == clausePacket && t.Series == series && inLine(t.Cell) {
			note(t.Cell, t.Net(), t.NetLow, t.NetHigh)
		}
	}
	var out []measuredSize
	for _, m := range worst {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b measuredSize) int { return a.services - b.services })
	return out
}

// judge walks up the sizes until the limit breaks. A larger size that happens to hold again does not count.
func judge(sizes []measuredSize, limit float64) Capacity {
	c := Capacity{Limit: limit}
	for _, m := range sizes {
		c.Sizes = append(c.Sizes, m.services)
	}
	for _, m := range sizes {
		kept, broken := m.high != nil && *m.high <= limit, m.stopped || m.low != nil && *m.low > limit
		if m.low == nil && !m.stopped {
			c.Observed, kept, broken = true, m.value <= limit, m.value > limit
		}
		switch {
		case broken:
			c.Breaks, c.AtBreaks, c.Stopped = m.services, &m.value, m.stopped
		case !kept:
			c.Unclear = append(c.Unclear, m.services)
		case len(c.Unclear) == 0:
			c.Holds, c.AtHolds = m.services, &m.value
		}
		if broken {
			break
		}
	}
	c.Verdict = verdict(c)
	return c
}

// strictest is the strictest of the clauses.
func strictest(judged []Capacity) Capacity {
	all := Capacity{Series: judged[0].Series, Scenario: judged[0].Scenario, Settings: judged[0].Settings, Clause: clauseAll,
		Holds: judged[0].Holds, Sizes: judged[0].Sizes}
	for _, c := range judged {
		all.Holds, all.Observed = min(all.Holds, c.Holds), all.Observed || c.Observed
		all.Unclear = append(all.Unclear, c.Unclear...)
		if c.Breaks != 0 && (all.Breaks == 0 || c.Breaks < all.Breaks) {
			all.Breaks = c.Breaks
		}
	}
	all.Unclear = slices.DeleteFunc(all.Unclear, func(n int) bool { return all.Breaks != 0 && n >= all.Breaks })
	slices.Sort(all.Unclear)
	all.Unclear = slices.Compact(all.Unclear)
	all.Verdict = verdict(all)
	return all
}

func verdict(c Capacity) string {
	var parts []string
	switch {
	case c.Breaks == 0 && len(c.Unclear) == 0:
		parts = append(parts, "holds at all measured sizes, up to "+Grouped(int64(c.Holds)))
	case c.Holds == 0 && len(c.Unclear) == 0:
		parts = append(parts, "holds at none of the measured sizes, "+Grouped(int64(c.Breaks))+" and up")
	case c.Holds > 0:
		parts = append(parts, "holds up to "+Grouped(int64(c.Holds)))
	}
	var unclear []string
	for _, n := range c.Unclear {
		unclear = append(unclear, Grouped(int64(n)))
	}
	if len(unclear) > 0 {
		parts = append(parts, "unclear at "+joinWords(unclear))
	}
	if c.Breaks > 0 && (c.Holds > 0 || len(unclear) > 0) {
		parts = append(parts, "breaks at "+Grouped(int64(c.Breaks)))
	}
	text := strings.Join(parts, ", ")
	if c.Observed {
		text = "observed: " + text
	}
	return text
}
