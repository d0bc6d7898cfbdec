package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/client-go/kubernetes"

	"synclab/bench/outfile"
	"synclab/sim"
	"synclab/sim/live"
)

// recordTrace follows a cluster for some time. It writes to out, as lines of JSON, the first state and every change.
// When ctx ends, it ends early without an error.
func recordTrace(ctx context.Context, s streams, client kubernetes.Interface, host, out string, length time.Duration) error {
	var summary live.Summary
	var took time.Duration
	write := func(w io.Writer) error {
		encoder := live.NewEncoder(w)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var began time.Time
		begun := false
		follow := live.Options{
			Snapshot: func(o *sim.Objects) error {
				begun, began = true, time.Now()
				time.AfterFunc(length, cancel)
				fmt.Fprintf(s.err, "%d Services, %d EndpointSlices and %d Nodes of %s; following them for %v, or until Ctrl-C\n", len(o.Services), len(o.Slices), len(o.Nodes), host, length)
				return encoder.Snapshot(o)
			},
			Change:  encoder.Change,
			Trouble: func(err error) { fmt.Fprintln(s.err, "follow the cluster:", err) },
		}
		var err error
		summary, err = live.Follow(ctx, client, follow)
		if err == nil && !begun {
			return errors.Join(errors.New("interrupted before all objects were listed"), ctx.Err())
		}
		took = time.Since(began)
		return err
	}
	var err error
	if out == "-" {
		err = write(s.out)
	} else {
		err = outfile.WriteWith(out, 0o600, write)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(s.err, "%v:\n%s", took.Round(time.Second), &summary)
	return nil
}
