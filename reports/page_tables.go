package reports

import (
	"fmt"
	"strconv"
	"strings"

	"synclab/bench/raw"
	"synclab/reports/estimate"
)

func medianValue(d estimate.Distribution) float64 { return d.Median }
func p99Value(d estimate.Distribution) float64    { return d.P99 }

func (s *Summary) keyTable() pageTable {
	t := pageTable{Columns: []pageColumn{
		{Name: "Subject"}, {Name: "Services", Numeric: true}, {Name: "Endpoints", Numeric: true, Title: "mean, per Service"}, {Name: "Settings"},
		{Name: "Reaction", Numeric: true, Title: "one isolated change, made while the subject was idle: due → visible in the kernel"}, {Name: "Cold start", Numeric: true, Title: "the subject's process starts → every Service is visible; median ± 95 % confidence"},
		{Name: "Full sync", Numeric: true, Title: "median ± 95 % confidence"}, {Name: "Partial sync", Numeric: true, Title: "median ± 95 % confidence"},
		{Name: "Latency p50", Numeric: true, Title: "network programming latency: due in the cluster → visible in the kernel"},
		{Name: "Latency p99", Numeric: true, Title: "network programming latency of 99 of 100 changes"},
		{Name: "First packet, first", Numeric: true, Title: "median at the first Service of the dispatch"},
		{Name: "last", Numeric: true, Title: "median at the last Service"}, {Name: "miss", Numeric: true, Title: "median for an address of no Service"},
		{Name: "Rules", Numeric: true, Title: "all tables"}, {Name: "Busy", Numeric: true, Title: "share of the churn spent in syncs"},
		{Name: "Peak RSS", Numeric: true, Title: s.rssOf()}, {Name: "Failed syncs", Numeric: true},
	}}
	for _, k := range s.KeyFigures {
		failed := pageCell{}
		if k.SyncsFailed > 0 {
			failed = intCell(k.SyncsFailed)
		}
		t.Rows = append(t.Rows, []pageCell{
			s.seriesCell(k.Series), intCell(k.Cell.Services), {Text: endpointsText(k.Cell.Endpoints), Value: exact(k.Cell.Endpoints)},
			{Text: shortSettings(k.Cell.Settings()), Title: k.Cell.Settings()},
			k.stoppedCell(figureReaction, k.Reaction), k.stoppedCell(figureCold, k.ColdStart), k.stoppedCell(figureFull, k.FullSync), distributionCell(k.PartialSync, medianValue, true),
			distributionCell(k.Programming, medianValue, false), distributionCell(k.Programming, p99Value, false),
			distributionCell(k.FirstPacketFirst, medianValue, false), distributionCell(k.FirstPacketLast, medianValue, false),
			distributionCell(k.FirstPacketMiss, medianValue, false), optionalCell(k.Rules, "count"), optionalCell(k.SyncBusy, "ratio"),
			optionalCell(k.PeakRSS, "B"), failed,
		})
	}
	return t.dropSame("Endpoints").dropEmpty()
}

// stoppedCell is a median. For a stopped subject without a median, it is the lower bound.
func (k KeyFigures) stoppedCell(figure string, d *estimate.Distribution) pageCell {
	if used, ok := k.stoppedAt(figure); ok && d == nil {
		return pageCell{Text: limitText(used, "s"), Value: exact(used)}
	}
	return distributionCell(d, medianValue, true)
}

// rssOf names the process of the peak RSS.
func (s *Summary) rssOf() string {
	for _, run := range s.Runs {
		if run.Feed != raw.FeedAPI {
			return "of the lab's process: simulated cluster and proxier"
		}
	}
	return "of the subject's process"
}

