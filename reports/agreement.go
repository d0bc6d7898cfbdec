package reports

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench"
	"synclab/reports/estimate"
	"synclab/reports/model"
	"synclab/scenarios"
	"synclab/sim/twin"
)

// Agreement says how near the twin comes to a run: the very changes of the run, at the moments when they were due, taken
// through the sync loop in virtual time with each subject's settings.
//
//  1. agreement_stream.go finds the changes in the records, and which Service each was of in what the scenario's seed makes.
//  2. agreement_replay.go plays them to the twin, many times, each with another seed of what syncs take: once drawn from
//     the run's own syncs, so that only the loop is on trial, and once from a cost model.
//  3. Here measured and predicted quantiles are set side by side. agreement_page.go draws them.
type Agreement struct {
	Run string `json:"run"`
	// Model is the run that the cost model was fitted to; empty: there was none.
	Model  string          `json:"model,omitempty"`
	Seeds  int             `json:"seeds"`
	Seed   uint64          `json:"seed"`
	Within float64         `json:"within"` // the share that a prediction may be off
	Cells  []AgreementCell `json:"cells"`
	// Remarks are what a reader has to know of the comparison.
	Remarks []string `json:"remarks,omitempty"`

	head  RunHead
	plots []Plot
}

// AgreementCell is one subject in one cell.
type AgreementCell struct {
	Subject  string     `json:"subject"`
	Cell     Cell       `json:"cell"`
	Reps     int        `json:"reps"`
	Changes  int        `json:"changes"` // that were seen, of all repetitions
	Measured Measured   `json:"measured"`
	Twins    []TwinSays `json:"twins"`

	look     look
	measured []float64
}

// Measured is what the run has.
type Measured struct {
	// P50, P90 and P99 are of network programming latency, all repetitions together, with the lowest and the highest of
	// one repetition where there are several.
	P50 Spread `json:"p50"`
	P90 Spread `json:"p90"`
	P99 Spread `json:"p99"`
	// Syncs of a repetition from its first change on, the mean.
	Syncs float64 `json:"syncs"`
	// CPUShare is how many CPUs the subject and its tools kept busy; nil: not known.
	CPUShare *float64 `json:"cpu_share,omitempty"`
}

// TwinSays is what the twin has for it.
type TwinSays struct {
	// Cost is OwnCost or ModelCost.
	Cost string `json:"cost"`
	// ToNode is the median of the ways to the node that were added, in seconds.
	ToNode   float64   `json:"to_node"`
	P50      Predicted `json:"p50"`
	P90      Predicted `json:"p90"`
	P99      Predicted `json:"p99"`
	Syncs    Spread    `json:"syncs"`
	CPUShare *float64  `json:"cpu_share,omitempty"`
	// Within: all three quantiles are.
	Within bool `json:"within"`

	latencies []float64
}

// What the twin's syncs take.
const (
	OwnCost   = "own"   // drawn from the run's own syncs
	ModelCost = "model" // drawn from the cost model
)

// Spread is a value and between which it lies.
type Spread struct {
	Value float64  `json:"value"`
	Low   *float64 `json:"low,omitempty"`
	High  *float64 `json:"high,omitempty"`
}

// Predicted is a median over seeds, with the 5th and 95th percentile.
type Predicted struct {
	Spread
	Ratio  float64 `json:"ratio"` // to what was measured
	Within bool    `json:"within"`
}

// AgreementOptions of BuildAgreement.
type AgreementOptions struct {
	Model *model.Model // nil: the run's own syncs alone
	Seeds int          // default 50
	Seed  uint64       // the first; default 1
	NoPNG bool
}

// agreeWithin is the share that the twin may be off.
const agreeWithin = 0.15

// BuildAgreement compares a run with the twin, and writes twin.html and its plots into the run's folder.
func BuildAgreement(dir string, o AgreementOptions) (*Agreement, error) {
	if o.Seeds == 0 {
		o.Seeds = 50
	}
	if o.Seed == 0 {
		o.Seed = 1
	}
	loaded, err := loadRun(dir)
	if err != nil {
		return nil, err
	}
	a := &Agreement{Run: loaded.run.ID, Seeds: o.Seeds, Seed: o.Seed, Within: agreeWithin, Remarks: loaded.warnings}
	if o.Model != nil {
		a.Model = o.Model.Run
	}
	if err := a.compare(loaded, o); err != nil {
		return nil, fmt.Errorf("twin of run %s: %w", a.Run, err)
	}
	a.head = runHeads(collect([]*loadedRun{loaded}))[0]
	return a, a.write(dir, o)
}

func (a *Agreement) remark(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(a.Remarks, text) {
		a.Remarks = append(a.Remarks, text)
	}
}

