package records

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"synclab/bench/raw"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/scenarios"
)

// Cell is one size of one scenario with one set of swept values.
type Cell struct {
	Scenario  string            `json:"scenario"`
	Services  int               `json:"services"`
	Endpoints float64           `json:"endpoints"`
	Params    map[string]string `json:"params,omitempty"`
}

// SizeField is the swept field whose value Services already has.
const SizeField = "shape.services"

// Settings is the cell's swept values in one line, without the size: "proxy.minSyncPeriod=1s
// proxy.policy=token-bucket".
func (c Cell) Settings() string {
	var parts []string
	for _, field := range slices.Sorted(maps.Keys(c.Params)) {
		if field != SizeField && field != raw.PlanSizeField {
			parts = append(parts, field+"="+c.Params[field])
		}
	}
	return strings.Join(parts, " ")
}

// cellID is a comparable Cell.
type cellID struct {
	scenario  string
	services  int
	endpoints float64
	settings  string
}

// InGuest reports whether the cell was measured on a kernel in user mode, whose times are not those of a machine.
func (c Cell) InGuest() bool {
	kernel := c.Params[raw.KernelField]
	return kernel != "" && kernel != raw.HostKernel
}

func (c Cell) ID() cellID { return cellID{c.Scenario, c.Services, c.Endpoints, c.Settings()} }

func (c cellID) Compare(d cellID) int {
	return cmp.Or(strings.Compare(c.scenario, d.scenario), NaturalCompare(c.settings, d.settings),
		cmp.Compare(c.services, d.services), cmp.Compare(c.endpoints, d.endpoints))
}

// detail is the key of a group of values of one metric in one cell.
type detail struct {
	Metric   raw.Metric
	Kind     string
	Table    string
	Family   string // only in runs with two families
	HasPos   bool
	Position int
	Target   string // of a first packet: the kind of destination; empty: a plain cluster IP
	Method   string // of a first packet: empty is sendto
	Protocol string // of a flow
	Outcome  string // of a flow: empty if it was answered
}

// Place identifies one sync, the key of its phases. It includes the step, since a restarted proxier counts its syncs
// from 1 again.
type Place struct {
	Run    int
	Rep    int
	Step   string
	Sync   int
	Family string
}

// Series has one colour in plots. It is a subject, or a subject of one run if several runs have the same cells.
type Series struct {
	Name    string
	Subject string
	Cells   map[cellID]*Samples
}

// Samples are all records of one series in one cell.
type Samples struct {
	Cell      Cell
	InProcess bool // objects reached the subject through informers, not through the API
	Records   []Record
	Groups    map[detail]estimate.Sample
}

// Steps are the names of the steps, in their order.
func (c *Samples) Steps() []string {
	names := map[string]bool{}
	for _, r := range c.Records {
		names[r.Step] = true
	}
	delete(names, "")
	return scenarios.SortedSteps(names)
}

// Record is a record with the index of its run.
type Record struct {
	*raw.Record
	Run int
}

// Collection is everything loaded, grouped.
type Collection struct {
	Runs   []*Run
	Labels []string // of each run, unique
	Series []*Series
	Cells  []Cell // of all series, sorted
	Failed map[string]int
}

