package sections

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"synclab/bench/raw"
	"synclab/reports/comparison"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

// BlogSource is the published measurement that plots show as a reference.
const BlogSource = "Kubernetes blog, “NFTables mode for kube-proxy”, 2025-02-28"

// packetSection shows the costs of first packets: the system call, its fits, its growth, and flows between namespaces.
func (s *Summary) packetSection() doc.Section {
	out := doc.Section{ID: "packets", Title: "Cost of first packets", Dense: true}
	if len(s.Packets) == 0 {
		return out
	}
	var smaller []doc.Block
	for i, cell := range s.PacketCells(NodeMethods...) {
		if i > 0 {
			smaller = append(smaller, doc.Block{On: doc.Page, Folded: true, Table: s.spotTable(cell)})
			continue
		}
		out.Add(doc.Block{On: doc.Page, Soft: true, Note: "The duration of the system call that sends the first packet of a new flow, which crosses the rules inside the call: sendto of UDP, or connect of TCP where the cluster has no UDP Service. " +
			"Cells have the median, then the 90th and the 99th percentile and the number of rules that the packet crosses. " +
			"Every number except the last row includes the cost in an empty ruleset."})
		out.Add(doc.Block{On: doc.Page, Table: s.spotTable(cell)}, doc.Block{On: doc.Page, Table: s.perRuleTable(cell)})
		if s.ProbedDeeply() {
			out.Add(doc.Block{On: doc.Terminal | doc.Markdown, Table: s.packetTable(cell)})
		}
	}
	out.Add(doc.Block{On: doc.Page, Table: s.packetGrowthTable()}, doc.Block{On: doc.Page | doc.Markdown, Table: s.flowTable()})
	out.Add(smaller...)
	return out
}

