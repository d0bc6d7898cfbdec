package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/bench/netns"
	"synclab/bench/upstream"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/live"
)

// ExecuteOptions say what to run. Scenario and WorkerArgs are required.
type ExecuteOptions struct {
	Scenario *scenarios.Scenario
	// Objects, when set, are the cluster, instead of one of the scenario's shape.
	Objects *sim.Objects
	// Live, when set, is a cluster to follow, read-only: each repetition begins with its objects as they are then, and
	// steps "follow" make the changes that it makes.
	Live kubernetes.Interface
	// Subjects to measure. Empty: DefaultSubjects.
	Subjects []string
	// Reps of every cell. Default 3.
	Reps int
	// Until, when set, decides how often cells are repeated, instead of Reps. Not for shards.
	Until *Until
	// Out is the run's folder. Empty: runs/<scenario>-<time>.
	Out string
	// Force replaces a run that is in Out.
	Force bool
	// Shard of Shards, from 1, is the part of the run to do; Shards 0: all of it. Then Out is the folder of all shards, each
	// with one of its own in it, by default runs/<scenario>-<digest of the sweep>. See Shard.
	Shard, Shards int
	// Feed is how objects reach the subjects, FeedInformers or FeedAPI. Empty: FeedAPI if a subject is no part of this
	// program, else FeedInformers.
	Feed string
	// KubeProxy is what to run as kube-proxy; zero: the pinned version, built on first use.
	KubeProxy upstream.Options
	// ExecConfig is the template of what {config} stands for in the command of exec subjects; see execConfig. Empty: the
	// KubeProxyConfiguration.
	ExecConfig string
	// MaxMemory is how many bytes a subject and its children may hold before it is stopped, with FeedAPI. 0: no bound.
	MaxMemory uint64
	// ProxyConfig of the proxier; nil: kube-proxy's defaults. What the scenario says of the proxier goes before it.
	ProxyConfig *v1alpha1.KubeProxyConfiguration
	// Dump, when set, gets the rules that were installed at the end of the first repetition of each cell.
	Dump func(subject, rules string)
	// Command is the line that would do this run again.
	Command string
	// WorkerArgs make this program a worker that calls Work.
	WorkerArgs []string
	// ProxyArgs make this program the lab's proxier as a process, as `synclab proxy` does. Required for FeedAPI.
	ProxyArgs []string
	// Progress is told how far the run is; nil: nobody is. Calls come from several goroutines, one at a time.
	Progress func(Progress)
	// Stderr of the workers. Default: this process's.
	Stderr io.Writer

	parsed []Subject // of Subjects
	tools  tools
}

// Progress is how far a run is.
type Progress struct {
	Subject string
	Cell    string // "services=1000", with the swept values
	Rep     int    // of Reps
	Reps    int
	// Passes of all: repetitions of cells and subjects.
	Pass, Passes int
	Stage        string // load, create, churn, settle, …
	Done, Total  int    // of the stage; Total 0: not known
	// Note is a remark worth a line of its own, such as a failed sync.
	Note string
}

// pass is one repetition of one cell with one subject.
type pass struct {
	cell    scenarios.Cell
	subject string // as it was given
	rep     int
	number  int // of the cell, from 0
}

// passes of a run: cell by cell, and in each the subjects take turns (A B A B …), so that what the machine does
// meanwhile meets all of them. Subjects that targets name are measured where they do, others in every cell.
func passes(cells []scenarios.Cell, subjects []string, reps int) []pass {
	var all []pass
	for number := range cells {
		for rep := 1; rep <= reps; rep++ {
			all = append(all, turn(cells, number, rep, subjects)...)
		}
	}
	return all
}

// turn is one repetition of a cell: its subjects in turn.
func turn(cells []scenarios.Cell, number, rep int, subjects []string) []pass {
	cell := cells[number]
	var all []pass
	for _, subject := range subjects {
		named := slices.ContainsFunc(cells, func(c scenarios.Cell) bool { return slices.Contains(c.Subjects, subject) })
		elsewhere := named && !slices.Contains(cell.Subjects, subject)
		if enough := rep > 1 && slices.Contains(cell.Once, subject); !elsewhere && !enough {
			all = append(all, pass{cell, subject, rep, number})
		}
	}
	return all
}

