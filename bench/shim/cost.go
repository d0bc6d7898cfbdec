package shim

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// trivial does nothing: its calls are all cost.
const trivial = "true"

// Cost measures what the shim adds to a call on this machine: n pairs of calls of a command that does nothing, one
// through a shim and one without, in turns. A sample is the difference of a pair and may be negative; it includes the
// line that is written. The calls are not among those of s.
func (s *Shim) Cost(ctx context.Context, n int) ([]time.Duration, error) {
	dir, err := os.MkdirTemp(s.dir, "cost-*")
	if err != nil {
		return nil, fmt.Errorf("shim: cost: %w", err)
	}
	defer os.RemoveAll(dir)
	measured, err := Install(ctx, Options{Dir: dir, Tools: []string{trivial}, Command: s.command})
	if err != nil {
		return nil, err
	}
	direct, err := measured.find(trivial)
	if err != nil {
		return nil, fmt.Errorf("shim: cost: %w", err)
	}
	run := func(path string) (time.Duration, error) {
		cmd := exec.CommandContext(ctx, path)
		start := time.Now()
		err := cmd.Run()
		return time.Since(start), err
	}
	var costs []time.Duration
	for range n {
		without, err := run(direct)
		if err != nil {
			return costs, fmt.Errorf("shim: cost: %w", err)
		}
		with, err := run(filepath.Join(measured.Path(), trivial))
		if err != nil {
			return costs, fmt.Errorf("shim: cost: %w", err)
		}
		costs = append(costs, with-without)
	}
	return costs, nil
}
