package records

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"synclab/bench/outfile"
	"synclab/bench/raw"
	"synclab/reports/doc"
	"synclab/scenarios"
)

// Run is one run folder in memory, or the shards of one sweep.
type Run struct {
	Dir      string
	Info     raw.Run
	Records  []raw.Record
	Warnings []string

	Shards  []*Run          // the shards that it was merged from; nil: a run in one piece
	Missing []int           // numbers of shards of the sweep without a folder
	mixed   map[cellID]bool // cells with repetitions from several machines
}

// Load reads a run folder, or a folder of shards as one run.
func Load(dir string) (*Run, error) {
	if shards := ShardsIn(dir); len(shards) > 0 {
		return loadShards(dir, shards)
	}
	return loadFolder(dir)
}

// MaxShards is the largest number of shards in a sweep. It bounds the list of missing shards.
const MaxShards = 10_000

// loadFolder reads a run folder. A crashed machine may leave the last line of records.jsonl incomplete: the reader
// skips that line, and the report warns.
func loadFolder(dir string) (*Run, error) {
	run, records, err := raw.ReadRun(dir)
	if err != nil {
		return nil, err
	}
	if run.ID == "" {
		run.ID = filepath.Base(dir)
	}
	if s := run.Shard; s != nil && (s.Shard < 0 || s.Of <= s.Shard || s.Of > MaxShards) {
		return nil, fmt.Errorf("%s: shard %d of %d: shards count from 0, and there are at most %d", filepath.Join(dir, "run.json"), s.Shard, s.Of, MaxShards)
	}
	for _, target := range run.Scenario.Targets {
		if !scenarios.KnownFigure(target.Figure) {
			return nil, fmt.Errorf("%s: target of unknown figure %q: use a newer synclab or change the scenario", filepath.Join(dir, "run.json"), target.Figure)
		}
	}
	l := &Run{Dir: dir, Info: run, Records: records}
	if text := kernelWarning(run.Kernels); text != "" {
		l.Warnings = append(l.Warnings, text)
	}
	torn, err := endsTorn(filepath.Join(dir, "records.jsonl"))
	if err != nil {
		return nil, err
	}
	if torn {
		l.Warnings = append(l.Warnings, "the last line of records.jsonl is incomplete and was skipped")
	}
	return l, nil
}

// kernelWarning says what numbers of User-mode Linux kernels are good for; empty without such a kernel.
func kernelWarning(kernels map[string]string) string {
	var guests []string
	for _, name := range slices.Sorted(maps.Keys(kernels)) {
		if name != raw.HostKernel {
			guests = append(guests, name+" ("+kernels[name]+")")
		}
	}
	if len(guests) == 0 {
		return ""
	}
	return "kernel " + doc.JoinWords(guests) + " ran as User-mode Linux: one CPU, slow system calls, slow page faults, a slow clock. " +
		"Compare subjects within a kernel, and their growth and ratios between kernels. Do not compare times between kernels, and do not use its first-packet times."
}

// endsTorn reports whether a file ends in the middle of a line.
func endsTorn(path string) (bool, error) {
	f, err := outfile.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || size == 0 {
		return false, err
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, size-1); err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return last[0] != '\n', nil
}
