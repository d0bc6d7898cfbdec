package reports

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"synclab/bench/raw"
	"synclab/reports/doc"
	"synclab/reports/estimate"
)

// Cell is one size of one scenario with one set of swept values.
type Cell struct {
	Scenario  string            `json:"scenario"`
	Services  int               `json:"services"`
	Endpoints float64           `json:"endpoints"`
	Params    map[string]string `json:"params,omitempty"`
}

// sizeField is the swept field whose value Services already has.
const sizeField = "shape.services"

// Settings is the cell's swept values in one line, without the size: "proxy.minSyncPeriod=1s
// proxy.policy=token-bucket".
func (c Cell) Settings() string {
	var parts []string
	for _, field := range slices.Sorted(maps.Keys(c.Params)) {
		if field != sizeField {
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

func (c Cell) id() cellID { return cellID{c.Scenario, c.Services, c.Endpoints, c.Settings()} }

func (c cellID) compare(d cellID) int {
	return cmp.Or(strings.Compare(c.scenario, d.scenario), naturalCompare(c.settings, d.settings),
		cmp.Compare(c.services, d.services), cmp.Compare(c.endpoints, d.endpoints))
}

// detail is the key of a group of values of one metric in one cell.
type detail struct {
	metric   raw.Metric
	kind     string
	table    string
	family   string // only in runs with two families
	hasPos   bool
	position int
	target   string // of a first packet: the kind of destination; empty: a plain cluster IP
	method   string // of a first packet: empty is sendto
	protocol string // of a flow
	outcome  string // of a flow: empty if it was answered
}

// place identifies one sync, the key of its phases. It includes the step, since a restarted proxier counts its syncs
// from 1 again.
type place struct {
	run    int
	rep    int
	step   string
	sync   int
	family string
}

// series has one colour in plots. It is a subject, or a subject of one run if several runs have the same cells.
type series struct {
	name    string
	subject string
	cells   map[cellID]*cellSamples
}

// cellSamples are all records of one series in one cell.
type cellSamples struct {
	cell      Cell
	inProcess bool // objects reached the subject through informers, not through the API
	records   []taggedRecord
	groups    map[detail]estimate.Sample
}

// taggedRecord is a record with the index of its run.
type taggedRecord struct {
	*raw.Record
	run int
}

// collection is everything loaded, grouped.
type collection struct {
	runs   []*loadedRun
	labels []string // of each run, unique
	series []*series
	cells  []Cell // of all series, sorted
	failed map[string]int
}

// collect groups the records of runs. Runs whose cells do not overlap for a subject are one series: the same subject
// at other sizes. Where cells overlap, each run is a separate series, named by the run.
func collect(runs []*loadedRun) *collection {
	c := &collection{runs: runs, labels: runLabels(runs), failed: map[string]int{}}
	split := overlapping(runs)
	byName := map[string]*series{}
	cells := map[cellID]Cell{}
	for i, run := range runs {
		dual := families(run.records) > 1
		alignedPosition := alignPositions(run.records)
		for k := range run.records {
			record := &run.records[k]
			if record.Metric == raw.FirstPacket && record.Position != nil {
				if position := alignedPosition(record); position != *record.Position {
					moved := *record
					moved.Position = &position
					record = &moved
				}
			}
			name := record.Subject
			if split[record.Subject] {
				name += " · " + c.labels[i]
			}
			s := byName[name]
			if s == nil {
				s = &series{name: name, subject: record.Subject, cells: map[cellID]*cellSamples{}}
				byName[name] = s
				c.series = append(c.series, s)
			}
			cell := Cell{record.Scenario, record.Services, record.Endpoints, record.Params}
			cells[cell.id()] = cell
			c.failed[name] += s.add(cell, taggedRecord{record, i}, dual)
			s.cells[cell.id()].inProcess = run.run.Feed != raw.FeedAPI
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(cells), cellID.compare) {
		c.cells = append(c.cells, cells[id])
	}
	return c
}

// add files one record. It returns 1 if the record reports a failed sync.
func (s *series) add(cell Cell, record taggedRecord, dual bool) int {
	id := cell.id()
	samples := s.cells[id]
	if samples == nil {
		samples = &cellSamples{cell: cell, groups: map[detail]estimate.Sample{}}
		s.cells[id] = samples
	}
	samples.records = append(samples.records, record)
	failed := record.Metric == raw.SyncFailed
	flow := record.Metric == raw.Flow || record.Metric == raw.LongLivedFlow // its error names the server that answered
	if record.Error != "" && !failed && !flow {
		return 0 // the time until a sync failed is not a sync duration
	}
	d := detail{metric: record.Metric, kind: record.Kind, table: record.Table}
	if record.Bytes > 0 {
		d.table = doc.Format(float64(record.Bytes), "B")
	}
	if record.Metric == raw.FullSync || record.Metric == raw.PartialSync {
		d.kind = "" // the metric's name has the kind
	}
	if dual {
		d.family = record.Family
	}
	if record.Position != nil {
		d.hasPos, d.position = true, *record.Position
	}
	d.target, d.method = record.Target, methodOf(record.Record)
	if flow {
		d.protocol, d.outcome = record.Protocol, record.Outcome
	}
	if samples.groups[d] == nil {
		samples.groups[d] = estimate.Sample{}
	}
	of := repetition{Run: record.run, Rep: record.Rep}
	samples.groups[d][of] = append(samples.groups[d][of], record.Value)
	if failed && record.Value > 0 {
		return 1
	}
	return 0
}

// of returns the values of a metric in a cell, families pooled.
func (s *series) of(cell Cell, metric raw.Metric) estimate.Sample {
	samples := s.cells[cell.id()]
	if samples == nil {
		return nil
	}
	return samples.pick(func(d detail) bool { return d.metric == metric })
}

// methodOf returns the method of a first packet; sendto, the most frequent one, is the empty string.
func methodOf(r *raw.Record) string {
	if r.Method == "sendto" {
		return ""
	}
	return r.Method
}

// at returns the first-packet values at a position of a cell: system calls to a plain cluster IP.
func (s *series) at(cell Cell, position int) estimate.Sample {
	return s.cells[cell.id()].packets(raw.FirstPacket, "", position)
}

// positions are the dispatch positions probed in a cell, in order, without the miss and the empty ruleset.
func (s *series) positions(cell Cell) []int {
	return s.cells[cell.id()].positions("")
}

// details are the groups of a cell in a stable order.
func (c *cellSamples) details() []detail {
	return slices.SortedFunc(maps.Keys(c.groups), func(a, b detail) int {
		return cmp.Or(metricOrder(a.metric)-metricOrder(b.metric), strings.Compare(string(a.metric), string(b.metric)),
			strings.Compare(a.kind, b.kind), strings.Compare(b.table, a.table), strings.Compare(a.family, b.family),
			strings.Compare(a.method, b.method), strings.Compare(a.target, b.target), positionOrder(a.position)-positionOrder(b.position),
			strings.Compare(b.protocol, a.protocol), strings.Compare(a.outcome, b.outcome))
	})
}

// positionOrder sorts the miss after the last position.
func positionOrder(position int) int {
	if position < 0 {
		return 1 << 40
	}
	return position
}

// overlapping returns the subjects that have the same cell in more than one run.
func overlapping(runs []*loadedRun) map[string]bool {
	type subjectCell struct {
		subject string
		cell    cellID
	}
	first := map[subjectCell]int{}
	split := map[string]bool{}
	for i, run := range runs {
		for _, r := range run.records {
			key := subjectCell{r.Subject, Cell{r.Scenario, r.Services, r.Endpoints, r.Params}.id()}
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
