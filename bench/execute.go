package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/montanaflynn/stats"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/bench/lab/cgroup"
	"synclab/bench/lab/machine"
	"synclab/bench/lab/netns"
	"synclab/bench/lab/upstream"
	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/bench/traffic/flow"
	"synclab/bench/verify/check"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/live"
)

// ExecuteOptions describe a run. Scenario and WorkerArgs are required.
type ExecuteOptions struct {
	Scenario *scenarios.Scenario
	// Objects, when set, are the cluster, instead of one of the scenario's shape.
	Objects *sim.Objects
	// Live, when set, is a cluster to follow, read-only. Each repetition starts with the cluster's objects at that time.
	// Steps "follow" apply the changes of the cluster.
	Live kubernetes.Interface
	// Subjects to measure. Empty: DefaultSubjects.
	Subjects []string
	// Reps of every cell. Default 3.
	Reps int
	// Until, when set, decides how often cells are repeated, instead of Reps. Not for shards.
	Until *Until
	// Out is the run's folder. Empty: runs/<scenario>-<time>.
	Out string
	// Force replaces a run in Out.
	Force bool
	// Shard of Shards, from 0, is the part of the run to do; Shards 0: the whole run. With shards, Out is their common
	// folder, by default runs/<scenario>-<digest of the sweep>. Each shard has a separate folder in it. See raw.Shard.
	Shard, Shards int
	// Feed is how objects reach the subjects: FeedInformers or FeedAPI. Empty: FeedAPI if a subject is not part of this
	// program, else FeedInformers.
	Feed string
	// Kernels to measure on: raw.HostKernel, or versions of Linux for upstream.Linux. Empty: the machine's own.
	Kernels []string
	// KubeProxy is what to run as kube-proxy; zero: the pinned version, built on first use.
	KubeProxy upstream.Options
	// ExecConfig is the template for {config} in the command of exec subjects; see execConfig. Empty: the
	// KubeProxyConfiguration.
	ExecConfig string
	// ExecEnv are the names of variables of the environment that exec subjects get, besides those of all subjects.
	ExecEnv []string
	// MaxMemory is the limit, in bytes, of a subject and its children, with FeedAPI. Beyond it the subject is stopped.
	// 0: no limit.
	MaxMemory uint64
	// ProxyConfig configures the proxier; nil: kube-proxy's defaults. The scenario's proxy settings override it.
	ProxyConfig *v1alpha1.KubeProxyConfiguration
	// Profile takes profiles. Each cell is measured twice, with and without samples, to know what they cost; OnlyProfiled
	// leaves out the latter.
	Profile, OnlyProfiled bool
	// Dump, when set, gets the rules at the end of the first repetition of each cell.
	Dump func(subject, rules string)
	// Command is the command line that repeats this run.
	Command string
	// WorkerArgs make this program a worker that calls Work.
	WorkerArgs []string
	// ProxyArgs make this program the lab's proxier as a process, as `synclab proxy` does. Required for FeedAPI.
	ProxyArgs []string
	// Progress reports the progress of the run. May be nil. Calls come from several goroutines, one at a time.
	Progress func(Progress)
	// Stderr of the workers. Default: this process's.
	Stderr io.Writer

	plans   bool         // for Plan
	enough  []pass.Bound // of each assignment
	noted   func(r *raw.Record)
	parsed  []subject.Spec // of Subjects
	running []subject.Spec // those and the ones that step migrate starts
	tools   pass.Tools
	own     map[string]ownConfig // of subjects that have one, by its name
	ends    time.Time            // of the budget of Until
	before  string               // the subject of the previous pass
	guests  map[string]string    // paths of kernels other than the machine's, by name
}

