package reports

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"synclab/reports/estimate"
)

// blogSource is the published measurement that plots show as a reference.
const blogSource = "Kubernetes blog, “NFTables mode for kube-proxy”, 2025-02-28"

// packetSection shows the costs of first packets: the system call, its fits, its growth, and flows between namespaces.
func (s *Summary) packetSection() *pageSection {
	if len(s.Packets) == 0 {
		return nil
	}
	section := &pageSection{ID: "packets", Title: "Cost of first packets"}
	if cells := s.packetCells("sendto"); len(cells) > 0 {
		section.Notes = append(section.Notes, "The duration of one sendto of a new flow, which crosses the rules inside the system call. Cells have the median, then the 90th and the 99th "+
			"percentile and the number of rules that the packet crosses. Every number except the last row includes the cost in an empty ruleset.")
		for i, cell := range cells {
			spots := s.spotTable(cell)
			if i == 0 {
				section.Tables = append(section.Tables, spots, s.perRuleTable(cell))
			} else {
				section.Folded = append(section.Folded, spots)
			}
		}
	}
	if t := s.packetGrowthTable(); len(t.Rows) > 0 {
		section.Tables = append(section.Tables, t)
	}
	if t := s.flowTable(); len(t.Rows) > 0 {
		section.Tables = append(section.Tables, t)
	}
	return section
}

// breakable allows a line break after the proxier's name in a narrow column. Browsers break at hyphens anyway.
func breakable(series string) string { return strings.Replace(series, "/", "/\n", 1) }

func (s *Summary) seriesColumn(name string) pageColumn {
	i, _ := s.seriesNamed(name)
	return pageColumn{Name: breakable(name), Numeric: true, Color: s.swatch(i), Title: name}
}

// spotTable has a row for each destination and a column for each subject.
func (s *Summary) spotTable(cell Cell) pageTable {
	costs := s.packetsOf(cell, "sendto")
	t := pageTable{Title: sizesText([]Cell{cell}) + settingsTail(shortSettings(cell.Settings())), Columns: []pageColumn{{Name: "First packet to"}}}
	empty, net := []pageCell{{Text: "empty ruleset"}}, []pageCell{{Text: "last, minus the empty ruleset"}}
	for _, p := range costs {
		t.Columns = append(t.Columns, s.seriesColumn(p.Series))
		empty = append(empty, optionalCell(p.Empty, "s"))
		last := p.spot("last")
		if last == nil || p.Empty == nil {
			net = append(net, pageCell{Text: "–", Faint: true})
			continue
		}
		net = append(net, valueCell(last.Median-*p.Empty, "s"))
	}
	for _, name := range spotNames(costs) {
		row := []pageCell{{Text: spotText(name)}}
		for _, p := range costs {
			row = append(row, spotCell(p.spot(name)))
		}
		t.Rows = append(t.Rows, row)
	}
	t.Rows = append(t.Rows, empty, net)
	return t.dropEmpty()
}

// spotNames are the table's rows. Positions between first, middle and last are only in the plot.
func spotNames(costs []PacketCost) []string {
	names := []string{"first", "middle", "last", "miss"}
	for _, p := range costs {
		for _, spot := range p.Spots {
			if spot.Target != "" && !slices.Contains(names, spot.Name) {
				names = append(names, spot.Name)
			}
		}
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return !slices.ContainsFunc(costs, func(p PacketCost) bool { return p.spot(name) != nil })
	})
}

func spotText(name string) string {
	switch name {
	case "first", "middle", "last":
		return name + " Service"
	case "miss":
		return "no Service (miss)"
	case "reject":
		return "no endpoints (reject)"
	case "load-balancer":
		return "load balancer, source ranges"
	case "affinity-first":
		return "affinity, first"
	case "affinity-again":
		return "affinity, again"
	}
	return strings.ReplaceAll(name, "-", " ")
}

