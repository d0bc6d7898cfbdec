package fault

import (
	"slices"
	"time"

	"synclab/bench/lab/shim"
	"synclab/bench/raw"
	"synclab/proxier"
)

// answer is a sync of the subject, or a command that it ran. It may detect a fault.
type answer struct {
	began, ended time.Time
	writes       bool // writes rules, or tries to
	sync         bool // a whole sync, as the subject reported it
	failed       bool
	single       bool   // changes one rule or chain; that fails if it is there, as with -N
	planted      string // the injected fault that affected it
}

// answered handles a sync or a command.
func (r *Faults) answered(a answer) {
	for _, d := range r.list() {
		r.answer(d, a)
	}
}

func (r *Faults) answer(d *activeFault, a answer) {
	churns := r.changedBefore(d, a.began)
	hit := d.kind.Planted != "" && (a.planted == d.kind.Planted || r.Shim == nil && a.failed)
	d.mu.Lock()
	defer d.mu.Unlock()
	// Answers are reported when they have ended: their repair may have been detected before.
	if !a.began.After(d.began) || d.state == closed && (d.detected || a.began.After(d.at[closed])) {
		return
	}
	d.synced = d.synced || (a.writes || a.sync) && !a.failed
	detects := true
	switch {
	case d.kind.Planted != "":
		detects = hit
	case d.kind.newProcess:
		detects = a.writes
	default: // a change may be the cause of a sync that succeeds
		fails := a.failed && a.planted == "" && !a.single
		detects = (a.writes || !d.kind.shows.asked()) && (fails || !churns)
	}
	if detects && !d.detected {
		d.detected = true
		// A sync begins before its planning, and a call of a tool after it. Only their ends can be compared.
		at := raw.Record{At: a.ended.Sub(r.Started).Seconds(), Step: d.step, Fault: d.name, Uncertainty: a.ended.Sub(a.began).Seconds()}
		r.RecordAs(at, raw.FaultDetected, a.ended.Sub(d.began).Seconds())
	}
	if !hit {
		return
	}
	d.struck = a.ended
	if d.left > 0 {
		d.left--
		if d.left == 0 {
			d.enter(ended, a.ended)
		}
	}
}

// watchAnswers handles the calls of the subject's tools that the shim reports. Other callers report its syncs.
func (r *Faults) watchAnswers() error {
	if r.watching || r.Shim == nil {
		return nil
	}
	r.watching = true
	ended, err := r.Shim.Calls(r.Context(), r.Fail)
	if err != nil {
		return err
	}
	r.wait.Go(func() {
		for call := range ended {
			// kube-proxy writes both families; only the scenario's are measured.
			if family := call.Family(); family == "" || slices.Contains(r.Families, family) {
				r.answered(answer{
					began: call.Start, ended: call.End, planted: call.Fault, failed: call.ExitCode != 0,
					writes: r.About.Writes(call) || ChangesOne(call), single: ChangesOne(call),
				})
			}
		}
	})
	return nil
}

// ChangesOne reports whether a call of iptables writes a single rule or chain.
func ChangesOne(c shim.Call) bool {
	return slices.ContainsFunc(c.Args, func(arg string) bool {
		return slices.Contains([]string{"-A", "-I", "-N", "-D", "-X", "-F"}, arg)
	})
}

// Synced handles a sync that the lab's own proxier reported.
func (r *Faults) Synced(s proxier.Sync) {
	ended := s.Written
	if s.Err != nil {
		ended = s.Finished
	}
	r.answered(answer{began: s.Started, ended: ended, sync: true, writes: len(s.Runs) > 0, failed: s.Err != nil})
}
