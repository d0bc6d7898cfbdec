package agreement

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/model"
	"synclab/reports/records"
	"synclab/scenarios"
	"synclab/sim/simulator"
)

// Agreement compares the simulator with a run. The simulator takes the run's own changes, at the times when they were due,
// through the sync loop in virtual time with each subject's settings.
//
//  1. agreement_stream.go reads the changes from the records, and finds their Services in the scenario, made from its seed.
//  2. agreement_replay.go simulates these changes with many seeds of the sync durations: once with durations of the run's
//     own syncs, which tests only the loop, and once with durations from a cost model.
//  3. This file compares measured with predicted quantiles; agreement_table.go prints them.
type Agreement struct {
	Run string `json:"run"`
	// Model is the run that the cost model was fitted to; empty: no model.
	Model  string  `json:"model,omitempty"`
	Seeds  int     `json:"seeds"`
	Seed   uint64  `json:"seed"`
	Within float64 `json:"within"` // the allowed relative error of a prediction
	Cells  []Cell  `json:"cells"`
	// Remarks are facts that affect the meaning of the comparison.
	Remarks []string `json:"remarks,omitempty"`
}

// Cell is one subject in one cell.
type Cell struct {
	Subject     string       `json:"subject"`
	Cell        records.Cell `json:"cell"`
	Reps        int          `json:"reps"`
	Changes     int          `json:"changes"` // visible changes of all repetitions
	Measured    Measured     `json:"measured"`
	Simulations []Simulated  `json:"simulations"`

	measured []float64
}

// Measured has the measured values of the run.
type Measured struct {
	// P50, P90 and P99 are of network programming latency, over all repetitions together. With several repetitions,
	// Low and High are the lowest and the highest value of a repetition.
	P50 Spread `json:"p50"`
	P90 Spread `json:"p90"`
	P99 Spread `json:"p99"`
	// Syncs is the mean number of syncs of a repetition from its first change on.
	Syncs float64 `json:"syncs"`
	// CPUShare is how many CPUs the subject and its tools kept busy; nil: unknown.
	CPUShare *float64 `json:"cpu_share,omitempty"`
}

// Simulated has the simulator's predictions.
type Simulated struct {
	// Cost is OwnCost or ModelCost.
	Cost string `json:"cost"`
	// ToNode is the median watch delay that was added, in seconds.
	ToNode   float64   `json:"to_node"`
	P50      Predicted `json:"p50"`
	P90      Predicted `json:"p90"`
	P99      Predicted `json:"p99"`
	Syncs    Spread    `json:"syncs"`
	CPUShare *float64  `json:"cpu_share,omitempty"`
	// Within: all three quantiles are within the allowed error.
	Within bool `json:"within"`

	latencies []float64
}

// Sources of the simulator's sync durations.
const (
	OwnCost   = "own"   // from the run's own syncs
	ModelCost = "model" // from the cost model
)

// Spread is a value with its bounds.
type Spread struct {
	Value float64  `json:"value"`
	Low   *float64 `json:"low,omitempty"`
	High  *float64 `json:"high,omitempty"`
}

// Predicted is a median over seeds, with the 5th and 95th percentile.
type Predicted struct {
	Spread
	Ratio  float64 `json:"ratio"` // to the measured value
	Within bool    `json:"within"`
}

// Options of BuildAgreement.
type Options struct {
	Model *model.Model // nil: only the run's own syncs
	Seeds int          // default 50
	Seed  uint64       // first seed; default 1
}

// agreeWithin is the allowed relative error of the simulator.
const agreeWithin = 0.15

// Build compares the run in a folder with the simulator.
func Build(dir string, o Options) (*Agreement, error) {
	if o.Seeds == 0 {
		o.Seeds = 50
	}
	if o.Seed == 0 {
		o.Seed = 1
	}
	loaded, err := records.Load(dir)
	if err != nil {
		return nil, err
	}
	a := &Agreement{Run: loaded.Info.ID, Seeds: o.Seeds, Seed: o.Seed, Within: agreeWithin, Remarks: loaded.Warnings}
	if o.Model != nil {
		a.Model = o.Model.Run
	}
	if err := a.compare(loaded, o); err != nil {
		return nil, fmt.Errorf("simulate run %s: %w", a.Run, err)
	}
	return a, nil
}