func spotCell(spot *PacketSpot) pageCell {
	if spot == nil {
		return pageCell{Text: "–", Faint: true}
	}
	cell := valueCell(spot.Median, "s")
	cell.Sub = "p90 " + Format(spot.P90, "s") + "\np99 " + Format(spot.P99, "s")
	if spot.Rules != nil {
		cell.Sub += "\n" + Format(*spot.Rules, "count") + " rules"
	}
	cell.Sub = beforeUnit.ReplaceAllString(cell.Sub, "$1\u00a0$2")
	cell.Title += fmt.Sprintf(", n = %d", spot.N)
	if spot.Position > 0 {
		cell.Title += ", " + positionText(spot.Position)
	}
	if spot.Empty != nil {
		cell.Title += ", in an empty ruleset " + Format(*spot.Empty, "s")
	}
	if spot.Low != nil {
		cell.Title += fmt.Sprintf(", 95 %% confidence %s … %s", Format(*spot.Low, "s"), Format(*spot.High, "s"))
	}
	return cell
}

// perRuleTable has the fits of the largest cell.
func (s *Summary) perRuleTable(cell Cell) pageTable {
	t := pageTable{Title: "Per rule, and whether the position matters", Columns: []pageColumn{{Name: "Subject"},
		{Name: "Per rule", Numeric: true, Title: "slope by rules crossed, if their number varies"}, {Name: "95 % confidence", Numeric: true},
		{Name: "Per Service in front", Numeric: true, Title: "slope by dispatch position"}, {Name: "95 % confidence", Numeric: true},
		{Name: "Intercept", Numeric: true, Title: "by dispatch position; includes the cost in an empty ruleset"}, {Name: "minus empty", Numeric: true},
		{Name: "From first to last Service", Title: "growth of the line, with the bounds of its slope's 95 % interval"}},
		Note: "Straight lines by least squares through the medians of the positions. Flat: the slope's 95 % interval contains 0, or the line grows by less than 10 % from the first to the last. With fewer than six repetitions, only the observed values and their range are shown."}
	for _, p := range s.packetsOf(cell, "sendto") {
		row := append([]pageCell{s.seriesCell(p.Series)}, fitCells(p.PerRule)...)
		row = append(row, fitCells(p.PerService)...)
		intercept, net, flat := pageCell{Text: "–", Faint: true}, pageCell{Text: "–", Faint: true}, pageCell{Text: "–", Faint: true}
		if p.PerService != nil {
			intercept = valueCell(p.PerService.Intercept, "s")
			if p.Empty != nil {
				net = valueCell(p.PerService.Intercept-*p.Empty, "s")
			}
			flat = pageCell{Text: p.Flat.words()}
		}
		t.Rows = append(t.Rows, append(row, intercept, net, flat))
	}
	return t.dropEmpty()
}

// fitCells shows a slope and its interval.
func fitCells(fit *estimate.Fit) []pageCell {
	if fit == nil {
		none := pageCell{Text: "–", Faint: true}
		return []pageCell{none, none}
	}
	return []pageCell{{Text: slopeText(fit.Slope), Value: exact(fit.Slope)}, {Text: intervalText(*fit, slopeText), Faint: fit.SlopeLow == nil}}
}

// slopeText formats seconds per rule in ns. Slopes of flat dispatch are far below one ns.
func slopeText(v float64) string {
	text := strconv.FormatFloat(v*1e9, 'f', 2, 64)
	if strings.Trim(text, "-0.") == "" {
		text = "0.00"
	}
	return strings.Replace(text, "-", "−", 1) + " ns"
}

// costText is a slope if its interval excludes 0.
func costText(fit estimate.Fit, flat *Flatness) string {
	switch {
	case !fit.HoldsZero():
		return slopeText(fit.Slope)
	case flat != nil && flat.Verdict == "unknown":
		return "none shown"
	}
	return "flat"
}

