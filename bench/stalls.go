package bench

import (
	"synclab/bench/machine"
	"synclab/bench/pass"
	"synclab/bench/raw"
)

// stallWatch reads the stalls that the kernel logs during a repetition. The log is the machine's: what caused a stall is
// known by its time, and by the task that the kernel names.
type stallWatch struct {
	log    *machine.KernelLog
	failed error // why stalls are not observed
	found  int
}

// watchStalls begins at the end of the kernel's log.
func (r *repetition) watchStalls() { r.stalls.log, r.stalls.failed = machine.OpenKernelLog() }

// recordStalls records what the kernel has logged since the last call, in the current step.
func (r *repetition) recordStalls() {
	if r.stalls.failed != nil {
		return
	}
	var found []machine.Stall
	found, r.stalls.failed = r.stalls.log.Stalls()
	for _, s := range found {
		r.stalls.found++
		r.RecordAs(raw.Record{Unit: "s", Kind: s.Kind, Task: s.Task, Error: s.Text}, raw.KernelStall, s.Seconds)
		r.Messages.Send(pass.Message{Note: "the kernel stalled during this repetition: " + s.Text})
	}
}

// endStalls records how many stalls were logged, or why they were not observed.
func (r *repetition) endStalls() {
	if r.recordStalls(); r.stalls.failed != nil {
		r.RecordAs(raw.Record{Unit: "count", Error: r.stalls.failed.Error()}, raw.StallsUnobserved, 1)
	} else {
		r.RecordAs(raw.Record{Unit: "count"}, raw.KernelStalls, float64(r.stalls.found))
	}
	if r.stalls.log != nil {
		_ = r.stalls.log.Close() // nothing was written
	}
}