func (a *Agreement) remark(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(a.Remarks, text) {
		a.Remarks = append(a.Remarks, text)
	}
}

// compare compares every subject in every cell.
func (a *Agreement) compare(l *records.Run, o Options) error {
	c := records.Collect([]*records.Run{l})
	cells, err := l.Info.Scenario.Cells()
	if err != nil {
		return err
	}
	ways := model.ToNode(l.Info, l.Records)
	for _, cell := range c.Cells {
		cellScenario := scenarioOf(cells, cell)
		if cellScenario == nil {
			a.remark("%s is no cell of the scenario", cell.Settings())
			continue
		}
		family := corev1.IPFamily(cellScenario.Shape.Families[0])
		if len(cellScenario.Shape.Families) > 1 {
			a.remark("the engines of two families share a node; the simulator runs only that for %s", family)
		}
		traces := map[int][]played{}
		tracesOfRep := func(rep int) []played {
			if l.Info.Format < raw.FormatOwnChanges {
				rep = 1
			}
			if _, made := traces[rep]; !made {
				var err error
				if traces[rep], err = tracesOf(cellScenario, rep); err != nil {
					a.remark("each change counts as a change of a separate Service: %v", err)
				}
			}
			return traces[rep]
		}
		for _, one := range c.Series {
			samples := one.Cells[cell.ID()]
			if samples == nil {
				continue
			}
			t := trial{options: o, scenario: cellScenario, run: l.Info, own: ways[one.Subject], agreement: a}
			var err error
			if t.about, err = subject.Parse(one.Subject); err != nil {
				t.about = subject.Spec{Name: one.Subject, Proxier: subject.Exec}
			}
			t.streams = streamsOf(samples, tracesOfRep, family, t.remark)
			if len(t.streams) == 0 {
				continue
			}
			if err := t.hold(cell); err != nil {
				return err
			}
		}
	}
	place := func(of Cell) int {
		return slices.IndexFunc(c.Series, func(one *records.Series) bool { return one.Subject == of.Subject })
	}
	slices.SortStableFunc(a.Cells, func(x, y Cell) int { return cmp.Compare(place(x), place(y)) })
	if len(a.Cells) == 0 {
		return errors.New("nothing to compare: no visible change of a subject with a known sync loop")
	}
	return nil
}

// scenarioOf returns the scenario of a cell of the records, or nil.
func scenarioOf(cells []scenarios.Cell, cell records.Cell) *scenarios.Scenario {
	for i := range cells {
		if maps.Equal(cells[i].Params, cell.Params) && (cells[i].Scenario.Shape.Services == cell.Services || len(cells) == 1) {
			return &cells[i].Scenario
		}
	}
	return nil
}

// streamsOf returns the streams of the repetitions that were not stopped.
func streamsOf(samples *records.Samples, traces func(rep int) []played, family corev1.IPFamily, remark func(string, ...any)) []*stream {
	reps := map[int][]raw.Record{}
	for _, r := range samples.Records {
		reps[r.Rep] = append(reps[r.Rep], *r.Record)
	}
	var out []*stream
	for _, rep := range slices.Sorted(maps.Keys(reps)) {
		failed := 0
		stopped := false
		for _, r := range reps[rep] {
			stopped = stopped || r.Metric == raw.Exceeded
			if r.Metric == raw.SyncFailed {
				failed++
			}
		}
		if stopped {
			remark("repetition %d was stopped and is left out", rep)
			continue
		}
		changes := traces(rep)
		s := streamOf(reps[rep], changes, family)
		if len(s.seen) == 0 {
			continue
		}
		if failed > 0 {
			remark("%d syncs failed in repetition %d; no sync fails in the simulator", failed, rep)
		}
		if s.strange > 0 && len(changes) > 0 {
			remark("%d changes of repetition %d are not in the scenario", s.strange, rep)
		}
		out = append(out, s)
	}
	return out
}