// packetGrowthTable has the medians at the last Service of each size.
func (s *Summary) packetGrowthTable() pageTable {
	var sizes []int
	for _, g := range s.PacketGrowth {
		sizes = append(sizes, g.Sizes...)
	}
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	t := pageTable{Title: "The last Service, by number of Services", Columns: []pageColumn{{Name: "Subject"}, {Name: "Method"}, {Name: "Settings"}},
		Note: "Medians. “Per Service” is the slope through the medians of the repetitions. “Growth” is the growth of this line over the measured sizes."}
	for _, size := range sizes {
		t.Columns = append(t.Columns, pageColumn{Name: Grouped(int64(size)), Numeric: true})
	}
	t.Columns = append(t.Columns, pageColumn{Name: "largest / smallest", Numeric: true}, pageColumn{Name: "Per Service", Numeric: true},
		pageColumn{Name: "95 % confidence", Numeric: true}, pageColumn{Name: "Growth"})
	for _, g := range s.PacketGrowth {
		method := g.Method
		if method == "sendto" {
			method = ""
		}
		row := []pageCell{s.seriesCell(g.Series), {Text: method}, {Text: shortSettings(g.Settings)}}
		for _, size := range sizes {
			cell := pageCell{Text: "–", Faint: true}
			if i := slices.Index(g.Sizes, size); i >= 0 {
				cell = valueCell(g.Medians[i], "s")
			}
			row = append(row, cell)
		}
		row = append(row, pageCell{Text: times(g.Times) + "×", Value: exact(g.Times)})
		t.Rows = append(t.Rows, append(append(row, fitCells(&g.Fit)...), pageCell{Text: g.Flat.words()}))
	}
	return t.dropEmpty()
}

// flowTable has the methods between namespaces, at the largest size of each.
func (s *Summary) flowTable() pageTable {
	t := pageTable{Title: "New flows between namespaces, and an established one as control", Columns: []pageColumn{{Name: "Subject"}, {Name: "Method"}, {Name: "Services", Numeric: true},
		{Name: "first", Numeric: true}, {Name: "middle", Numeric: true}, {Name: "last", Numeric: true}, {Name: "last, p90", Numeric: true}, {Name: "last, p99", Numeric: true}, {Name: "miss", Numeric: true},
		{Name: "Per Service in front", Numeric: true}, {Name: "95 % confidence", Numeric: true}, {Name: "From first to last Service"}},
		Note: "Round trips from a client pod through the node to a server pod, each in a separate namespace. Handshake is TCP, from SYN to SYN-ACK. Echo is a UDP packet and its answer. Established is a packet of a " +
			"flow with a conntrack entry. Only a flow's first packet crosses the rules, so established must not depend on the position."}
	for _, method := range methods[1:] {
		cells := s.packetCells(method)
		if len(cells) == 0 {
			continue
		}
		for _, p := range s.packetsOf(cells[0], method) {
			row := []pageCell{s.seriesCell(p.Series), {Text: method}, intCell(p.Cell.Services)}
			for _, name := range []string{"first", "middle", "last"} {
				row = append(row, spotValue(p.spot(name), medianValue))
			}
			row = append(row, spotValue(p.spot("last"), func(d estimate.Distribution) float64 { return d.P90 }), spotValue(p.spot("last"), p99Value), spotValue(p.spot("miss"), medianValue))
			row = append(row, fitCells(p.PerService)...)
			flat := pageCell{Text: "–", Faint: true}
			if p.Flat != nil {
				flat = pageCell{Text: p.Flat.words(), Loud: method == "established" && p.Flat.Verdict == "grows"}
			}
			t.Rows = append(t.Rows, append(row, flat))
		}
	}
	return t.dropEmpty()
}

func spotValue(spot *PacketSpot, of func(estimate.Distribution) float64) pageCell {
	if spot == nil {
		return pageCell{Text: "–", Faint: true}
	}
	return valueCell(of(spot.Distribution), "s")
}

