package reports

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"synclab/bench/outfile"
	"synclab/bench/raw"
	"synclab/scenarios"
)

// loadedRun is one run folder in memory, or the shards of one sweep.
type loadedRun struct {
	dir      string
	run      raw.Run
	records  []raw.Record
	warnings []string

	shards  []*loadedRun    // the shards that it was merged from; nil: a run in one piece
	missing []int           // numbers of shards of the sweep without a folder
	mixed   map[cellID]bool // cells with repetitions from several machines
}

// loadRun reads a run folder, or a folder of shards as one run.
func loadRun(dir string) (*loadedRun, error) {
	if shards := ShardsIn(dir); len(shards) > 0 {
		return loadShards(dir, shards)
	}
	return loadFolder(dir)
}

// maxShards is the largest number of shards in a sweep. It bounds the list of missing shards.
const maxShards = 10_000

// loadFolder reads a run folder. A crashed machine may leave the last line of records.jsonl incomplete: the reader
// skips that line, and the report warns.
func loadFolder(dir string) (*loadedRun, error) {
	run, records, err := raw.ReadRun(dir)
	if err != nil {
		return nil, err
	}
	if run.ID == "" {
		run.ID = filepath.Base(dir)
	}
	if s := run.Shard; s != nil && (s.Shard < 1 || s.Of < s.Shard || s.Of > maxShards) {
		return nil, fmt.Errorf("%s: shard %d of %d: want 1 to %d", filepath.Join(dir, "run.json"), s.Shard, s.Of, maxShards)
	}
	for _, target := range run.Scenario.Targets {
		if !scenarios.KnownFigure(target.Figure) {
			return nil, fmt.Errorf("%s: target of unknown figure %q: use a newer synclab or change the scenario", filepath.Join(dir, "run.json"), target.Figure)
		}
	}
	l := &loadedRun{dir: dir, run: run, records: records}
	torn, err := endsTorn(filepath.Join(dir, "records.jsonl"))
	if err != nil {
		return nil, err
	}
	if torn {
		l.warnings = append(l.warnings, "the last line of records.jsonl is incomplete and was skipped")
	}
	return l, nil
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
