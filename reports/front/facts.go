package front

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/reports/comparison"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/records"
	"synclab/reports/sections"
	"synclab/reports/verdict"
)

// Verdict states the result of the runs in a few lines.
func Verdict(s *sections.Summary) []doc.Line { return verdict.Of(facts(s)) }

func facts(s *sections.Summary) verdict.Facts {
	f := verdict.Facts{Loads: loads(s), SLOs: slos(s), Growth: growth(s), SLOSource: "those that were given"}
	if s.SLOs == comparison.ReportSLOs {
		f.SLOSource = "Synclab's defaults"
	}
	for _, text := range comparison.Stopped(s.Collected) {
		text, _, _ = strings.Cut(text, " (not visible in the kernel") // which Services: the comparison has it
		f.Stopped = append(f.Stopped, text)
	}
	for _, run := range s.Runs {
		if run.Status != raw.StatusComplete {
			text := "run " + run.Label + ": its status is " + cmp.Or(run.Status, "unknown")
			if run.Reason != "" {
				text += " (" + run.Reason + ")"
			}
			f.Incomplete = append(f.Incomplete, text)
		}
	}
	for _, one := range s.Collected.Series {
		if _, n, of := s.InvariantTotals(one.Name); n > 0 {
			v := verdict.Violated{Series: one.Name, Times: n}
			for _, name := range of {
				v.Invariants = append(v.Invariants, sections.InvariantText(name))
			}
			f.Violated = append(f.Violated, v)
		}
	}
	f.Stalls, f.Faults, f.Flows, f.Moves = s.AllStalls(), faults(s), flows(s), moves(s)
	answers := s.PacketAnswers()
	f.Answers = verdict.Answers{Packets: answers.Packets, Unexplained: answers.Unexplained, Looped: answers.Looped, Busy: answers.Busy,
		Reference: answers.Reference, Missing: len(answers.Missing), Unseen: answers.Unseen()}
	if len(f.Moves) > 0 { // a run for moves is no comparison: each subject runs for a part of it
		f.SLOs, f.Loads = nil, nil
	} else if c := s.LargestComparison(); c != nil {
		f.Pairs = pairs(c)
		f.Control = control(s)
		if f.Rankings = packetRankings(s, verdict.Differs(f.Control)); f.Rankings == nil {
			switch f.Best = best(c); {
			case f.Best.Series == nil:
				f.Rankings = []verdict.Ranking{ranking(c)}
			case len(c.Sides) == 2 && len(f.Pairs) > 0:
				f.Best = verdict.Best{} // the only pair says it with its ratios
			}
		}
	}
	return f
}

// loads returns how busy each series was during the churn, at its largest size.
func loads(s *sections.Summary) []verdict.Load {
	var out []verdict.Load
	for _, one := range s.Collected.Series {
		type measured struct {
			verdict.Load
			cell records.Cell
		}
		var last *measured
		var all []measured
		for _, cell := range s.Collected.Cells { // by size
			samples := one.Cells[cell.ID()]
			if samples == nil {
				continue
			}
			busy := sections.BusyShares(samples)
			if len(busy) == 0 {
				continue
			}
			sync, gap := pace(samples)
			l := verdict.Load{Series: one.Name, Size: records.SizesText([]records.Cell{cell}) + records.SettingsTail(records.ShortSettings(cell.Settings())),
				Busy: busy.Median(), Sync: sync, Gap: gap}
			all = append(all, measured{l, cell})
			if last == nil || cell.Services > last.cell.Services || cell.Services == last.cell.Services && l.Busy > last.Busy {
				last = &measured{l, cell}
			}
		}
		if last == nil {
			continue
		}
		for _, other := range all {
			if other.cell.Services < last.cell.Services && other.cell.Settings() == last.cell.Settings() && !verdict.Saturated(other.Load) {
				last.Fits = max(last.Fits, other.cell.Services)
			}
		}
		out = append(out, last.Load)
	}
	return out
}

