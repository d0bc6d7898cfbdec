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

	"synclab/scenarios"
	"synclab/sim/live"
)

// tell gives a worker its assignment and, with a live cluster, all that happens there from now on. The worker has no
// network: this process follows the cluster for it. told ends that and says what went wrong.
func (o *ExecuteOptions) tell(ctx context.Context, a Assignment) (stdin *os.File, told func() error, err error) {
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
			err = nil // the worker has ended, and says why itself
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
		Trouble: func(err error) { o.Progress(Progress{Stage: "follow", Note: "the cluster: " + err.Error()}) },
	})
	if summary.Lost() {
		o.Progress(Progress{Stage: "follow", Note: "changes of the cluster were lost on the way:\n" + summary.String()})
	}
	return err
}

// followStep makes the changes that the followed cluster makes, as they come. A change that came before the step began
// is due when it begins.
func (r *repetition) followStep(ctx context.Context, f *scenarios.Follow, name string) error {
	if r.live == nil {
		return errors.New("there is no cluster to follow: name one with --kubeconfig")
	}
	start := r.clock.Now()
	ctx, cancel := context.WithDeadline(ctx, start.Add(f.For))
	defer cancel()
	r.followed = true
	made := 0
	defer func() { r.recordAs(Record{Unit: "count"}, Played, float64(made)) }()
	for {
		r.say.stage(name, int(r.clock.Since(start)/time.Second), int(f.For/time.Second))
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				return nil
			}
			return context.Cause(ctx)
		case next, ok := <-r.arriving:
			if !ok {
				return fmt.Errorf("the cluster is not followed any more: %w", r.liveErr)
			}
			due := next.At
			if due.Before(start) {
				due = start
			}
			r.expect(next.Op, next.Object, due)
			if err := r.cluster.Apply(ctx, next.Change); err != nil && ctx.Err() == nil {
				return err
			}
			made++
		}
	}
}

// ahead is how many changes of a live cluster may wait for the step that makes them, through a long cold start say,
// before the server has to wait, and ends the watches if that lasts.
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
