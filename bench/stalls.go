package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"synclab/bench/lab/machine"
	"synclab/bench/pass"
	"synclab/bench/raw"
)

// stallWatch reads the stalls that the kernel logs during a repetition, and how long other processes could not run. Both are
// the machine's: what caused a stall is known by its time, and by the task that the kernel names.
type stallWatch struct {
	mu     sync.Mutex
	log    *machine.KernelLog
	failed error // why stalls are not observed
	found  []stalled
	gaps   *machine.Gaps // nil: not observed
	end    func()
}

// stalled is a stall with the step and the time of its first report.
type stalled struct {
	machine.Stall
	step string
	at   float64
}

// add keeps a stall. One that lasts has the step and the time of its first report; then fresh is false.
func (w *stallWatch) add(s stalled) (kept stalled, fresh bool) {
	for i := range w.found {
		if known := &w.found[i]; s.Continues(&known.Stall) {
			known.Stall = s.Stall
			return *known, false
		}
	}
	w.found = append(w.found, s)
	return s, true
}

// watchStalls begins at the end of the kernel's log.
func (r *repetition) watchStalls() {
	w := &r.stalls
	w.log, w.failed = machine.OpenKernelLog()
	var err error
	if w.gaps, err = machine.WatchGaps(); err != nil {
		w.gaps = nil
		r.Messages.Send(pass.Message{Note: fmt.Sprintf("how long other processes could not run is not observed: %v", err)})
	}
	ctx, cancel := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	w.end = func() { cancel(); reading.Wait() }
	reading.Go(func() {
		for pass.Wait(ctx, time.Second) == nil {
			r.readStalls()
		}
	})
}

// readStalls records what the kernel has logged since the last call, in the current step. A repetition may be killed at any
// time, so each report is a record: those of a stall that lasts have the same time.
func (r *repetition) readStalls() {
	w := &r.stalls
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil {
		return
	}
	var found []machine.Stall
	found, w.failed = w.log.Stalls()
	for _, s := range found {
		one := stalled{Stall: s, at: r.Clock.Since(r.Started).Seconds()}
		if step := r.Step.Load(); step != nil {
			one.step = *step
		}
		one, fresh := w.add(one)
		r.RecordAs(raw.Record{Kind: one.Kind, Task: one.Task, Error: one.Text, Step: one.step, At: one.at}, raw.KernelStall, one.Seconds)
		if fresh {
			r.Messages.Send(pass.Message{Note: "the kernel stalled during this repetition: " + s.Text})
		}
	}
}

// readGaps reads the longest gap of each CPU since the last call, and records it if that was in the current step.
func (r *repetition) readGaps(record bool) {
	if r.stalls.gaps == nil {
		return
	}
	gaps, err := r.stalls.gaps.Read()
	if err != nil {
		r.Messages.Send(pass.Message{Note: fmt.Sprintf("how long other processes could not run is no longer observed: %v", err)})
		_ = r.stalls.gaps.Close() // it has failed already
		r.stalls.gaps = nil
	}
	for _, gap := range gaps {
		if record {
			r.RecordAs(raw.Record{Kind: fmt.Sprintf("CPU %d", gap.CPU)}, raw.ScheduleGap, gap.Longest.Seconds())
		}
	}
}

// timeCaches records how fast the machine's caches are, which no subject changes.
func (r *repetition) timeCaches() {
	loads, err := machine.CacheLoads()
	if err != nil {
		r.Messages.Send(pass.Message{Note: fmt.Sprintf("how fast the machine's caches are was not measured: %v", err)})
	}
	for _, load := range loads {
		r.RecordAs(raw.Record{Kind: fmt.Sprintf("CPU %d", load.CPU)}, raw.CacheLoad, load.Seconds)
	}
}

// endStalls records the number of stalls, or why they were not observed.
func (r *repetition) endStalls() {
	r.stalls.end()
	r.readStalls()
	if r.stalls.gaps != nil {
		_ = r.stalls.gaps.Close() // nothing was written
	}
	if r.stalls.failed != nil {
		r.RecordAs(raw.Record{Error: r.stalls.failed.Error()}, raw.StallsUnobserved, 1)
	} else {
		r.RecordAs(raw.Record{}, raw.KernelStalls, float64(len(r.stalls.found)))
	}
	if r.stalls.log != nil {
		_ = r.stalls.log.Close() // nothing was written
	}
}
