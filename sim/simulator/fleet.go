package simulator

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Class is a group of nodes of one kind: the same machine, kernel and subject.
type Class struct {
	Name  string
	Nodes int
	// Settings of each node; Seed and Born are drawn for each.
	Settings Settings
	// Phase: the proxiers start at random times before Phase, as nodes join a cluster. 0: all at once.
	Phase time.Duration
	// Noise is the standard deviation of the logarithm of the nodes' Factors: neighbours, thermal limits, age. 0: all
	// nodes are equal.
	Noise float64
}

// FleetOptions are the options of RunFleet.
type FleetOptions struct {
	Span
	// Seed determines how nodes differ.
	Seed uint64
	// Window of the service level indicator; 0: 5 minutes, as SIG-Scalability defines it.
	Window time.Duration
	// Workers is the number of goroutines; 0: as many as there are CPUs to use. It does not change the result.
	Workers int
	// OnWindow is called when everything up to a time is simulated.
	OnWindow func(done time.Duration)

	onSync func(node int, s Sync) // for tests
}

// NodeResult is the result of one node of a fleet.
type NodeResult struct {
	Class int
	// Born and Factor are the node's settings.
	Born   time.Duration
	Factor float64
	Result
}

// WindowResult is the service level indicator of one window: quantiles of the network programming latency of all
// changes that syncs of all nodes installed, by the window in which the sync started.
type WindowResult struct {
	From, To      time.Duration
	Count         int64
	P50, P90, P99 time.Duration
	Max           time.Duration
}

// FleetResult is the result of a cluster.
type FleetResult struct {
	// Latency is the latency of every change on every node, in one pool: the indicator as SIG-Scalability defines it,
	// over all of the time.
	Latency Histogram
	// Windows are the same, by window.
	Windows []WindowResult
	Nodes   []NodeResult
	// Events is the number of events.
	Events int64
}

// Slowest returns the node with the highest quantile of latency; -1 without nodes.
func (r *FleetResult) Slowest(q float64) (node int, latency time.Duration) {
	node = -1
	for i := range r.Nodes {
		if l := r.Nodes[i].Latency.Quantile(q); node < 0 || l > latency {
			node, latency = i, l
		}
	}
	return node, latency
}

// Objective returns the quantile over the windows of their 99th percentiles. With q 0.99 over a day it is
// SIG-Scalability's objective. Windows without a change do not count.
func (r *FleetResult) Objective(q float64) time.Duration {
	var h Histogram
	for _, w := range r.Windows {
		if w.Count > 0 {
			h.Add(w.P99)
		}
	}
	return h.Quantile(q)
}

// Class returns the sum over the nodes of one class, also of CPU, Busy and Lived.
func (r *FleetResult) Class(class int) Result {
	var sum Result
	for i := range r.Nodes {
		if n := &r.Nodes[i]; n.Class == class {
			sum.merge(&n.Result)
		}
	}
	return sum
}

func (r *Result) merge(o *Result) {
	r.Latency.Merge(&o.Latency)
	r.Waiting += o.Waiting
	r.FullSyncs += o.FullSyncs
	r.PartialSyncs += o.PartialSyncs
	r.Failed += o.Failed
	r.Lived += o.Lived
	r.Busy += o.Busy
	r.CPU += o.CPU
	r.Backlog += o.Backlog
	r.MaxBacklog = max(r.MaxBacklog, o.MaxBacklog)
	r.Stale += o.Stale
	r.MaxStale = max(r.MaxStale, o.MaxStale)
	r.StaleAge += o.StaleAge
}

// fleet is a run of RunFleet.
type fleet struct {
	opts      FleetOptions
	timeline  *timeline
	followers []follower
	workers   []*counts
	result    *FleetResult
}

// RunFleet simulates all nodes of a cluster, which see the same events. Each node does exactly what Run does with its
// Settings. When ctx ends, RunFleet returns ctx's error.
func RunFleet(ctx context.Context, classes []Class, source Source, opts FleetOptions) (*FleetResult, error) {
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("simulator: %w", err)
	}
	if opts.Window <= 0 {
		opts.Window = 5 * time.Minute
	}
	if opts.Workers <= 0 {
		opts.Workers = runtime.GOMAXPROCS(0)
	}
	f := &fleet{opts: opts, result: &FleetResult{}, timeline: newTimeline(source, opts.Length)}
	if err := f.populate(classes); err != nil {
		return nil, fmt.Errorf("simulator: %w", err)
	}
	for range opts.Workers {
		f.workers = append(f.workers, newCounts())
	}
	if err := f.live(ctx); err != nil {
		return nil, fmt.Errorf("simulator: after %v: %w", f.timeline.known, err)
	}
	f.finish()
	return f.result, nil
}

