package model

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/stat"

	"synclab/bench"
)

// Quantity is what is predicted: times in seconds, memory in bytes, the others are counts.
type Quantity string

// The quantities. Plan to Rest add up to Total, sync by sync; of subjects that do not tell of plan and encode, these are in
// Rest.
const (
	Total    Quantity = "total"     // s: one sync, start to end
	Plan     Quantity = "plan"      // s
	Encode   Quantity = "encode"    // s
	ToolUser Quantity = "tool_user" // s
	ToolSys  Quantity = "tool_sys"  // s: the kernel's part
	Rest     Quantity = "rest"      // s: waiting, forking, base chains, bookkeeping
	CPU      Quantity = "cpu"       // s of CPU time of the subject and its tools, for one sync and what led to it; full: since its start

	PeakRSS        Quantity = "peak_rss"         // B: of the subject's process
	ChildPeakRSS   Quantity = "child_peak_rss"   // B: of its largest tool, in one sync
	Rules          Quantity = "rules"            // count, as the kernel counts where it was asked
	Elements       Quantity = "elements"         // count: elements of sets and maps
	Crossed        Quantity = "crossed"          // count: rules that the first packet at the last position crosses
	FirstPacket    Quantity = "first_packet"     // s: at the last position
	FirstPacketP99 Quantity = "first_packet_p99" // s: 99th percentile of the packets of a repetition there
)

// counted says that it is counted, exactly, and depends on the cluster alone.
func (q Quantity) counted() bool { return q == Rules || q == Elements || q == Crossed }

// ofPackets says that it grows with the rules that a packet crosses.
func (q Quantity) ofPackets() bool { return q == FirstPacket || q == FirstPacketP99 }

// phases of a sync.
var phases = []Quantity{Plan, Encode, ToolUser, ToolSys, Rest}

// Kinds of syncs.
const (
	Full    = "full"   // of everything, into empty tables
	Resync  = "resync" // of everything, over the rules that are there: after a restart, by time, after a failure
	Partial = "partial"
)

var kinds = []string{Full, Resync, Partial}

// Point is a quantity in one cell: the median of the medians of its N repetitions, of two the smaller one.
type Point struct {
	Quantity  Quantity `json:"quantity"`
	Kind      string   `json:"kind,omitempty"` // of sync; empty: of the state
	Services  int      `json:"services"`
	Endpoints float64  `json:"endpoints"`         // per Service
	Changed   float64  `json:"changed,omitempty"` // Services that a partial sync changed
	// Shape of the cell; empty: every Service has the same number of endpoints.
	Shape string `json:"shape,omitempty"`
	// Crossed are the rules that a packet crosses on its way; 0: not known, or no packet.
	Crossed float64 `json:"crossed,omitempty"`
	N       int     `json:"n"` // repetitions
	Value   float64 `json:"value"`
	// Whole is the sync's whole duration there, which an error of a phase is small or large beside.
	Whole float64 `json:"whole,omitempty"`
	// logs are the logarithms of single values over their median, and ofReps those of the repetitions' medians.
	logs, ofReps []float64
}

func (p Point) size() size {
	return size{s: float64(p.Services), n: float64(p.Services) * p.Endpoints, c: p.Changed, ce: p.Changed * p.Endpoints, e: p.Endpoints, x: p.Crossed}
}

// Points are the points of each subject of a run's records.
func Points(records []bench.Record) map[string][]Point {
	collected := map[string]*collector{}
	for _, part := range parts(records) {
		c := collected[part.subject]
		if c == nil {
			c = &collector{values: map[key][][]float64{}, wholes: map[key][]float64{}, last: map[key]int{}}
			collected[part.subject] = c
		}
		c.part++
		c.syncs(part)
		c.states(part)
	}
	out := map[string][]Point{}
	for subject, c := range collected {
		out[subject] = c.points()
	}
	return out
}

// part is one repetition of one cell.
type part struct {
	subject   string
	services  int
	endpoints float64
	shape     string
	records   []bench.Record
}

