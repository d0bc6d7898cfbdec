package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"synclab/bench"
	"synclab/reports/doc"
)

// Progress shows the progress of a run. On a terminal it is a few lines that change in place: how much is done, the time
// left, the current step, and the figures of the repetition that ended last. Elsewhere it is a line at most every ten
// seconds. Notes are separate lines.
type Progress struct {
	w        io.Writer
	terminal bool
	width    func() int

	mu      sync.Mutex
	state   State
	latest  string
	lines   int // on the screen now
	shown   time.Time
	stop    chan struct{}
	stopped sync.WaitGroup
}

// LineEvery is the least time between two lines of progress.
const LineEvery = 10 * time.Second

// redrawEvery is the least time between two changes of the screen.
const redrawEvery = 100 * time.Millisecond

func NewProgress(w io.Writer) *Progress {
	p := &Progress{w: w, terminal: term.IsTerminal(Descriptor(w)), state: State{Began: time.Now()}}
	p.width = func() int {
		if width, _, err := term.GetSize(Descriptor(w)); err == nil && width > 0 {
			return width
		}
		return 80
	}
	return p
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

// Show shows an event.
func (p *Progress) Show(at bench.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at.Note != "" {
		p.clear()
		fmt.Fprintln(p.w, NoteLine(at))
		p.draw()
		return
	}
	if len(at.Figures) > 0 {
		p.latest = at.Subject + " " + at.Cell + ": " + figures(at.Figures)
	}
	p.state.Take(at)
	switch {
	case !p.terminal:
		if time.Since(p.shown) >= LineEvery {
			p.shown = time.Now()
			fmt.Fprintf(p.w, "%s%s%s\n", title(at), step(at), p.left())
		}
	case p.stop == nil:
		p.keepDrawing()
		p.draw()
	case time.Since(p.shown) >= redrawEvery:
		p.clear()
		p.draw()
	}
}

// keepDrawing draws once a second, so that the time goes on.
func (p *Progress) keepDrawing() {
	p.stop = make(chan struct{})
	stop := p.stop
	p.stopped.Go(func() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				p.mu.Lock()
				p.clear()
				p.draw()
				p.mu.Unlock()
			}
		}
	})
}

// End removes the lines from the screen.
func (p *Progress) End() {
	p.mu.Lock()
	stop := p.stop
	p.stop = nil
	p.mu.Unlock()
	if stop != nil {
		close(stop)
		p.stopped.Wait()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

// screen writes control characters, which Printable would escape.
func (p *Progress) screen() io.Writer {
	if printable, ok := p.w.(*Printable); ok {
		return printable.W
	}
	return p.w
}

// clear removes the lines that draw wrote.
func (p *Progress) clear() {
	if p.lines > 0 {
		fmt.Fprintf(p.screen(), "\r\x1b[%dA\x1b[J", p.lines)
		p.lines = 0
	}
}

// draw writes the lines, cut to the terminal's width.
func (p *Progress) draw() {
	if p.stop == nil {
		return
	}
	p.shown = time.Now()
	for _, line := range p.text(p.width()) {
		fmt.Fprintln(p.screen(), line)
		p.lines++
	}
}

// text is what a terminal of a width shows.
func (p *Progress) text(width int) []string {
	const bar = 24
	at := p.state.At
	full := min(max(int(p.state.Share()*bar), 0), bar)
	head := fmt.Sprintf("%s  %s  %s%s", strings.Repeat("█", full)+strings.Repeat("░", bar-full), p.state.Count(), Duration(time.Since(p.state.Began)), p.left())
	if _, known := p.state.Left(); at.Pass == 0 || at.Passes == 0 && !known || width < 60 {
		head = fmt.Sprintf("%s  %s%s", p.state.Count(), Duration(time.Since(p.state.Began)), p.left())
	}
	now := step(at)
	if at.Subject != "" {
		now = fmt.Sprintf("now     %s %s, repetition %d: %s", at.Subject, at.Cell, at.Rep, now)
	}
	lines := []string{head, now}
	if p.latest != "" {
		lines = append(lines, "latest  "+p.latest)
	}
	for i, line := range lines {
		if runes := []rune(printableText(line)); len(runes) >= width {
			lines[i] = string(runes[:max(width-2, 0)]) + "…"
		} else {
			lines[i] = string(runes)
		}
	}
	return lines
}

// step is the current step, and how much of it is done.
func step(at bench.Progress) string {
	if len(at.Figures) > 0 {
		return figures(at.Figures)
	}
	return Step(at)
}

// figures are those of a repetition.
func figures(all []bench.Figure) string {
	var parts []string
	for _, f := range all {
		parts = append(parts, f.Name+" "+doc.Format(f.Median, "s"))
	}
	return strings.Join(parts, ", ")
}

// left is the estimate of the time left.
func (p *Progress) left() string {
	left, ok := p.state.Left()
	if !ok {
		return ""
	}
	if p.state.At.Passes == 0 {
		return ", at most " + Duration(left) + " left"
	}
	return ", about " + Duration(left) + " left"
}