// Collect groups the records of runs. Runs whose cells do not overlap for a subject are one series: the same subject
// at other sizes. Where cells overlap, each run is a separate series, named by the run.
func Collect(runs []*Run) *Collection {
	c := &Collection{Runs: runs, Labels: RunLabels(runs), Failed: map[string]int{}}
	split := overlapping(runs)
	byName := map[string]*Series{}
	cells := map[cellID]Cell{}
	for i, run := range runs {
		dual := families(run.Records) > 1
		alignedPosition := alignPositions(run.Records)
		for k := range run.Records {
			record := &run.Records[k]
			if record.Position != nil {
				if position := alignedPosition(record); position != *record.Position {
					moved := *record
					moved.Position = &position
					record = &moved
				}
			}
			name := record.Subject
			if split[record.Subject] {
				name += " · " + c.Labels[i]
			}
			s := byName[name]
			if s == nil {
				s = &Series{Name: name, Subject: record.Subject, Cells: map[cellID]*Samples{}}
				byName[name] = s
				c.Series = append(c.Series, s)
			}
			cell := Cell{record.Scenario, record.Services, record.Endpoints, record.Params}
			cells[cell.ID()] = cell
			c.Failed[name] += s.add(cell, Record{record, i}, dual)
			s.Cells[cell.ID()].InProcess = run.Info.Feed != raw.FeedAPI
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(cells), cellID.Compare) {
		c.Cells = append(c.Cells, cells[id])
	}
	return c
}

// add files one record. It returns 1 if the record reports a failed sync.
func (s *Series) add(cell Cell, record Record, dual bool) int {
	id := cell.ID()
	samples := s.Cells[id]
	if samples == nil {
		samples = &Samples{Cell: cell, Groups: map[detail]estimate.Sample{}}
		s.Cells[id] = samples
	}
	samples.Records = append(samples.Records, record)
	failed := record.Metric == raw.SyncFailed
	flow := record.Metric == raw.Flow || record.Metric == raw.LongLivedFlow // its error names the server that answered
	if record.Error != "" && !failed && !flow {
		return 0 // the time until a sync failed is not a sync duration
	}
	d := detail{Metric: record.Metric, Kind: record.Kind, Table: record.Table}
	if record.Bytes > 0 {
		d.Table = doc.Format(float64(record.Bytes), "B")
	}
	if record.Share > 0 {
		d.Table = ShareText(record.Share)
	}
	if record.Metric == raw.FullSync || record.Metric == raw.PartialSync {
		d.Kind = "" // the metric's name has the kind
	}
	if dual {
		d.Family = record.Family
	}
	if record.Position != nil {
		d.HasPos, d.Position = true, *record.Position
	}
	d.Target, d.Method = record.Target, MethodOf(record.Record)
	if flow {
		d.Protocol, d.Outcome = record.Protocol, record.Outcome
	}
	if samples.Groups[d] == nil {
		samples.Groups[d] = estimate.Sample{}
	}
	of := Repetition{Run: record.Run, Rep: record.Rep}
	samples.Groups[d][of] = append(samples.Groups[d][of], record.Value)
	if failed && record.Value > 0 {
		return 1
	}
	return 0
}

// ShareText names the group of a cold_start_share.
func ShareText(percent int) string { return strconv.Itoa(percent) + " %" }

// OfTable returns the values of a metric in a cell with one Table, families pooled.
func (s *Series) OfTable(cell Cell, metric raw.Metric, table string) estimate.Sample {
	return s.Cells[cell.ID()].pick(func(d detail) bool { return d.Metric == metric && d.Table == table })
}

// Of returns the values of a metric in a cell, families pooled.
func (s *Series) Of(cell Cell, metric raw.Metric) estimate.Sample {
	return s.KindOf(cell, metric, "")
}

// MethodOf returns the method of a first packet; sendto, the most frequent one, is the empty string.
func MethodOf(r *raw.Record) string {
	if r.Method == "sendto" {
		return ""
	}
	return r.Method
}

// NodeMethod is the method of the first packets that the node itself sends, one for all cells: sendto if any cell has it. So
// nothing over several cells mixes UDP and TCP.
func (s *Series) NodeMethod() string {
	for _, samples := range s.Cells {
		if len(samples.Positions("")) > 0 {
			return ""
		}
	}
	return raw.MethodConnect
}

// At returns the first-packet values at a position of a cell: system calls to a plain cluster IP, by the NodeMethod.
func (s *Series) At(cell Cell, position int) estimate.Sample {
	return s.Cells[cell.ID()].Packets(raw.FirstPacket, s.NodeMethod(), position)
}

// Positions are the dispatch positions probed in a cell, in order, without the miss and the empty ruleset.
func (s *Series) Positions(cell Cell) []int {
	return s.Cells[cell.ID()].Positions(s.NodeMethod())
}

// Details are the groups of a cell in a stable order.
func (c *Samples) Details() []detail {
	return slices.SortedFunc(maps.Keys(c.Groups), func(a, b detail) int {
		return cmp.Or(a.Metric.Order()-b.Metric.Order(), strings.Compare(string(a.Metric), string(b.Metric)),
			strings.Compare(a.Kind, b.Kind), strings.Compare(b.Table, a.Table), strings.Compare(a.Family, b.Family),
			strings.Compare(a.Method, b.Method), strings.Compare(a.Target, b.Target), PositionOrder(a.Position)-PositionOrder(b.Position),
			strings.Compare(b.Protocol, a.Protocol), strings.Compare(a.Outcome, b.Outcome))
	})
}

// PositionOrder sorts the miss after the last position.
func PositionOrder(position int) int {
	if position < 0 {
		return 1 << 40
	}
	return position
}

// overlapping returns the subjects that have the same cell in more than one run.
func overlapping(runs []*Run) map[string]bool {
	type subjectCell struct {
		subject string
		cell    cellID
	}
	first := map[subjectCell]int{}
	split := map[string]bool{}
	for i, run := range runs {
		for _, r := range run.Records {
			key := subjectCell{r.Subject, Cell{r.Scenario, r.Services, r.Endpoints, r.Params}.ID()}
			if other, ok := first[key]; ok && other != i {
				split[r.Subject] = true
			} else {
				first[key] = i
			}
		}
	}
	return split
}

func families(records []raw.Record) int {
	seen := map[string]bool{}
	for _, r := range records {
		if r.Family != "" {
			seen[r.Family] = true
		}
	}
	return len(seen)
}
