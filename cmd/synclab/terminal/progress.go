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
	began   time.Time
	at      bench.Progress
	ends    time.Time // estimated; zero: unknown
	latest  string
	lines   int // on the screen now
	told    time.Time
	stop    chan struct{}
	stopped sync.WaitGroup
}

// LineEvery is the least time between two lines of progress.
const LineEvery = 10 * time.Second

// redrawEvery is the least time between two changes of the screen.
const redrawEvery = 100 * time.Millisecond

func NewProgress(w io.Writer) *Progress {
	p := &Progress{w: w, terminal: term.IsTerminal(Descriptor(w)), began: time.Now()}
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
		fmt.Fprintf(p.w, "%s%s\n", title(at), at.Note)
		p.draw()
		return
	}
	if at.Left > 0 && (at.Pass != p.at.Pass || p.ends.IsZero()) {
		p.ends = time.Now().Add(at.Left)
	}
	if len(at.Figures) > 0 {
		p.latest = at.Subject + " " + at.Cell + ": " + figures(at.Figures)
	}
	p.at = at
	switch {
	case !p.terminal:
		if time.Since(p.told) >= LineEvery {
			p.told = time.Now()
			fmt.Fprintf(p.w, "%s%s%s\n", title(at), step(at), p.left())
		}
	case p.stop == nil:
		p.keepDrawing()
		p.draw()
	case time.Since(p.told) >= redrawEvery:
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
	p.told = time.Now()
	for _, line := range p.text(p.width()) {
		fmt.Fprintln(p.screen(), line)
		p.lines++
	}
}

// text is what a terminal of a width shows.
func (p *Progress) text(width int) []string {
	share, count := 0.0, "preparing"
	if p.at.Passes > 0 {
		count = fmt.Sprintf("%d of %d", p.at.Pass, p.at.Passes)
		share = float64(p.at.Pass-1) / float64(p.at.Passes)
		if p.at.Total > 0 {
			share += float64(p.at.Done) / float64(p.at.Total) / float64(p.at.Passes)
		}
	} else if p.at.Pass > 0 {
		count = fmt.Sprintf("number %d", p.at.Pass)
		share = float64(time.Since(p.began)) / float64(p.ends.Sub(p.began)) // of the budget
	}
	const bar = 24
	full := min(max(int(share*bar), 0), bar)
	head := fmt.Sprintf("%s  %s  %s%s", strings.Repeat("█", full)+strings.Repeat("░", bar-full), count, duration(time.Since(p.began)), p.left())
	if p.at.Pass == 0 || p.at.Passes == 0 && p.ends.IsZero() || width < 60 {
		head = fmt.Sprintf("%s  %s%s", count, duration(time.Since(p.began)), p.left())
	}
	now := step(p.at)
	if p.at.Subject != "" {
		now = fmt.Sprintf("now     %s %s, repetition %d: %s", p.at.Subject, p.at.Cell, p.at.Rep, now)
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

// title names the repetition; empty before the first one.
func title(at bench.Progress) string {
	switch {
	case at.Passes > 0:
		return fmt.Sprintf("[%d/%d] %s %s rep %d: ", at.Pass, at.Passes, at.Subject, at.Cell, at.Rep)
	case at.Pass > 0:
		return fmt.Sprintf("[%d] %s %s rep %d: ", at.Pass, at.Subject, at.Cell, at.Rep)
	}
	return ""
}

// step is the current step, and how much of it is done.
func step(at bench.Progress) string {
	switch {
	case len(at.Figures) > 0:
		return figures(at.Figures)
	case at.Total > 0:
		return fmt.Sprintf("%s, %d of %d", at.Stage, at.Done, at.Total)
	}
	return at.Stage
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
	left := time.Until(p.ends)
	if p.ends.IsZero() || left < 0 {
		return ""
	}
	if p.at.Passes == 0 {
		return ", at most " + duration(left) + " left"
	}
	return ", about " + duration(left) + " left"
}

// duration rounds to seconds, from ten minutes on to minutes.
func duration(d time.Duration) string {
	if d >= 10*time.Minute {
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return d.Round(time.Second).String()
}
