package reports

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"synclab/bench/outfile"
	"synclab/bench/raw"
	"synclab/reports/comparison"
	"synclab/reports/front"
	"synclab/reports/plots"
	"synclab/reports/records"
	"synclab/reports/sections"
)

// Options of Build.
type Options struct {
	// SLOs are checked at the measured sizes. None: comparison.ReportSLOs.
	SLOs comparison.SLOs
	// NoPNG leaves out the PNG of each plot. The page uses only the SVG.
	NoPNG bool
}

// RunsError says why Build cannot read its runs. It has written nothing then.
type RunsError struct{ err error }

func (e *RunsError) Error() string { return e.err.Error() }
func (e *RunsError) Unwrap() error { return e.err }

// Build reads the run folders and writes every derived file into out (OutFolder when empty): bench.txt, summary.json,
// summary.md, the plots and index.html. It replaces the files of an earlier Build.
func Build(dirs []string, out string, opts Options) (*sections.Summary, error) {
	if len(dirs) == 0 {
		return nil, errors.New("no run folder to report on")
	}
	runs, err := records.LoadAll(dirs)
	if err != nil {
		return nil, &RunsError{err}
	}
	if out == "" {
		if out, err = records.OutFolder(dirs); err != nil {
			return nil, err
		}
	}
	folder, err := outfile.MakeFolder(out)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	s := sections.Summarize(runs, cmp.Or(opts.SLOs, comparison.ReportSLOs))
	if err := plots.Draw(s, folder, !opts.NoPNG); err != nil {
		return nil, err
	}
	s.Verdict = front.Verdict(s)
	page := front.Document(s)
	for _, output := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{"bench.txt", func(w io.Writer) error { return writeBench(w, runs) }}, {"summary.json", func(w io.Writer) error { return writeJSON(s, w) }},
		{"summary.md", page.Markdown}, {"index.html", page.Page},
	} {
		if err := folder.WriteWith(output.name, 0o644, output.write); err != nil {
			return nil, fmt.Errorf("%s: %w", output.name, err)
		}
	}
	return s, nil
}

// writeBench writes every raw sample of every run, one line each, for benchstat.
func writeBench(w io.Writer, runs []*records.Run) error {
	var parts []*records.Run // each was measured on one machine
	for _, l := range runs {
		if l.Shards == nil {
			parts = append(parts, l)
		}
		parts = append(parts, l.Shards...)
	}
	for _, l := range parts {
		records := func(yield func(raw.Record, error) bool) {
			for _, r := range l.Records {
				if !yield(r, nil) {
					return
				}
			}
		}
		if err := raw.WriteBench(w, l.Info, records); err != nil {
			return err
		}
	}
	return nil
}

var controls = regexp.MustCompile("[\u007f-\u009f]")

// writeJSON escapes the control characters that package json leaves as they are: names in files of others have them.
func writeJSON(s *sections.Summary, w io.Writer) error {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(s); err != nil {
		return err
	}
	_, err := io.WriteString(w, controls.ReplaceAllStringFunc(text.String(), func(c string) string { return fmt.Sprintf(`\u%04x`, []rune(c)[0]) }))
	return err
}
