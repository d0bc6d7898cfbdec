package plan

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"synclab/bench"
	"synclab/bench/raw"
	"synclab/bench/search"
	"synclab/reports/doc"
)

// Cell is what one repetition of a cell shows.
type Cell struct {
	Subject string `json:"subject"`
	Size    int    `json:"size"`
	Setting string `json:"setting,omitempty"` // the minSyncPeriod that it confirms; empty: that in use
	Rep     int    `json:"rep"`
	// Values are what the SLOs are about, by name; unmeasured ones are missing.
	Values map[string]Value `json:"values"`
	// Violated are the SLOs that it violates, in the order in which they were measured.
	Violated []string `json:"violated,omitempty"`
	// Churn is the 99th percentile of network programming latency in the seconds of changes that were measured; nil: none were.
	Churn *float64 `json:"churn,omitempty"`
	// ChurnCPU is the mean number of CPUs in these seconds.
	ChurnCPU *float64 `json:"churnCPU,omitempty"`
	// FullSync is that of the start, and PartialSync the median of those of single changes, as the subject reports them.
	FullSync    *float64 `json:"fullSync,omitempty"`
	PartialSync *float64 `json:"partialSync,omitempty"`
	Reaction    *float64 `json:"reaction,omitempty"`
	Took        float64  `json:"took"` // s

	costs costs
}

// Value is a measured value, or a bound of one.
type Value struct {
	V float64 `json:"value"`
	// AtLeast: the subject was stopped.
	AtLeast bool `json:"atLeast,omitempty"`
}

// steps of a cell: see scenarios/library/plan.yaml.
const (
	churnStep   = "5:churn"
	churnSettle = "6:settle"
)

// ReadCell reads and judges one repetition.
func ReadCell(q *Question, from bench.PlanCell) (Cell, error) {
	c := Cell{Subject: from.Subject, Size: from.Size, Setting: from.Setting, Rep: from.Rep, Values: map[string]Value{}, Took: from.Took().Seconds()}
	var stopped *raw.Record
	packets, last := []float64{}, 0
	own, child := 0.0, 0.0
	var churn, reactions []float64
	churnCPU, coldCPU, changes := 0.0, 0.0, 0.0
	for i := range from.Records {
		r := &from.Records[i]
		if r.Error != "" && r.Metric != raw.Exceeded {
			continue
		}
		switch r.Metric {
		case raw.Exceeded:
			stopped = r
		case raw.ColdStart:
			c.Values[Start] = Value{V: r.Value}
		case raw.PeakRSS:
			own = max(own, r.Value)
		case raw.ChildPeakRSS:
			child = max(child, r.Value)
		case raw.FirstPacket:
			switch {
			case r.Position == nil || r.Target != "" || *r.Position < max(1, last):
				continue
			case *r.Position > last:
				last, packets = *r.Position, nil
			}
			packets = append(packets, r.Value)
		case raw.Reaction:
			reactions = append(reactions, r.Value)
		case raw.NetworkProgrammingLatency:
			if r.Step == churnStep || r.Step == churnSettle {
				churn = append(churn, r.Value)
			}
		case raw.ChangesApplied:
			if r.Step == churnStep {
				changes = r.Value
			}
		case raw.SubjectCPU:
			switch r.Step {
			case churnStep, churnSettle:
				churnCPU += r.Value
			case "1:create", "2:settle":
				coldCPU += r.Value
			}
		}
	}
	cluster := q.Asked.At(from.Size)
	rate := cluster.Churn.Endpoints + cluster.Churn.Services
	if own > 0 { // of a repetition that ended early, the peak until then
		c.Values[Memory] = Value{V: own + child, AtLeast: rate > 0 && len(churn) == 0}
	}
	if len(packets) > 0 {
		c.Values[FirstPacket] = Value{V: quantile(packets, 0.99)}
	}
	if own == 0 && stopped == nil {
		churn = nil // interrupted: memory is read at the end
	}
	c.costs = costsOf(from)
	c.FullSync, c.PartialSync, c.Reaction = pointer(c.costs.full), pointer(c.costs.single()), pointer(reactions)
	if len(reactions) > 0 && c.PartialSync != nil {
		c.costs.deliver = max(0, quantile(reactions, 0.5)-*c.PartialSync)
	}
	if len(churn) > 0 && changes > 0 && rate > 0 {
		c.Churn = pointer([]float64{quantile(churn, 0.99)})
		c.ChurnCPU = pointer([]float64{churnCPU / changes * rate})
		used := *c.ChurnCPU
		if hourly(&cluster, c.Subject) {
			used += coldCPU / hour
		}
		c.Values[CPU] = Value{V: used}
		if c.costs.busy > 0 {
			c.costs.cpuShare = churnCPU / c.costs.busy
		}
		c.costs.fullCPU = coldCPU
	}
	switch {
	case stopped != nil && c.Values[Start] == Value{}:
		c.Values[Start] = Value{V: stopped.Value, AtLeast: true}
		if stopped.Unit == "B" {
			delete(c.Values, Start)
			c.Values[Memory] = Value{V: stopped.Value, AtLeast: true}
		}
	case stopped != nil && stopped.Unit == "s":
		c.Values[Latency] = Value{V: stopped.Value, AtLeast: true}
	case len(c.costs.partial) > 0 && len(churn) > 0:
		played, err := play(q, c.Subject, &cluster, &c.costs, q.setting(c.Setting))
		if err != nil {
			return c, err
		}
		c.Values[Latency] = Value{V: played.P99}
	case c.Churn != nil: // the subject reports no syncs: what was seen is all that is known
		c.Values[Latency] = Value{V: *c.Churn}
	}
	for _, s := range slos {
		if v, ok := c.Values[s.name]; ok && s.bound(q.SLOs) > 0 && v.V > s.bound(q.SLOs) {
			c.Violated = append(c.Violated, s.name)
		}
	}
	switch {
	case len(c.Violated) > 0:
	case stopped != nil:
		return c, fmt.Errorf("the subject was stopped before it violated an SLO: %s", stopped.Error)
	case own == 0 || rate > 0 && len(churn) == 0:
		return c, errors.New("the repetition was interrupted before it violated an SLO")
	}
	return c, nil
}

