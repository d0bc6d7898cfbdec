package terminal

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"synclab/bench"
)

// Progress shows the progress of a run. On a terminal it is a bar per stage with its rate and the time left, elsewhere a
// line per stage, and more lines while it lasts.
type Progress struct {
	W        io.Writer
	Terminal bool
	Bar      *progressbar.ProgressBar
	stage    string // of the current bar or line
	began    time.Time
	Told     time.Time
}

// LineEvery is the time between lines of a long stage.
const LineEvery = 10 * time.Second

func NewProgress(w io.Writer) *Progress {
	return &Progress{W: w, Terminal: term.IsTerminal(Descriptor(w))}
}

// Descriptor returns the descriptor of a stream's file; -1: none.
func Descriptor(w io.Writer) int {
	if p, ok := w.(*Printable); ok {
		w = p.W
	}
	if f, ok := w.(*os.File); ok {
		return int(f.Fd())
	}
	return -1
}

func (p *Progress) Show(at bench.Progress) {
	title := ""
	if at.Passes > 0 { // 0: nothing is measured yet
		title = fmt.Sprintf("[%d/%d] %s %s rep %d: ", at.Pass, at.Passes, at.Subject, at.Cell, at.Rep)
	}
	if at.Note != "" {
		if p.Bar != nil {
			_ = p.Bar.Clear() // the next update draws it again, below the note
		}
		fmt.Fprintf(p.W, "%s%s\n", title, at.Note)
		return
	}
	if stage := title + at.Stage; stage != p.stage {
		p.End()
		p.stage, p.began, p.Told = stage, time.Now(), time.Now()
		if p.Terminal {
			p.Bar = NewBar(p.W, stage, at.Total)
		} else {
			fmt.Fprintln(p.W, stage)
		}
	}
	switch {
	case p.Bar != nil && at.Total > 0:
		p.Bar.ChangeMax(at.Total)
		_ = p.Bar.Set(at.Done)
	case p.Bar != nil:
		_ = p.Bar.Add(1)
	case at.Total > 0 && time.Since(p.Told) >= LineEvery:
		p.Told = time.Now()
		left := time.Duration(float64(time.Since(p.began)) * float64(at.Total-at.Done) / float64(max(at.Done, 1)))
		fmt.Fprintf(p.W, "%s: %d of %d, %s left\n", p.stage, at.Done, at.Total, left.Round(time.Second))
	}
}

// End closes the current bar.
func (p *Progress) End() {
	if p.Bar != nil {
		_ = p.Bar.Finish()
		fmt.Fprintln(p.W)
		p.Bar = nil
	}
	p.stage = ""
}

func NewBar(w io.Writer, title string, total int) *progressbar.ProgressBar {
	if total == 0 {
		total = -1 // a spinner
	}
	if p, ok := w.(*Printable); ok {
		w = p.W // a bar needs control characters
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
