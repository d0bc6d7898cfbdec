package bench

import (
	"synclab/bench/lab/machine"
	"synclab/bench/pass"
	"synclab/bench/raw"
)

// stallWatch reads the stalls that the kernel logs during a repetition. The log is the machine's: what caused a stall is
// known by its time, and by the task that the kernel names.
type stallWatch struct {
	log    *machine.KernelLog
	failed error // why stalls are not observed
	found  []stalled
}

// stalled is a stall with the step and the time of its first report.
type stalled struct {
	machine.Stall
	step string
	at   float64
}

// add keeps a stall, and reports whether it is a new one. One that lasts has the time of its last report.
func (w *stallWatch) add(s stalled) bool {
	for i := range w.found {
		if known := &w.found[i]; s.Continues(&known.Stall) {
			known.Stall = s.Stall
			return false
		}
	}
	w.found = append(w.found, s)
	return true
}

// watchStalls begins at the end of the kernel's log.
func (r *repetition) watchStalls() { r.stalls.log, r.stalls.failed = machine.OpenKernelLog() }

// readStalls reads what the kernel has logged since the last call, in the current step.
func (r *repetition) readStalls() {
	if r.stalls.failed != nil {
		return
	}
	var found []machine.Stall
	found, r.stalls.failed = r.stalls.log.Stalls()
	for _, s := range found {
		one := stalled{Stall: s, at: r.Clock.Since(r.Started).Seconds()}
		if step := r.Step.Load(); step != nil {
			one.step = *step
		}
		if r.stalls.add(one) {
			r.Messages.Send(pass.Message{Note: "the kernel stalled during this repetition: " + s.Text})
		}
	}
}

// endStalls records the stalls and their number, or why they were not observed.
func (r *repetition) endStalls() {
	r.readStalls()
	for _, s := range r.stalls.found {
		r.RecordAs(raw.Record{Kind: s.Kind, Task: s.Task, Error: s.Text, Step: s.step, At: s.at}, raw.KernelStall, s.Seconds)
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
