package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/scenarios"
	"synclab/sim/live"
)

// tell sends a worker its assignment and then, with a live cluster, all changes of that cluster. The worker has no
// network: this process follows the cluster for it. finish ends that and returns the error.
func (o *ExecuteOptions) tell(ctx context.Context, a pass.Assignment) (stdin *os.File, finish func() error, err error) {
	spec, err := json.Marshal(a)
	if err != nil {
		return nil, nil, err
	}
	stdin, words, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		defer words.Close()
		_, err := words.Write(spec)
		if err == nil && o.Live != nil {
			err = o.follow(ctx, words)
		}
		if errors.Is(err, syscall.EPIPE) {
			err = nil // the worker has ended, and reports the reason itself
		}
		done <- err
	}()
	return stdin, func() error { cancel(); stdin.Close(); return <-done }, nil
}

// follow writes the live cluster's objects and changes until ctx ends.
func (o *ExecuteOptions) follow(ctx context.Context, w io.Writer) error {
	encoder := live.NewEncoder(w)
	summary, err := live.Follow(ctx, o.Live, live.Options{
		Snapshot: encoder.Snapshot, Change: encoder.Change,
		Trouble: func(err error) { o.Progress(Progress{Stage: "follow", Note: "follow the cluster: " + err.Error()}) },
	})
	if summary.Lost() {
		o.Progress(Progress{Stage: "follow", Note: "some changes of the cluster were missed:\n" + summary.String()})
	}
	return err
}

// followStep applies the followed cluster's changes as they come. A change that came before the step is due when the
// step begins.
func (r *repetition) followStep(ctx context.Context, f *scenarios.Follow, name string) error {
	if r.live == nil {
		return errors.New("step follow has no cluster: name one with --kubeconfig")
	}
	start := r.Clock.Now()
	ctx, cancel := context.WithDeadline(ctx, start.Add(f.For))
	defer cancel()
	r.Followed = true
	made := 0
	defer func() { r.RecordAs(raw.Record{}, raw.ChangesApplied, float64(made)) }()
	for {
		r.Messages.Stage(name, int(r.Clock.Since(start)/time.Second), int(f.For/time.Second))
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				return nil
			}
			return context.Cause(ctx)
		case next, ok := <-r.arriving:
			if !ok {
				return fmt.Errorf("following the cluster ended: %w", r.liveErr)
			}
			due := next.At
			if due.Before(start) {
				due = start
			}
			r.Events.Change(next.Op, next.Object, due)
			if err := r.Cluster.Apply(ctx, next.Change); err != nil && ctx.Err() == nil {
				return err
			}
			made++
		}
	}
}

// ahead is how many changes of a live cluster may wait for a follow step, for instance during a long cold start. Beyond
// it the API server has to wait, and ends the watches if that lasts.
const ahead = 1 << 16

// readChanges reads the live cluster's changes as they come.
func (r *repetition) readChanges() {
	r.arriving = make(chan live.Change, ahead)
	go func() {
		defer close(r.arriving)
		for {
			next, err := r.live.Next()
			if err != nil {
				r.liveErr = err
				return
			}
			r.arriving <- next
		}
	}()
}
