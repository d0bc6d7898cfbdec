package reports

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"synclab/bench"
)

// loadedRun is one run folder in memory.
type loadedRun struct {
	dir      string
	run      *bench.Run
	records  []bench.Record
	warnings []string
}

// loadRun reads a run folder. The last line of records.jsonl may be torn, as a killed run leaves it: it is left out with
// a warning. A broken line anywhere else is an error, since then the file is not what a run wrote.
func loadRun(dir string) (*loadedRun, error) {
	l := &loadedRun{dir: dir, run: &bench.Run{}}
	path := filepath.Join(dir, "run.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s is not a run folder: %w", dir, err)
	}
	if err := json.Unmarshal(text, l.run); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if l.run.ID == "" {
		l.run.ID = filepath.Base(dir)
	}
	if err := l.readRecords(filepath.Join(dir, "records.jsonl")); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *loadedRun) readRecords(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		l.warnings = append(l.warnings, "no records.jsonl: nothing was measured")
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()

	lines := bufio.NewReaderSize(f, 1<<20)
	for number := 1; ; number++ {
		line, readErr := lines.ReadBytes('\n')
		if readErr != nil && !errors.Is(readErr, io.EOF) {
			return fmt.Errorf("%s: %w", path, readErr)
		}
		last := readErr != nil
		if len(line) > 0 {
			var record bench.Record
			switch err := json.Unmarshal(line, &record); {
			case err == nil:
				l.records = append(l.records, record)
			case last:
				l.warnings = append(l.warnings, fmt.Sprintf("the last line of records.jsonl (line %d) is torn and was left out", number))
			default:
				return fmt.Errorf("%s:%d: %w", path, number, err)
			}
		}
		if last {
			return nil
		}
	}
}