// Progress is the progress of a run.
type Progress struct {
	Subject string
	Cell    string // "services=1000", with the swept values
	Rep     int    // of Reps
	Reps    int
	// Pass of Passes: each is one repetition of one cell with one subject.
	Pass, Passes int
	Stage        string // load, create, churn, settle, …
	Done, Total  int    // of the stage; Total 0: unknown
	// Note is a remark for a separate line, such as a failed sync.
	Note string
	// Left is the estimated time from the start of this pass to the end of the run; 0: unknown. Without Passes it is what
	// the budget leaves, and the run may end before.
	Left time.Duration
	// Figures are there when the pass has ended.
	Figures []Figure
}

// Figure is the median of a pass's durations, in seconds.
type Figure struct {
	Metric raw.Metric `json:"metric"`
	Name   string     `json:"name"`
	Median float64    `json:"median"`
}

// shownFigures are those of Progress.
var shownFigures = []Figure{
	{Metric: raw.ColdStart, Name: "cold start"}, {Metric: raw.Reaction, Name: "reaction"}, {Metric: raw.NetworkProgrammingLatency, Name: "npl"},
	{Metric: raw.FullSync, Name: "full sync"}, {Metric: raw.PartialSync, Name: "partial sync"},
}

// Execute runs a scenario. Each repetition has a worker process with its own namespaces. Records are appended to the
// run's folder as they come. Execute returns the folder, also with an error: the folder has what was measured until
// then.
func Execute(ctx context.Context, o ExecuteOptions) (dir string, err error) {
	if err := o.fill(); err != nil {
		return "", err
	}
	cells, left, err := o.cells()
	if err != nil {
		return "", err
	}
	if o.Objects != nil {
		o.Progress(Progress{Note: strings.Join(append([]string{describe(o.Objects)}, left...), "\n")})
	}
	all := slots(cells, o.Subjects, o.Reps, o.Scenario.Seed)
	var shard *raw.Shard
	if o.Shards != 0 && o.Until != nil {
		return "", errors.New("shards need a number of repetitions: give Reps instead of Until")
	}
	if o.Shards != 0 {
		// Other shards are not swept: on a shared volume, this machine may not see another machine's lock.
		if shard, all, err = o.takeShard(cells); errors.Is(err, ErrShardComplete) {
			return o.Out, fmt.Errorf("%s: %w", o.Out, err)
		} else if err != nil {
			return "", err
		}
	} else if err := o.sweep(); err != nil {
		return "", err
	}
	run := raw.Run{
		Started: time.Now(), Command: o.Command, Scenario: *o.Scenario, Subjects: slices.Clone(o.Subjects),
		Reps: o.Reps, Seed: o.Scenario.Seed, Versions: machine.DetectVersions(ctx), Machine: machine.DetectMachine(),
	}
	run.Feed, run.ExecEnv, run.Observed, run.Shard, run.LeftOut = o.Feed, o.ExecEnv, raw.ObservedKernel, shard, left
	if o.Until != nil {
		run.Reps, run.Precision = 0, o.Until.Precision
	}
	for i, subject := range o.parsed {
		run.Subjects[i] = subject.Name
	}
	if err := errors.Join(o.prepareTools(ctx, &run), o.prepareKernels(ctx, &run)); err != nil {
		return "", err
	}
	w, err := o.open(o.Scenario.Name, run)
	if err != nil {
		return "", err
	}
	if o.Until == nil {
		err = o.runSlots(ctx, w, all, map[string]bool{}, 0, len(all))
	} else {
		err = o.runUntil(ctx, w, cells)
	}
	status, reason := raw.StatusComplete, ""
	switch {
	case ctx.Err() != nil:
		status, err = raw.StatusInterrupted, ctx.Err() // the status says enough
	case err != nil:
		status, reason = raw.StatusFailed, err.Error()
	}
	return w.Dir(), errors.Join(err, w.Close(status, reason))
}

