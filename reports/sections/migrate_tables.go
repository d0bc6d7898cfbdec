package sections

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"synclab/bench/subject"
	"synclab/reports/doc"
	"synclab/reports/verdict"
)

// The verdicts on a move.
const (
	Go         = "go"
	GoWithCare = "go with care"
	NoGo       = "don't"
)

// Verdict says whether to make a move, and why. docs/migrate.md has the rules.
func (m *Move) Verdict() (advice string, reasons []string) {
	var against, care []string
	if m.Unfinished > 0 || m.Settled == nil {
		against = append(against, fmt.Sprintf("%s did not take over: its tables never had every Service, or it did not converge in time", cmp.Or(m.To, "the next proxier")))
	}
	if n := len(m.Unreachable); n > 0 {
		against = append(against, fmt.Sprintf("%s not reachable after the move: %s", doc.Plural(n, "destination"), someOf(m.Unreachable)))
	}
	before, during, later := newFlows(m.Before), newFlows(m.During), newFlows(m.Later)
	if later.Misrouted > 0 {
		text := fmt.Sprintf("%s of %s reached a wrong endpoint after %s had converged (before the moves: %d)", doc.Plural(later.Misrouted, "new flow"), doc.Grouped(int64(later.Flows)), m.To, before.Misrouted)
		if before.Misrouted == 0 {
			against = append(against, text)
		} else {
			care = append(care, text)
		}
	}
	if during.Failed+during.Misrouted > 0 {
		care = append(care, fmt.Sprintf("%s of %s new flows were lost during the move: %s", doc.Grouped(int64(during.Failed+during.Misrouted)),
			doc.Grouped(int64(during.Flows)), byProtocol(m.During, false)))
	}
	if text := byProtocol(m.During, true); text != "" {
		care = append(care, "long-lived flows lost packets during the move: "+text)
	}
	if later.Failed > 0 {
		care = append(care, fmt.Sprintf("%s of %s failed after %s had converged (before the moves: %d of %s)", doc.Plural(later.Failed, "new flow"), doc.Grouped(int64(later.Flows)),
			m.To, before.Failed, doc.Grouped(int64(before.Flows))))
	}
	if text := byProtocol(m.Later, true); text != "" {
		care = append(care, fmt.Sprintf("long-lived flows lost packets after %s had converged: %s", m.To, text))
	}
	if during.Flows == 0 {
		care = append(care, "no new flow was observed during the move: what it loses is not known")
	} else if (verdict.Flows{Unobserved: m.Unobserved, Stream: during.Flows + m.Unobserved}).HalfSeen() { // at worst, all of them during the move
		care = append(care, fmt.Sprintf("%s were not observed, since the machine was too busy, beside %s new flows during the move: as many may have failed",
			doc.Plural(m.Unobserved, "flow"), doc.Grouped(int64(during.Flows))))
	}
	var left []string
	for what, n := range m.LeftThings() {
		left = append(left, what+": "+doc.Grouped(int64(n)))
	}
	if slices.Sort(left); len(left) > 0 {
		care = append(care, m.From+" left things behind, "+strings.Join(left, ", "))
	}
	care = append(care, m.differences()...)
	switch {
	case len(against) > 0:
		advice = NoGo
	case len(care) > 0:
		advice = GoWithCare
	default:
		advice = Go
	}
	return advice, append(against, care...)
}

// MoveTiles are the main figures of the moves, one row each.
func (s *Summary) MoveTiles() []doc.Tile {
	settled := doc.Tile{Title: "Time to take over", Note: "SIGTERM → the next proxier has converged"}
	lost := doc.Tile{Title: "New flows lost", Note: "during the move: failed, or at a wrong endpoint"}
	span := doc.Tile{Title: "Time with losses", Note: "from the first to the last of these flows, the longest of a protocol"}
	left := doc.Tile{Title: "Left behind", Note: "rules, chains and other things of the earlier proxier"}
	for i := range s.Moves {
		m := &s.Moves[i]
		name := s.subjectCell(m.To)
		name.Text = "to " + cmp.Or(m.To, "?")
		add := func(t *doc.Tile, value doc.Cell, size float64) {
			t.Rows = append(t.Rows, doc.TileRow{Name: name, Value: value, Share: size})
		}
		if m.Settled != nil {
			add(&settled, doc.Value(m.Settled.Median, "s"), m.Settled.Median)
		}
		flows, things := newFlows(m.During), 0
		for _, n := range m.LeftThings() {
			things += n
		}
		count := doc.Int(flows.Failed + flows.Misrouted)
		count.Sub = "of " + doc.Grouped(int64(flows.Flows))
		add(&lost, count, float64(flows.Failed+flows.Misrouted))
		add(&span, doc.Value(flows.For, "s"), flows.For)
		add(&left, doc.Int(things), float64(things))
	}
	var out []doc.Tile
	for _, t := range []doc.Tile{settled, lost, span, left} {
		most := 0.0
		for _, row := range t.Rows {
			most = max(most, row.Share)
		}
		for i := range t.Rows {
			t.Rows[i].Share /= max(most, 1e-9)
		}
		if len(t.Rows) > 0 {
			out = append(out, t)
		}
	}
	return out
}

// differences names the behaviours that concern some Services, with their source.
func (m *Move) differences() (texts []string) {
	from, to := subject.Named(m.From), subject.Named(m.To)
	for _, id := range slices.Sorted(maps.Keys(m.Differs)) {
		if b, known := subject.BehaviourOf(id); known && b.Differs(from, to) {
			texts = append(texts, fmt.Sprintf("%s, %s: now %s; afterwards %s [%s]", id, doc.Plural(m.Differs[id], "Service"), b.Of(from), b.Of(to), b.Source))
		}
	}
	return texts
}

