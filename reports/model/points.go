package model

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/stat"

	"synclab/bench/raw"
)

// Quantity is a predicted quantity: a time in seconds, memory in bytes, or a count.
type Quantity string

// The quantities. Plan to Rest of a sync add up to its Total. For subjects that do not report plan and encode, Rest
// contains both.
const (
	Total    Quantity = "total"     // s: one sync, start to end
	Plan     Quantity = "plan"      // s
	Encode   Quantity = "encode"    // s
	ToolUser Quantity = "tool_user" // s
	ToolSys  Quantity = "tool_sys"  // s: the kernel's part
	Rest     Quantity = "rest"      // s: waiting, forking, base chains, bookkeeping
	CPU      Quantity = "cpu"       // s: CPU time of the subject and its tools, for one sync and its changes; full: since the process start

	PeakRSS        Quantity = "peak_rss"         // B: of the subject's process
	ChildPeakRSS   Quantity = "child_peak_rss"   // B: of its largest tool, in one sync
	Rules          Quantity = "rules"            // count: from the kernel, if it was read
	Elements       Quantity = "elements"         // count: elements of sets and maps
	Crossed        Quantity = "crossed"          // count: rules that the first packet at the last position crosses
	FirstPacket    Quantity = "first_packet"     // s: at the last position
	FirstPacketP99 Quantity = "first_packet_p99" // s: 99th percentile of the packets of a repetition, at the last position
)

// counted reports whether a quantity is an exact count that depends only on the cluster.
func (q Quantity) counted() bool { return q == Rules || q == Elements || q == Crossed }

// ofPackets reports whether a quantity grows with the rules that a packet crosses.
func (q Quantity) ofPackets() bool { return q == FirstPacket || q == FirstPacketP99 }

// phases of a sync.
var phases = []Quantity{Plan, Encode, ToolUser, ToolSys, Rest}

// Kinds of syncs.
const (
	Full    = "full"   // of everything, into empty tables
	Resync  = "resync" // of everything, over existing rules: after a restart, periodically, or after a failure
	Partial = "partial"
)

var kinds = []string{Full, Resync, Partial}

// Point is a quantity in one cell: the median of the medians of its N repetitions. With two repetitions it is the
// smaller median.
type Point struct {
	Quantity  Quantity `json:"quantity"`
	Kind      string   `json:"kind,omitempty"` // of sync; empty for quantities of the state
	Services  int      `json:"services"`
	Endpoints float64  `json:"endpoints"`         // per Service
	Changed   float64  `json:"changed,omitempty"` // Services that a partial sync changed
	// Shape of the cell; empty: every Service has the same number of endpoints.
	Shape string `json:"shape,omitempty"`
	// Crossed is the number of rules that a packet crosses; 0: unknown, or no packet.
	Crossed float64 `json:"crossed,omitempty"`
	N       int     `json:"n"` // repetitions
	Value   float64 `json:"value"`
	// Whole is the duration of the whole sync there, to which the error of a phase is compared.
	Whole float64 `json:"whole,omitempty"`
	// logs are the logarithms of single values over their median, and ofReps those of the repetitions' medians.
	logs, ofReps []float64
}

func (p Point) size() size {
	return size{s: float64(p.Services), n: float64(p.Services) * p.Endpoints, c: p.Changed, ce: p.Changed * p.Endpoints, e: p.Endpoints, x: p.Crossed}
}

// Points returns the points of each subject, from the records of a run.
func Points(records []raw.Record) map[string][]Point {
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
	records   []raw.Record
}

