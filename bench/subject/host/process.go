package host

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"synclab/bench/lab/netns"
	"synclab/bench/lab/process"
	"synclab/bench/mirror"
	"synclab/bench/outfile"
	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/subject/visible"
	"synclab/bench/verify/move"
	"synclab/sim"
	"synclab/sim/front"
)

// processSubject is a subject in a separate process. It lists and watches the fake API server like a real API server, and runs its
// tools through the shim. The kernel, its tools and its metrics show what it does.
type processSubject struct {
	*Host
	process *process.Process
	began   time.Time // its start
	cancel  context.CancelFunc
	watch   sync.WaitGroup
	syncs   *processSyncs
	// attached is closed when packets go where its maps say; nil: its rules carry them at once.
	attached chan struct{}
}

// Harness is what survives a restart of the subject: the watcher of the kernel and, for a process, the fake API
// server.
type Harness struct {
	server  string // URL of the fake API server
	Watcher *visible.Watcher
	log     syncLog
	cold    coldStart
	// readings of the subject's metrics.
	readings readings
	had      move.Inventory // what the kernel had before step migrate; nil: what is left of it is counted
}

// startProcess starts the subject's process. Before the first process, it opens the harness.
func (r *Host) startProcess(ctx context.Context) (Subject, error) {
	first := r.Harness == nil
	if first {
		if err := r.openHarness(ctx); err != nil {
			return nil, err
		}
	}
	path, args, env, err := r.command()
	if err != nil {
		return nil, err
	}
	for _, program := range []string{path, r.Tools.Shim, r.Tools.Sockets} {
		if err := r.Tools.Check(program); err != nil {
			return nil, err
		}
	}
	if first {
		if err := r.open(ctx); err != nil {
			return nil, err
		}
		r.expectAll(r.Clock.Now()) // takes 0.25 s for 10,000 Services, before the subject's time begins
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &processSubject{Host: r, cancel: cancel}
	var open error
	options := process.Options{
		Path: path, Args: args, Env: env, Stdin: r.About.Stdin, LogFile: filepath.Join(r.Lab.Dir, "subject.log"), Name: r.About.Name,
		Confine: func() (err error) {
			open, err = netns.Confine(r.kept(path))
			return err
		},
	}
	begin := func() { // all times count from here
		s.began = r.Clock.Now()
		r.Began = s.began
		if first {
			r.Harness.cold.began = s.began
		}
	}
	if r.ProfileFile != "" {
		s.process, err = r.startProfiled(ctx, options, begin)
	} else {
		begin()
		s.process, err = process.Start(ctx, options)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	if open != nil && first {
		r.Messages.Send(pass.Message{Note: fmt.Sprintf("%s can reach the files of this user: this kernel or container forbids to hide them (%v)", r.About.Name, open)})
	}
	s.syncs = newProcessSyncs(s)
	s.watch.Go(func() { s.syncs.run(ctx) })
	s.watch.Go(func() { s.watchProcess(ctx) })
	if r.sockets != nil {
		s.attached = make(chan struct{})
		s.watch.Go(func() { s.attachSockets(ctx, first) })
	}
	return s, nil
}

// openHarness starts the fake API server and the shim, and begins to watch the kernel.
func (r *Host) openHarness(ctx context.Context) error {
	api, err := front.New(r.Cluster, front.Options{ServiceCIDRs: r.Scenario.Shape.ServiceCIDRs, Clock: r.Clock})
	if err != nil {
		return err
	}
	// A real API server keeps encoded objects. Here it would be a part of the first cold start.
	if err := api.Encode(); err != nil {
		return err
	}
	listener, err := front.Listen("127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("fake API server: %w", err)
	}
	r.Front, r.Listener = api, listener
	go func() {
		if err := api.Serve(ctx, listener); err != nil && ctx.Err() == nil {
			r.Fail(fmt.Errorf("fake API server: %w", err))
		}
	}()
	if r.ClusterIPsOnly {
		if err := r.openSockets(); err != nil {
			return err
		}
	}
	if err := r.watchKernel(ctx); err != nil {
		return err
	}
	r.Harness.server = "http://" + listener.Addr().String()
	if r.About.Own {
		if err := r.openSyncLog(ctx); err != nil {
			return err
		}
	}
	return r.recordShimCost(ctx)
}

// watchKernel begins to watch what the subject writes.
func (r *Host) watchKernel(ctx context.Context) (err error) {
	t := &Harness{log: syncLog{recordable: make(chan struct{}, 1)}}
	if t.Watcher, err = r.newWatcher(ctx); err == nil {
		r.Harness = t
	}
	return err
}

func (r *Host) newWatcher(ctx context.Context) (*visible.Watcher, error) {
	var byPackets *visible.PacketOptions
	if r.Watched != nil {
		var err error
		if byPackets, err = r.Watched(ctx); err != nil {
			return nil, err
		}
	}
	return visible.New(visible.Options{
		Clock: r.Clock, Families: r.Families, Node: r.PlanNode(), RulesetReader: r.About.RulesetReader, EndpointLog: r.endpointLog(), Packets: byPackets, Seen: r.sighted, Failed: r.Fail,
	})
}

// endpointLog is the file in which backend userspace reports its endpoints.
func (r *Host) endpointLog() string { return filepath.Join(r.Lab.Dir, "endpoints.jsonl") }

// sighted reports a change that is now visible in the kernel.
func (r *Host) sighted(s visible.VisibleChange) {
	for _, listen := range r.Events.Visible {
		listen(s)
	}
}

// recordShimCost measures the time that the shim adds to a call, in this namespace and now: for small payloads, and for
// payloads as large as restores of thousands of Services.
func (r *Host) recordShimCost(ctx context.Context) error {
	if err := r.Tools.Check(r.Tools.Shim); err != nil {
		return err
	}
	for _, of := range []struct{ bytes, calls int }{{0, 10}, {1 << 20, 6}, {10 << 20, 4}} {
		costs, err := r.Shim.Cost(ctx, of.calls, of.bytes)
		for _, cost := range costs {
			r.RecordAs(raw.Record{Bytes: of.bytes}, raw.ShimCost, cost.Seconds())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// expectAll makes the watcher await all current objects, with a due time.
func (r *Host) expectAll(due time.Time) {
	r.Harness.cold.due = due
	for _, slice := range r.Loaded.Slices {
		r.Events.Change(sim.Add, slice, due)
	}
	for _, svc := range r.Loaded.Services {
		r.Events.Change(sim.Add, svc, due)
	}
}

// open reports that everything is ready for the first subject process.
func (r *Host) open(ctx context.Context) error {
	for _, listen := range r.Events.Opened {
		if err := listen(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Changing notifies the watcher of the kernel of a change that is about to be made.
func (r *Host) Changing(c mirror.Change) {
	if r.Harness != nil && r.Harness.Watcher.Changed(c) {
		for _, listen := range r.Events.Awaited {
			listen()
		}
	}
}

// Visible records a change that is now visible in the kernel.
func (r *Host) Visible(s visible.VisibleChange) {
	cold := &r.Harness.cold
	cold.mu.Lock()
	first := s.Due.Equal(cold.due)
	cold.byPackets = cold.byPackets || s.ByPackets
	if first {
		cold.visible, cold.lacked = append(cold.visible, s.Visible), append(cold.lacked, s.Lacked)
	}
	cold.mu.Unlock()
	if !first {
		at := s.Visible.Sub(r.Started).Seconds()
		rec, metric := raw.Record{At: at, Family: string(s.Family), Method: methodOf(s.ByPackets), Change: s.Number}, raw.NetworkProgrammingLatency
		if s.Service.Name != "" {
			rec.Service = s.Service.String()
		}
		switch since := s.Since; {
		case s.Undone:
			metric = raw.ChangeReverted
		case r.Reacting.Load():
			metric, rec.Uncertainty = raw.Reaction, s.Uncertainty().Seconds()
		case !since.IsZero():
			rec.Uncertainty = s.Visible.Sub(since).Seconds()
		}
		r.RecordAs(rec, metric, s.Visible.Sub(s.Due).Seconds())
	}
}

// watchProcess ends the repetition when the process exits by itself or exceeds MaxMemory.
func (s *processSubject) watchProcess(ctx context.Context) {
	ticker := s.Clock.NewTicker(memoryInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.process.Done():
			if err := s.process.Err(); err != nil && ctx.Err() == nil && !s.Mortal.Load() {
				s.Fail(err)
			}
			return
		case <-ticker.C():
			if s.MaxMemory == 0 {
				continue
			}
			if now, err := s.process.Memory(); err == nil && now > s.MaxMemory {
				s.Fail(&ExceededError{Value: float64(now), Unit: "B", Err: s.why(s.process, fmt.Errorf("stopped with more than %d MiB: %w", s.MaxMemory>>20, s.progress()))})
				return
			}
		}
	}
}

// memoryInterval is how often a subject's memory is compared with its budget.
const memoryInterval = 100 * time.Millisecond

// progress returns how many Service ports are visible, as an error.
func (r *Host) progress() error {
	seen, total := r.Harness.Watcher.Progress()
	return fmt.Errorf("%d of %d Service ports are visible as desired", seen, total)
}

func (s *processSubject) InSync(ctx context.Context) error {
	err := s.converged(ctx, s.syncs.idle)
	if err == nil {
		err = s.recordReadingCost(ctx)
	}
	if err != nil || s.attached == nil {
		return err
	}
	select {
	case <-s.attached:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// converged waits until every change is visible, the subject has nothing left to do, and commits have stopped. While other
// programs commit all the time, it waits as long as without their commits.
func (r *Host) converged(ctx context.Context, idle func(context.Context) error) error {
	if err := r.Harness.Watcher.Wait(ctx); err != nil {
		return err
	}
	r.settledCold()
	if err := idle(ctx); err != nil {
		return err
	}
	quiet := func() error { return r.Harness.Watcher.Quiet(ctx, calm) }
	if r.OthersCommit.Load() > 0 {
		quiet = func() error { return pass.Wait(ctx, calm) }
	}
	if err := quiet(); err != nil {
		return err
	}
	return idle(ctx) // a delayed sync may have begun
}

// calm is how long commits must have stopped before a subject counts as converged.
const calm = 200 * time.Millisecond

func (s *processSubject) stop() error {
	if rss, err := s.process.PeakRSS(); err == nil {
		s.peak = max(s.peak, rss)
	}
	s.cancel() // also stops the process
	<-s.process.Done()
	s.Harness.log.ended()
	if used, err := s.process.CPU(); err == nil {
		s.spent += used
	}
	s.watch.Wait()
	return nil
}

func (s *processSubject) running() *process.Process { return s.process }

func (s *processSubject) Disturbed() { s.Harness.Watcher.Recheck() }

func (s *processSubject) peakRSS() (uint64, error) {
	rss, err := s.process.PeakRSS()
	return max(rss, s.peak), err
}

func (s *processSubject) Aside(do func() error) error { return do() }

// ExceededError ends a repetition whose subject exceeded a budget.
type ExceededError struct {
	Value float64
	Unit  string // s, B or count, as in Exceeded
	Err   error
}

func (e *ExceededError) Error() string { return e.Err.Error() }
func (e *ExceededError) Unwrap() error { return e.Err }

// TooLong is the error of a subject that did not converge in time, with what was missing.
func (r *Host) TooLong(lacks error) error {
	began := r.Work.Began
	if cold := &r.Harness.cold; !cold.seen() && cold.began.After(began) {
		began = cold.began // so that this time is a bound for the cold start
	}
	took := r.Clock.Since(began)
	first, _, _ := strings.Cut(lacks.Error(), "\n")
	return &ExceededError{Value: took.Seconds(), Unit: "s",
		Err: r.Why(fmt.Errorf("stopped after %v: %w (%s)", took.Round(time.Millisecond), r.progress(), first))}
}

// Exceeded records that a budget was exceeded, if err says so. That is a result, not a failure of the run.
func (r *Host) Exceeded(err error) (error, bool) {
	var e *ExceededError
	if !errors.As(err, &e) {
		return err, false
	}
	r.RecordAs(raw.Record{Unit: e.Unit, Error: e.Error()}, raw.Exceeded, e.Value)
	r.Messages.Send(pass.Message{Note: e.Error()})
	return nil, true
}

// writeFile writes a file of the subject into the lab's folder and returns its path.
func (r *Host) writeFile(name string, content []byte) (string, error) {
	path := filepath.Join(r.Lab.Dir, name)
	return path, outfile.Write(path, content, 0o600)
}