// Node returns the Settings of one node of the class.
func (c Class) Node(seed uint64, number int) Settings {
	s := c.Settings
	rng := generator(seed, forFleet+uint64(number)<<8)
	s.Seed = rng.Uint64()
	if c.Phase > 0 {
		s.Born += time.Duration(rng.Int64N(int64(c.Phase)))
	}
	if s.Factor == 0 {
		s.Factor = 1
	}
	if c.Noise > 0 {
		s.Factor *= math.Exp(c.Noise * rng.NormFloat64())
	}
	return s
}

// populate makes the nodes, numbered through all classes.
func (f *fleet) populate(classes []Class) error {
	total := 0
	for _, c := range classes {
		if c.Nodes < 0 || c.Phase < 0 || c.Noise < 0 {
			return fmt.Errorf("class %s: %d nodes, phase %v, noise %g: want no negative value", c.Name, c.Nodes, c.Phase, c.Noise)
		}
		total += c.Nodes
	}
	f.followers = make([]follower, total)
	number := 0
	for i, c := range classes {
		for range c.Nodes {
			n := &f.followers[number]
			if err := n.init(c.Node(f.opts.Seed, number), f.opts.Span); err != nil {
				return fmt.Errorf("class %s: %w", c.Name, err)
			}
			n.class = i
			if me := number; f.opts.onSync != nil {
				n.onSync = func(s Sync) { f.opts.onSync(me, s) }
			}
			number++
		}
	}
	return nil
}

// live simulates window by window; windows with many events in parts.
func (f *fleet) live(ctx context.Context) error {
	tl := f.timeline
	for from := time.Duration(0); from < f.opts.end(); from += f.opts.Window {
		to := min(from+f.opts.Window, f.opts.end())
		for tl.known < to {
			if err := ctx.Err(); err != nil {
				return err
			}
			tl.load(to)
			f.pass()
			f.trim()
		}
		f.closeWindow(from, to)
		if f.opts.OnWindow != nil {
			f.opts.OnWindow(to)
		}
	}
	return nil
}

// pass advances all nodes to the time that is known, several at once.
func (f *fleet) pass() {
	const atOnce = 16
	var taken atomic.Int64
	var all sync.WaitGroup
	for _, c := range f.workers {
		all.Go(func() {
			for {
				from := int(taken.Add(atOnce)) - atOnce
				if from >= len(f.followers) {
					return
				}
				for i := from; i < min(from+atOnce, len(f.followers)); i++ {
					n := &f.followers[i]
					n.follow(f.timeline, c)
					c.flush(&n.result.Latency)
				}
			}
		})
	}
	all.Wait()
}

// trim drops the events that all nodes have installed.
func (f *fleet) trim() {
	done := len(f.timeline.due)
	for i := range f.followers {
		done = min(done, f.followers[i].installed)
	}
	for i := range f.followers {
		f.followers[i].installed -= done
		f.followers[i].seen -= done
	}
	f.result.Events = f.timeline.dropped + int64(len(f.timeline.due))
	f.timeline.drop(done)
}

func (f *fleet) closeWindow(from, to time.Duration) {
	var h Histogram
	for _, c := range f.workers {
		h.Merge(&c.all)
		c.all = Histogram{}
	}
	f.result.Latency.Merge(&h)
	if from >= f.opts.Length && h.Count == 0 {
		return
	}
	f.result.Windows = append(f.result.Windows, WindowResult{
		From: from, To: to, Count: h.Count, Max: h.Max,
		P50: h.Quantile(0.5), P90: h.Quantile(0.9), P99: h.Quantile(0.99),
	})
}

// finish ends all nodes and collects their results.
func (f *fleet) finish() {
	f.result.Nodes = make([]NodeResult, len(f.followers))
	for i := range f.followers {
		n := &f.followers[i]
		n.stop(f.timeline)
		f.result.Nodes[i] = NodeResult{Class: n.class, Born: n.Born, Factor: n.Factor, Result: n.result}
	}
}
