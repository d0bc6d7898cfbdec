package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"synclab/bench"
)

// progress shows the progress of a run. On a terminal it is a bar per stage with its rate and the time left, elsewhere a
// line per stage, and more lines while it lasts.
type progress struct {
	w        io.Writer
	terminal bool
	bar      *progressbar.ProgressBar
	stage    string // of the current bar or line
	began    time.Time
	told     time.Time
}

// lineEvery is the time between lines of a long stage.
const lineEvery = 10 * time.Second

func newProgress(w io.Writer) *progress {
	return &progress{w: w, terminal: term.IsTerminal(descriptor(w))}
}

// descriptor returns the descriptor of a stream's file; -1: none.
func descriptor(w io.Writer) int {
	if p, ok := w.(*printable); ok {
		w = p.w
	}
	if f, ok := w.(*os.File); ok {
		return int(f.Fd())
	}
	return -1
}

func (p *progress) show(at bench.Progress) {
	title := ""
	if at.Passes > 0 { // 0: nothing is measured yet
		title = fmt.Sprintf("[%d/%d] %s %s rep %d: ", at.Pass, at.Passes, at.Subject, at.Cell, at.Rep)
	}
	if at.Note != "" {
		if p.bar != nil {
			_ = p.bar.Clear() // the next update draws it again, below the note
		}
		fmt.Fprintf(p.w, "%s%s\n", title, at.Note)
		return
	}
	if stage := title + at.Stage; stage != p.stage {
		p.end()
		p.stage, p.began, p.told = stage, time.Now(), time.Now()
		if p.terminal {
			p.bar = newBar(p.w, stage, at.Total)
		} else {
			fmt.Fprintln(p.w, stage)
		}
	}
	switch {
	case p.bar != nil && at.Total > 0:
		p.bar.ChangeMax(at.Total)
		_ = p.bar.Set(at.Done)
	case p.bar != nil:
		_ = p.bar.Add(1)
	case at.Total > 0 && time.Since(p.told) >= lineEvery:
		p.told = time.Now()
		left := time.Duration(float64(time.Since(p.began)) * float64(at.Total-at.Done) / float64(max(at.Done, 1)))
		fmt.Fprintf(p.w, "%s: %d of %d, %s left\n", p.stage, at.Done, at.Total, left.Round(time.Second))
	}
}

// end closes the current bar.
func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Finish()
		fmt.Fprintln(p.w)
		p.bar = nil
	}
	p.stage = ""
}

func newBar(w io.Writer, title string, total int) *progressbar.ProgressBar {
	if total == 0 {
		total = -1 // a spinner
	}
	if p, ok := w.(*printable); ok {
		w = p.w // a bar needs control characters
	}
	options := []progressbar.Option{
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription(printableText(title)),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionSetElapsedTime(true),
		progressbar.OptionSpinnerType(14),
		progressbar.OptionFullWidth(),
		progressbar.OptionThrottle(65 * time.Millisecond),
	}
	if total > 0 {
		options = append(options, progressbar.OptionShowCount(), progressbar.OptionShowIts())
	}
	return progressbar.NewOptions(total, options...)
}