// Execute runs a scenario: each repetition in a worker process with namespaces of its own, its records appended to the
// run's folder as they come. It returns the folder, also with an error: what was measured until then is in it.
func Execute(ctx context.Context, o ExecuteOptions) (dir string, err error) {
	if err := o.fill(); err != nil {
		return "", err
	}
	cells, err := o.Scenario.Cells()
	if err != nil {
		return "", err
	}
	all := passes(cells, o.Subjects, o.Reps)
	var shard *Shard
	if o.Shards != 0 && o.Until != nil {
		return "", errors.New("shards need a number of repetitions: give Reps instead of Until")
	}
	if o.Shards != 0 {
		// The shards beside it are not swept: on a shared volume, whether another machine holds a lock may not be known here.
		if shard, err = o.takeShard(); errors.Is(err, ErrShardComplete) {
			return o.Out, fmt.Errorf("%s: %w", o.Out, err)
		} else if err != nil {
			return "", err
		}
		all = nil
		for _, u := range shard.Units {
			all = append(all, u.passes...)
		}
	} else if err := o.sweep(); err != nil {
		return "", err
	}
	run := Run{
		ID: filepath.Base(o.Out), Started: time.Now(), Command: o.Command, Scenario: *o.Scenario, Subjects: slices.Clone(o.Subjects),
		Reps: o.Reps, Seed: o.Scenario.Seed, Versions: DetectVersions(ctx), Machine: DetectMachine(),
	}
	run.Feed, run.Observed, run.Shard = o.Feed, ObservedKernel, shard
	if o.Until != nil {
		run.Reps, run.Precision = 0, o.Until.Precision
	}
	for i, subject := range o.parsed {
		run.Subjects[i] = subject.Name
	}
	if err := o.prepareTools(ctx, &run.Versions); err != nil {
		return "", err
	}
	w, err := OpenRun(o.Out, run, o.Force)
	if err != nil {
		return "", err
	}
	if o.Until == nil {
		err = o.runAll(ctx, w, all)
	} else {
		err = o.runUntil(ctx, w, cells)
	}
	status, reason := StatusComplete, ""
	switch {
	case ctx.Err() != nil:
		status, err = StatusInterrupted, ctx.Err() // which needs no other reason
	case err != nil:
		status, reason = StatusFailed, err.Error()
	}
	return w.Dir(), errors.Join(err, w.Close(status, reason))
}