func (o *ExecuteOptions) fill() error {
	if len(o.Subjects) == 0 {
		o.Subjects = subject.DefaultSubjects()
	}
	for _, text := range o.Subjects {
		subject, err := subject.Parse(text)
		if err != nil {
			return err
		}
		if err := subject.Available(); err != nil {
			return err
		}
		if err := o.readOwn(subject); err != nil {
			return err
		}
		if checks := slices.ContainsFunc(o.Scenario.Steps, func(s scenarios.Step) bool { return s.Check != nil && !check.AsksOnly(s.Check.Invariants) }); checks && !subject.RulesCarry() {
			return fmt.Errorf("subject %s: step check evaluates rules of iptables or nftables, but rules alone do not carry this subject's packets: leave it out", subject.Name)
		}
		o.parsed = append(o.parsed, subject)
	}
	o.running = slices.Clone(o.parsed)
	for _, step := range o.Scenario.Steps {
		if step.Migrate == nil || step.Migrate.To == "" {
			continue
		}
		to, err := subject.Parse(step.Migrate.To)
		if err != nil {
			return fmt.Errorf("step migrate: %w", err)
		}
		if err := to.Available(); err != nil {
			return err
		}
		if to.Config != "" || to.Tools != "" {
			return fmt.Errorf("step migrate: %s: +config and +tools are for subjects of a run", to.Name)
		}
		o.running = append(o.running, to)
	}
	verdicts := slices.ContainsFunc(o.Scenario.Steps, func(s scenarios.Step) bool { return s.Probe != nil && s.Probe.Kind == "verdicts" })
	moves := slices.ContainsFunc(o.Scenario.Steps, func(s scenarios.Step) bool { return s.Migrate != nil })
	for _, s := range o.running {
		if s.Carrier == subject.Sockets && (moves || verdicts) {
			return fmt.Errorf("subject %s: leave it out, or step migrate and probes of kind verdicts. It serves sockets, and they also look at rules and at packets from elsewhere", s.Name)
		}
	}
	if err := o.checkKernels(); err != nil {
		return err
	}
	if err := o.checkProfile(); err != nil {
		return err
	}
	if o.Feed == "" {
		o.Feed = feedFor(o.running, o.Scenario)
	}
	if o.Reps == 0 {
		o.Reps = 3
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	o.Progress = oneAtATime(o.Progress)
	if o.Stderr == nil {
		o.Stderr = os.Stderr
	}
	return nil
}

// feedFor returns the default feed. It is the API if one subject is not part of this program or has settings of a
// process, so that all subjects are fed and measured alike. It is also the API if a step must know when the kernel has a
// change.
func feedFor(subjects []subject.Spec, s *scenarios.Scenario) string {
	if slices.ContainsFunc(s.Steps, func(step scenarios.Step) bool { return flow.Sends(step) || step.Check != nil || step.Migrate != nil }) {
		return raw.FeedAPI
	}
	if slices.ContainsFunc(subjects, func(s subject.Spec) bool { return !s.Own || s.OfProcess() }) {
		return raw.FeedAPI
	}
	return raw.FeedInformers
}

// oneAtATime serializes calls of show: a followed cluster reports remarks while a worker reports progress.
func oneAtATime(show func(Progress)) func(Progress) {
	var mu sync.Mutex
	return func(p Progress) {
		mu.Lock()
		defer mu.Unlock()
		show(p)
	}
}

// sweep removes the control groups of killed runs. In the default folder of runs, it marks this user's killed runs. It
// changes nothing beside another --out.
func (o *ExecuteOptions) sweep() error {
	if parent, err := cgroup.Own(); err == nil {
		cgroup.Sweep(parent)
	}
	if o.Out != "" {
		runs, err := filepath.Abs(raw.RunsFolder)
		if out, outErr := filepath.Abs(o.Out); err != nil || outErr != nil || filepath.Dir(out) != runs {
			return errors.Join(err, outErr)
		}
	}
	if _, err := raw.SweepRuns(raw.RunsFolder); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("mark killed runs: %w", err)
	}
	return nil
}

// open opens the run's folder, by default a new one of this kind.
func (o *ExecuteOptions) open(kind string, run raw.Run) (*raw.RunWriter, error) {
	if o.Out == "" {
		var err error
		if o.Out, err = raw.NewFolder(kind, run.Started); err != nil {
			return nil, err
		}
	}
	run.ID = filepath.Base(o.Out)
	return raw.OpenRun(o.Out, run, o.Force)
}