// pace returns the median duration of the syncs during the churn, and the mean time between two changes that were due,
// both in seconds, as medians of the repetitions.
func pace(samples *records.Samples) (sync, gap float64) {
	type span struct {
		from, to float64 // due times
		until    float64 // the last change is visible
		changes  map[int]bool
	}
	spans := map[records.Repetition]*span{}
	for _, r := range samples.Records {
		if r.Metric != raw.NetworkProgrammingLatency {
			continue
		}
		of := records.Repetition{Run: r.Run, Rep: r.Rep}
		due := r.At - r.Value
		if spans[of] == nil {
			spans[of] = &span{from: due, to: due, changes: map[int]bool{}}
		}
		own := spans[of]
		own.from, own.to, own.until = min(own.from, due), max(own.to, due), max(own.until, r.At)
		own.changes[r.Change] = true
	}
	gaps, syncs := estimate.Sample{}, estimate.Sample{}
	for of, own := range spans {
		if n := len(own.changes); n > 1 {
			gaps[of] = []float64{(own.to - own.from) / float64(n-1)}
		}
	}
	for _, r := range samples.Records {
		own := spans[records.Repetition{Run: r.Run, Rep: r.Rep}]
		if (r.Metric == raw.FullSync || r.Metric == raw.PartialSync) && r.Error == "" && own != nil && r.At > own.from && r.At-r.Value < own.until {
			of := records.Repetition{Run: r.Run, Rep: r.Rep}
			syncs[of] = append(syncs[of], r.Value)
		}
	}
	if len(syncs) > 0 {
		sync = syncs.Median()
	}
	if len(gaps) > 0 {
		gap = gaps.Median()
	}
	return sync, gap
}

func faults(s *sections.Summary) []verdict.Faults {
	var out []verdict.Faults
	cells := s.FaultCells()
	if len(cells) == 0 {
		return nil
	}
	names, series := s.FaultsOf(cells[0])
	for _, one := range series {
		total := verdict.Faults{Series: one}
		for _, name := range names {
			result := s.FaultOf(cells[0], name, one)
			if result == nil {
				continue
			}
			total.Times += result.Times
			if total.Unrepaired += result.Never; result.Never > 0 {
				total.Never = append(total.Never, sections.FaultName(name, names))
			}
			if result.Recovered != nil {
				total.Recovered += result.Recovered.N
				total.Slowest = max(total.Slowest, result.Recovered.Max)
			}
		}
		out = append(out, total)
	}
	return out
}

// flows has the flows of streams, but for those of moves, which have their own verdict. With faults, only flows that began
// between a fault and its recovery count: faults are meant to cost some.
func flows(s *sections.Summary) []verdict.Flows {
	var out []verdict.Flows
	cells := s.DisruptedCells()
	if len(cells) == 0 || len(s.Moves) > 0 {
		return nil
	}
	if len(s.FaultCells()) > 0 {
		return faultFlows(s)
	}
	for _, d := range s.DisruptionsOf(cells[0]) {
		if total := d.During(); total.Flows+d.Unwatched > 0 {
			out = append(out, verdict.Flows{Series: d.Series, Flows: total.Flows, Failed: total.Failed, Misrouted: total.Misrouted,
				LongBroken: total.LongLivedTCPBroken + total.LongLivedUDPRemoved, Unobserved: d.Unwatched, Stream: total.Flows + d.Unwatched})
		}
	}
	return out
}

func faultFlows(s *sections.Summary) []verdict.Flows {
	cell := s.FaultCells()[0]
	var out []verdict.Flows
	names, series := s.FaultsOf(cell)
	for _, one := range series {
		total := verdict.Flows{Series: one}
		for _, name := range names {
			if f := s.FaultOf(cell, name, one); f != nil {
				total.Flows, total.Failed, total.Misrouted = total.Flows+f.Flows, total.Failed+f.Failed, total.Misrouted+f.Misrouted
			}
		}
		for _, d := range s.DisruptionsOf(cell) {
			if d.Series == one {
				total.Unobserved, total.Stream = d.Unwatched, d.During().Flows+d.Unwatched
			}
		}
		if total.Flows+total.Unobserved > 0 {
			out = append(out, total)
		}
	}
	return out
}

func moves(s *sections.Summary) []verdict.Move {
	var out []verdict.Move
	for i := range s.Moves {
		m := &s.Moves[i]
		advice, reasons := m.Verdict()
		level := map[string]doc.Level{sections.Go: doc.Good, sections.GoWithCare: doc.Care, sections.NoGo: doc.Bad}[advice]
		out = append(out, verdict.Move{From: m.From, To: cmp.Or(m.To, "?"), Advice: advice, Level: level, Reasons: reasons})
	}
	return out
}