// Outcome says in a few words which SLOs a cell violates.
func (c *Cell) Outcome(q *Question) (search.Outcome, string) {
	if len(c.Violated) == 0 {
		return search.Met, ""
	}
	var words []string
	for _, s := range slos {
		if slices.Contains(c.Violated, s.name) {
			words = append(words, fmt.Sprintf("%s ≤ %s: %s", s.text, amount(s, s.bound(q.SLOs)), c.Values[s.name].text(s)))
		}
	}
	return search.Violated, doc.JoinWords(words)
}

func (v Value) text(s slo) string {
	if v.AtLeast {
		return "more than " + amount(s, v.V)
	}
	return amount(s, v.V)
}

func amount(s slo, v float64) string {
	if s.unit == "CPUs" {
		return doc.Significant(v) + " CPUs"
	}
	return doc.TrimTick(doc.Format(v, s.unit))
}

// quantile is by nearest rank.
func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, max(0, int(math.Ceil(q*float64(len(sorted))))-1))]
}

// pointer returns the median of values; nil: there are none.
func pointer(values []float64) *float64 {
	if len(values) == 0 {
		return nil
	}
	v := quantile(values, 0.5)
	return &v
}

// oneSync is a measured partial sync.
type oneSync struct {
	ends, took float64 // s
	changes    int
	step       string
}

// costs are the syncs of one or several cells of one size.
type costs struct {
	partial  []oneSync
	full     []float64 // s, of the start
	failed   int
	busy     float64 // s, in partial syncs of the churn step and its settle
	cpuShare float64 // CPUs while a partial sync runs
	fullCPU  float64 // s
	deliver  float64 // s: due → the proxier has the change, and the rules are seen
}

// single returns the partial syncs of one change.
func (c *costs) single() (took []float64) {
	for _, s := range c.partial {
		if s.changes == 1 {
			took = append(took, s.took)
		}
	}
	return took
}

// seenLate is the longest time from a sync's last write until its changes are seen, if the next sync has started by then.
const seenLate = 0.005 // s

// costsOf reads the syncs of a repetition. The changes of a sync are those that it reports, else those that became visible
// until its end and after the end of the one before.
func costsOf(cell bench.PlanCell) (c costs) {
	type id struct {
		step   string
		sync   int
		family string
	}
	reported := map[id]int{}
	reports := false
	for _, r := range cell.Records {
		if r.Metric == raw.Changes {
			reported[id{r.Step, r.Sync, r.Family}], reports = int(r.Value), true
		}
	}
	for _, r := range cell.Records {
		switch {
		case r.Metric == raw.SyncFailed:
			c.failed++
		case r.Error != "":
		case r.Metric == raw.FullSync:
			c.full = append(c.full, r.Value)
		case r.Metric == raw.PartialSync:
			c.partial = append(c.partial, oneSync{ends: r.At, took: r.Value, step: r.Step, changes: reported[id{r.Step, r.Sync, r.Family}]})
		}
	}
	slices.SortStableFunc(c.partial, func(a, b oneSync) int { return cmp.Compare(a.ends, b.ends) })
	if !reports && len(c.partial) > 0 {
		for _, r := range cell.Records {
			if r.Metric != raw.NetworkProgrammingLatency && r.Metric != raw.Reaction {
				continue
			}
			if i := slices.IndexFunc(c.partial, func(s oneSync) bool { return s.ends+seenLate >= r.At }); i >= 0 {
				c.partial[i].changes++
			} else {
				c.partial[len(c.partial)-1].changes++
			}
		}
	}
	c.partial = slices.DeleteFunc(c.partial, func(s oneSync) bool { return s.changes == 0 })
	for _, s := range c.partial {
		if s.step == churnStep || s.step == churnSettle {
			c.busy += s.took
		}
	}
	return c
}

// join adds the syncs of another repetition at the same size.
func (c *costs) join(o *costs) {
	c.partial, c.full, c.failed = append(c.partial, o.partial...), append(c.full, o.full...), c.failed+o.failed
	c.cpuShare, c.fullCPU, c.deliver = max(c.cpuShare, o.cpuShare), max(c.fullCPU, o.fullCPU), max(c.deliver, o.deliver)
}

// shortName is a subject's name without the proxier.
func shortName(subject string) string {
	_, mode, _ := strings.Cut(subject, "/")
	return mode
}
