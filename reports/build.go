package reports

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"synclab/bench"
	"synclab/bench/outfile"
)

// Options of Build.
type Options struct {
	// Promise is what the capacity section judges by. Zero fields take the defaults.
	Promise Promise
	// NoPNG leaves the PNG of each plot out: SVG only, which is what the page uses.
	NoPNG bool
}

// Plot is one figure of the report.
type Plot struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Caption string `json:"caption"`
	SVG     string `json:"svg"`           // file name
	PNG     string `json:"png,omitempty"` // file name

	markup []byte // the SVG, for the page
}

// Build reads the run folders and writes every derived file into out (OutFolder when empty): bench.txt,
// summary.json, summary.md, the plots and index.html. Whatever was there of an earlier Build is replaced.
func Build(dirs []string, out string, opts Options) (*Summary, error) {
	if len(dirs) == 0 {
		return nil, errors.New("no run folder to report on")
	}
	if out == "" {
		out = OutFolder(dirs)
	}
	runs, err := loadRuns(dirs)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}
	s := summarize(runs, opts.Promise.withDefaults())
	if err := s.draw(out, opts); err != nil {
		return nil, err
	}
	outputs := []struct {
		name  string
		write func(*bytes.Buffer) error
	}{
		{"bench.txt", func(b *bytes.Buffer) error { return writeBench(b, runs) }},
		{"summary.json", func(b *bytes.Buffer) error { return s.writeJSON(b) }},
		{"summary.md", func(b *bytes.Buffer) error { return s.writeMarkdown(b) }},
		{"index.html", func(b *bytes.Buffer) error { return s.writePage(b) }},
	}
	for _, output := range outputs {
		var b bytes.Buffer
		if err := output.write(&b); err != nil {
			return nil, fmt.Errorf("%s: %w", output.name, err)
		}
		if err := outfile.Write(filepath.Join(out, output.name), b.Bytes(), 0o644); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// writeBench writes every raw sample of every run, one line each, for benchstat.
func writeBench(b *bytes.Buffer, runs []*loadedRun) error {
	var parts []*loadedRun // each of one machine
	for _, l := range runs {
		if l.shards == nil {
			parts = append(parts, l)
		}
		parts = append(parts, l.shards...)
	}
	for _, l := range parts {
		records := func(yield func(bench.Record, error) bool) {
			for _, r := range l.records {
				if !yield(r, nil) {
					return
				}
			}
		}
		if err := bench.WriteBench(b, l.run, records); err != nil {
			return err
		}
	}
	return nil
}

func (s *Summary) writeJSON(b *bytes.Buffer) error {
	encoder := json.NewEncoder(b)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(s)
}
