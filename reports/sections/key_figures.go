package sections

import (
	"slices"

	"synclab/bench/raw"
	"synclab/reports/comparison"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

// KeySection has the most important figures of each series in each cell. Comparisons have them too: then it is empty.
func (s *Summary) KeySection() doc.Section {
	out := doc.Section{ID: "key", Title: "Key figures"}
	if len(s.KeyFigures) == 0 || s.allCompared() {
		return out
	}
	t := s.keyTable()
	t.Note = s.MediansText()
	if t.Empty(doc.Page) {
		return out
	}
	out.Add(doc.Block{Table: t})
	out.Add(doc.Block{On: doc.Page, Soft: true, Note: "± is the wider half of the 95 % confidence interval, from 6 repetitions. " +
		"Latency is network programming latency: from the time when a change was due in the cluster until the change was visible in the kernel."})
	if len(s.Comparisons) == 0 {
		out.Add(doc.Block{On: doc.Terminal | doc.Markdown, List: comparison.Stopped(s.Collected)})
	}
	return out
}

// allCompared reports whether every cell has a comparison, so that key figures would only repeat them.
func (s *Summary) allCompared() bool {
	return len(s.Comparisons) > 0 && len(s.Comparisons) == len(s.Collected.Cells)
}

// keyTable has a row for each series in each cell.
func (s *Summary) keyTable() *doc.Table {
	const npl, packet = "npl: network programming latency", "1st packet: first packet to the last Service"
	field := func(c doc.Column, cell func(KeyFigures) doc.Cell) doc.Field[KeyFigures] {
		return doc.Field[KeyFigures]{Column: c, Cell: cell}
	}
	median := func(d func(KeyFigures) *estimate.Distribution) func(KeyFigures) doc.Cell {
		return func(k KeyFigures) doc.Cell { return distributionCell(d(k), medianValue, false) }
	}
	t := doc.TableOf(s.KeyFigures,
		field(doc.Column{Name: "Subject"}, func(k KeyFigures) doc.Cell { return s.MarkedCell(k.Series) }),
		field(doc.Column{Name: "Services", Numeric: true, Row: true}, func(k KeyFigures) doc.Cell { return doc.Int(k.Cell.Services) }),
		field(endpointsColumn(), func(k KeyFigures) doc.Cell { return endpointsCell(k.Cell) }),
		field(doc.Column{Name: "Settings", Above: true, Row: true}, func(k KeyFigures) doc.Cell { return settingsCell(k.Cell) }),
		field(doc.Column{
			Name: "Reaction", Short: "react", Numeric: true, Title: "one isolated change, made while the subject was idle: due → visible in the kernel",
			Legend: "react: reaction, from an isolated change until it is visible in the kernel",
		}, func(k KeyFigures) doc.Cell { return k.stoppedCell(comparison.FigureReaction, k.Reaction) }),
		field(doc.Column{Name: "Cold start", Short: "cold", Numeric: true, Title: "the subject's process starts → every Service is visible; median ± 95 % confidence"},
			func(k KeyFigures) doc.Cell { return k.stoppedCell(comparison.FigureCold, k.ColdStart) }),
		field(doc.Column{Name: "Full sync", Numeric: true, Title: "median ± 95 % confidence"},
			func(k KeyFigures) doc.Cell { return k.stoppedCell(comparison.FigureFull, k.FullSync) }),
		field(doc.Column{Name: "Partial sync", Short: "partial", Numeric: true, Title: "median ± 95 % confidence"},
			func(k KeyFigures) doc.Cell { return distributionCell(k.PartialSync, medianValue, true) }),
		field(doc.Column{Name: "Latency p50", Short: "npl p50", Legend: npl, Numeric: true, Title: "network programming latency: due in the cluster → visible in the kernel"},
			median(func(k KeyFigures) *estimate.Distribution { return k.Programming })),
		field(doc.Column{Name: "Latency p99", Short: "npl p99", Legend: npl, Numeric: true, Title: "network programming latency of 99 of 100 changes"},
			func(k KeyFigures) doc.Cell { return distributionCell(k.Programming, p99Value, false) }),
		field(doc.Column{Name: "First packet, first", On: doc.Page, Numeric: true, Title: "median at the first Service of the dispatch"},
			median(func(k KeyFigures) *estimate.Distribution { return k.FirstPacketFirst })),
		field(doc.Column{Name: "First packet, last", Short: "1st packet", Legend: packet, Numeric: true, Title: "median at the last Service"},
			median(func(k KeyFigures) *estimate.Distribution { return k.FirstPacketLast })),
		field(doc.Column{Name: "First packet, TCP", Short: "syn", Legend: "syn: first packet of TCP to the last Service", Numeric: true, Title: "the SYN of a connect(2), since the cluster has no UDP Service: median at the last Service"},
			median(func(k KeyFigures) *estimate.Distribution { return k.FirstSYNLast })),
		field(doc.Column{Name: "miss", On: doc.Page, Numeric: true, Title: "median for an address of no Service, outside of the Service ranges"},
			median(func(k KeyFigures) *estimate.Distribution { return k.FirstPacketMiss })),
		field(doc.Column{Name: "Rules", Numeric: true, Title: "all tables"}, func(k KeyFigures) doc.Cell { return doc.Optional(k.Rules, "count") }),
		field(doc.Column{Name: "Busy", On: doc.Page, Numeric: true, Title: "share of the churn spent in syncs"},
			func(k KeyFigures) doc.Cell { return doc.Optional(k.SyncBusy, "ratio") }),
		field(doc.Column{Name: "Peak RSS", On: doc.Page, Numeric: true, Title: s.rssOf()}, func(k KeyFigures) doc.Cell { return doc.Optional(k.PeakRSS, "B") }),
		field(doc.Column{Name: "Failed syncs", On: doc.Page, Numeric: true}, func(k KeyFigures) doc.Cell {
			if k.SyncsFailed == 0 {
				return doc.Cell{}
			}
			return doc.Int(k.SyncsFailed)
		}),
	)
	t.Intervals = true
	return t
}

// stoppedCell is a median. For a stopped subject without a median, it is the lower bound.
func (k KeyFigures) stoppedCell(figure string, d *estimate.Distribution) doc.Cell {
	if used, ok := k.StoppedAt(figure); ok && d == nil {
		return doc.Cell{Text: comparison.LimitText(used, "s"), Value: doc.Exact(used)}
	}
	return distributionCell(d, medianValue, true)
}

// OfOwnProcess reports whether the subjects were processes, so that the peak RSS is theirs alone.
func (s *Summary) OfOwnProcess() bool {
	return !slices.ContainsFunc(s.Runs, func(run records.RunHead) bool { return run.Feed != raw.FeedAPI })
}

// rssOf names the process of the peak RSS.
func (s *Summary) rssOf() string {
	if s.OfOwnProcess() {
		return "of the subject's process"
	}
	return "of the lab's process: simulated cluster and proxier"
}

// phaseSection shows where syncs spend their time, on a terminal. The page has plots of it.
func (s *Summary) phaseSection() doc.Section {
	out := doc.Section{ID: "phases", Title: "Where a sync spends its time (shares of the median sync)"}
	t := &doc.Table{Columns: []doc.Column{{Name: "subject"}, {Name: "services", Numeric: true}, {Name: "settings", Above: true}, {Name: "sync"}, {Name: "plan", Numeric: true}, {Name: "encode", Numeric: true},
		{Name: "jumps", Numeric: true}, {Name: "tool user", Numeric: true}, {Name: "tool sys", Numeric: true}, {Name: "post-sync", Numeric: true}, {Name: "rest", Numeric: true}}}
	phase := func(seconds float64) doc.Cell {
		if seconds == 0 {
			return doc.None() // it did not happen, or the subject does not report it
		}
		return doc.Value(seconds, "s")
	}
	for _, p := range s.tablePhases() {
		t.Add(s.SeriesCell(p.Series), doc.Int(p.Cell.Services), settingsCell(p.Cell), doc.Text(p.Kind), phase(p.Plan), phase(p.Encode), phase(p.Jumps),
			phase(p.ToolUser), phase(p.ToolSys), phase(p.PostSync), doc.Value(p.Rest, "s"))
	}
	out.Add(doc.Block{On: doc.Terminal, Table: t})
	return out
}

// tablePhases returns all phases if they are few, else the phases of each series' largest cell.
func (s *Summary) tablePhases() []Phases {
	if len(s.Phases) <= 12 {
		return s.Phases
	}
	var out []Phases
	for _, k := range largestFigures(s.KeyFigures) {
		out = append(out, slices.DeleteFunc(slices.Clone(s.Phases), func(p Phases) bool { return p.Series != k.Series || p.Cell.ID() != k.Cell.ID() })...)
	}
	return out
}
