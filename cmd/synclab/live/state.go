package live

import (
	"slices"
	"sync"
	"time"

	"synclab/bench"
	"synclab/cmd/synclab/terminal"
	"synclab/reports/doc"
	"synclab/reports/sections"
)

// Limits of what is kept for the page.
const (
	mostNotes  = 20
	mostPoints = 60 // of a sparkline
)

// state is what the events have said so far.
type state struct {
	mu      sync.Mutex
	run     terminal.State
	ended   int // repetitions
	rows    []*row
	notes   []string // the newest first
	noted   int
	verdict []doc.Line
	folder  string        // name of the run's; empty: the run goes on
	changed chan struct{} // closed by the next change
}

// row has the figures of one subject in one cell.
type row struct {
	subject, cell string
	ended         int              // repetitions with figures
	figures       [][]bench.Figure // by kind of figure, the newest value last
}

func newState() *state {
	return &state{run: terminal.State{Began: time.Now()}, changed: make(chan struct{})}
}

// change makes a change, and wakes those that wait for it.
func (s *state) change(apply func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	apply()
	close(s.changed)
	s.changed = make(chan struct{})
}

// Show takes an event of the run's progress.
func (s *state) Show(at bench.Progress) {
	s.change(func() {
		if at.Note != "" {
			s.noted++
			s.notes = slices.Insert(s.notes, 0, terminal.NoteLine(at))
			s.notes = s.notes[:min(len(s.notes), mostNotes)]
			return
		}
		s.run.Take(at)
		s.ended = max(s.ended, at.Pass-1)
		if len(at.Figures) > 0 {
			s.ended = at.Pass
			s.rowOf(at).add(at.Figures)
		}
	})
}

// Done takes the result of a complete run.
func (s *state) Done(summary *sections.Summary) {
	s.change(func() { s.folder, s.verdict = summary.Runs[0].Dir, summary.Verdict })
}

func (s *state) rowOf(at bench.Progress) *row {
	i := slices.IndexFunc(s.rows, func(r *row) bool { return r.subject == at.Subject && r.cell == at.Cell })
	if i < 0 {
		i = len(s.rows)
		s.rows = append(s.rows, &row{subject: at.Subject, cell: at.Cell})
	}
	return s.rows[i]
}

func (r *row) add(figures []bench.Figure) {
	r.ended++
	for _, f := range figures {
		i := slices.IndexFunc(r.figures, func(all []bench.Figure) bool { return all[0].Metric == f.Metric })
		if i < 0 {
			i = len(r.figures)
			r.figures = append(r.figures, nil)
		}
		all := append(r.figures[i], f)
		r.figures[i] = all[max(0, len(all)-mostPoints):]
	}
}