// runSlots runs passes; done of total ran before. stopped has the cells and subjects that exceeded a budget: another
// repetition would exceed it too.
func (o *ExecuteOptions) runSlots(ctx context.Context, w *raw.RunWriter, all []slot, stopped map[string]bool, done, total int) error {
	var times passTimes
	for i, p := range all {
		if stopped[o.slotName(p)] {
			continue
		}
		progress := Progress{Subject: p.subject, Cell: o.cellName(p.cell), Rep: p.rep, Reps: o.Reps, Pass: done + i + 1, Passes: max(total, done+len(all))}
		if o.Until != nil {
			progress.Passes, progress.Left = 0, max(0, time.Until(o.ends)) // how many follow depends on the results
		} else {
			progress.Left = times.left(o, all[i:], stopped)
		}
		began := time.Now()
		exceeded, err := o.runSlot(ctx, w, p, progress)
		stopped[o.slotName(p)] = exceeded
		times.add(p.subject, progress.Cell, p.cell.Scenario.Shape.Services, time.Since(began))
		if err != nil {
			return fmt.Errorf("%s, %s, repetition %d: %w", p.subject, progress.Cell, p.rep, err)
		}
	}
	return nil
}

func (o *ExecuteOptions) slotName(p slot) string { return o.cellName(p.cell) + " " + p.subject }

func (o *ExecuteOptions) cellName(c scenarios.Cell) string {
	services := c.Scenario.Shape.Services
	if o.Objects != nil {
		services = len(o.Objects.Services)
	}
	parts := []string{fmt.Sprintf("services=%d", services)}
	if o.Live != nil {
		parts = []string{"live"}
	}
	for _, axis := range slices.Sorted(maps.Keys(c.Params)) {
		if axis != "shape.services" {
			parts = append(parts, axis+"="+c.Params[axis])
		}
	}
	return strings.Join(parts, " ")
}

// runSlot starts a worker and reads its messages.
func (o *ExecuteOptions) runSlot(ctx context.Context, w *raw.RunWriter, p slot, progress Progress) (exceeded bool, err error) {
	assignment := pass.Assignment{
		Scenario: p.cell.Scenario, Params: p.cell.Params, Subject: p.subject, Rep: p.rep,
		Objects: o.Objects, ProxyConfig: o.ProxyConfig, Dump: o.Dump != nil && p.rep == 1,
		Feed: o.Feed, Tools: o.tools, ExecConfig: o.ExecConfig, ExecEnv: o.ExecEnv, MaxMemory: o.MaxMemory, ProxyArgs: o.ProxyArgs,
		Turn: p.turn, After: o.before,
		Command: o.Command, Enough: o.enough, ClusterIPsOnly: slices.ContainsFunc(o.running, subject.Spec.ClusterIPsOnly),
	}
	assignment.Live = o.Live != nil
	if p.cell.Params[raw.ProfileField] == raw.ProfileOn {
		assignment.ProfileFile = fmt.Sprintf("%03d-%s-%d-services-rep-%d.pb.gz", progress.Pass, fileName(p.subject), p.cell.Scenario.Shape.Services, p.rep)
	}
	if about, err := subject.Parse(p.subject); err == nil {
		o.before = about.Name
	}
	release, err := o.useOwn(ctx, p.subject, &assignment)
	if err != nil {
		return false, err
	}
	defer release()
	stdin, finish, err := o.tell(ctx, assignment)
	if err != nil {
		return false, err
	}
	out, in := io.Pipe()
	taken := make(chan error, 1)
	var end ending
	go func() {
		err := o.take(out, w, progress, &end)
		_ = out.CloseWithError(err) // a worker must not block when its messages cannot be read
		taken <- err
	}()
	err = o.startWorker(ctx, w, p, stdin, in)
	_ = in.Close()
	takeErr := errors.Join(<-taken, finish())
	if end.failure != "" {
		err = errors.New(end.failure)
	}
	if progress.Figures = end.figures(); len(progress.Figures) > 0 {
		o.Progress(progress)
	}
	return end.exceeded, errors.Join(killed(err), takeErr)
}

