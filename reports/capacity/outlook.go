package capacity

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"synclab/bench/raw"
	"synclab/reports/model"
)

// asker answers for one subject. It caches its simulations.
type asker struct {
	ctx     context.Context
	q       *Question
	model   *model.Model
	subject *model.Subject
	policy  Policy // in use
	memo    map[situation]*simulated
	ready   map[[2]float64]*prepared // by Services and endpoints of each
	looked  *span
	remarks []string
	told    func(what string)
}

// situation is the cache key of a simulation: all its inputs, except those that are constant in an answer.
type situation struct {
	services, nodes, pods           int
	endpoints, each, perService     float64
	rollouts, losses, swing, faster float64
	policy                          Policy
	side                            side
}

func situationOf(c Cluster, p Policy, which side) situation {
	key := situation{services: c.Services, nodes: min(c.Nodes, mostNodes), endpoints: c.Endpoints, policy: p, side: which}
	if len(c.Churn.Trace) > 0 {
		key.faster = c.Churn.faster
		return key
	}
	key.each, key.perService, key.rollouts, key.swing = c.Churn.Endpoints, c.Churn.Services, c.Churn.Rollouts, c.Churn.Swing
	if key.losses = c.Churn.NodeLosses; key.losses > 0 {
		key.pods = c.pods()
	}
	return key
}

func (a *asker) simulate(c Cluster, p Policy, which side) (*simulated, error) {
	if err := a.ctx.Err(); err != nil {
		return nil, err
	}
	key := situationOf(c, p, which)
	if known := a.memo[key]; known != nil {
		return known, nil
	}
	size := [2]float64{float64(c.Services), c.Endpoints}
	ready := a.ready[size]
	if ready == nil {
		var err error
		if ready, err = prepare(a.subject, c, a.model.Machine.CPUs); err != nil {
			return nil, err
		}
		a.ready[size] = ready
	}
	s, err := simulate(a.ctx, a.subject, c, ready, p, which, a.q)
	if err != nil {
		return nil, err
	}
	a.memo[key] = s
	return s, nil
}

func (a *asker) at(scale float64) Cluster { return a.q.Today.At(a.q.Growth, scale) }

// reached is the size of a cluster, in the unit of growth.
func (a *asker) reached(c Cluster) float64 { return a.q.Growth.Unit().Of(c) }

