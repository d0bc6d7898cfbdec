package twin

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Class is nodes of one kind: the same machine, kernel and subject.
type Class struct {
	Name  string
	Nodes int
	// Settings of each; Seed and Born are drawn for each node.
	Settings Settings
	// Phase: the proxiers start at random times before it, as nodes join a cluster. 0: all at once.
	Phase time.Duration
	// Noise is the standard deviation of the logarithm by which the Factors of nodes differ: neighbours, thermal limits,
	// age. 0: all are alike.
	Noise float64
}

// FleetOptions of RunFleet.
type FleetOptions struct {
	Span
	// Seed of what nodes differ in.
	Seed uint64
	// Window of the indicator; 0: 5 minutes, as SIG-Scalability has it.
	Window time.Duration
	// Workers are how many goroutines work; 0: as many as there are CPUs to use. They do not change the result.
	Workers int
	// OnWindow is called when everything up to a time is done.
	OnWindow func(done time.Duration)

	onSync func(node int, s Sync) // for tests
}

// NodeResult is how it went on one node of a fleet.
type NodeResult struct {
	Class int
	// Born and Factor of the node.
	Born   time.Duration
	Factor float64
	Result
}

// WindowResult is the service level indicator of one window: quantiles of the network programming latency of what all
// nodes installed, in syncs that started in it.
type WindowResult struct {
	From, To      time.Duration
	Count         int64
	P50, P90, P99 time.Duration
	Max           time.Duration
}

// FleetResult is how it went in a cluster.
type FleetResult struct {
	// Latency of every change on every node, in one pool: the indicator as SIG-Scalability defines it, over all of the
	// time.
	Latency Histogram
	// Windows are the same, window by window.
	Windows []WindowResult
	Nodes   []NodeResult
	// Events there were.
	Events int64
}

// Slowest is the node with the highest quantile of latency; -1 without nodes.
func (r *FleetResult) Slowest(q float64) (node int, latency time.Duration) {
	node = -1
	for i := range r.Nodes {
		if l := r.Nodes[i].Latency.Quantile(q); node < 0 || l > latency {
			node, latency = i, l
		}
	}
	return node, latency
}

// Objective is the quantile over the windows of their 99th percentiles, with q 0.99 over a day SIG-Scalability's
// objective. Windows without a change say nothing.
func (r *FleetResult) Objective(q float64) time.Duration {
	var h Histogram
	for _, w := range r.Windows {
		if w.Count > 0 {
			h.Add(w.P99)
		}
	}
	return h.Quantile(q)
}

// Class adds up the nodes of one class; its CPU and Busy are sums over nodes, and so is what they lived.
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

// RunFleet simulates all nodes of a cluster, which see the same events. Each does exactly what Run says of its Settings.
// When ctx ends, it ends with ctx's error.
func RunFleet(ctx context.Context, classes []Class, source Source, opts FleetOptions) (*FleetResult, error) {
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("twin: %w", err)
	}
	if opts.Window <= 0 {
		opts.Window = 5 * time.Minute
	}
	if opts.Workers <= 0 {
		opts.Workers = runtime.GOMAXPROCS(0)
	}
	f := &fleet{opts: opts, result: &FleetResult{}, timeline: newTimeline(source, opts.Length)}
	if err := f.populate(classes); err != nil {
		return nil, fmt.Errorf("twin: %w", err)
	}
	for range opts.Workers {
		f.workers = append(f.workers, newCounts())
	}
	if err := f.live(ctx); err != nil {
		return nil, fmt.Errorf("twin: after %v: %w", f.timeline.known, err)
	}
	f.finish()
	return f.result, nil
}

// Node is the Settings that one of a class's nodes is given.
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
			return fmt.Errorf("class %s: %d nodes, phase %v, noise %g: negative", c.Name, c.Nodes, c.Phase, c.Noise)
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

// live goes through time, window by window; windows with many events are done in parts.
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

// pass lets all nodes live up to what is known, several at a time.
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

// trim forgets the events that all nodes have installed.
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

// finish ends the lives of all nodes.
func (f *fleet) finish() {
	f.result.Nodes = make([]NodeResult, len(f.followers))
	for i := range f.followers {
		n := &f.followers[i]
		n.stop(f.timeline)
		f.result.Nodes[i] = NodeResult{Class: n.class, Born: n.Born, Factor: n.Factor, Result: n.result}
	}
}
