package plan

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"synclab/bench"
	"synclab/bench/raw"
	"synclab/bench/search"
	"synclab/reports/doc"
	"synclab/scenarios"
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
	// WithoutSyncs: the subject reports none, so that the latency is that of the measured seconds.
	WithoutSyncs bool    `json:"withoutSyncs,omitempty"`
	Took         float64 `json:"took"` // s

	costs []costs // of each family
}

// Value is a measured value, or a bound of one.
type Value struct {
	V float64 `json:"value"`
	// AtLeast: the subject was stopped, or the repetition ended early.
	AtLeast bool `json:"atLeast,omitempty"`
	// Beyond is that of the simulated hour, of a latency.
	Beyond float64 `json:"beyond,omitempty"`
}

// The steps of a cell, from 0, the create: see scenarios/library/plan.yaml.
const (
	stepReact = 3
	StepChurn = 4 // at the asked rate
	StepBurst = 6
)

// during reports whether a step, by its name in records, is step i of a cell or the one after it: mostly a settle.
func during(step string, i int) bool {
	number, _ := scenarios.StepOf(step)
	return number == i+1 || number == i+2
}

// ofChanges reports whether a subject that is stopped in a step did not keep up with changes at the asked rate.
func ofChanges(step string) bool { return during(step, stepReact) || during(step, StepChurn) }

// seen are the records of a repetition, sorted out.
type seen struct {
	own, child, cold   float64 // B; CPU seconds of the start
	churnCPU, otherCPU float64 // s
	packets            []float64
	churn, reactions   []float64
	stall              float64 // s
	stopped            *raw.Record
}

// beforeWriters returns the records without those of the steps in which other programs write rules, but with peak memory, and the
// longest time that these waited: 0 if none wrote, at least so long if the subject was stopped meanwhile.
func beforeWriters(records []raw.Record) (before []raw.Record, wait Value) {
	first, wrote := math.MaxInt, false
	for _, r := range records {
		if r.Metric == raw.FaultDuration || r.Metric == raw.WriterWait { // a cell has no other fault
			step, _ := scenarios.StepOf(r.Fault)
			first = min(first, step)
		}
		if r.Metric == raw.WriterWait {
			wait.V = max(wait.V, r.Value)
			wrote = wrote || r.Outcome != raw.WriteFailed
		}
	}
	if !wrote {
		wait.V = 0
	}
	return slices.DeleteFunc(slices.Clone(records), func(r raw.Record) bool {
		step, _ := scenarios.StepOf(r.Step)
		wait.AtLeast = wait.AtLeast || step >= first && r.Metric == raw.Exceeded
		return step >= first && r.Metric != raw.PeakRSS && r.Metric != raw.ChildPeakRSS
	}), wait
}

func sortOut(c *Cell, records []raw.Record) (s seen) {
	last := 0
	for i := range records {
		r := &records[i]
		if r.Error != "" && r.Metric != raw.Exceeded && r.Metric != raw.KernelStall {
			continue
		}
		switch r.Metric {
		case raw.ScheduleGap, raw.KernelStall:
			s.stall = max(s.stall, r.Value)
		case raw.Exceeded:
			s.stopped = r
		case raw.ColdStart:
			c.Values[Start] = Value{V: r.Value}
		case raw.PeakRSS:
			s.own = max(s.own, r.Value)
		case raw.ChildPeakRSS:
			s.child = max(s.child, r.Value)
		case raw.FirstPacket:
			switch {
			case r.Position == nil || r.Target != "" || *r.Position < max(1, last):
				continue
			case *r.Position > last:
				last, s.packets = *r.Position, nil
			}
			s.packets = append(s.packets, r.Value)
		case raw.Reaction:
			s.reactions = append(s.reactions, r.Value)
		case raw.NetworkProgrammingLatency:
			if during(r.Step, StepChurn) {
				s.churn = append(s.churn, r.Value)
			}
		case raw.SubjectCPU:
			switch {
			case during(r.Step, StepChurn):
				s.churnCPU += r.Value
			case during(r.Step, 0):
				s.cold += r.Value
			default:
				s.otherCPU += r.Value
			}
		}
	}
	return s
}