func (s *Summary) capacityTable() pageTable {
	t := pageTable{Columns: []pageColumn{{Name: "Subject"}, {Name: "Scenario"}, {Name: "Settings"}, {Name: "SLO"}, {Name: "Met up to", Numeric: true, Title: "the largest number of Services up to which every measured size meets the SLO"},
		{Name: "value at this size", Numeric: true}, {Name: "Violated at", Numeric: true, Title: "the first measured size that violates the SLO"}, {Name: "value at this size", Numeric: true}, {Name: "Verdict"}}}
	scenarios := map[string]bool{}
	for _, c := range s.Capacity {
		scenarios[c.Scenario] = true
	}
	for _, c := range s.Capacity {
		scenario := ""
		if len(scenarios) > 1 {
			scenario = c.Scenario
		}
		holds, breaks := pageCell{Text: "none", Value: "0"}, pageCell{Text: "–", Faint: true}
		if c.MetUpTo > 0 {
			holds = intCell(c.MetUpTo)
		}
		if c.ViolatedAt > 0 {
			breaks = intCell(c.ViolatedAt)
		}
		atBreaks := optionalCell(c.ValueAtViolated, "s")
		if c.Stopped {
			atBreaks.Text = limitText(*c.ValueAtViolated, "s")
		}
		t.Rows = append(t.Rows, []pageCell{s.seriesCell(c.Series), {Text: scenario}, {Text: shortSettings(c.Settings)}, {Text: c.sloText()},
			holds, optionalCell(c.ValueAtMet, "s"), breaks, atBreaks, {Text: c.Verdict}})
	}
	return t.dropEmpty()
}

func (s *Summary) fitTables() []pageTable {
	growth := pageTable{Title: "Growth with the number of Services",
		Note: "duration ∝ Services^exponent, by least squares on the logarithms of the medians at each size; 1 is linear. The interval is that of the " +
			"exponents of the repetitions. “From size to size” has the exponents between neighbouring sizes. A power law does not fit if it misses a median by more than " +
			"10 %, and misses all repetitions of that size in the same direction. Then the exponent is invalid, also for other sizes.",
		Columns: []pageColumn{{Name: "Subject"}, {Name: "Settings"}, {Name: "Duration"}, {Name: "Exponent", Numeric: true}, {Name: "95 % confidence", Numeric: true},
			{Name: "From size to size", Numeric: true}, {Name: "Fits"}, {Name: "Repetitions", Numeric: true}, {Name: "Sizes"}}}
	for _, g := range s.Growth {
		var sizes []string
		for _, size := range g.Sizes {
			sizes = append(sizes, Grouped(int64(size)))
		}
		growth.Rows = append(growth.Rows, []pageCell{s.seriesCell(g.Series), {Text: shortSettings(g.Settings)}, {Text: g.Label()},
			{Text: exponentText(g.Slope), Value: exact(g.Slope)}, {Text: intervalText(g.Fit, exponentText), Faint: g.SlopeLow == nil},
			{Text: localText(g.Power)}, {Text: fitsText(g.Power), Loud: g.Bends}, intCell(g.Repetitions), {Text: strings.Join(sizes, " ")}})
	}
	packet := pageTable{Title: "First packet by dispatch position",
		Note: "A straight line through the medians of the positions. The slope is the cost of each position in front, for every new flow. Its interval is from the lines of the repetitions.",
		Columns: []pageColumn{{Name: "Subject"}, {Name: "Services", Numeric: true}, {Name: "Settings"}, {Name: "Per position", Numeric: true}, {Name: "95 % confidence", Numeric: true},
			{Name: "Intercept", Numeric: true}, {Name: "Empty ruleset", Numeric: true}, {Name: "Worst median", Numeric: true}, {Name: "at"}}}
	for _, f := range s.Traversal {
		if f.N < 2 {
			continue
		}
		packet.Rows = append(packet.Rows, []pageCell{s.seriesCell(f.Series), intCell(f.Cell.Services), {Text: shortSettings(f.Cell.Settings())},
			valueCell(f.Slope, "s"), {Text: intervalText(f.Fit, func(v float64) string { return Format(v, "s") }), Faint: f.SlopeLow == nil}, valueCell(f.Intercept, "s"),
			optionalCell(f.Empty, "s"), valueCell(f.Worst, "s"), {Text: positionText(f.WorstAt)}})
	}
	var out []pageTable
	for _, t := range []pageTable{growth, packet} {
		if len(t.Rows) > 0 {
			out = append(out, t.dropEmpty())
		}
	}
	return out
}

func exponentText(v float64) string {
	return strings.Replace(strconv.FormatFloat(v, 'f', 2, 64), "-0.00", "0.00", 1)
}