// compare every subject in every cell.
func (a *Agreement) compare(l *loadedRun, o AgreementOptions) error {
	c := collect([]*loadedRun{l})
	cells, err := l.run.Scenario.Cells()
	if err != nil {
		return err
	}
	ways := model.ToNode(l.run, l.records)
	for _, cell := range c.cells {
		played := scenarioOf(cells, cell)
		if played == nil {
			a.remark("%s is no cell of the scenario", cell.Settings())
			continue
		}
		family := corev1.IPFamily(played.Shape.Families[0])
		if len(played.Shape.Families) > 1 {
			a.remark("the engines of two families share a node; the twin is of the one for %s", family)
		}
		traces, err := tracesOf(played)
		if err != nil {
			a.remark("every change counts as one of another Service: %v", err)
		}
		for _, one := range c.series {
			samples := one.cells[cell.id()]
			if samples == nil {
				continue
			}
			t := trial{options: o, scenario: played, run: l.run, own: ways[one.subject], agreement: a}
			if t.about, err = bench.ParseSubject(one.subject); err != nil {
				t.about = bench.Subject{Name: one.subject, Proxier: bench.Exec}
			}
			t.streams = streamsOf(samples, traces, family, t.remark)
			if len(t.streams) == 0 {
				continue
			}
			if err := t.hold(cell, one.look); err != nil {
				return err
			}
		}
	}
	place := func(of AgreementCell) int {
		return slices.IndexFunc(c.series, func(one *series) bool { return one.subject == of.Subject })
	}
	slices.SortStableFunc(a.Cells, func(x, y AgreementCell) int { return cmp.Compare(place(x), place(y)) })
	if len(a.Cells) == 0 {
		return errors.New("nothing to compare: no change was seen of a subject whose loop is known")
	}
	return nil
}

// scenarioOf is the scenario of a cell of the records; nil: none.
func scenarioOf(cells []scenarios.Cell, cell Cell) *scenarios.Scenario {
	for i := range cells {
		if maps.Equal(cells[i].Params, cell.Params) && (cells[i].Scenario.Shape.Services == cell.Services || len(cells) == 1) {
			return &cells[i].Scenario
		}
	}
	return nil
}

// streamsOf are those of the repetitions that came to their end.
func streamsOf(samples *cellSamples, traces []played, family corev1.IPFamily, remark func(string, ...any)) []*stream {
	reps := map[int][]bench.Record{}
	for _, r := range samples.records {
		reps[r.Rep] = append(reps[r.Rep], *r.Record)
	}
	var out []*stream
	for _, rep := range slices.Sorted(maps.Keys(reps)) {
		failed := 0
		stopped := false
		for _, r := range reps[rep] {
			stopped = stopped || r.Metric == bench.Exceeded
			if r.Metric == bench.SyncFailed {
				failed++
			}
		}
		if stopped {
			remark("it was stopped in repetition %d, which is left out", rep)
			continue
		}
		s := streamOf(reps[rep], traces, family)
		if len(s.seen) == 0 {
			continue
		}
		if failed > 0 {
			remark("%d syncs failed in repetition %d; none fails in the twin", failed, rep)
		}
		if s.strange > 0 && len(traces) > 0 {
			remark("%d changes of repetition %d are not among those that the scenario makes", s.strange, rep)
		}
		out = append(out, s)
	}
	return out
}

// trial is the comparison of one subject in one cell.
type trial struct {
	options   AgreementOptions
	scenario  *scenarios.Scenario
	run       bench.Run
	about     bench.Subject
	own       *model.Way
	streams   []*stream
	agreement *Agreement
}

func (t *trial) remark(format string, args ...any) {
	t.agreement.remark("%s, %s", t.about.Name, fmt.Sprintf(format, args...))
}

// hold measured and predicted side by side.
func (t *trial) hold(cell Cell, with look) error {
	if _, known := settingsOf(t.about, t.scenario.Proxy, nil); !known {
		t.remark("its loop is not known")
		return nil
	}
	out := AgreementCell{Subject: t.about.Name, Cell: cell, Reps: len(t.streams), look: with}
	out.Measured, out.measured = asMeasured(t.streams)
	out.Changes = len(out.measured)
	own, err := t.say(OwnCost, func(s *stream) twin.Cost { return newOwnCost(s, t.about) }, t.way(t.own), nil, &out)
	if err != nil {
		return err
	}
	out.Twins = append(out.Twins, own)
	if t.options.Model != nil {
		modelled, err := t.fromModel(cell, &out)
		if err != nil {
			t.remark("%v", err)
		} else {
			out.Twins = append(out.Twins, modelled)
		}
	}
	t.agreement.Cells = append(t.agreement.Cells, out)
	return nil
}

// way to the node, as it is known.
func (t *trial) way(w *model.Way) *model.Way {
	if w == nil {
		t.remark("no change met it at rest, so that the way to the node is not known: none is added")
	}
	return w
}

