package shim

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"synclab/bench/lab/temporary"
)

// The measured tool only reads its input. Its name makes the shim copy the input through a pipe, as for a restore.
const (
	costTool = "cost-restore"
	reader   = "wc"
)

// Cost measures what the shim adds to a call on this machine. It makes n pairs of calls of a command that only reads
// size bytes from a pipe, in turns through a shim and without. A sample is the difference of a pair. It may be
// negative, and includes writing the line. These calls are not among the calls of s.
func (s *Shim) Cost(ctx context.Context, n, size int) ([]time.Duration, error) {
	// Not in the folder of s: a subject may write there, and the programs run without its confinement.
	dir, err := temporary.New("")
	if err != nil {
		return nil, fmt.Errorf("shim: cost: %w", err)
	}
	defer dir.Remove()
	measured, err := Install(ctx, Options{Dir: dir.Path, Tools: []string{}, Command: s.command})
	if err != nil {
		return nil, err
	}
	direct, err := measured.find(reader)
	if err == nil {
		err = measured.put(costTool, direct)
	}
	if err != nil {
		return nil, fmt.Errorf("shim: cost: %w", err)
	}
	payload := make([]byte, size)
	run := func(path string) (time.Duration, error) {
		cmd := exec.CommandContext(ctx, path, "-c")
		cmd.Stdin = bytes.NewReader(payload)
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
		with, err := run(filepath.Join(measured.Path(), costTool))
		if err != nil {
			return costs, fmt.Errorf("shim: cost: %w", err)
		}
		costs = append(costs, with-without)
	}
	return costs, nil
}
