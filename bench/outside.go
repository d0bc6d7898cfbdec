package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"synclab/bench/netns"
	"synclab/bench/process"
	"synclab/bench/visible"
	"synclab/proxier"
	"synclab/sim"
	"synclab/sim/front"
)

// outside is a subject as a process of its own. It lists and watches the API front, as it would a real API server, runs
// its tools through the shim, and is measured by what the kernel, its tools and its metrics show.
type outside struct {
	*repetition
	process *process.Process
	began   time.Time // its start
	cancel  context.CancelFunc
	watch   sync.WaitGroup
	syncs   *outsideSyncs
	mortal  atomic.Bool // a fault may end it, and it is started again
}

// tunnel is what stays when a subject is started again: who watches the kernel, and of a process the front and the shim.
type tunnel struct {
	server  string // URL of the front
	visible *visible.Watcher
	log     syncLog
	cold    coldStart
}

// coldStart collects when the Services of the first state became visible.
type coldStart struct {
	began    time.Time // right before the start of the subject
	mu       sync.Mutex
	due      time.Time // by which the Sights of the first state are known
	last     time.Time
	recorded bool
}

func (c *coldStart) seen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.recorded
}

// startOutside starts the subject's process, and with the first one the tunnel around it.
func (r *repetition) startOutside(ctx context.Context) (subject, error) {
	first := r.tunnel == nil
	if first {
		if err := r.openTunnel(ctx); err != nil {
			return nil, err
		}
	}
	path, args, env, err := r.command()
	if err != nil {
		return nil, err
	}
	if first {
		if err := r.beginAPIFaults(ctx); err != nil {
			return nil, err
		}
		r.expectAll(r.clock.Now()) // a quarter of a second for 10,000 Services, before the subject's time begins
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &outside{repetition: r, cancel: cancel, began: r.clock.Now()}
	if first {
		r.tunnel.cold.began = s.began
	}
	log := filepath.Join(r.lab.Dir, "subject.log")
	if s.process, err = process.Start(ctx, process.Options{
		Path: path, Args: args, Env: env, LogFile: log, Name: r.about.Name, Confine: netns.Confine,
	}); err != nil {
		cancel()
		return nil, err
	}
	s.syncs = newOutsideSyncs(s)
	s.watch.Go(func() { s.syncs.run(ctx) })
	s.watch.Go(func() { s.watchProcess(ctx) })
	return s, nil
}

// openTunnel starts the front and the shim, and begins to watch the kernel.
func (r *repetition) openTunnel(ctx context.Context) error {
	var ranges []string // of a cluster that is not generated: the usual ones
	if r.Objects == nil {
		ranges = r.Scenario.Shape.ServiceCIDRs
	}
	api, err := front.New(r.cluster, front.Options{ServiceCIDRs: ranges, Clock: r.clock})
	if err != nil {
		return err
	}
	listener, err := front.Listen("127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("API front: %w", err)
	}
	r.api.serve(api, listener)
	go func() {
		if err := api.Serve(ctx, listener); err != nil && ctx.Err() == nil {
			r.fail(fmt.Errorf("API front: %w", err))
		}
	}()
	if err := r.watchKernel(); err != nil {
		return err
	}
	r.tunnel.server = "http://" + listener.Addr().String()
	if r.about.Proxier == Synclab {
		if err := r.openSyncLog(ctx); err != nil {
			return err
		}
	}
	return r.recordShimCost(ctx)
}

// watchKernel begins to watch what the subject writes.
func (r *repetition) watchKernel() (err error) {
	t := &tunnel{log: syncLog{told: make(chan struct{}, 1)}}
	t.visible, err = visible.New(visible.Options{
		Clock: r.clock, Families: r.families, Node: r.planNode(), Dialect: r.about.dialect(), Seen: r.sighted, Failed: r.fail,
	})
	if err == nil {
		r.tunnel = t
	}
	return err
}

// recordShimCost measures what the shim adds to a call, in this namespace and now: of small payloads, and of such as
// restores of thousands of Services have.
func (r *repetition) recordShimCost(ctx context.Context) error {
	for _, of := range []struct{ bytes, calls int }{{0, 10}, {1 << 20, 6}, {10 << 20, 4}} {
		costs, err := r.shim.Cost(ctx, of.calls, of.bytes)
		for _, cost := range costs {
			r.recordAs(Record{Unit: "s", Bytes: of.bytes}, ShimCost, cost.Seconds())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// dialect is how the subject writes rules; empty: to be found out.
func (s Subject) dialect() string {
	switch {
	case s.Backend == proxier.Nftables && s.Proxier == Synclab:
		return visible.SynclabNftables
	case s.Backend == proxier.Nftables:
		return visible.Nftables
	case s.Variant != "":
		return "iptables-" + string(s.Variant)
	}
	return ""
}

// expectAll makes everything that is in the cluster now awaited, as of a moment.
func (r *repetition) expectAll(due time.Time) {
	r.tunnel.cold.due = due
	for _, slice := range r.loaded.Slices {
		r.expect(sim.Add, slice, due)
	}
	for _, svc := range r.loaded.Services {
		r.expect(sim.Add, svc, due)
	}
}

// expect tells who watches the kernel of a change that is about to be made.
func (r *repetition) expect(op sim.Op, object runtime.Object, due time.Time) {
	r.damages.touch(object, r.clock.Now())
	if meets := r.damages.meets; meets != nil {
		meets(object)
	}
	if r.tunnel != nil {
		r.expectFlows(op, object, due)
		if r.tunnel.visible.Changed(op, object, due) {
			r.changed()
		}
	}
}

// sighted takes a change that is now visible in the kernel.
func (r *repetition) sighted(s visible.Sight) {
	r.sightedFlows(s)
	r.waited(s)
	cold := &r.tunnel.cold
	cold.mu.Lock()
	first := s.Due.Equal(cold.due)
	if first && s.Visible.After(cold.last) {
		cold.last = s.Visible
	}
	cold.mu.Unlock()
	if !first {
		at := s.Visible.Sub(r.started).Seconds()
		rec, metric := Record{At: at, Unit: "s", Family: string(s.Family)}, NetworkProgrammingLatency
		switch since := s.Since; {
		case s.Undone:
			metric = ChangeUndone
		case r.reacting.Load():
			metric, rec.Within = Reaction, s.Uncertainty().Seconds()
		case !since.IsZero():
			rec.Within = s.Visible.Sub(since).Seconds()
		}
		r.recordAs(rec, metric, s.Visible.Sub(s.Due).Seconds())
	}
}

// settled records the cold start, once: everything of the first state is visible.
func (r *repetition) settledCold() {
	cold := &r.tunnel.cold
	cold.mu.Lock()
	defer cold.mu.Unlock()
	if !cold.recorded && !cold.last.IsZero() {
		cold.recorded = true
		r.recordAs(Record{At: cold.last.Sub(r.started).Seconds(), Unit: "s"}, ColdStart, cold.last.Sub(cold.began).Seconds())
	}
}

// watchProcess ends the repetition when the process ends by itself or holds more memory than it may.
func (s *outside) watchProcess(ctx context.Context) {
	ticker := s.clock.NewTicker(memoryInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.process.Done():
			if err := s.process.Err(); err != nil && ctx.Err() == nil && !s.mortal.Load() {
				s.fail(err)
			}
			return
		case <-ticker.C():
			if s.MaxMemory == 0 {
				continue
			}
			if now, err := s.process.Memory(); err == nil && now > s.MaxMemory {
				s.fail(&exceededError{value: float64(now), unit: "B", err: fmt.Errorf("stopped with more than %d MiB: %w", s.MaxMemory>>20, s.progress())})
				return
			}
		}
	}
}

// memoryInterval is how often a subject's memory is held against its budget.
const memoryInterval = 100 * time.Millisecond

// progress says how far the subject has come.
func (r *repetition) progress() error {
	seen, total := r.tunnel.visible.Progress()
	return fmt.Errorf("%d of %d Service ports as they should be", seen, total)
}

func (s *outside) inSync(ctx context.Context) error { return s.converged(ctx, s.syncs.idle) }

// converged waits until every change is visible, the subject says that nothing is left to do, and no commit comes any more.
func (r *repetition) converged(ctx context.Context, idle func(context.Context) error) error {
	if err := r.tunnel.visible.Wait(ctx); err != nil {
		return err
	}
	r.settledCold()
	if err := idle(ctx); err != nil {
		return err
	}
	if err := r.tunnel.visible.Quiet(ctx, calm); err != nil {
		return err
	}
	return idle(ctx) // a sync that was held back may have begun
}

// calm is how long no commit may come before a subject counts as settled.
const calm = 200 * time.Millisecond

func (s *outside) stop() error {
	if rss, err := s.process.PeakRSS(); err == nil {
		s.peak = max(s.peak, rss)
	}
	s.cancel() // stops the process, too
	<-s.process.Done()
	s.tunnel.log.ended()
	if used, err := s.process.CPU(); err == nil {
		s.spent += used
	}
	s.watch.Wait()
	return nil
}

func (s *outside) disturbed() { s.tunnel.visible.Recheck() }

func (s *outside) peakRSS() (uint64, error) {
	rss, err := s.process.PeakRSS()
	return max(rss, s.peak), err
}

func (s *outside) aside(do func() error) error { return do() }

// count records what the kernel holds of the subject.
func (s *outside) count() error {
	if s.about.Backend != "" {
		return s.countTables()
	}
	all, err := s.tunnel.visible.Installed(context.Background())
	if err != nil {
		return err
	}
	for family, installed := range all {
		for table, rules := range installed.Rules {
			s.recordAs(Record{Unit: "count", Family: string(family), Table: table}, RulesKernel, float64(rules))
		}
		if installed.Elements > 0 {
			s.recordAs(Record{Unit: "count", Family: string(family), Table: "elements"}, RulesKernel, float64(installed.Elements))
		}
	}
	s.recordKernelMemory()
	return nil
}

// exceededError ends a repetition whose subject exceeded a budget.
type exceededError struct {
	value float64
	unit  string // s, B or count, as in Exceeded
	err   error
}

func (e *exceededError) Error() string { return e.err.Error() }
func (e *exceededError) Unwrap() error { return e.err }

// tooLong is the end of a subject that did not get in sync in time, and what it lacked.
func (r *repetition) tooLong(lacks error) error {
	began := r.work.began
	if cold := &r.tunnel.cold; !cold.seen() && cold.began.After(began) {
		began = cold.began // as the cold start counts, for which this is a bound
	}
	took := r.clock.Since(began)
	first, _, _ := strings.Cut(lacks.Error(), "\n")
	return &exceededError{value: took.Seconds(), unit: "s",
		err: fmt.Errorf("stopped after %v: %w (%s)", took.Round(time.Millisecond), r.progress(), first)}
}

// exceeded records that a budget was exceeded, if that is what err says: a result, not a failure of the run.
func (r *repetition) exceeded(err error) (error, bool) {
	var e *exceededError
	if !errors.As(err, &e) {
		return err, false
	}
	r.recordAs(Record{Unit: e.unit, Error: e.Error()}, Exceeded, e.value)
	r.say.message(message{Note: e.Error()})
	return nil, true
}

// writeFile puts a file of the subject into the lab's folder and returns its path.
func (r *repetition) writeFile(name string, content []byte) (string, error) {
	path := filepath.Join(r.lab.Dir, name)
	return path, os.WriteFile(path, content, 0o600)
}
