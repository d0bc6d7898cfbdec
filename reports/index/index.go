// Package index makes the front page of a folder of runs: each run with its verdict, and how its main figure went from
// run to run.
package index

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"synclab/bench/outfile"
	"synclab/bench/raw"
	"synclab/reports/doc"
	"synclab/reports/records"
)

// run is what the page shows of one run. Its JSON is a part of summary.json.
type run struct {
	Title   string     `json:"title"`
	Verdict []doc.Line `json:"verdict"`
	Runs    []struct {
		Started  time.Time `json:"started"`
		Status   string    `json:"status"`
		Scenario string    `json:"scenario"`
		Subjects []string  `json:"subjects"`
	} `json:"runs"`
	Rows []struct {
		Series string       `json:"series"`
		Cell   records.Cell `json:"cell"`
		Metric raw.Metric   `json:"metric"`
		Median float64      `json:"median"`
	} `json:"rows"`

	dir string
}

// headlines are the metrics of the figure that is followed, the best first.
var headlines = []struct {
	metric raw.Metric
	text   string
}{{raw.Reaction, "reaction"}, {raw.NetworkProgrammingLatency, "network programming latency"}, {raw.ColdStart, "cold start"}}

// read reads the runs below a folder, the newest first. unread names run folders without a report.
func read(folder string) (all []run, unread []string, err error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, nil, err
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		text, err := outfile.Read(filepath.Join(folder, entry.Name(), "summary.json"))
		if errors.Is(err, fs.ErrNotExist) {
			if _, err := os.Stat(filepath.Join(folder, entry.Name(), "run.json")); err == nil {
				unread = append(unread, entry.Name())
			}
			continue
		}
		one := run{dir: entry.Name()}
		if err != nil || json.Unmarshal(text, &one) != nil || len(one.Runs) == 0 {
			unread = append(unread, entry.Name())
			continue
		}
		all = append(all, one)
	}
	slices.SortStableFunc(all, func(a, b run) int { return b.Runs[0].Started.Compare(a.Runs[0].Started) })
	return all, unread, nil
}

// figure is a run's main figure: of its first subject, at the largest size. ok: there is one.
func (r run) figure() (key, text string, value float64, ok bool) {
	for _, h := range headlines {
		best := -1
		for i, row := range r.Rows {
			if row.Metric == h.metric && (best < 0 || row.Series == r.Rows[best].Series && row.Cell.Services > r.Rows[best].Cell.Services) {
				best = i
			}
		}
		if best >= 0 {
			row := r.Rows[best]
			size := records.SizesText([]records.Cell{row.Cell})
			return r.Runs[0].Scenario + " " + h.text + " " + row.Series + " " + size, h.text + " of " + row.Series + " at " + size, row.Median, true
		}
	}
	return "", "", 0, false
}

// Document is the front page of a folder.
func Document(folder string) (*doc.Document, error) {
	all, unread, err := read(folder)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no run with a report: 'synclab report RUN' makes one", folder)
	}
	t := &doc.Table{Columns: []doc.Column{{Name: "Run"}, {Name: "Started", On: doc.Page}, {Name: "What", On: doc.Page}, {Name: "Verdict"}, {Name: "Main figure", Numeric: true}, {Name: "From run to run", On: doc.Page}}}
	history, total := map[string][]float64{}, map[string]int{}
	for _, r := range all {
		if key, _, _, ok := r.figure(); ok {
			total[key]++
		}
	}
	rows := make([][]doc.Cell, len(all))
	for i, r := range slices.Backward(all) { // the oldest first
		head := r.Runs[0]
		verdict := doc.Cell{Text: "–"}
		if len(r.Verdict) > 0 {
			verdict = doc.Cell{Text: strings.TrimSpace(r.Verdict[0].Level.Mark() + " " + r.Verdict[0].Text), Loud: r.Verdict[0].Level == doc.Bad}
			verdict.Terminal = doc.Shorten(verdict.Text, 60)
		}
		value, spark := doc.None(), doc.Cell{}
		if key, text, median, ok := r.figure(); ok {
			history[key] = append(history[key], median)
			value = doc.Value(median, "s")
			value.Sub = text
			spark = doc.Cell{Text: fmt.Sprintf("%d of %s", len(history[key]), doc.Plural(total[key], "run")), Spark: slices.Clone(history[key])}
		}
		what := r.Title
		for _, own := range r.Runs {
			if own.Status != raw.StatusComplete {
				what += " (" + cmp.Or(own.Status, "unknown status") + ")"
				break
			}
		}
		rows[i] = []doc.Cell{{Text: r.dir, Link: filepath.ToSlash(filepath.Join(r.dir, "index.html"))}, doc.Text(head.Started.UTC().Format("2006-01-02 15:04")),
			{Text: what, Sub: doc.JoinWords(head.Subjects)}, verdict, value, spark}
	}
	t.Rows = rows
	s := doc.Section{ID: "runs", Title: "Runs", Filter: true}
	s.Add(doc.Block{Table: t})
	if len(unread) > 0 {
		s.Add(doc.Block{Warn: true, Heading: "Without a readable report", List: unread})
	}
	return &doc.Document{Kind: "synclab index", Title: "Runs in " + filepath.Base(folder), Subtitle: doc.Plural(len(all), "run") + ", the newest first",
		Sections: []doc.Section{s}, Footer: "Made by <code>synclab index</code> from the summaries of the runs."}, nil
}