func parts(records []bench.Record) []part {
	type id struct {
		subject, scenario, params string
		services                  int
		endpoints                 float64
		rep                       int
	}
	index := map[id]int{}
	var out []part
	for _, r := range records {
		var params []string
		for _, name := range slices.Sorted(maps.Keys(r.Params)) {
			params = append(params, name+"="+r.Params[name])
		}
		key := id{r.Subject, r.Scenario, strings.Join(params, " "), r.Services, r.Endpoints, r.Rep}
		i, ok := index[key]
		if !ok {
			i = len(out)
			index[key] = i
			out = append(out, part{subject: r.Subject, services: r.Services, endpoints: r.Endpoints, shape: r.Params["shape.endpoints.distribution"]})
		}
		out[i].records = append(out[i].records, r)
	}
	return out
}

// key is what the values of a point share.
type key struct {
	quantity  Quantity
	kind      string
	services  int
	endpoints float64
	changed   int // numbers above 4 that are near each other share a point: see near
	shape     string
	crossed   int
}

// near gives numbers of changed Services that differ by little the same place: up to 4 each has its own, beyond, ten a
// decade.
func near(changed int) int {
	if changed <= 4 {
		return changed
	}
	return int(math.Round(math.Pow(10, math.Round(10*math.Log10(float64(changed)))/10)))
}

// collector gathers values by key and, within it, by repetition.
type collector struct {
	values          map[key][][]float64
	wholes, changes map[key][]float64
	part            int
	last            map[key]int // part of the last of values
}

func (c *collector) add(k key, value, whole, changed float64) {
	if c.changes == nil {
		c.changes = map[key][]float64{}
	}
	if n := len(c.values[k]); n > 0 && c.last[k] == c.part {
		c.values[k][n-1] = append(c.values[k][n-1], value)
	} else {
		c.values[k], c.last[k] = append(c.values[k], []float64{value}), c.part
	}
	c.wholes[k] = append(c.wholes[k], whole)
	c.changes[k] = append(c.changes[k], changed)
}

// oneSync is what was recorded of a sync.
type oneSync struct {
	at      float64
	kind    string
	step    int
	values  map[bench.Metric]float64
	changed int
}

// syncs takes the syncs of a repetition: the first full one meets empty tables, later ones what was written before. After
// a fault nobody knows what they meet.
func (c *collector) syncs(p part) {
	syncs := syncsOf(p.records)
	attribute(p.records, syncs)
	seen := false
	faulted := slices.ContainsFunc(p.records, func(r bench.Record) bool { return r.Metric == bench.FaultBegun })
	for _, s := range syncs {
		k := key{kind: s.kind, services: p.services, endpoints: p.endpoints, shape: p.shape}
		changed := 0.0
		if s.kind == Full {
			switch {
			case seen && faulted:
				continue
			case seen:
				k.kind = Resync
			}
			seen = true
		} else {
			if s.changed == 0 {
				continue // nobody knows what it was for
			}
			k.changed, changed = near(s.changed), float64(s.changed)
		}
		c.sync(k, s, changed)
		c.cpu(k, s, changed, syncs, p.records)
	}
}

func (c *collector) sync(k key, s *oneSync, changed float64) {
	put := func(q Quantity, value, whole float64) {
		k.quantity = q
		c.add(k, value, whole, changed)
	}
	whole := s.took()
	put(Total, whole, 0)
	if rss, ok := s.values[bench.ChildPeakRSS]; ok {
		put(ChildPeakRSS, rss, 0)
	}
	if !s.told() {
		return // which of several syncs the tools were of was not to be told
	}
	user := s.values[bench.ToolUser]
	rest := whole - user - s.values[bench.ToolSys]
	if plan, ok := s.values[bench.Plan]; ok {
		put(Plan, plan, whole)
		put(Encode, s.values[bench.Encode], whole)
		rest -= plan + s.values[bench.Encode]
	}
	put(ToolUser, user, whole)
	put(ToolSys, s.values[bench.ToolSys], whole)
	put(Rest, max(0, rest), whole)
}