// killed adds the likely reason to the error of a worker that a signal ended before it could report one.
func killed(err error) error {
	var worker *netns.WorkerError
	switch {
	case !errors.As(err, &worker) || worker.Exited():
		return err
	case worker.Signal == unix.SIGKILL:
		return fmt.Errorf("the worker was killed (%w): out of memory?", err)
	}
	return fmt.Errorf("the worker was killed (%w)", err)
}

// ending is what a worker reported when it ended.
type ending struct {
	failure  string
	exceeded bool // the subject exceeded a budget and was stopped
	values   map[raw.Metric][]float64
}

// note keeps the durations that figures shows.
func (e *ending) note(r *raw.Record) {
	if r.Error == "" && slices.ContainsFunc(shownFigures, func(f Figure) bool { return f.Metric == r.Metric }) {
		if e.values == nil {
			e.values = map[raw.Metric][]float64{}
		}
		e.values[r.Metric] = append(e.values[r.Metric], r.Value)
	}
}

// figures are the medians of what was noted.
func (e *ending) figures() []Figure {
	var out []Figure
	for _, f := range shownFigures {
		if values := e.values[f.Metric]; len(values) > 0 {
			median, _ := stats.Median(values) // there are values
			out = append(out, Figure{f.Metric, f.Name, median})
		}
	}
	return out
}

// take reads the worker's messages until it ends.
func (o *ExecuteOptions) take(r io.Reader, w *raw.RunWriter, progress Progress, end *ending) error {
	decoder := json.NewDecoder(r)
	for {
		var m pass.Message
		if err := decoder.Decode(&m); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil
			}
			return fmt.Errorf("worker: %w", err)
		}
		switch {
		case m.Record != nil:
			end.exceeded = end.exceeded || m.Record.Metric == raw.Exceeded
			end.note(m.Record)
			if o.noted != nil {
				o.noted(m.Record)
			}
			if err := w.Write(*m.Record); err != nil {
				return err
			}
		case m.Stage != "":
			progress.Stage, progress.Done, progress.Total, progress.Note = m.Stage, m.Done, m.Total, ""
			o.Progress(progress)
		case m.Note != "":
			progress.Note = m.Note
			o.Progress(progress)
		case m.Rules != "":
			o.Dump(progress.Subject, m.Rules)
		case m.File != "":
			if err := w.WriteProfile(m.File, m.Content); err != nil {
				return err
			}
		case m.UserNamespace:
			if err := w.Update(func(run *raw.Run) { run.Machine.UserNamespace = true }); err != nil {
				return err
			}
		case m.Failure != "":
			end.failure = m.Failure
		}
	}
}

// Work runs a worker: it enters its namespace, reads its assignment and executes it.
func Work(ctx context.Context, in io.Reader, out io.Writer) error {
	runtime.LockOSThread() // until the process ends: no other goroutine may inherit the thread
	lab, err := netns.Enter()
	if err != nil {
		return err
	}
	var a pass.Assignment
	words := json.NewDecoder(in)
	if err := words.Decode(&a); err != nil {
		return fmt.Errorf("assignment: %w", err)
	}
	var changes *live.Decoder
	if a.Live {
		changes = live.NewDecoder(io.MultiReader(words.Buffered(), in))
		if a.Objects, err = changes.Snapshot(); err != nil {
			return fmt.Errorf("snapshot: %w", err)
		}
	}
	say := pass.NewMessageWriter(out)
	if lab.User {
		say.Send(pass.Message{UserNamespace: true})
	}
	err = perform(ctx, lab, a, changes, say)
	if err != nil && ctx.Err() == nil {
		say.Send(pass.Message{Failure: err.Error()})
	}
	return say.Err() // the parent reports the failure or the interruption
}