func parts(records []raw.Record) []part {
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

// key identifies a point. All values of the point have this key.
type key struct {
	quantity  Quantity
	kind      string
	services  int
	endpoints float64
	changed   int // similar numbers above 4 share a point: see near
	shape     string
	crossed   int
}

// near rounds a number of changed Services, so that similar numbers share a point. Each number up to 4 has its own
// point. Above, each decade has ten points.
func near(changed int) int {
	if changed <= 4 {
		return changed
	}
	return int(math.Round(math.Pow(10, math.Round(10*math.Log10(float64(changed)))/10)))
}

// collector collects values by key, and for each key by repetition.
type collector struct {
	values          map[key][][]float64
	wholes, changes map[key][]float64
	part            int
	last            map[key]int // part that the last of values is from
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

// oneSync has the records of one sync.
type oneSync struct {
	at      float64
	kind    string
	step    int
	values  map[raw.Metric]float64
	changed int
}

// syncs collects the syncs of a repetition. The first full sync writes into empty tables, and later ones over existing
// rules. After a fault, the content of the tables is unknown.
func (c *collector) syncs(p part) {
	syncs := syncsOf(p.records)
	attribute(p.records, syncs)
	seen := false
	faulted := slices.ContainsFunc(p.records, func(r raw.Record) bool { return r.Metric == raw.FaultDuration })
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
				continue // its changes are unknown
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
	if rss, ok := s.values[raw.ChildPeakRSS]; ok {
		put(ChildPeakRSS, rss, 0)
	}
	if !s.told() {
		return // the tools cannot be attributed to this sync
	}
	user := s.values[raw.ToolUser]
	rest := whole - user - s.values[raw.ToolSys]
	if plan, ok := s.values[raw.Plan]; ok {
		put(Plan, plan, whole)
		put(Encode, s.values[raw.Encode], whole)
		rest -= plan + s.values[raw.Encode]
	}
	put(ToolUser, user, whole)
	put(ToolSys, s.values[raw.ToolSys], whole)
	put(Rest, max(0, rest), whole)
}

// cpu collects the CPU time of steps with exactly one sync. That sync may also be in the next step.
func (c *collector) cpu(k key, s *oneSync, changed float64, syncs []*oneSync, records []raw.Record) {
	for _, r := range records {
		if r.Metric != raw.SubjectCPU {
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

// stepOf returns the number of a step: 2 for "2:churn".
func stepOf(step string) int {
	number, _, _ := strings.Cut(step, ":")
	n, _ := strconv.Atoi(number)
	return n
}

// syncsOf returns the syncs of a repetition by time, without failed ones.
func syncsOf(records []raw.Record) []*oneSync {
	type id struct {
		step   string
		sync   int
		family string
	}
	byID := map[id]*oneSync{}
	var out []*oneSync
	for _, r := range records {
		if (r.Metric == raw.FullSync || r.Metric == raw.PartialSync) && r.Error == "" {
			s := &oneSync{at: r.At, kind: strings.TrimSuffix(string(r.Metric), "_sync"), step: stepOf(r.Step), values: map[raw.Metric]float64{}}
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
		if r.Metric == raw.Changes {
			s.changed = int(r.Value)
		}
	}
	slices.SortStableFunc(out, func(a, b *oneSync) int { return cmp.Compare(a.at, b.at) })
	return out
}

// attribute counts the changes that each sync wrote, for a subject that does not report them. A sync with unknown tools
// gets no changes, unless the tools of all syncs are unknown.
func attribute(records []raw.Record, syncs []*oneSync) {
	for _, r := range records {
		if r.Metric == raw.Changes {
			return
		}
	}
	anyTold := slices.ContainsFunc(syncs, (*oneSync).told)
	for _, r := range records {
		if r.Metric != raw.NetworkProgrammingLatency {
			continue
		}
		if i := writer(syncs, r.At); i >= 0 && (syncs[i].told() || !anyTold) {
			syncs[i].changed++
		}
	}
}

// late is the maximum time from a sync's last write until its changes are visible, if the next sync has started by
// then.
const late = 0.005 // s

// writer returns the sync that wrote a change visible at seen; -1: none. It is the first sync with at+late ≥ seen, or
// the sync before that one if that one started after seen. Without known tools, a sync's at is its report, perhaps
// after its end, and its start is unknown.
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

// told reports whether the tools of a sync are known, and thus the time of its last write.
func (s *oneSync) told() bool { _, ok := s.values[raw.ToolUser]; return ok }

// took returns the duration of the whole sync, in seconds.
func (s *oneSync) took() float64 { return s.values[raw.FullSync] + s.values[raw.PartialSync] }

// counts has numbers of rules by table and family.
type counts map[[2]string]float64

// first keeps the first count of each table and family. Later counts include changes of the cluster, and rules that a
// proxier left behind.
func (c counts) first(r raw.Record) {
	if _, ok := c[[2]string{r.Table, r.Family}]; !ok {
		c[[2]string{r.Table, r.Family}] = r.Value
	}
}

// states collects the quantities of the state from a repetition: memory, rules, the first packet.
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
		case r.Metric == raw.PeakRSS:
			put(PeakRSS, r.Value)
		case r.Metric == raw.Rules && r.Kind == Full:
			rules.first(r)
		case r.Metric == raw.RulesKernel:
			kernel.first(r)
		case r.Metric == raw.FirstPacket && r.Position != nil && *r.Position > 0 && r.Target == "" && (r.Method == "" || r.Method == "sendto"):
			packets[*r.Position] = append(packets[*r.Position], r.Value)
		case r.Metric == raw.RulesEvaluated && r.Position != nil && *r.Position > 0 && r.Target == "":
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

// points returns the collected points, sorted.
func (c *collector) points() []Point {
	var out []Point
	for k, reps := range c.values {
		p := Point{Quantity: k.quantity, Kind: k.kind, Services: k.services, Endpoints: k.endpoints, Shape: k.shape, Crossed: float64(k.crossed), N: len(reps),
			Whole: typical(c.wholes[k]), Changed: median(c.changes[k])}
		var medians []float64
		for _, values := range reps {
			switch k.quantity {
			case ToolUser, ToolSys, Rest: // the kernel counts in ticks: the median of a few values is zero or a whole tick
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

// logsOver returns the logarithms of positive values over their median; none for a single value.
func logsOver(values []float64, median float64) (out []float64) {
	for _, v := range values {
		if v > 0 && median > 0 && len(values) > 1 {
			out = append(out, math.Log(v/median))
		}
	}
	return out
}

// typical returns the median of measured values. Of two it returns the smaller one, since a sync's delays come from
// outside.
func typical(values []float64) float64 {
	if len(values) == 2 {
		return min(values[0], values[1])
	}
	return median(values)
}

// median returns the median of values; 0 for no values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (stat.Quantile(0.5, stat.Empirical, sorted, nil) + sorted[len(sorted)/2]) / 2
}

// center returns the median of the means of all pairs (Hodges and Lehmann). It is nearly as robust as the median, and
// can lie between two ticks.
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