// outlook evaluates a cluster. Without bounds, the simulated quantities are medians only.
func (a *asker) outlook(scale float64, c Cluster, p Policy, bounds bool) (Evaluation, error) {
	o := Evaluation{Scale: scale, Size: a.reached(c), Cluster: c, Policy: p, Quantities: map[string]Estimate{}}
	sides := [3]*simulated{}
	for _, which := range []side{median, low, high} {
		if sides[which] = sides[median]; which == median || bounds {
			s, err := a.simulate(c, p, which)
			if err != nil {
				return o, err
			}
			sides[which] = s
		}
	}
	m := sides[median]
	o.P50, o.P90, o.P99, o.SlowestP99 = seconds(m.p50), seconds(m.p90), seconds(m.p99), seconds(m.slowest)
	o.SyncsPerSecond, o.BusyShare, o.Changes, o.NodesSimulated = m.syncs, m.busy, m.changes, m.nodes
	o.Together = max(1, int(math.Round(m.together)))

	rests, err := a.rests(c, o.Together)
	if err != nil {
		return o, err
	}
	estimate := func(of func(*simulated) float64) Estimate {
		e := rests
		all := []float64{of(sides[low]), of(m), of(sides[high])} // the CPU share may decrease with longer syncs, which coalesce more changes
		e.Low, e.Median, e.High = slices.Min(all), of(m), slices.Max(all)
		return e
	}
	o.Quantities[ProgrammingP99] = estimate(func(s *simulated) float64 { return s.p99 })
	cpu := estimate(func(s *simulated) float64 { return s.cpu })
	if own, err := a.predict(c, model.Query{Quantity: model.CPU, Kind: model.Partial, Changed: min(o.Together, c.Services)}); err == nil {
		cpu = cpu.resting(worse(cpu, own))
	}
	o.Quantities[CPU] = cpu
	for _, name := range []string{FirstPacketP99, Memory, Start} {
		if e, ok := a.state(name, c); ok {
			o.Quantities[name] = e
		}
	}
	o.Rules, _ = a.predict(c, model.Query{Quantity: model.Rules})
	o.FullSync, _ = a.predict(c, model.Query{Kind: model.Full})
	o.PartialSync, _ = a.predict(c, model.Query{Kind: model.Partial})
	o.Phases = a.phases(c, model.Partial, o.Together)
	o.judge(a.q.SLOs)
	return o, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// judge sets the SLOs that are met, and those that are violated.
func (o *Evaluation) judge(p SLOs) {
	for _, name := range p.Given() {
		e, known := o.Quantities[name]
		switch {
		case !known:
		case e.High <= p.Bound(name):
			o.Met = append(o.Met, name)
		case e.Median > p.Bound(name):
			o.Violated = append(o.Violated, name)
		}
	}
}

// rests returns the basis of a simulation: that of its partial syncs or, in clusters with periodic full syncs, that of
// the full syncs if it is less certain.
func (a *asker) rests(c Cluster, together int) (Estimate, error) {
	e, err := a.predict(c, model.Query{Kind: model.Partial, Changed: min(together, c.Services)})
	if err != nil {
		return e, err
	}
	if hourly(a.subject.Name, c) {
		full, err := a.predict(c, model.Query{Kind: again(a.subject)})
		if err != nil {
			return e, err
		}
		e = worse(e, full)
	}
	return Estimate{}.resting(e), nil
}

// worse returns the less certain of two estimates.
func worse(a, b Estimate) Estimate {
	if rank(b.Basis) > rank(a.Basis) || b.Basis == a.Basis && b.Beyond > a.Beyond {
		return b
	}
	return a
}

func rank(b model.Basis) int {
	return slices.Index([]model.Basis{model.Measured, model.Interpolated, model.Extrapolated}, b)
}

// predict evaluates the cost model for a cluster.
func (a *asker) predict(c Cluster, q model.Query) (Estimate, error) {
	q.Services, q.Endpoints = c.Services, c.Endpoints
	p, err := predict(a.subject, q)
	if err != nil {
		return Estimate{}, err
	}
	e := Estimate{Median: p.Median, Low: p.Low, High: p.High, Basis: p.Basis, Beyond: p.Beyond}
	if e.Basis == model.Extrapolated {
		e.Below, e.Changed = furthest(a.subject, q)
	}
	return e, nil
}

// state returns the quantity of an SLO that needs no simulation; ok is false if it was not measured.
func (a *asker) state(name string, c Cluster) (e Estimate, ok bool) {
	var err error
	switch name {
	case FirstPacketP99:
		e, err = a.predict(c, model.Query{Quantity: model.FirstPacketP99})
		if err != nil { // older calibrations have only the median packet, which is lower
			e, err = a.predict(c, model.Query{Quantity: model.FirstPacket})
		}
	case Memory:
		e, err = a.memory(c)
	case Start:
		e, err = a.predict(c, model.Query{Kind: model.Full})
	default:
		return e, false
	}
	return e, err == nil
}

// memory is the peak of the proxier plus that of its largest tool: both exist at the same time. The bounds of both are
// added, too, which makes the interval wider than necessary.
func (a *asker) memory(c Cluster) (Estimate, error) {
	e, err := a.predict(c, model.Query{Quantity: model.PeakRSS})
	if err != nil {
		return e, err
	}
	tool, found := a.tool(c)
	if !found {
		return e, nil
	}
	both := Estimate{Median: e.Median + tool.Median, Low: e.Low + tool.Low, High: e.High + tool.High}
	return both.resting(worse(e, tool)), nil
}

// tool is the memory of the largest tool, in the kind of sync that needs the most.
func (a *asker) tool(c Cluster) (largest Estimate, found bool) {
	for _, kind := range []string{model.Full, model.Resync, model.Partial} {
		if e, err := a.predict(c, model.Query{Quantity: model.ChildPeakRSS, Kind: kind}); err == nil && (!found || e.Median > largest.Median) {
			largest, found = e, true
		}
	}
	return largest, found
}

// The margin above a prediction. The memory of the Go runtime's garbage collector and of the page cache differs between
// nodes. A proxier that is killed at its limit writes all rules again, which needs even more memory.
const (
	memoryRoom = 1.25
	memoryStep = 16 << 20 // B; limits are rounded up to a multiple
)

// memoryLimit is the recommended memory limit of a pod, from its predicted memory; 0 if that was not measured.
func memoryLimit(e Estimate) uint64 {
	return uint64(math.Ceil(e.High*memoryRoom/memoryStep)) * memoryStep
}

// phases returns the durations of a sync's phases, where they were measured.
func (a *asker) phases(c Cluster, kind string, changed int) map[model.Quantity]float64 {
	out := map[model.Quantity]float64{}
	for _, phase := range []model.Quantity{model.Plan, model.Encode, model.ToolUser, model.ToolSys, model.Rest} {
		if e, err := a.predict(c, model.Query{Quantity: phase, Kind: kind, Changed: min(changed, c.Services)}); err == nil && e.Median > 0 {
			out[phase] = e.Median
		}
	}
	return out
}

// lacking returns remarks on quantities that the cost model does not have.
func (a *asker) lacking() []string {
	var out []string
	s := a.subject
	if !s.Has(model.FirstPacketP99, "") {
		if s.Has(model.FirstPacket, "") {
			out = append(out, "first packets: the calibration has no 99th percentile; the median packet at the last position is used instead, which is lower")
		} else {
			out = append(out, "first packets were not measured, and are not in the answer")
		}
	}
	if !s.Has(model.CPU, model.Partial) {
		out = append(out, "CPU time was not measured: each sync is assumed to keep one CPU busy")
	}
	if !s.Has(model.PeakRSS, "") {
		out = append(out, "memory was not measured, and is not in the answer")
	} else if a.model.Feed == raw.FeedInformers {
		out = append(out, "memory is that of the lab's process, which includes the simulated cluster: the values are too high")
	}
	return out
}

func (a *asker) remark(format string, args ...any) {
	if r := fmt.Sprintf(format, args...); !slices.Contains(a.remarks, r) {
		a.remarks = append(a.remarks, r)
	}
}