// ReadCell reads and judges one repetition. An error says why it is not judged.
func ReadCell(q *Question, from bench.PlanCell) (Cell, error) {
	c := Cell{Subject: from.Subject, Size: from.Size, Setting: from.Setting, Rep: from.Rep, Values: map[string]Value{}, Took: from.Took().Seconds()}
	records, wait := beforeWriters(from.Records)
	s := sortOut(&c, records)
	if s.stopped != nil && s.stopped.Unit == "count" {
		return c, errors.New(s.stopped.Error)
	}
	cluster := q.Asked.At(from.Size)
	rate := cluster.Churn.Endpoints + cluster.Churn.Services
	if s.own == 0 && s.stopped == nil {
		s.churn = nil // interrupted: memory is read at the end
	}
	if s.own > 0 { // of a repetition that ended early, the peak until then
		c.Values[Memory] = Value{V: s.own + s.child, AtLeast: rate > 0 && len(s.churn) == 0}
	}
	if len(s.packets) > 0 {
		c.Values[FirstPacket] = Value{V: quantile(s.packets, 0.99)}
	}
	if q.SLOs.Stall > 0 && s.stall > 0 {
		c.Values[Stall] = Value{V: s.stall}
	}
	if q.SLOs.WriterWait > 0 && wait.V > 0 {
		c.Values[WriterWait] = wait
	}
	c.syncs(&s, records)
	if err := c.changes(q, &cluster, &s); err != nil {
		return c, err
	}
	if s.stopped != nil {
		c.stopped(s.stopped)
	}
	for _, one := range slos {
		if v, ok := c.Values[one.name]; ok && one.bound(q.SLOs) > 0 && v.V > one.bound(q.SLOs) {
			c.Violated = append(c.Violated, one.name)
		}
	}
	// A subject that is stopped at a burst, or at a rare event, kept up with the changes of most of the hour.
	kept := s.stopped != nil && s.own > 0 && s.stopped.Unit == "s" && !ofChanges(s.stopped.Step) && !during(s.stopped.Step, 0)
	switch {
	case len(c.Violated) > 0:
	case wait.AtLeast:
		return c, errors.New("the subject was stopped during its restart beside other writers")
	case s.stopped != nil && !kept:
		return c, fmt.Errorf("the subject was stopped before it violated an SLO: %s", s.stopped.Error)
	case s.own == 0 || rate > 0 && len(s.churn) == 0:
		return c, errors.New("the repetition was interrupted before it violated an SLO")
	case q.SLOs.WriterWait > 0 && wait.V == 0:
		return c, errors.New("no other program wrote rules while it restarted")
	}
	return c, nil
}

// stopped takes what a subject had used when it was stopped as a bound of what it exceeded.
func (c *Cell) stopped(r *raw.Record) {
	_, started := c.Values[Start]
	switch {
	case r.Unit == "B":
		c.Values[Memory] = Value{V: r.Value, AtLeast: true}
	case !started:
		c.Values[Start] = Value{V: r.Value, AtLeast: true}
	case ofChanges(r.Step):
		c.Values[Latency] = Value{V: r.Value, AtLeast: true}
	}
}

// syncs reads the syncs.
func (c *Cell) syncs(s *seen, records []raw.Record) {
	c.costs = costsOf(records)
	var full, single []float64
	busy, other := 0.0, 0.0
	for i := range c.costs {
		of := &c.costs[i]
		full, single = append(full, of.full...), append(single, of.single()...)
		busy, other = busy+of.busy, other+of.otherBusy
	}
	c.FullSync, c.PartialSync, c.Reaction = pointer(full), pointer(single), pointer(s.reactions)
	c.WithoutSyncs = !slices.ContainsFunc(c.costs, func(of costs) bool { return len(of.partial) > 0 })
	for i := range c.costs {
		of := &c.costs[i]
		if start, ok := c.Values[Start]; ok && len(of.full) == 0 && !c.WithoutSyncs {
			of.full = []float64{start.V} // its time is unknown, and is most of that of the start
		}
		switch {
		case busy > 0 && s.churnCPU > 0:
			of.cpuShare = s.churnCPU / busy
		case other > 0:
			of.cpuShare = s.otherCPU / other
		}
		of.fullCPU = s.cold / float64(len(c.costs))
		if len(s.reactions) > 0 && c.PartialSync != nil {
			of.deliver = max(0, quantile(s.reactions, 0.5)-*c.PartialSync)
		}
	}
}

