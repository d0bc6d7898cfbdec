package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"synclab/bench/virtual"
)

// virtualOptions of `synclab soak --virtual`.
type virtualOptions struct {
	hours float64 // that each seed's proxier lives, virtually
	seeds int
	seed  uint64 // the first one
}

// errViolations: a promise was broken; what and how to see it again was printed.
var errViolations = errors.New("promises were broken")

// minimizeFor is how long a script that breaks a promise is made shorter.
const minimizeFor = 3 * time.Minute

// runVirtualSoak lets the proxiers of some seeds live in virtual time, each in a process of its own: as many at a time as
// there are processors.
func runVirtualSoak(ctx context.Context, stdout, stderr io.Writer, o virtualOptions) error {
	if o.seeds == 0 {
		o.seeds = 1
	}
	if o.hours == 0 {
		o.hours = 24
	}
	began := time.Now()
	seeds := make(chan uint64)
	var mu sync.Mutex
	var all []virtual.Outcome
	var errs []error
	var workers sync.WaitGroup
	for range min(o.seeds, runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for seed := range seeds {
				outcome, err := virtualSeed(ctx, stderr, seed, o.hours)
				mu.Lock()
				if err != nil {
					errs = append(errs, err)
				} else {
					all = append(all, outcome)
					printOutcome(stdout, outcome, o.hours)
				}
				mu.Unlock()
			}
		})
	}
	for i := 0; i < o.seeds && ctx.Err() == nil; i++ {
		seeds <- o.seed + uint64(i)
	}
	close(seeds)
	workers.Wait()
	broken := printSum(stdout, all, time.Since(began))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if broken > 0 {
		errs = append(errs, fmt.Errorf("%w with %d of %d seeds", errViolations, broken, o.seeds))
	}
	return errors.Join(errs...)
}

// virtualSeed runs one seed in a process of its own, on one processor.
func virtualSeed(ctx context.Context, stderr io.Writer, seed uint64, hours float64) (virtual.Outcome, error) {
	task, err := json.Marshal(virtual.Task{Seed: seed, Length: time.Duration(hours * float64(time.Hour)), Minimize: minimizeFor})
	if err != nil {
		return virtual.Outcome{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return virtual.Outcome{}, err
	}
	cmd := exec.CommandContext(ctx, self, "worker", "--virtual")
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	cmd.Stdin = bytes.NewReader(task)
	var told, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &told, &complaints
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return virtual.Outcome{}, ctx.Err()
		}
		fmt.Fprintf(stderr, "%s\n", complaints.Bytes())
		return virtual.Outcome{}, fmt.Errorf("seed %d: %s; again with: %s", seed, err, replayCommand(seed, hours))
	}
	var outcome virtual.Outcome
	if err := json.Unmarshal(told.Bytes(), &outcome); err != nil {
		return outcome, fmt.Errorf("seed %d: %w", seed, err)
	}
	if outcome.Error != "" {
		return outcome, fmt.Errorf("seed %d: %s", seed, outcome.Error)
	}
	return outcome, nil
}

func replayCommand(seed uint64, hours float64) string {
	return fmt.Sprintf("synclab soak --virtual --seed %d --hours %g", seed, hours)
}

func printOutcome(w io.Writer, o virtual.Outcome, hours float64) {
	r := o.Report
	fmt.Fprintf(w, "seed %d: %s: %v in %v; %d changes, %d faults, %d proxiers killed, %d full syncs, %d partial, %d failed, checked %d times; digest %s\n",
		r.Seed, r.Setting, r.Lived.Round(time.Minute), o.Took.Round(100*time.Millisecond), r.Changes, r.Faults, r.Killed,
		r.Full, r.Partial, r.Failed, r.Calms+r.Looks, r.Digest)
	v := r.Violation
	if v == nil {
		return
	}
	fmt.Fprintf(w, "  BROKEN after %v, at action %d: %s\n  %s\n  the last actions:\n    %s\n",
		v.At.Round(time.Second), v.Action, v.Invariant, v.Detail, strings.Join(v.Recent, "\n    "))
	if len(o.Fewer) > 0 {
		fmt.Fprintf(w, "  these %d break it, too:\n    %s\n", len(o.Fewer), strings.Join(o.Fewer, "\n    "))
	}
	fmt.Fprintf(w, "  again with: %s\n", replayCommand(r.Seed, hours))
}

// printSum adds the seeds up, and says how many broke a promise.
func printSum(w io.Writer, all []virtual.Outcome, took time.Duration) (broken int) {
	var lived time.Duration
	changes, faults, syncs, checks := 0, 0, 0, 0
	for _, o := range all {
		lived += o.Report.Lived
		changes += o.Report.Changes
		faults += o.Report.Faults
		syncs += o.Report.Full + o.Report.Partial + o.Report.Failed
		checks += o.Report.Calms + o.Report.Looks
		if o.Report.Violation != nil {
			broken++
		}
	}
	fmt.Fprintf(w, "%d seeds, %.0f simulated hours in %v: %d changes, %d faults, %d syncs, %d checks, %d violations\n",
		len(all), lived.Hours(), took.Round(time.Second), changes, faults, syncs, checks, broken)
	return broken
}

// workVirtual does the task of a seed, told on stdin, and ends the process.
func workVirtual(s streams) error {
	var task virtual.Task
	if err := json.NewDecoder(s.in).Decode(&task); err != nil {
		return fmt.Errorf("task: %w", err)
	}
	virtual.Main(task, s.out)
	return nil
}