// slos judges the sizes of sweeps; without a sweep, the largest cell of each series. The times of guests are not judged.
func slos(s *sections.Summary) []verdict.SLOResult {
	judged, sweep := s.SLOResults, true
	if len(judged) == 0 {
		judged, sweep = s.SingleSizes(), false
	}
	guests := map[string]bool{} // settings
	for _, cell := range s.Collected.Cells {
		guests[cell.Settings()] = cell.InGuest()
	}
	var out []verdict.SLOResult
	for _, c := range judged {
		if c.Clause == sections.ClauseAll || guests[c.Settings] {
			continue
		}
		one := verdict.SLOResult{Series: c.Series + records.SettingsTail(records.ShortSettings(c.Settings)), Name: c.Clause, Limit: doc.TrimTick(doc.Format(c.Limit, "s")),
			MetUpTo: c.MetUpTo, ViolatedAt: c.ViolatedAt, Unclear: len(c.Unclear) > 0, Sweep: sweep}
		if c.ValueAtViolated != nil {
			one.Value = doc.Format(*c.ValueAtViolated, "s")
			if c.Stopped {
				one.Value = comparison.LimitText(*c.ValueAtViolated, "s")
			}
		}
		out = append(out, one)
	}
	return out
}

// growth names the durations that grow faster than the number of Services: from the first size on from which an
// interval of the exponent lies above 1, and all later ones do not lie below it.
func growth(s *sections.Summary) []verdict.Growth {
	var out []verdict.Growth
	for _, g := range s.Growth {
		if g.Metric != raw.FullSync && g.Metric != raw.PartialSync && g.Metric != raw.Reaction && g.Metric != raw.ColdStart {
			continue
		}
		faster := func(l estimate.Local) bool { return l.Low != nil && *l.Low > 1 }
		i := slices.IndexFunc(g.Local, faster)
		if i < 0 || slices.ContainsFunc(g.Local[i:], func(l estimate.Local) bool { return l.High != nil && *l.High < 1 }) {
			continue
		}
		out = append(out, verdict.Growth{Series: g.Series, What: g.Label(), From: int(g.Local[i].From), Double: math.Pow(2, g.Local[i].Exponent)})
	}
	return out
}

// methodTexts are the packets of a run about packets, in the order of its verdict.
var methodTexts = []struct{ method, text string }{{"handshake", "TCP handshake"}, {"echo", "UDP echo"}, {"sendto", "First packet"}, {raw.MethodConnect, "First packet (TCP)"}}

// control is the least and the largest median of packets of established flows, at the largest size.
func control(s *sections.Summary) (out verdict.Control) {
	cells := s.PacketCells("established")
	if len(cells) == 0 {
		return out
	}
	for _, p := range s.PacketsOf(cells[0], "established") {
		if spot := p.Spot("last"); spot != nil && spot.Median > 0 {
			if out.Least == 0 || spot.Median < out.Least {
				out.Least = spot.Median
			}
			out.Most = max(out.Most, spot.Median)
		}
	}
	return out
}

// packetRankings order the subjects by what the last of the Services costs, if the run is about packets. Round trips are
// left out if their control differs.
func packetRankings(s *sections.Summary, differs bool) (out []verdict.Ranking) {
	if !aboutPackets(s) {
		return nil
	}
	for _, m := range methodTexts {
		cells := s.PacketCells(m.method)
		if len(cells) == 0 || cells[0].InGuest() || slices.Contains(records.FlowMethods, m.method) && differs {
			continue
		}
		costs := slices.DeleteFunc(s.PacketsOf(cells[0], m.method), func(p sections.PacketCost) bool { return p.Spot("last") == nil })
		slices.SortStableFunc(costs, func(a, b sections.PacketCost) int { return cmp.Compare(a.Spot("last").Median, b.Spot("last").Median) })
		r := verdict.Ranking{Figure: m.text + " to the last of " + records.SizesText(cells[:1]) + records.SettingsTail(records.ShortSettings(cells[0].Settings()))}
		for _, p := range costs {
			r.Places = append(r.Places, p.Series+" "+doc.Format(p.Spot("last").Median, "s"))
		}
		out = append(out, r)
	}
	return out
}

// bestFirst orders sides by a figure. Those that were stopped come last: their value is a lower bound.
func bestFirst(name string) func(a, b comparison.Side) int {
	return func(a, b comparison.Side) int {
		x, y := a.Figure(name), b.Figure(name)
		if x.AtLeast != y.AtLeast {
			if x.AtLeast {
				return 1
			}
			return -1
		}
		return cmp.Compare(x.Value, y.Value)
	}
}