// trial is the comparison of one subject in one cell.
type trial struct {
	options   Options
	scenario  *scenarios.Scenario
	run       raw.Run
	about     subject.Spec
	own       *model.WatchDelay
	streams   []*stream
	agreement *Agreement
}

func (t *trial) remark(format string, args ...any) {
	t.agreement.remark("%s, %s", t.about.Name, fmt.Sprintf(format, args...))
}

// hold compares measured with predicted values.
func (t *trial) hold(cell records.Cell) error {
	if _, known := settingsOf(t.about, t.scenario.Proxy, nil); !known {
		t.remark("its sync loop is unknown")
		return nil
	}
	out := Cell{Subject: t.about.Name, Cell: cell, Reps: len(t.streams)}
	out.Measured, out.measured = asMeasured(t.streams)
	out.Changes = len(out.measured)
	own, err := t.say(OwnCost, func(s *stream) simulator.Cost { return newOwnCost(s, t.about) }, t.way(t.own), nil, &out)
	if err != nil {
		return err
	}
	out.Simulations = append(out.Simulations, own)
	if t.options.Model != nil {
		modelled, err := t.fromModel(cell, &out)
		if err != nil {
			t.remark("%v", err)
		} else {
			out.Simulations = append(out.Simulations, modelled)
		}
	}
	t.agreement.Cells = append(t.agreement.Cells, out)
	return nil
}

// way returns the watch delay, with a remark if it is unknown.
func (t *trial) way(w *model.WatchDelay) *model.WatchDelay {
	if w == nil {
		t.remark("no change reached it while it was idle: the watch delay is unknown, and none is added")
	}
	return w
}

// fromModel predicts with the cost model.
func (t *trial) fromModel(cell records.Cell, out *Cell) (Simulated, error) {
	subject, err := t.options.Model.Subject(t.about.Name)
	if err != nil {
		return Simulated{}, err
	}
	cost, err := subject.Syncs(cell.Services, cell.Endpoints)
	if err != nil {
		return Simulated{}, err
	}
	way := subject.ToNode
	feeds := [2]string{t.run.Feed, t.options.Model.Feed}
	for i := range feeds {
		if feeds[i] == "" {
			feeds[i] = raw.FeedInformers
		}
	}
	if feeds[0] != feeds[1] {
		t.remark("objects came %s in the run, and %s in the calibration: the run's own watch delay is used", records.FeedText(feeds[0]), records.FeedText(feeds[1]))
		way = t.own
	}
	var cpu cpuTime
	if subject.Has(model.CPU, simulator.Partial) {
		known := map[model.Query]float64{}
		cpu = func(kind simulator.SyncKind, changed int) float64 {
			q := model.Query{Quantity: model.CPU, Kind: kind, Services: cell.Services, Endpoints: cell.Endpoints, Changed: min(changed, cell.Services)}
			if _, ok := known[q]; !ok {
				p, _ := subject.Predict(q)
				known[q] = p.Median
			}
			return known[q]
		}
	}
	return t.say(ModelCost, func(*stream) simulator.Cost { return cost }, t.way(way), cpu, out)
}

// say runs the simulator with each seed.
func (t *trial) say(name string, cost func(*stream) simulator.Cost, way *model.WatchDelay, cpu cpuTime, out *Cell) (Simulated, error) {
	says := Simulated{Cost: name}
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

// asMeasured returns the measured values of all repetitions of a cell, and all latencies.
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

// title names a subject in a cell.
func (c Cell) title() string {
	parts := []string{c.Subject, doc.Grouped(int64(c.Cell.Services)) + " Services"}
	if settings := c.Cell.Settings(); settings != "" {
		parts = append(parts, strings.ReplaceAll(settings, "proxy.", ""))
	}
	return strings.Join(parts, ", ")
}
