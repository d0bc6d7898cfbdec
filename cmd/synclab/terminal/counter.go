package terminal

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Counter shows how much of one piece of work is done: a bar on a terminal, elsewhere a line at the start and then at
// most one in ten seconds.
type Counter struct {
	w     io.Writer
	title string
	bar   *progressbar.ProgressBar
	shown time.Time
}

// NewCounter begins with none of total done; 0: total is unknown.
func NewCounter(w io.Writer, title string, total int) *Counter {
	c := &Counter{w: w, title: title, shown: time.Now()}
	if !term.IsTerminal(Descriptor(w)) {
		fmt.Fprintln(w, title)
		return c
	}
	if p, ok := w.(*Printable); ok {
		c.w = p.W // a bar needs control characters
	}
	options := []progressbar.Option{progressbar.OptionSetWriter(c.w), progressbar.OptionSetDescription(printableText(title)), progressbar.OptionSetPredictTime(true),
		progressbar.OptionSetElapsedTime(true), progressbar.OptionSpinnerType(14), progressbar.OptionFullWidth(), progressbar.OptionThrottle(65 * time.Millisecond)}
	if total == 0 {
		total = -1 // a spinner
	} else {
		options = append(options, progressbar.OptionShowCount(), progressbar.OptionShowIts())
	}
	c.bar = progressbar.NewOptions(total, options...)
	return c
}

// Show shows how much is done; total 0: unknown.
func (c *Counter) Show(done, total int) {
	switch {
	case c.bar != nil:
		if total > 0 {
			c.bar.ChangeMax(total)
		}
		_ = c.bar.Set(done)
	case time.Since(c.shown) >= LineEvery:
		c.shown = time.Now()
		of := ""
		if total > 0 {
			of = fmt.Sprintf(" of %d", total)
		}
		fmt.Fprintf(c.w, "%s: %d%s\n", c.title, done, of)
	}
}

// End closes the bar.
func (c *Counter) End() {
	if c.bar != nil {
		_ = c.bar.Finish()
		fmt.Fprintln(c.w)
		c.bar = nil
	}
}