// sidesBy returns the sides with a figure, the best first; nil if fewer than two have it, or if it cannot be compared.
func sidesBy(c *comparison.CellComparison, name string) []comparison.Side {
	if comparison.FigureOf(name).Packet && c.Cell.InGuest() {
		return nil
	}
	sides := slices.DeleteFunc(slices.Clone(c.Sides), func(side comparison.Side) bool { return side.Figure(name) == nil })
	if len(sides) < 2 {
		return nil
	}
	slices.SortStableFunc(sides, bestFirst(name))
	return sides
}

func placeOf(c *comparison.CellComparison) string {
	return records.SizesText([]records.Cell{c.Cell}) + records.SettingsTail(records.ShortSettings(c.Cell.Settings()))
}

// bestTexts are the figures whose names alone do not tell them apart.
var bestTexts = map[string]string{comparison.FigureReaction: "reaction to a single change", comparison.FigureNPL99: "latency p99 under churn"}

// best finds, for each of the primary figures, the subject that is better than the next one. That takes an interval: with few
// repetitions, none is named.
func best(c *comparison.CellComparison) verdict.Best {
	out := verdict.Best{Size: placeOf(c)}
	for _, name := range comparison.Primary {
		sides := sidesBy(c, name)
		if sides == nil {
			continue
		}
		if next, ok := comparison.Compare(sides[1].Figure(name), sides[0].Figure(name)); !ok || !next.Differs {
			continue
		}
		i := slices.Index(out.Series, sides[0].Series)
		if i < 0 {
			i = len(out.Series)
			out.Series, out.Figures = append(out.Series, sides[0].Series), append(out.Figures, nil)
		}
		out.Figures[i] = append(out.Figures[i], cmp.Or(bestTexts[name], doc.LowerFirst(comparison.FigureOf(name).Text)))
	}
	return out
}

// ranking orders the subjects by the first of the primary figures that several have.
func ranking(c *comparison.CellComparison) verdict.Ranking {
	for _, name := range comparison.Primary {
		sides := sidesBy(c, name)
		if sides == nil {
			continue
		}
		out := verdict.Ranking{Figure: comparison.FigureOf(name).Text + " at " + placeOf(c)}
		for _, side := range sides {
			out.Places = append(out.Places, side.Series+" "+comparison.FigureValue(side.Figure(name), false))
		}
		return out
	}
	return verdict.Ranking{}
}

// isMode reports whether a side is the run's kube-proxy in one of its modes.
func isMode(c *comparison.CellComparison, side comparison.Side) bool {
	plain := func(s comparison.Side) bool {
		return subject.IsBaseline(s.Subject) && !strings.Contains(s.Subject, "+")
	}
	return side.Series != c.Baseline && plain(side) && plain(c.SideOf(c.Baseline))
}

// pairs compares each subject with its nearest baseline, and first what most readers run: the modes of kube-proxy.
func pairs(c *comparison.CellComparison) (out []verdict.Pair) {
	for _, side := range c.Sides {
		if isMode(c, side) {
			out = append(out, pair(c, side, c.Baseline))
		}
	}
	for _, side := range c.Compared() {
		if !isMode(c, side) {
			out = append(out, pair(c, side, c.Nearest(side)))
		}
	}
	return slices.DeleteFunc(out, func(p verdict.Pair) bool { return len(p.Differences)+len(p.Same) == 0 })
}

func pair(c *comparison.CellComparison, side comparison.Side, baseline string) verdict.Pair {
	p := verdict.Pair{Series: side.Series, Baseline: baseline, Size: placeOf(c)}
	var observed []int // differences without intervals
	for _, name := range comparison.Primary {
		if comparison.FigureOf(name).Packet && c.Cell.InGuest() {
			continue
		}
		r := c.Ratio(side.Series, baseline, name)
		text := doc.LowerFirst(comparison.FigureOf(name).Text)
		switch {
		case r == nil || r.Words == "unknown":
		case r.Apart():
			words := text + " " + r.Words    // its interval is in the table of the comparison
			if r.Observed && r.Bound == "" { // values, since a ratio would say more than is known
				observed = append(observed, len(p.Differences))
				words = text + " " + comparison.FigureValue(side.Figure(name), false) + " against " + comparison.FigureValue(c.SideOf(baseline).Figure(name), false)
			}
			p.Differences = append(p.Differences, words)
		default:
			p.Same = append(p.Same, text)
		}
	}
	if p.Observed = len(observed) > 0 && len(observed) == len(p.Differences); !p.Observed {
		for _, i := range observed {
			p.Differences[i] += " (observed)"
		}
	}
	return p
}