// cpu is taken where one sync answers one step.
func (c *collector) cpu(k key, s *oneSync, changed float64, syncs []*oneSync, records []bench.Record) {
	for _, r := range records {
		if r.Metric != bench.SubjectCPU {
			continue
		}
		step, within := stepOf(r.Step), 0
		for _, other := range syncs {
			if other.step == step || other.step == step+1 {
				within++
			}
		}
		if within == 1 && (s.step == step || s.step == step+1) {
			k.quantity = CPU
			c.add(k, r.Value, 0, changed)
		}
	}
}

// stepOf "2:churn" is 2.
func stepOf(step string) int {
	number, _, _ := strings.Cut(step, ":")
	n, _ := strconv.Atoi(number)
	return n
}

// syncsOf a repetition, in their order. Those that failed are left out.
func syncsOf(records []bench.Record) []*oneSync {
	type id struct {
		step   string
		sync   int
		family string
	}
	byID := map[id]*oneSync{}
	var out []*oneSync
	for _, r := range records {
		if (r.Metric == bench.FullSync || r.Metric == bench.PartialSync) && r.Error == "" {
			s := &oneSync{at: r.At, kind: strings.TrimSuffix(string(r.Metric), "_sync"), step: stepOf(r.Step), values: map[bench.Metric]float64{}}
			byID[id{r.Step, r.Sync, r.Family}] = s
			out = append(out, s)
		}
	}
	for _, r := range records {
		s := byID[id{r.Step, r.Sync, r.Family}]
		if s == nil || r.Sync == 0 || r.Kind != s.kind || r.Error != "" {
			continue
		}
		s.values[r.Metric] += r.Value
		if r.Metric == bench.Changes {
			s.changed = int(r.Value)
		}
	}
	slices.SortStableFunc(out, func(a, b *oneSync) int { return cmp.Compare(a.at, b.at) })
	return out
}

// attribute counts the changes that each sync wrote, of a subject that does not say how many it took. Where which tools were
// of which sync was not to be told, neither is which changes were: these syncs keep none.
func attribute(records []bench.Record, syncs []*oneSync) {
	for _, r := range records {
		if r.Metric == bench.Changes {
			return
		}
	}
	anyTold := slices.ContainsFunc(syncs, (*oneSync).told)
	for _, r := range records {
		if r.Metric != bench.NetworkProgrammingLatency {
			continue
		}
		if i := writer(syncs, r.At); i >= 0 && (syncs[i].told() || !anyTold) {
			syncs[i].changed++
		}
	}
}

// late is how long after a sync's last write a change may be seen that it wrote, although the next one has begun.
const late = 0.005 // s

// writer is the sync that wrote what was seen at a moment: the first that ended no earlier, but for late, if it had begun
// by then. Else it is the one before, however late that was seen. When a sync wrote is known from its tools; without them,
// its end is when it was heard of, which may be later, and when it began is not known. -1: there is none.
func writer(syncs []*oneSync, seen float64) int {
	i := slices.IndexFunc(syncs, func(s *oneSync) bool { return s.at+late >= seen })
	switch {
	case i < 0:
		return len(syncs) - 1
	case i > 0 && syncs[i].told() && syncs[i].at-syncs[i].took() > seen:
		return i - 1
	}
	return i
}

// told says whether it is known which tools were of a sync, and so when it wrote.
func (s *oneSync) told() bool { _, ok := s.values[bench.ToolUser]; return ok }

// took is the whole of a sync, in seconds.
func (s *oneSync) took() float64 { return s.values[bench.FullSync] + s.values[bench.PartialSync] }

// counts are by table and family.
type counts map[[2]string]float64

// first keeps the first count of each: later ones are of what changes made of the cluster, and of what a proxier left behind.
func (c counts) first(r bench.Record) {
	if _, ok := c[[2]string{r.Table, r.Family}]; !ok {
		c[[2]string{r.Table, r.Family}] = r.Value
	}
}