func (o *ExecuteOptions) fill() error {
	if len(o.Subjects) == 0 {
		o.Subjects = DefaultSubjects()
	}
	for _, text := range o.Subjects {
		subject, err := ParseSubject(text)
		if err != nil {
			return err
		}
		if err := subject.Available(); err != nil {
			return err
		}
		o.parsed = append(o.parsed, subject)
	}
	if o.Feed == "" {
		o.Feed = feedFor(o.parsed, o.Scenario)
	}
	if o.Reps == 0 {
		o.Reps = 3
	}
	if o.Out == "" && o.Shards == 0 {
		o.Out = newFolder(filepath.Join("runs", o.Scenario.Name+"-"+time.Now().Format("20060102-150405")))
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

// oneAtATime: a cluster that is followed has remarks of its own while a worker tells how far it is.
func oneAtATime(show func(Progress)) func(Progress) {
	var mu sync.Mutex
	return func(p Progress) {
		mu.Lock()
		defer mu.Unlock()
		show(p)
	}
}

// sweep removes the control groups of killed runs, and marks this user's killed runs in the default folder of runs. What
// lies beside another --out is not touched.
func (o *ExecuteOptions) sweep() error {
	if parent, err := ownGroup(); err == nil {
		sweepGroups(parent)
	}
	runs, err := filepath.Abs("runs")
	if out, outErr := filepath.Abs(o.Out); err != nil || outErr != nil || filepath.Dir(out) != runs {
		return errors.Join(err, outErr)
	}
	if _, err := SweepRuns("runs"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("runs that were killed: %w", err)
	}
	return nil
}

// newFolder is name, or name-2 and so on: two runs may start within a second.
func newFolder(name string) string {
	folder := name
	for n := 2; ; n++ {
		if _, err := os.Stat(folder); errors.Is(err, os.ErrNotExist) {
			return folder
		}
		folder = fmt.Sprintf("%s-%d", name, n)
	}
}

func (o *ExecuteOptions) runAll(ctx context.Context, w *RunWriter, all []pass) error {
	return o.runPasses(ctx, w, all, map[string]bool{}, 0, len(all))
}

// runPasses runs some passes, after those that are done, of so many in all. stopped are cells and subjects that exceeded a
// budget: more of it would cost as much again.
func (o *ExecuteOptions) runPasses(ctx context.Context, w *RunWriter, all []pass, stopped map[string]bool, done, total int) error {
	for i, p := range all {
		if stopped[o.passName(p)] {
			continue
		}
		progress := Progress{Subject: p.subject, Cell: o.cellName(p.cell), Rep: p.rep, Reps: o.Reps, Pass: done + i + 1, Passes: max(total, done+len(all))}
		exceeded, err := o.runPass(ctx, w, p, progress)
		stopped[o.passName(p)] = exceeded
		if err != nil {
			return fmt.Errorf("%s, %s, repetition %d: %w", p.subject, progress.Cell, p.rep, err)
		}
	}
	return nil
}

func (o *ExecuteOptions) passName(p pass) string { return o.cellName(p.cell) + " " + p.subject }

func (o *ExecuteOptions) cellName(c scenarios.Cell) string {
	services := c.Scenario.Shape.Services
	if o.Objects != nil {
		services = len(o.Objects.Services)
	}
	parts := []string{fmt.Sprintf("services=%d", services)}
	if o.Live != nil {
		parts = []string{"live"}
	}
	for _, axis := range sortedKeys(c.Params) {
		if axis != "shape.services" {
			parts = append(parts, axis+"="+c.Params[axis])
		}
	}
	return strings.Join(parts, " ")
}

// runPass starts a worker and takes in what it says.
func (o *ExecuteOptions) runPass(ctx context.Context, w *RunWriter, p pass, progress Progress) (exceeded bool, err error) {
	assignment := Assignment{
		Scenario: p.cell.Scenario, Params: p.cell.Params, Subject: p.subject, Rep: p.rep,
		Objects: o.Objects, ProxyConfig: o.ProxyConfig, Dump: o.Dump != nil && p.rep == 1,
		Feed: o.Feed, Tools: o.tools, ExecConfig: o.ExecConfig, MaxMemory: o.MaxMemory, ProxyArgs: o.ProxyArgs,
		Command: o.Command,
	}
	assignment.Live = o.Live != nil
	stdin, told, err := o.tell(ctx, assignment)
	if err != nil {
		return false, err
	}
	out, in := io.Pipe()
	taken := make(chan error, 1)
	var end ending
	go func() {
		err := o.take(out, w, progress, &end)
		_ = out.CloseWithError(err) // a worker whose words are not understood must not wait for ever
		taken <- err
	}()
	err = netns.Reexec(ctx, stdin, in, o.Stderr, nil, o.WorkerArgs...)
	_ = in.Close()
	takeErr := errors.Join(<-taken, told())
	if end.failure != "" {
		err = errors.New(end.failure)
	}
	return end.exceeded, errors.Join(killed(err), takeErr)
}

// killed makes the error of a worker that did not end by itself, and so could not say why, say what there is to say.
func killed(err error) error {
	var ended *exec.ExitError
	switch {
	case !errors.As(err, &ended) || ended.Exited():
		return err
	case netns.ExitCode(err) == 128+int(unix.SIGKILL):
		return fmt.Errorf("the worker was killed (%w): out of memory?", err)
	}
	return fmt.Errorf("the worker was killed (%w)", err)
}

// ending is what a worker said of how it ended.
type ending struct {
	failure  string
	exceeded bool // the subject exceeded a budget and was stopped
}

// take reads the worker's messages until it ends.
func (o *ExecuteOptions) take(r io.Reader, w *RunWriter, progress Progress, end *ending) error {
	decoder := json.NewDecoder(r)
	for {
		var m message
		if err := decoder.Decode(&m); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil
			}
			return fmt.Errorf("worker: %w", err)
		}
		switch {
		case m.Record != nil:
			end.exceeded = end.exceeded || m.Record.Metric == Exceeded
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
		case m.UserNamespace:
			if err := w.Update(func(run *Run) { run.Machine.UserNamespace = true }); err != nil {
				return err
			}
		case m.Failure != "":
			end.failure = m.Failure
		}
	}
}

// Assignment is what a worker is told to do.
type Assignment struct {
	Scenario    scenarios.Scenario
	Params      map[string]string
	Subject     string
	Rep         int
	Objects     *sim.Objects
	ProxyConfig *v1alpha1.KubeProxyConfiguration
	Dump        bool
	Feed        string
	Tools       tools
	ExecConfig  string
	MaxMemory   uint64
	ProxyArgs   []string
	Command     string // that makes the run again
	// Live: the Objects, and what happens to them, follow on stdin.
	Live bool
}

// message is one thing a worker says, as a JSON line.
type message struct {
	Record      *Record `json:",omitempty"`
	Stage       string  `json:",omitempty"`
	Done, Total int     `json:",omitempty"`
	Note        string  `json:",omitempty"`
	Rules       string  `json:",omitempty"`
	Failure     string  `json:",omitempty"`
	// UserNamespace: the worker is root only in a user namespace of its own.
	UserNamespace bool `json:",omitempty"`
}

// Work is a worker's whole life: it enters its namespace, reads its assignment and does it.
func Work(ctx context.Context, in io.Reader, out io.Writer) error {
	runtime.LockOSThread() // the process ends with this; nothing else must inherit the thread
	lab, err := netns.Enter()
	if err != nil {
		return err
	}
	var a Assignment
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
	say := newSpeaker(out)
	if lab.User {
		say.message(message{UserNamespace: true})
	}
	err = perform(ctx, lab, a, changes, say)
	if err != nil && ctx.Err() == nil {
		say.message(message{Failure: err.Error()})
	}
	return errors.Join(say.err(), lab.Close()) // the parent tells of the failure, or of the interruption
}