// changes sets the values of changes: those of the measured seconds, and those of an hour that is played from their syncs.
func (c *Cell) changes(q *Question, cluster *Cluster, s *seen) error {
	rate := cluster.Churn.Endpoints + cluster.Churn.Services
	if len(s.churn) > 0 && rate > 0 {
		c.Churn = pointer([]float64{quantile(s.churn, 0.99)})
		c.ChurnCPU = pointer([]float64{s.churnCPU / (math.Max(1, math.Round(rate*ChurnSeconds)) / rate)})
	}
	switch {
	case rate > 0 && c.Churn == nil || rate == 0 && !cluster.changes():
		return nil
	case c.WithoutSyncs && c.Churn != nil: // what was seen is all that is known
		c.Values[Latency], c.Values[CPU] = Value{V: *c.Churn}, Value{V: *c.ChurnCPU}
		return nil
	case c.WithoutSyncs || s.own == 0 && s.stopped == nil:
		return nil
	}
	played, err := play(q, c.Subject, cluster, c.costs, q.setting(c.Setting))
	if err != nil {
		return err
	}
	used := played.CPU
	if c.ChurnCPU != nil {
		used = max(used, *c.ChurnCPU)
	}
	c.Values[CPU] = Value{V: used}
	if played.Changes > 0 {
		c.Values[Latency] = Value{V: played.P99, Beyond: played.Beyond}
	}
	return nil
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
	text := amount(s, v.V)
	if v.AtLeast {
		text = "more than " + text
	}
	if v.Beyond > 1 {
		text += fmt.Sprintf(" (with syncs of %.1f times the measured changes)", v.Beyond)
	}
	return text
}

func amount(s slo, v float64) string {
	if s.unit == "CPUs" {
		return strconv.FormatFloat(v, 'f', 3, 64) + " CPUs" // an SLO of 0.5 is violated by 0.503
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

// costs are the syncs of one family of one or several cells of one size.
type costs struct {
	family          string
	partial         []oneSync
	full            []float64 // s, of the start
	failed          int
	busy, otherBusy float64 // s, in partial syncs of the churn step and its settle; of other steps
	cpuShare        float64 // CPUs while a partial sync runs
	fullCPU         float64 // s
	deliver         float64 // s: due → the proxier has the change, and the rules are seen
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

// costsOf reads the syncs of a repetition, of each family: a proxier of two families has a sync loop for each. The changes of
// a sync are those that it reports, else those that became visible until its end and after the end of the one before.
func costsOf(records []raw.Record) (all []costs) {
	type id struct {
		step   string
		sync   int
		family string
	}
	reported := map[id]int{}
	for _, r := range records {
		if r.Metric == raw.Changes {
			reported[id{r.Step, r.Sync, r.Family}] = int(r.Value)
		}
	}
	for _, r := range records {
		switch {
		case r.Metric == raw.SyncFailed:
			costsIn(&all, r.Family).failed++
		case r.Error != "":
		case r.Metric == raw.FullSync:
			c := costsIn(&all, r.Family)
			c.full = append(c.full, r.Value)
		case r.Metric == raw.PartialSync:
			c := costsIn(&all, r.Family)
			c.partial = append(c.partial, oneSync{ends: r.At, took: r.Value, step: r.Step, changes: reported[id{r.Step, r.Sync, r.Family}]})
		}
	}
	for i := range all {
		c := &all[i]
		slices.SortStableFunc(c.partial, func(a, b oneSync) int { return cmp.Compare(a.ends, b.ends) })
		if len(reported) == 0 && len(c.partial) > 0 {
			c.attribute(records)
		}
		c.partial = slices.DeleteFunc(c.partial, func(s oneSync) bool { return s.changes == 0 })
		for _, s := range c.partial {
			if during(s.step, StepChurn) {
				c.busy += s.took
			} else {
				c.otherBusy += s.took
			}
		}
	}
	return all
}

// costsIn returns the costs of a family in a list, which gets them if it has none.
func costsIn(all *[]costs, family string) *costs {
	i := slices.IndexFunc(*all, func(c costs) bool { return c.family == family })
	if i < 0 {
		*all, i = append(*all, costs{family: family}), len(*all)
	}
	return &(*all)[i]
}

// attribute counts the visible changes of each sync.
func (c *costs) attribute(records []raw.Record) {
	for _, r := range records {
		if r.Metric != raw.NetworkProgrammingLatency && r.Metric != raw.Reaction || r.Family != c.family && r.Family != "" && c.family != "" {
			continue
		}
		if i := slices.IndexFunc(c.partial, func(s oneSync) bool { return s.ends+seenLate >= r.At }); i >= 0 {
			c.partial[i].changes++
		} else {
			c.partial[len(c.partial)-1].changes++
		}
	}
}

// join adds the syncs of another repetition at the same size, family by family.
func join(all, more []costs) []costs {
	for _, o := range more {
		c := costsIn(&all, o.family)
		c.partial, c.full, c.failed = append(c.partial, o.partial...), append(c.full, o.full...), c.failed+o.failed
		c.cpuShare, c.fullCPU, c.deliver = max(c.cpuShare, o.cpuShare), max(c.fullCPU, o.fullCPU), max(c.deliver, o.deliver)
	}
	return all
}
