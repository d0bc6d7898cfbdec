package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/bench/netns"
	"synclab/proxier/iptables"
	"synclab/scenarios"
	"synclab/sim"
)

// ExecuteOptions say what to run. Scenario and WorkerArgs are required.
type ExecuteOptions struct {
	Scenario *scenarios.Scenario
	// Objects, when set, are the cluster, instead of one of the scenario's shape.
	Objects *sim.Objects
	// Subjects to measure. Empty: DefaultSubjects.
	Subjects []string
	// Reps of every cell. Default 3.
	Reps int
	// Out is the run's folder. Empty: runs/<scenario>-<time>.
	Out string
	// Force replaces a run that is in Out.
	Force bool
	// ProxyConfig of the proxier; nil: kube-proxy's defaults. What the scenario says of the proxier goes before it.
	ProxyConfig *v1alpha1.KubeProxyConfiguration
	// Dump, when set, gets the rules that were installed at the end of the first repetition of each cell.
	Dump func(subject, rules string)
	// Command is the line that would do this run again.
	Command string
	// WorkerArgs make this program a worker that calls Work.
	WorkerArgs []string
	// Progress is told how far the run is; nil: nobody is. It is called from one goroutine.
	Progress func(Progress)
	// Stderr of the workers. Default: this process's.
	Stderr io.Writer
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

// DefaultSubjects are what this machine can run at any size: the legacy variant, or the nft variant where there is no
// other. (iptables-nft-restore takes minutes for a few thousand Services in one restore.)
func DefaultSubjects() ([]string, error) {
	for _, subject := range Subjects() {
		if _, err := iptables.FindBinary(iptables.Binary(subject.Variant, "IPv4", "restore")); err == nil {
			return []string{subject.Name}, nil
		}
	}
	return nil, errors.New("no iptables on this machine: run 'make deps', or install the package iptables")
}

// Subject is one thing that can be measured.
type Subject struct {
	Name    string
	Variant iptables.Variant
}

// Subjects are all that the lab knows.
func Subjects() []Subject {
	return []Subject{
		{Name: "synclab/iptables-legacy", Variant: iptables.Legacy},
		{Name: "synclab/iptables-nft", Variant: iptables.Nft},
	}
}

func subjectOf(name string) (Subject, error) {
	for _, s := range Subjects() {
		if s.Name == name {
			return s, nil
		}
	}
	return Subject{}, fmt.Errorf("subject %q is not known", name)
}

// pass is one repetition of one cell with one subject.
type pass struct {
	cell    scenarios.Cell
	subject string
	rep     int
}

// passes of a run: cell by cell, and in each the subjects take turns (A B A B …), so that what the machine does
// meanwhile meets all of them.
func passes(cells []scenarios.Cell, subjects []string, reps int) []pass {
	var all []pass
	for _, cell := range cells {
		for rep := 1; rep <= reps; rep++ {
			for _, subject := range subjects {
				all = append(all, pass{cell, subject, rep})
			}
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
	if _, err := SweepRuns(filepath.Dir(o.Out)); err != nil {
		return "", fmt.Errorf("runs that were killed: %w", err)
	}
	run := Run{
		ID: filepath.Base(o.Out), Started: time.Now(), Command: o.Command, Scenario: *o.Scenario, Subjects: o.Subjects,
		Reps: o.Reps, Seed: o.Scenario.Seed, Versions: DetectVersions(ctx), Machine: DetectMachine(),
	}
	w, err := OpenRun(o.Out, run, o.Force)
	if err != nil {
		return "", err
	}
	err = o.runAll(ctx, w, passes(cells, o.Subjects, o.Reps))
	status, reason := StatusComplete, ""
	switch {
	case ctx.Err() != nil:
		status, reason, err = StatusInterrupted, "interrupted", ctx.Err()
	case err != nil:
		status, reason = StatusFailed, err.Error()
	}
	return w.Dir(), errors.Join(err, w.Close(status, reason))
}

func (o *ExecuteOptions) fill() error {
	if len(o.Subjects) == 0 {
		var err error
		if o.Subjects, err = DefaultSubjects(); err != nil {
			return err
		}
	}
	for _, name := range o.Subjects {
		subject, err := subjectOf(name)
		if err != nil {
			return err
		}
		if _, err := iptables.FindBinary(iptables.Binary(subject.Variant, "IPv4", "restore")); err != nil {
			return fmt.Errorf("subject %s: %w", name, err)
		}
	}
	if o.Reps == 0 {
		o.Reps = 3
	}
	if o.Out == "" {
		o.Out = newFolder(filepath.Join("runs", o.Scenario.Name+"-"+time.Now().Format("20060102-150405")))
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	if o.Stderr == nil {
		o.Stderr = os.Stderr
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
	for i, p := range all {
		progress := Progress{Subject: p.subject, Cell: o.cellName(p.cell), Rep: p.rep, Reps: o.Reps, Pass: i + 1, Passes: len(all)}
		if err := o.runPass(ctx, w, p, progress); err != nil {
			return fmt.Errorf("%s, %s, repetition %d: %w", p.subject, progress.Cell, p.rep, err)
		}
	}
	return nil
}

func (o *ExecuteOptions) cellName(c scenarios.Cell) string {
	services := c.Scenario.Shape.Services
	if o.Objects != nil {
		services = len(o.Objects.Services)
	}
	parts := []string{fmt.Sprintf("services=%d", services)}
	for _, axis := range sortedKeys(c.Params) {
		if axis != "shape.services" {
			parts = append(parts, axis+"="+c.Params[axis])
		}
	}
	return strings.Join(parts, " ")
}

// runPass starts a worker and takes in what it says.
func (o *ExecuteOptions) runPass(ctx context.Context, w *RunWriter, p pass, progress Progress) error {
	assignment := Assignment{
		Scenario: p.cell.Scenario, Params: p.cell.Params, Subject: p.subject, Rep: p.rep,
		Objects: o.Objects, ProxyConfig: o.ProxyConfig, Dump: o.Dump != nil && p.rep == 1,
	}
	spec, err := json.Marshal(assignment)
	if err != nil {
		return err
	}
	out, in := io.Pipe()
	taken := make(chan error, 1)
	var failure string
	go func() {
		err := o.take(out, w, progress, &failure)
		_ = out.CloseWithError(err) // a worker whose words are not understood must not wait for ever
		taken <- err
	}()
	err = netns.Reexec(ctx, bytes.NewReader(spec), in, o.Stderr, nil, o.WorkerArgs...)
	_ = in.Close()
	takeErr := <-taken
	if failure != "" {
		err = errors.New(failure)
	}
	return errors.Join(killed(err), takeErr)
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

// take reads the worker's messages until it ends.
func (o *ExecuteOptions) take(r io.Reader, w *RunWriter, progress Progress, failure *string) error {
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
			*failure = m.Failure
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
	if err := json.NewDecoder(in).Decode(&a); err != nil {
		return fmt.Errorf("assignment: %w", err)
	}
	say := newSpeaker(out)
	if lab.User {
		say.message(message{UserNamespace: true})
	}
	err = perform(ctx, lab, a, say)
	if err != nil && ctx.Err() == nil {
		say.message(message{Failure: err.Error()})
	}
	return errors.Join(say.err(), lab.Close()) // the parent tells of the failure, or of the interruption
}