// spotTable has a row for each destination and a column for each subject.
func (s *Summary) spotTable(cell records.Cell) *doc.Table {
	costs := s.PacketsOf(cell, NodeMethods...)
	t := &doc.Table{Title: records.SizesText([]records.Cell{cell}) + records.SettingsTail(records.ShortSettings(cell.Settings())) + methodTail(costs), Columns: []doc.Column{{Name: "First packet to"}}}
	empty, net := []doc.Cell{{Text: "empty ruleset"}}, []doc.Cell{{Text: "last, minus the empty ruleset"}}
	for _, p := range costs {
		t.Columns = append(t.Columns, s.seriesColumn(p.Series))
		empty = append(empty, doc.Optional(p.Empty, "s"))
		last := p.Spot("last")
		if last == nil || p.Empty == nil {
			net = append(net, doc.None())
			continue
		}
		net = append(net, doc.Value(last.Median-*p.Empty, "s"))
	}
	for _, name := range spotNames(costs) {
		row := []doc.Cell{{Text: spotText(name)}}
		for _, p := range costs {
			row = append(row, spotCell(p.Spot(name)))
		}
		t.Add(row...)
	}
	t.Add(empty...)
	t.Add(net...)
	return t
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
		return !slices.ContainsFunc(costs, func(p PacketCost) bool { return p.Spot(name) != nil })
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

func spotCell(spot *PacketSpot) doc.Cell {
	if spot == nil {
		return doc.None()
	}
	cell := doc.Value(spot.Median, "s")
	cell.Sub = "p90 " + doc.Format(spot.P90, "s") + "\np99 " + doc.Format(spot.P99, "s")
	if spot.Rules != nil {
		cell.Sub += "\n" + doc.Format(*spot.Rules, "count") + " rules"
	}
	cell.Title += ", n = " + strconv.Itoa(spot.N)
	if spot.Position > 0 {
		cell.Title += ", " + records.PositionText(spot.Position)
	}
	if spot.Empty != nil {
		cell.Title += ", in an empty ruleset " + doc.Format(*spot.Empty, "s")
	}
	if spot.Low != nil {
		cell.Title += ", 95 % confidence " + doc.Format(*spot.Low, "s") + " … " + doc.Format(*spot.High, "s")
	}
	return cell
}

// methodTail names the system call of a cell's packets, if it is not sendto.
func methodTail(costs []PacketCost) string {
	if len(costs) > 0 && costs[0].Method == raw.MethodConnect {
		return ", TCP (connect)"
	}
	return ""
}

// perRuleTable has the fits of the largest cell.
func (s *Summary) perRuleTable(cell records.Cell) *doc.Table {
	t := &doc.Table{Title: "Per rule, and whether the position matters", Columns: []doc.Column{{Name: "Subject"},
		{Name: "Per rule", Numeric: true, Title: "slope by rules crossed, if their number varies"}, {Name: "95 % confidence", Numeric: true},
		{Name: "Per Service in front", Numeric: true, Title: "slope by dispatch position"}, {Name: "95 % confidence", Numeric: true},
		{Name: "Intercept", Numeric: true, Title: "by dispatch position; includes the cost in an empty ruleset"}, {Name: "minus empty", Numeric: true},
		{Name: "From first to last Service", Title: "growth of the line, with the bounds of its slope's 95 % interval"}},
		Note: "Straight lines by least squares through the medians of the positions. Flat: the slope's 95 % interval contains 0, or the line grows by less than 10 % " +
			"from the first to the last. With fewer than six repetitions, only the observed values and their range are shown."}
	for _, p := range s.PacketsOf(cell, NodeMethods...) {
		row := append([]doc.Cell{s.SeriesCell(p.Series)}, fitCells(p.PerRule)...)
		row = append(row, fitCells(p.PerService)...)
		intercept, net, flat := doc.None(), doc.None(), doc.None()
		if p.PerService != nil {
			intercept = doc.Value(p.PerService.Intercept, "s")
			if p.Empty != nil {
				net = doc.Value(p.PerService.Intercept-*p.Empty, "s")
			}
			flat = doc.Text(p.Flat.Words())
		}
		t.Add(append(row, intercept, net, flat)...)
	}
	return t
}

// fitCells shows a slope and its interval.
func fitCells(fit *estimate.Fit) []doc.Cell {
	if fit == nil {
		return []doc.Cell{doc.None(), doc.None()}
	}
	return []doc.Cell{{Text: slopeText(fit.Slope), Value: doc.Exact(fit.Slope)}, {Text: IntervalText(*fit, slopeText), Faint: fit.SlopeLow == nil}}
}

// slopeText formats seconds per rule in ns. Slopes of flat dispatch are far below one ns.
func slopeText(v float64) string {
	text := strconv.FormatFloat(v*1e9, 'f', 2, 64)
	if strings.Trim(text, "-0.") == "" {
		text = "0.00"
	}
	return strings.Replace(text, "-", "−", 1) + " ns"
}

// CostText is a slope if its interval excludes 0.
func CostText(fit estimate.Fit, flat *Flatness) string {
	switch {
	case !fit.HoldsZero():
		return slopeText(fit.Slope)
	case flat != nil && flat.Verdict == "unknown":
		return "none shown"
	}
	return "flat"
}

// packetTable has the essentials of the largest cell for a terminal and for Markdown: one row for each subject.
func (s *Summary) packetTable(cell records.Cell) *doc.Table {
	t := &doc.Table{Title: "Cost of a first packet at " + records.SizesText([]records.Cell{cell}) + methodTail(s.PacketsOf(cell, NodeMethods...)) + " (medians)", Columns: []doc.Column{{Name: "Subject"},
		{Name: "First", Numeric: true}, {Name: "Last", Numeric: true}, {Name: "Miss", Numeric: true}, {Name: "Last p99", Numeric: true},
		{Name: "Rules", Numeric: true, Legend: "rules: number that a packet to the last Service crosses"}, {Name: "Per rule", Numeric: true},
		{Name: "From first to last", Short: "position", Legend: "position: whether the cost grows with the position"}}}
	for _, p := range s.PacketsOf(cell, NodeMethods...) {
		last := p.Spot("last")
		rules, per, growth := doc.None(), doc.None(), doc.None()
		if last != nil {
			rules = doc.Optional(last.Rules, "count")
		}
		if fit := cmp.Or(p.PerRule, p.PerService); fit != nil {
			per = doc.Text(CostText(*fit, p.Flat))
		}
		if p.Flat != nil {
			growth = doc.Cell{Text: p.Flat.Words(), Terminal: p.Flat.Verdict}
		}
		t.Add(s.SeriesCell(p.Series), spotValue(p.Spot("first"), medianValue), spotValue(last, medianValue), spotValue(p.Spot("miss"), medianValue),
			spotValue(last, p99Value), rules, per, growth)
	}
	return t
}

// packetGrowthTable has the medians at the last Service of each size.
func (s *Summary) packetGrowthTable() *doc.Table {
	var sizes []int
	for _, g := range s.PacketGrowth {
		sizes = append(sizes, g.Sizes...)
	}
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	t := &doc.Table{Title: "The last Service, by number of Services", Columns: []doc.Column{{Name: "Subject"}, {Name: "Method"}, {Name: "Settings"}},
		Note: "Medians. “Per Service” is the slope through the medians of the repetitions. “Growth” is the growth of this line over the measured sizes."}
	for _, size := range sizes {
		t.Columns = append(t.Columns, doc.Column{Name: doc.Grouped(int64(size)), Numeric: true})
	}
	t.Columns = append(t.Columns, doc.Column{Name: "largest / smallest", Numeric: true}, doc.Column{Name: "Per Service", Numeric: true},
		doc.Column{Name: "95 % confidence", Numeric: true}, doc.Column{Name: "Growth"})
	for _, g := range s.PacketGrowth {
		method := g.Method
		if method == "sendto" {
			method = ""
		}
		row := []doc.Cell{s.SeriesCell(g.Series), {Text: method}, {Text: records.ShortSettings(g.Settings)}}
		for _, size := range sizes {
			cell := doc.None()
			if i := slices.Index(g.Sizes, size); i >= 0 {
				cell = doc.Value(g.Medians[i], "s")
			}
			row = append(row, cell)
		}
		row = append(row, doc.Cell{Text: comparison.Times(g.Times) + "×", Value: doc.Exact(g.Times)})
		row = append(row, fitCells(&g.Fit)...)
		t.Add(append(row, doc.Text(g.Flat.Words()))...)
	}
	return t
}

// flowTable has the methods between namespaces, at the largest size of each.
func (s *Summary) flowTable() *doc.Table {
	t := &doc.Table{Title: "New flows between namespaces, and an established one as control", Columns: []doc.Column{{Name: "Subject"}, {Name: "Method", Row: true},
		{Name: "Services", Numeric: true, Row: true}, {Name: "first", Numeric: true}, {Name: "middle", Numeric: true}, {Name: "last", Numeric: true},
		{Name: "last, p90", Numeric: true}, {Name: "last, p99", Numeric: true}, {Name: "miss", Numeric: true},
		{Name: "Per Service in front", Numeric: true}, {Name: "95 % confidence", Numeric: true}, {Name: "From first to last Service"}},
		Note: "Round trips from a client pod through the node to a server pod, each in a separate namespace. Handshake is TCP, from SYN to SYN-ACK. " +
			"Echo is a UDP packet and its answer. Established is a packet of a flow with a conntrack entry. " +
			"Only a flow's first packet crosses the rules, so established must not depend on the position."}
	for _, method := range records.FlowMethods {
		cells := s.PacketCells(method)
		if len(cells) == 0 {
			continue
		}
		for _, p := range s.PacketsOf(cells[0], method) {
			row := []doc.Cell{s.SeriesCell(p.Series), {Text: method}, doc.Int(p.Cell.Services)}
			for _, name := range []string{"first", "middle", "last"} {
				row = append(row, spotValue(p.Spot(name), medianValue))
			}
			p90 := func(d estimate.Distribution) float64 { return d.P90 }
			row = append(row, spotValue(p.Spot("last"), p90), spotValue(p.Spot("last"), p99Value), spotValue(p.Spot("miss"), medianValue))
			row = append(row, fitCells(p.PerService)...)
			flat := doc.None()
			if p.Flat != nil {
				flat = doc.Cell{Text: p.Flat.Words(), Loud: method == "established" && p.Flat.Verdict == "grows"}
			}
			t.Add(append(row, flat)...)
		}
	}
	return t
}

func spotValue(spot *PacketSpot, of func(estimate.Distribution) float64) doc.Cell {
	if spot == nil {
		return doc.None()
	}
	return doc.Value(of(spot.Distribution), "s")
}

// connectionSection shows connections through Services beside those straight to an endpoint.
func (s *Summary) connectionSection() doc.Section {
	out := doc.Section{ID: "connections", Title: "Connections through Services", Short: "Connections"}
	column := func(group, name, short, title string) doc.Column {
		return doc.Column{Name: name, Short: short, Group: group, Numeric: true, Title: title}
	}
	const rate, cpu, bytes = "connections a second", "CPU per connection", "bytes a second"
	t := &doc.Table{Columns: []doc.Column{{Name: "Subject"}, {Name: "Services", Numeric: true, Row: true}, endpointsColumn(), {Name: "Settings", Above: true, Row: true},
		column(rate, "First", "first/s", "through the first Service of the dispatch"), column(rate, "Middle", "middle/s", "through the Service in the middle"),
		column(rate, "Last", "last/s", "through the last Service"), column(rate, "Endpoint", "direct/s", "straight to an endpoint: no dispatch rule matches, and a list of them is crossed to its end"),
		column(cpu, "First", "cpu first", "of both ends and the node"), column(cpu, "Last", "cpu last", "of both ends and the node"),
		column(cpu, "Endpoint", "cpu direct", "straight to an endpoint"),
		column(bytes, "Last", "bytes/s", "through one established connection to the last Service"), column(bytes, "Endpoint", "direct", "through one straight to an endpoint"),
	}}
	for _, i := range []int{5, 8} { // the middle, and the CPU time at the first: for Markdown it is wide enough
		t.Columns[i].On = doc.Page | doc.Terminal
	}
	for one, samples := range s.Collected.Each() {
		if !samples.Has(raw.ConnectionsPerSecond) {
			continue
		}
		cell := samples.Cell
		row := []doc.Cell{s.SeriesCell(one.Name), doc.Int(cell.Services), endpointsCell(cell), settingsCell(cell)}
		for _, part := range []struct {
			metric raw.Metric
			spots  []string
		}{{raw.ConnectionsPerSecond, []string{"first", "middle", "last"}}, {raw.ConnectionCPU, []string{"first", "last"}}, {raw.Throughput, []string{"last"}}} {
			positions := samples.PositionsOf(part.metric, "")
			for _, spot := range part.spots {
				var values estimate.Sample
				if i := slices.IndexFunc(positions, func(p int) bool { return spotName(positions, p) == spot }); i >= 0 {
					values = samples.Packets(part.metric, "", positions[i])
				}
				row = append(row, connectionCell(values, part.metric))
			}
			row = append(row, connectionCell(samples.ToTarget(part.metric, "", raw.TargetEndpoint, false), part.metric))
		}
		t.Add(row...)
	}
	if len(t.Rows) > 0 {
		out.Add(doc.Block{On: doc.Page | doc.Markdown, Soft: true, Note: "TCP connections without keep-alive from client pods through the node to other pods, as many as possible. " +
			"Clients, pods and rules share the CPUs, so that the rate is this machine's. CPU time is that of both ends and of the node. A connection straight to an endpoint matches no dispatch rule: it crosses all of a list, and costs nothing more where a map is asked. " +
			"The control is an established connection: its packets cross no dispatch rules."}, doc.Block{Table: t})
	}
	return out
}

// connectionCell is a median, with its spread.
func connectionCell(values estimate.Sample, metric raw.Metric) doc.Cell {
	if len(values) == 0 {
		return doc.None()
	}
	d := estimate.Describe(values)
	cell := doc.Value(d.Median, metric.Row().Unit)
	if share, ok := d.Spread(); ok {
		cell.Narrow, cell.Text = cell.Text, cell.Text+comparison.SpreadText(share)
	}
	return cell
}
