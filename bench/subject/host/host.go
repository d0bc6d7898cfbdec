package host

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"synclab/bench/lab/machine"
	"synclab/bench/lab/process"
	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/subject/socketlb"
	"synclab/bench/subject/visible"
	"synclab/scenarios"
	"synclab/sim/front"
)

// Host runs the subject of a repetition: it starts, stops and restarts it, and records what it costs.
type Host struct {
	*pass.Env
	Subject  Subject      // nil while none runs
	Harness  *Harness     // survives restarts of the subject
	Front    *front.Front // serves the API to a subject process; nil: the subject runs in this process
	Listener *front.Listener
	Began    time.Time
	// Mortal: a fault may kill the subject's process; it is then restarted.
	Mortal atomic.Bool
	// Reacting: the current step makes isolated changes.
	Reacting atomic.Bool
	// OthersCommit is how many other programs write rules all the time, so that commits never stop.
	OthersCommit atomic.Int32
	syncs        syncs
	failed       failures
	sockets      *socketlb.Balancer // of subject Cilium
	// leaveGroup ends the cgroup of a run with subject Cilium.
	leaveGroup func() error
	profiling  profiling
	Work       work
	spent      time.Duration // CPU time of stopped subjects
	// shimSpent is the shim's own CPU time in the calls before offset shimRead of its file.
	shimSpent time.Duration
	shimRead  int64
	Memory    uint64 // kernel memory before any rule
	peak      uint64 // the largest peak RSS before the last call of aside
	// PrepareTool and toolStarted let faults affect the tools of a subject in this process.
	PrepareTool func(*exec.Cmd)
	ToolStarted func(*os.Process)
	// Watched returns how to watch the subject by packets; nil: its rules are known.
	Watched func(context.Context) (*visible.PacketOptions, error)
}

// Subject is the subject while it runs. inProcess is the lab's own proxier on the fake clientset's informers. processSubject is
// any proxier in a separate process, fed by the fake API server. The same watcher of the kernel observes both.
type Subject interface {
	// stop ends the subject and leaves its rules in place.
	stop() error
	// running returns its process; nil: it runs in this one.
	running() *process.Process
	// InSync waits until the subject has seen every change and the kernel has the desired state.
	InSync(ctx context.Context) error
	// Disturbed notifies that something changed the subject's rules: the watcher must read them again.
	Disturbed()
	// Count records the subject's rules in the kernel.
	Count() error
	// peakRSS returns the peak memory of its process, in bytes.
	peakRSS() (uint64, error)
	// Aside runs work that is not measured, such as reading whole tables back. Its memory does not count.
	Aside(do func() error) error
}

// Start starts the subject with the current cluster. made is the time for making that cluster, in seconds.
func (r *Host) Start(ctx context.Context, made float64) (err error) {
	for _, listen := range r.Events.Starting {
		if err := listen(ctx); err != nil {
			return err
		}
	}
	r.Mortal.Store(false)
	if r.Feed == raw.FeedAPI {
		r.Subject, err = r.startProcess(ctx)
	} else {
		r.Subject, err = r.startInProcess(ctx, made)
	}
	return err
}

func (r *Host) Restart(ctx context.Context, name string) error {
	r.Messages.Stage(name, 0, 0)
	for _, listen := range r.Events.Restarting {
		listen(ctx)
	}
	if err := r.Stop(); err != nil {
		return err
	}
	return r.Start(ctx, 0)
}

// Process returns the subject's process; nil: none runs, or it runs in this process.
func (r *Host) Process() *process.Process {
	if r.Subject == nil {
		return nil
	}
	return r.Subject.running()
}

// Revive restarts a subject that a fault ended.
func (r *Host) Revive(ctx context.Context) error {
	p := r.Process()
	if p == nil || !r.Mortal.Load() {
		return nil
	}
	select {
	case <-p.Done():
	default:
		return nil
	}
	lines := strings.Split(strings.TrimSpace(fmt.Sprint(p.Err())), "\n")
	r.Messages.Send(pass.Message{Note: fmt.Sprintf("%s ended and is restarted: %s", r.Subject, lines[0])})
	if err := r.Stop(); err != nil {
		return err
	}
	if err := r.Start(ctx, 0); err != nil {
		return err
	}
	r.Subject.Disturbed()
	return nil
}

// Stop ends the subject, if one runs.
func (r *Host) Stop() error {
	if r.Subject == nil {
		return nil
	}
	s := r.Subject
	r.Subject = nil
	return s.stop()
}

// work is the time from a step that makes changes to the end of its settle step, or of a probe.
type work struct {
	step  string
	fault bool // the step is a fault: the work belongs to the changes after it
	Began time.Time
	CPU   time.Duration // of the subject until began
	lab   time.Duration // of the lab's own process until began
}

func (r *Host) BeginWork(step *scenarios.Step, name string) {
	if !scenarios.RoleOf(step.Kind()).Belongs() {
		r.failed.forget()
	}
	switch {
	case r.Work.step == "":
		r.Work = work{step: name, fault: step.Fault != nil}
		r.WorkBegins()
	case r.Work.fault && step.Settle == nil:
		r.Work.step, r.Work.fault = name, step.Fault != nil
	}
}

// WorkBegins takes the time and the CPU times from which on the work of the current step counts.
func (r *Host) WorkBegins() {
	r.Work.Began, r.Work.CPU, r.Work.lab = r.Clock.Now(), r.CPU(), machine.OwnCPU()
}

// EndWork records the CPU times of the subject and of the lab for a step and its consequences.
func (r *Host) EndWork() {
	if now := r.CPU(); r.Work.step != "" && now > r.Work.CPU {
		r.RecordAs(raw.Record{Step: r.Work.step}, raw.SubjectCPU, (now - r.Work.CPU).Seconds())
		r.RecordAs(raw.Record{Step: r.Work.step}, raw.LabCPU, (machine.OwnCPU() - r.Work.lab).Seconds())
	}
	r.Work = work{}
}

// CPU returns the CPU time of all subjects so far, without the shim's and that of readings of their metrics. It is 0 where it
// cannot be separated from the lab's.
func (r *Host) CPU() time.Duration {
	total := r.spent
	if p := r.Process(); p != nil {
		if used, err := p.CPU(); err == nil {
			total += used
		}
	}
	if r.Harness != nil {
		total -= r.Harness.readings.time()
	}
	return max(0, total-r.shimTime())
}

// shimTime returns the shim's own CPU time in all calls that have ended. The shim is a child of the subject.
func (r *Host) shimTime() time.Duration {
	if r.Shim == nil {
		return 0
	}
	calls, next, err := r.Shim.Read(r.shimRead)
	if err != nil {
		r.Fail(err)
	}
	r.shimRead = next
	for _, call := range calls {
		r.shimSpent += call.Own
	}
	return r.shimSpent
}

func (r *Host) PeakMemory() {
	if r.Subject == nil {
		return
	}
	if rss, err := r.Subject.peakRSS(); err == nil {
		r.RecordAs(raw.Record{}, raw.PeakRSS, float64(rss))
	}
	if r.Process() == nil { // the subject is in this process
		return
	}
	if rss, err := machine.ReadPeakRSS(); err == nil {
		r.RecordAs(raw.Record{}, raw.LabPeakRSS, float64(rss))
	}
}