// localText lists the exponents between neighbouring sizes: "1.02 1.35".
func localText(law estimate.Power) string {
	var out []string
	for _, l := range law.Local {
		out = append(out, exponentText(l.Exponent))
	}
	return strings.Join(out, " ")
}

// fitsText states where a power law does not fit: "no power law: +34 % at 1,600". Two sizes always fit.
func fitsText(law estimate.Power) string {
	switch {
	case law.Bends:
		return fmt.Sprintf("no power law: %s at %s", signedPercent(law.Misfit), Grouped(int64(law.MisfitAt)))
	case law.N < 3:
		return "–"
	}
	return "yes"
}

// intervalText is the slope's interval, or the range of the repetitions.
func intervalText(fit estimate.Fit, format func(float64) string) string {
	switch {
	case fit.SlopeLow != nil:
		return format(*fit.SlopeLow) + " … " + format(*fit.SlopeHigh)
	case fit.SlopeRangeLow != nil:
		return "range " + format(*fit.SlopeRangeLow) + " … " + format(*fit.SlopeRangeHigh)
	}
	return "–"
}

// rowTables are the full tables, one for each section.
func (s *Summary) rowTables() []pageTable {
	var out []pageTable
	for _, group := range []string{groupSyncs, groupChanges, groupPackets, groupFlows, groupFaults, groupSizes} {
		t := pageTable{Title: group, Columns: []pageColumn{{Name: "Metric"}, {Name: "Subject"}, {Name: "Services", Numeric: true},
			{Name: "Endpoints", Numeric: true, Title: "mean, per Service"}, {Name: "Scenario"}, {Name: "Settings"}, {Name: "n", Numeric: true, Title: "values"}, {Name: "Repetitions", Numeric: true},
			{Name: "Median", Numeric: true}, {Name: "95 % confidence", Numeric: true}, {Name: "p90", Numeric: true}, {Name: "p99", Numeric: true},
			{Name: "Min", Numeric: true}, {Name: "Max", Numeric: true}}}
		few := false
		for _, r := range s.Rows {
			if textOf(r.Metric).group == group {
				t.Rows = append(t.Rows, s.rowCells(r))
				few = few || r.FewForP99
			}
		}
		if len(t.Rows) == 0 {
			continue
		}
		if few {
			t.Note = "Medians and percentiles are medians over the repetitions. A pale p99 has fewer than 100 values in a repetition, so it lies near the largest value."
		}
		out = append(out, t.dropSame("Endpoints").dropEmpty())
	}
	return out
}

func (s *Summary) rowCells(r Row) []pageCell {
	interval := pageCell{Text: "–", Faint: true, Title: "one repetition"}
	switch {
	case r.Low != nil:
		interval = pageCell{Text: Format(*r.Low, r.Unit) + " … " + Format(*r.High, r.Unit), Value: exact(*r.Low)}
	case r.RangeLow != nil:
		interval = pageCell{Text: "range " + Format(*r.RangeLow, r.Unit) + " … " + Format(*r.RangeHigh, r.Unit), Value: exact(*r.RangeLow), Faint: true,
			Title: fmt.Sprintf("range of the medians of %s; no interval with fewer than %d", plural(r.Repetitions, "repetition"), estimate.Enough)}
	}
	p99 := valueCell(r.P99, r.Unit)
	p99.Faint = r.FewForP99
	if r.P99Low != nil {
		p99.Sub = Format(*r.P99Low, r.Unit) + " … " + Format(*r.P99High, r.Unit)
	}
	scenario := ""
	for _, run := range s.Runs {
		if run.Scenario != r.Cell.Scenario {
			scenario = r.Cell.Scenario
		}
	}
	return []pageCell{{Text: r.Label()}, s.seriesCell(r.Series), intCell(r.Cell.Services), {Text: endpointsText(r.Cell.Endpoints), Value: exact(r.Cell.Endpoints)},
		{Text: scenario}, {Text: shortSettings(r.Cell.Settings()), Title: r.Cell.Settings()}, {Text: Grouped(int64(r.N)), Value: fmt.Sprint(r.N)}, intCell(r.Repetitions),
		valueCell(r.Median, r.Unit), interval, valueCell(r.P90, r.Unit), p99, valueCell(r.Min, r.Unit), valueCell(r.Max, r.Unit)}
}