// byProtocol describes the flows that failed or were misrouted, of new or of long-lived flows; empty: none.
func byProtocol(list []MoveFlows, longLived bool) string {
	var parts []string
	for _, f := range list {
		if f.LongLived != longLived || f.Failed+f.Misrouted == 0 {
			continue
		}
		text := fmt.Sprintf("%s %d failed", f.Protocol, f.Failed)
		if f.Misrouted > 0 {
			text += fmt.Sprintf(" and %d misrouted", f.Misrouted)
		}
		parts = append(parts, text+" within "+doc.Format(f.For, "s"))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// someOf lists the first few of many.
func someOf(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + ", …"
}

// moveSection says what happened when one proxier replaced another.
func (s *Summary) moveSection() doc.Section {
	out := doc.Section{ID: "moves", Title: "Moving from one proxier to another", Short: "Moves"}
	if len(s.Moves) == 0 {
		return out
	}
	out.Add(doc.Block{On: doc.Page, Soft: true, Note: "The first proxier gets SIGTERM, and the next one starts over its rules. Times count from SIGTERM. A flow belongs to the move " +
		"if it ended after SIGTERM, and was due before the next proxier had converged. Later flows are those up to the next move."}, doc.Block{Table: s.moveTable()})
	for i := range s.Moves {
		m := &s.Moves[i]
		advice, reasons := m.Verdict()
		out.Add(doc.Block{On: doc.Page | doc.Markdown, Heading: m.title() + ": " + advice, List: reasons},
			doc.Block{On: doc.Page, Table: m.flowTable()})
		if len(m.Left) > 0 {
			out.Add(doc.Block{On: doc.Page, Table: m.leftTable()})
		}
	}
	return out
}

// verdictSection ends the summary for a terminal.
func (s *Summary) verdictSection() doc.Section {
	out := doc.Section{ID: "verdicts", Title: "Verdicts on the moves"}
	for i := range s.Moves {
		advice, reasons := s.Moves[i].Verdict()
		if len(reasons) == 0 {
			reasons = []string{"no reason against it was seen"}
		}
		out.Add(doc.Block{On: doc.Terminal, Heading: s.Moves[i].title(), List: reasons}, doc.Block{On: doc.Terminal, Note: "verdict: " + advice})
	}
	return out
}

func (m *Move) title() string { return "Moving from " + m.From + " to " + cmp.Or(m.To, "?") }

func (s *Summary) moveTable() *doc.Table {
	t := &doc.Table{Columns: []doc.Column{{Name: "From"}, {Name: "To", Row: true}, {Name: "Services", Numeric: true}, {Name: "Settings", Differs: true},
		{Name: "Visible in", Numeric: true, Title: "from SIGTERM until the next one's tables have every Service; median"},
		{Name: "Converged in", On: doc.Page, Numeric: true, Title: "from SIGTERM until the next one has nothing left to do; median"},
		{Name: "New flows", Short: "flows", Numeric: true}, {Name: "Failed", Numeric: true}, {Name: "Misrouted", Numeric: true},
		{Name: "For", Numeric: true, Title: "from the first to the last new flow of a protocol that failed or was misrouted; the longest"},
		{Name: "Failed later", Short: "later", Numeric: true, Title: "new flows after the next one had converged"},
		{Name: "Left", Numeric: true, Title: "chains, rules, tables, sets, servers, devices and addresses of the first one that the next one does not use"}}}
	for i := range s.Moves {
		m := &s.Moves[i]
		during, later, left := newFlows(m.During), newFlows(m.Later), 0
		for _, n := range m.LeftThings() {
			left += n
		}
		t.Add(doc.Text(m.From), doc.Text(cmp.Or(m.To, "–")), doc.Int(m.Cell.Services), settingsCell(m.Cell), distributionCell(m.Took, medianValue, true),
			distributionCell(m.Settled, medianValue, true), doc.Int(during.Flows), doc.Int(during.Failed), doc.Int(during.Misrouted), doc.Value(during.For, "s"),
			doc.Int(later.Failed+later.Misrouted), doc.Int(left))
	}
	return t
}

func (m *Move) flowTable() *doc.Table {
	t := &doc.Table{Title: "Flows", Columns: []doc.Column{{Name: "When"}, {Name: "Protocol"}, {Name: "Flows", Numeric: true, Title: "new flows, or recorded packets of long-lived ones"},
		{Name: "Failed", Numeric: true}, {Name: "Misrouted", Numeric: true}, {Name: "For", Numeric: true, Title: "from the first to the last flow that failed or was misrouted"}}}
	for _, part := range []struct {
		name  string
		flows []MoveFlows
	}{{"before the first move", m.Before}, {"during the move", m.During}, {"later", m.Later}} {
		for _, f := range slices.SortedFunc(slices.Values(part.flows), func(a, b MoveFlows) int { return strings.Compare(a.name(), b.name()) }) {
			t.Add(doc.Text(part.name), doc.Text(f.name()), doc.Int(f.Flows), doc.Int(f.Failed), doc.Int(f.Misrouted), doc.Value(f.For, "s"))
		}
	}
	return t
}

func (f MoveFlows) name() string {
	if f.LongLived {
		return f.Protocol + " long-lived"
	}
	return f.Protocol
}

func (m *Move) leftTable() *doc.Table {
	t := &doc.Table{Title: "What " + m.From + " left", Note: "Conntrack entries are those of flows that were there before the move: they are no reason for care.",
		Columns: []doc.Column{{Name: "What"}, {Name: "Number", Numeric: true}}}
	for _, what := range slices.Sorted(maps.Keys(m.Left)) {
		t.Add(doc.Text(what), doc.Int(m.Left[what]))
	}
	return t
}