// fromModel predicts by the cost model.
func (t *trial) fromModel(cell Cell, out *AgreementCell) (TwinSays, error) {
	subject, err := t.options.Model.Subject(t.about.Name)
	if err != nil {
		return TwinSays{}, err
	}
	cost, err := subject.Syncs(cell.Services, cell.Endpoints)
	if err != nil {
		return TwinSays{}, err
	}
	way := subject.ToNode
	feeds := [2]string{t.run.Feed, t.options.Model.Feed}
	for i := range feeds {
		if feeds[i] == "" {
			feeds[i] = bench.FeedInformers
		}
	}
	if feeds[0] != feeds[1] {
		t.remark("objects came to it %s, and in the calibration %s: the way to the node is the run's own", feedText(feeds[0]), feedText(feeds[1]))
		way = t.own
	}
	var cpu cpuTime
	if subject.Has(model.CPU, twin.Partial) {
		known := map[model.Query]float64{}
		cpu = func(kind twin.SyncKind, changed int) float64 {
			q := model.Query{Quantity: model.CPU, Kind: kind, Services: cell.Services, Endpoints: cell.Endpoints, Changed: min(changed, cell.Services)}
			if _, ok := known[q]; !ok {
				p, _ := subject.Predict(q)
				known[q] = p.Median
			}
			return known[q]
		}
	}
	return t.say(ModelCost, func(*stream) twin.Cost { return cost }, t.way(way), cpu, out)
}

// say what the twin says, with each of the seeds.
func (t *trial) say(name string, cost func(*stream) twin.Cost, way *model.Way, cpu cpuTime, out *AgreementCell) (TwinSays, error) {
	says := TwinSays{Cost: name}
	if way != nil {
		says.ToNode = way.Median
	}
	set, _ := settingsOf(t.about, t.scenario.Proxy, nil)
	shares := []float64{50, 90, 99}
	quantiles := make([][]float64, len(shares))
	var syncs, busy []float64
	for k := range t.options.Seeds {
		var latencies []float64
		total, used, window := 0, 0.0, 0.0
		for i, s := range t.streams {
			set.Cost = cost(s)
			set.Seed = (t.options.Seed+uint64(k))<<16 | uint64(i)
			r, err := s.replay(set, t.about, way, cpu)
			if err != nil {
				return says, err
			}
			latencies = append(latencies, r.latencies...)
			total, used, window = total+r.syncs, used+r.cpu, window+s.window
		}
		for i, share := range shares {
			quantiles[i] = append(quantiles[i], estimate.Percentile(latencies, share))
		}
		syncs = append(syncs, float64(total)/float64(len(t.streams)))
		if cpu != nil && window > 0 {
			busy = append(busy, used/window)
		}
		says.latencies = append(says.latencies, latencies...)
	}
	m := &out.Measured
	says.Within = true
	for i, to := range []struct {
		says     *Predicted
		measured Spread
	}{{&says.P50, m.P50}, {&says.P90, m.P90}, {&says.P99, m.P99}} {
		p := Predicted{Spread: overSeeds(quantiles[i])}
		p.Ratio = p.Value / to.measured.Value
		p.Within = p.Ratio >= 1-agreeWithin && p.Ratio <= 1+agreeWithin
		says.Within = says.Within && p.Within
		*to.says = p
	}
	says.Syncs = overSeeds(syncs)
	if len(busy) > 0 {
		share := estimate.Median(busy)
		says.CPUShare = &share
	}
	return says, nil
}

func overSeeds(values []float64) Spread {
	low, high := estimate.Percentile(values, 5), estimate.Percentile(values, 95)
	return Spread{Value: estimate.Median(values), Low: &low, High: &high}
}

// asMeasured all repetitions of a cell, and every latency.
func asMeasured(streams []*stream) (m Measured, all []float64) {
	var each [][]float64
	var cpu, window float64
	for _, s := range streams {
		var one []float64
		for _, latency := range s.seen {
			one = append(one, latency.Seconds())
		}
		slices.Sort(one)
		each = append(each, one)
		all = append(all, one...)
		m.Syncs += float64(len(s.syncs)) / float64(len(streams))
		cpu, window = cpu+s.cpu, window+s.window
	}
	for _, q := range []struct {
		to    *Spread
		share float64
	}{{&m.P50, 50}, {&m.P90, 90}, {&m.P99, 99}} {
		q.to.Value = estimate.Percentile(all, q.share)
		if len(each) > 1 {
			var own []float64
			for _, one := range each {
				own = append(own, estimate.Percentile(one, q.share))
			}
			low, high := slices.Min(own), slices.Max(own)
			q.to.Low, q.to.High = &low, &high
		}
	}
	if window > 0 && cpu > 0 {
		share := cpu / window
		m.CPUShare = &share
	}
	return m, all
}

// title of a subject in a cell.
func (c AgreementCell) title() string {
	parts := []string{c.Subject, Grouped(int64(c.Cell.Services)) + " Services"}
	if settings := c.Cell.Settings(); settings != "" {
		parts = append(parts, strings.ReplaceAll(settings, "proxy.", ""))
	}
	return strings.Join(parts, ", ")
}
