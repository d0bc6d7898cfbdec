package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"synclab/bench/outfile"
	"synclab/bench/raw"
	"synclab/reports/records"
	"synclab/reports/sections"
)

// Read reads run folders, folders of run folders, summaries (summary.json) and history files. The entries are in the
// order of their starts, each run once. leftOut names runs that are not complete.
func Read(paths []string) (all []Entry, leftOut []string, err error) {
	for _, path := range paths {
		some, err := read(path)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, some...)
	}
	slices.SortStableFunc(all, func(a, b Entry) int { return a.Run.Started.Compare(b.Run.Started) })
	all = slices.CompactFunc(all, func(a, b Entry) bool { return a.Run.ID == b.Run.ID && a.Run.Started.Equal(b.Run.Started) })
	complete := all[:0]
	for _, e := range all {
		if e.Run.Status == raw.StatusComplete {
			complete = append(complete, e)
		} else {
			leftOut = append(leftOut, e.Run.ID)
		}
	}
	if len(complete) == 0 {
		return nil, nil, errors.New("no complete run: name run folders, their summary.json, or a file of --history")
	}
	return complete, leftOut, nil
}

func read(path string) ([]Entry, error) {
	stat, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !stat.IsDir():
		return readFile(path)
	case isRun(path):
		return readFolder(path)
	}
	children, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var all []Entry
	for _, child := range children {
		dir := filepath.Join(path, child.Name())
		if !isRun(dir) {
			continue
		}
		some, err := readFolder(dir)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: neither a run nor a folder of runs", path)
	}
	return all, nil
}

func isRun(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, raw.RunFile))
	return err == nil || len(records.ShardsIn(dir)) > 0
}

func readFolder(dir string) ([]Entry, error) {
	run, err := records.Load(dir)
	if err != nil {
		return nil, err
	}
	return []Entry{entryOf(run)}, nil
}

// readFile reads a history file, or a summary.
func readFile(path string) ([]Entry, error) {
	text, err := outfile.Read(path)
	if err != nil {
		return nil, err
	}
	var all []Entry
	for number, line := range bytes.Split(text, []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err == nil && e.Run.ID != "" {
			all = append(all, e)
			continue
		}
		if number == 0 {
			return readSummary(path, text)
		}
		return nil, fmt.Errorf("%s:%d: not a line of a history: remove it, or name another file", path, number+1)
	}
	return all, nil
}

// readSummary reads a summary.json of one run. It has fewer figures than the run's folder.
func readSummary(path string, text []byte) ([]Entry, error) {
	var s sections.Summary
	if err := json.Unmarshal(text, &s); err != nil || len(s.Runs) == 0 {
		return nil, fmt.Errorf("%s: neither a history nor a summary.json", path)
	}
	if len(s.Runs) > 1 {
		return nil, fmt.Errorf("%s: a summary of %d runs: name the runs' own folders or summaries", path, len(s.Runs))
	}
	head := s.Runs[0]
	e := Entry{Run: raw.Run{ID: head.Dir, Started: head.Started, Finished: head.Finished, Status: head.Status, Command: head.Command, Subjects: head.Subjects, Reps: head.Reps,
		Seed: head.Seed, Feed: head.Feed, Observed: head.Observed, Versions: head.Versions, Machine: head.Machine, Kernels: head.Kernels}}
	e.Run.Scenario.Name = head.Scenario
	for _, m := range s.Figures {
		for _, f := range m.Figures {
			e.Figures = append(e.Figures, Figure{Subject: m.Subject, Cell: m.Cell, Estimate: f})
		}
	}
	return []Entry{e}, nil
}
