package bench

import (
	"context"
	"slices"
	"time"

	"synclab/bench/shim"
	"synclab/proxier"
)

// answer is a sync of the subject, or a command that it ran: how it comes to notice a fault.
type answer struct {
	began, ended time.Time
	writes       bool // rules, or tries to
	sync         bool // a whole sync, as the subject told of it
	failed       bool
	planted      string // the fault that hit it
}

// answered takes a sync or a command in.
func (r *repetition) answered(a answer) {
	r.damages.mu.Lock()
	all := slices.Clone(r.damages.all)
	r.damages.mu.Unlock()
	for _, d := range all {
		r.answeredOne(d, a)
	}
}

func (r *repetition) answeredOne(d *damage, a answer) {
	hit := d.planted != "" && (a.planted == d.planted || r.shim == nil && a.failed)
	d.mu.Lock()
	// Answers are told of when they have ended: what they repaired may have been seen before.
	if !a.began.After(d.began) || d.closed && (d.noticed || a.began.After(d.done)) {
		d.mu.Unlock()
		return
	}
	if (a.writes || a.sync) && !a.failed {
		if d.wrote.IsZero() {
			d.wrote = a.ended
		}
		d.last = a.ended
	}
	detects := true
	switch {
	case d.planted != "":
		detects = hit
	case !d.showsInChanges():
		detects = a.writes
	}
	first := detects && !d.noticed
	d.noticed = d.noticed || detects
	spent := false
	if hit {
		d.hit, d.struck = true, a.ended
		if d.left > 0 {
			d.left--
			spent = d.left == 0
		}
	}
	d.mu.Unlock()
	if first {
		at := Record{At: a.began.Sub(r.started).Seconds(), Unit: "s", Step: d.step, Fault: d.fault}
		r.recordAs(at, FaultDetected, max(0, a.began.Sub(d.began).Seconds()))
	}
	if spent {
		d.end(a.ended)
	}
}

// watchAnswers takes in what the shim tells of the subject's tools; its syncs come from elsewhere.
func (r *repetition) watchAnswers(ctx context.Context) error {
	r.damages.mu.Lock()
	begin := !r.damages.watched
	r.damages.watched = true
	r.damages.mu.Unlock()
	if !begin || r.shim == nil {
		return nil
	}
	ended, err := r.shim.Calls(r.damages.context(), r.fail)
	if err != nil {
		return err
	}
	r.damages.wait.Go(func() {
		for call := range ended {
			// kube-proxy keeps both families; the scenario's are what is measured.
			if family := call.Family(); family == "" || slices.Contains(r.families, family) {
				r.answered(answer{
					began: call.Start, ended: call.End, planted: call.Fault, failed: call.ExitCode != 0,
					writes: r.about.writes(call) || changesOne(call),
				})
			}
		}
	})
	return nil
}

// changesOne says whether a call of iptables writes a single rule or chain.
func changesOne(c shim.Call) bool {
	return slices.ContainsFunc(c.Args, func(arg string) bool {
		return slices.Contains([]string{"-A", "-I", "-N", "-D", "-X", "-F"}, arg)
	})
}

// told takes in a sync that the lab's own proxier told of.
func (r *repetition) told(s proxier.Sync) {
	ended := s.Written
	if s.Err != nil {
		ended = s.Finished
	}
	r.answered(answer{began: s.Started, ended: ended, sync: true, writes: len(s.Runs) > 0, failed: s.Err != nil})
}
