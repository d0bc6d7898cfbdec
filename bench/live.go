package bench

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"syscall"

	"synclab/bench/pass"
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