// states takes what a repetition tells of the state: memory, rules, the first packet.
func (c *collector) states(p part) {
	rules, kernel := counts{}, counts{}
	packets, crossed := map[int][]float64{}, map[int]float64{}
	at := key{services: p.services, endpoints: p.endpoints, shape: p.shape}
	put := func(q Quantity, value float64) {
		at.quantity = q
		c.add(at, value, 0, 0)
	}
	for _, r := range p.records {
		switch {
		case r.Error != "":
		case r.Metric == bench.PeakRSS:
			put(PeakRSS, r.Value)
		case r.Metric == bench.Rules && r.Kind == Full:
			rules.first(r)
		case r.Metric == bench.RulesKernel:
			kernel.first(r)
		case r.Metric == bench.FirstPacket && r.Position != nil && *r.Position > 0 && r.Target == "" && (r.Method == "" || r.Method == "sendto"):
			packets[*r.Position] = append(packets[*r.Position], r.Value)
		case r.Metric == bench.RulesCrossed && r.Position != nil && *r.Position > 0 && r.Target == "":
			crossed[*r.Position] = r.Value
		}
	}
	if len(kernel) > 0 {
		rules = kernel
	}
	var counted, elements float64
	for where, n := range rules {
		if strings.HasSuffix(where[0], "elements") {
			elements += n
		} else {
			counted += n
		}
	}
	if counted > 0 {
		put(Rules, counted)
	}
	if elements > 0 {
		put(Elements, elements)
	}
	if len(packets) > 0 {
		last := slices.Max(slices.Collect(maps.Keys(packets)))
		if crossed[last] > 0 {
			put(Crossed, crossed[last])
		}
		for position, values := range packets {
			if at.crossed = int(crossed[position]); position != last && at.crossed == 0 {
				continue
			}
			put(FirstPacket, median(values))
			put(FirstPacketP99, stat.Quantile(0.99, stat.Empirical, slices.Sorted(slices.Values(values)), nil))
		}
	}
}

// points are the collected values, in a stable order.
func (c *collector) points() []Point {
	var out []Point
	for k, reps := range c.values {
		p := Point{Quantity: k.quantity, Kind: k.kind, Services: k.services, Endpoints: k.endpoints, Shape: k.shape, Crossed: float64(k.crossed), N: len(reps),
			Whole: typical(c.wholes[k]), Changed: median(c.changes[k])}
		var medians []float64
		for _, values := range reps {
			switch k.quantity {
			case ToolUser, ToolSys, Rest: // kernels count in ticks: a median of few is none or one whole tick
				medians = append(medians, center(values))
			default:
				medians = append(medians, typical(values))
			}
		}
		switch k.quantity {
		case ToolUser, ToolSys, Rest:
			p.Value = center(slices.Concat(reps...))
		default:
			p.Value = typical(medians)
		}
		p.logs, p.ofReps = logsOver(slices.Concat(reps...), p.Value), logsOver(medians, p.Value)
		out = append(out, p)
	}
	slices.SortFunc(out, comparePoints)
	return out
}

func comparePoints(a, b Point) int {
	return cmp.Or(strings.Compare(string(a.Quantity), string(b.Quantity)), strings.Compare(a.Kind, b.Kind),
		cmp.Compare(a.Services, b.Services), cmp.Compare(a.Endpoints, b.Endpoints), strings.Compare(a.Shape, b.Shape),
		cmp.Compare(a.Changed, b.Changed), cmp.Compare(a.Crossed, b.Crossed))
}

// logsOver are the logarithms of positive values over their median; none of a single value.
func logsOver(values []float64, median float64) (out []float64) {
	for _, v := range values {
		if v > 0 && median > 0 && len(values) > 1 {
			out = append(out, math.Log(v/median))
		}
	}
	return out
}

// typical is the median of measured values. Of two it is the smaller one: what delays a sync comes from outside of it.
func typical(values []float64) float64 {
	if len(values) == 2 {
		return min(values[0], values[1])
	}
	return median(values)
}

// median of values; of none it is 0.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (stat.Quantile(0.5, stat.Empirical, sorted, nil) + sorted[len(sorted)/2]) / 2
}

// center is the median of the means of all pairs (Hodges and Lehmann): nearly as robust as the median, and between two
// ticks where values are one or the other.
func center(values []float64) float64 {
	if len(values) > 60 {
		return stat.Mean(values, nil)
	}
	var means []float64
	for i := range values {
		for j := i; j < len(values); j++ {
			means = append(means, (values[i]+values[j])/2)
		}
	}
	return median(means)
}
