package live

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"synclab/bench"
	"synclab/bench/raw"
	"synclab/cmd/synclab/terminal"
	"synclab/reports/doc"
)

// page is the whole page.
func (s *Server) page() ([]byte, error) {
	d, _ := s.document()
	var b bytes.Buffer
	err := d.Page(&b)
	return b.Bytes(), err
}

// sections are the page's sections as the data of an event. changed is closed when they are out of date.
func (s *Server) sections() (data []byte, changed <-chan struct{}, err error) {
	d, changed := s.document()
	var b bytes.Buffer
	if err := d.PageSections(&b); err != nil {
		return nil, nil, err
	}
	data, err = json.Marshal(b.String())
	return data, changed, err
}

// document is the page's content. All its sections are there from the start, so that a page can replace them.
func (s *Server) document() (*doc.Document, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &doc.Document{Kind: "synclab, live", Title: s.title, Live: eventsPath, Sections: []doc.Section{s.now(), s.latest(), s.remarks()},
		Footer: `Figures are medians of one repetition; npl is network programming latency. <a href="` + metricsPath + `">Metrics</a> for Prometheus.`}, s.changed
}

// now is the progress, or the result.
func (s *state) now() doc.Section {
	at := s.run.At
	out := doc.Section{ID: "now", Title: "Progress"}
	if s.folder != "" {
		out.Add(doc.Block{Verdict: s.verdict, Note: "The run is complete. Its folder: " + s.folder})
	}
	spent := terminal.Duration(time.Since(s.run.Began)) + " so far"
	if left, ok := s.run.Left(); ok && s.folder == "" {
		spent += ", about " + terminal.Duration(left) + " left"
	}
	tile := doc.Tile{Title: "Repetitions", Note: spent, Rows: []doc.TileRow{{Name: doc.Text("this one"), Value: doc.Text(s.run.Count()), Share: s.run.Share()}}}
	if at.Stage != "" {
		tile.Rows = append(tile.Rows, doc.TileRow{Name: doc.Text("step"), Value: doc.Text(terminal.Step(at)), Share: terminal.StepShare(at)})
	}
	block := doc.Block{Tiles: []doc.Tile{tile}}
	if at.Subject != "" {
		block.Facts = [][2]string{{"Subject", at.Subject}, {"Cell", at.Cell}, {"Repetition of the cell", fmt.Sprint(at.Rep)}}
	}
	out.Add(block)
	return out
}

// latest has the figures of the repetition of each subject and cell that ended last, and lines of the earlier ones.
func (s *state) latest() doc.Section {
	out := doc.Section{ID: "latest", Title: "Latest figures"}
	if len(s.rows) == 0 {
		out.Add(doc.Block{Note: "No repetition has ended yet."})
		return out
	}
	var metrics []raw.Metric
	fields := []doc.Field[*row]{
		{Column: doc.Column{Name: "Subject"}, Cell: func(r *row) doc.Cell { return doc.Text(r.subject) }},
		{Column: doc.Column{Name: "Cell", Row: true}, Cell: func(r *row) doc.Cell { return doc.Text(r.cell) }},
		{Column: doc.Column{Name: "Ended", Numeric: true, Title: "repetitions that ended"}, Cell: func(r *row) doc.Cell { return doc.Int(r.ended) }},
	}
	for _, r := range s.rows {
		for _, all := range r.figures {
			metric := all[0].Metric
			if slices.Contains(metrics, metric) {
				continue
			}
			metrics = append(metrics, metric)
			fields = append(fields, doc.Field[*row]{Column: doc.Column{Name: all[0].Name, Numeric: true}, Cell: func(r *row) doc.Cell { return r.cellOf(metric) }})
		}
	}
	out.Add(doc.Block{Table: doc.TableOf(s.rows, fields...)})
	return out
}

func (r *row) cellOf(metric raw.Metric) doc.Cell {
	i := slices.IndexFunc(r.figures, func(all []bench.Figure) bool { return all[0].Metric == metric })
	if i < 0 {
		return doc.None()
	}
	var spark []float64
	for _, f := range r.figures[i] {
		spark = append(spark, f.Median)
	}
	cell := doc.Value(spark[len(spark)-1], "s")
	cell.Spark = spark
	return cell
}

func (s *state) remarks() doc.Section {
	out := doc.Section{ID: "notes", Title: "Notes"}
	if s.noted == 0 {
		out.Add(doc.Block{Note: "None yet: failed syncs and the like are listed here."})
		return out
	}
	out.Add(doc.Block{Note: fmt.Sprintf("The newest of %d:", s.noted), Soft: true, List: slices.Clone(s.notes)})
	return out
}
