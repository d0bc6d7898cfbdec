package terminal

import (
	"encoding/json"
	"io"
	"path/filepath"
	"time"

	"synclab/bench"
	"synclab/reports/doc"
	"synclab/reports/sections"
)

// event is a line of --json. Times are in seconds.
type event struct {
	Event   string         `json:"event"` // progress, note, done
	Time    time.Time      `json:"time"`
	Subject string         `json:"subject,omitempty"`
	Cell    string         `json:"cell,omitempty"`
	Rep     int            `json:"rep,omitempty"`
	Pass    int            `json:"pass,omitempty"`
	Passes  int            `json:"passes,omitempty"`
	Stage   string         `json:"stage,omitempty"`
	Done    int            `json:"done,omitempty"`
	Total   int            `json:"total,omitempty"`
	Left    float64        `json:"left_s,omitempty"`
	Note    string         `json:"note,omitempty"`
	Figures []bench.Figure `json:"figures,omitempty"`
	Folder  string         `json:"folder,omitempty"`
	Page    string         `json:"page,omitempty"`
	Verdict []doc.Line     `json:"verdict,omitempty"`
}

// Events writes events, one JSON object a line.
type Events struct{ encoder *json.Encoder }

func NewEvents(w io.Writer) Events { return Events{json.NewEncoder(w)} }

func (w Events) Progress(p bench.Progress) {
	e := event{Event: "progress", Time: time.Now(), Subject: p.Subject, Cell: p.Cell, Rep: p.Rep, Pass: p.Pass, Passes: p.Passes,
		Stage: p.Stage, Done: p.Done, Total: p.Total, Left: p.Left.Seconds(), Note: p.Note, Figures: p.Figures}
	if p.Note != "" {
		e.Event = "note"
	}
	_ = w.encoder.Encode(e) // without a reader, the run goes on
}

func (w Events) Done(dir string, summary *sections.Summary) error {
	return w.encoder.Encode(event{Event: "done", Time: time.Now(), Folder: dir, Page: filepath.Join(dir, "index.html"), Verdict: summary.Verdict})
}