// packetLines are the essential lines for the terminal and for markdown: one for each subject at the largest size.
func (s *Summary) packetLines() (Cell, [][]string) {
	cells := s.packetCells("sendto")
	if len(cells) == 0 || !s.probedDeeply() {
		return Cell{}, nil
	}
	var lines [][]string
	for _, p := range s.packetsOf(cells[0], "sendto") {
		line := []string{p.Series}
		for _, name := range []string{"first", "last", "miss"} {
			line = append(line, spotTime(p.spot(name), medianValue))
		}
		line = append(line, spotTime(p.spot("last"), p99Value))
		rules, per, verdict := "–", "–", "–"
		if last := p.spot("last"); last != nil && last.Rules != nil {
			rules = Format(*last.Rules, "count")
		}
		if fit := cmp.Or(p.PerRule, p.PerService); fit != nil {
			per = costText(*fit, p.Flat)
		}
		if p.Flat != nil {
			verdict = p.Flat.Verdict
		}
		lines = append(lines, append(line, rules, per, verdict))
	}
	return cells[0], lines
}

var packetLineHeader = []string{"subject", "first", "last", "miss", "last p99", "rules", "per rule", "position"}

func spotTime(spot *PacketSpot, of func(estimate.Distribution) float64) string {
	if spot == nil {
		return "–"
	}
	return Format(of(spot.Distribution), "s")
}

func (s *Summary) terminalPackets(b *strings.Builder) {
	cell, lines := s.packetLines()
	if len(lines) == 0 {
		return
	}
	t := textTable{header: packetLineHeader}
	for _, line := range lines {
		t.add(line...)
	}
	fmt.Fprintf(b, "\nCost of a first packet at %s (medians)\n\n", sizesText([]Cell{cell}))
	t.dropEmpty().write(b)
	b.WriteString("\nrules: number that a packet to the last Service crosses; position: whether the cost grows with the position\n")
}

func (s *Summary) markdownPackets(w io.Writer) {
	cell, lines := s.packetLines()
	if len(lines) == 0 {
		return
	}
	b := &strings.Builder{}
	fmt.Fprintf(b, "### Cost of a first packet at %s\n\n", sizesText([]Cell{cell}))
	markdownTable(b, append(slices.Clone(packetLineHeader[:7]), "from first to last"), -1, len(lines), func(i int) []string {
		line := slices.Clone(lines[i])
		if p := s.packetsOf(cell, "sendto")[i]; p.Flat != nil {
			line[7] = p.Flat.words()
		}
		return line
	})
	fmt.Fprintln(w, b)
}

// packetAnswers states the cost of a packet to the last Service: first the subjects whose cost grows, then the others.
func (s *Summary) packetAnswers() []string {
	cells := s.packetCells("sendto")
	if len(cells) == 0 || !s.probedDeeply() {
		return nil
	}
	costs := slices.DeleteFunc(s.packetsOf(cells[0], "sendto"), func(p PacketCost) bool { return p.spot("last") == nil })
	slices.SortStableFunc(costs, func(a, b PacketCost) int { return cmp.Compare(b.spot("last").Median, a.spot("last").Median) })
	var grow, others []string
	for _, p := range costs {
		text := fmt.Sprintf("%s in %s", Format(p.spot("last").Median, "s"), p.Series)
		fit, unit := p.PerRule, "a rule"
		if fit == nil {
			fit, unit = p.PerService, "for each Service in front"
		}
		switch {
		case p.Flat != nil && p.Flat.Verdict == "grows":
			text += fmt.Sprintf(", %s %s", slopeText(fit.Slope), unit)
			text += fmt.Sprintf(" (95 %% %s)", intervalText(*fit, slopeText))
			grow = append(grow, text)
		case p.Flat != nil:
			others = append(others, text+" ("+p.Flat.words()+")")
		default:
			others = append(others, text)
		}
	}
	where := "the last of " + plural(cells[0].Services, "Service")
	var out []string
	if len(grow) > 0 {
		out = append(out, "A packet to "+where+" costs "+strings.Join(grow, "; ")+".")
	}
	if len(others) > 0 {
		head := "A packet to " + where + " costs "
		if len(grow) > 0 {
			head = "A packet to the same Service costs "
		}
		out = append(out, head+strings.Join(others, "; ")+". The growth from the first Service to the last is in brackets.")
	}
	return out
}
