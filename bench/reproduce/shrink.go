package reproduce

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"synclab/bench/outfile"
	"synclab/bench/shrink"
)

const (
	// A call is superlinear if twice the Services take more than 2^leastExponent times as long.
	leastExponent = 1.4
	// enough is how long a shrunk call should take: then the start of the tool hardly matters.
	enough = time.Second
)

// Small is a shrunk input.
type Small struct {
	Services, Lines int // that are left
	Of              int // Services before
	Seconds         float64
	Exponent        float64 // between half of its Services and all
	Stopped         bool    // by the budget
}

// Shrink makes the input of the reproducer in dir smaller, for as long as ctx lasts. nil: the call is not superlinear.
func (c *Case) Shrink(ctx context.Context, dir string, note func(string)) (small *Small, err error) {
	lines, owners := readLines(c.Input)
	defer func() {
		if small == nil {
			_ = os.Remove(filepath.Join(dir, SmallFile)) // the last try
		}
	}()
	if owners < 2 {
		return nil, errors.New("the lines of its Services cannot be told apart")
	}
	s := &shrinking{ctx: ctx, dir: dir, lines: lines}
	best := Small{Of: owners}
	for n := min(64, owners); ; n = min(2*n, owners) {
		seconds, exponent, err := s.try(n, nil)
		if err != nil {
			return nil, err
		}
		note(fmt.Sprintf("%d of %d Services take %.3g s, exponent %.2f", n, owners, seconds, exponent))
		if exponent >= leastExponent && seconds >= enough.Seconds() || n == owners {
			best.Services, best.Seconds, best.Exponent = n, seconds, exponent
			break
		}
	}
	if best.Exponent < leastExponent {
		return nil, nil
	}
	least := best.Seconds / 2
	var gone []string
	items := func() []string {
		var kinds []string
		for _, l := range lines {
			if !slices.Contains(kinds, l.kind) && !slices.Contains(gone, l.kind) {
				kinds = append(kinds, l.kind)
			}
		}
		return kinds
	}
	err = shrink.Drop(items, func(some []string) (bool, error) {
		seconds, exponent, err := s.try(best.Services, slices.Concat(gone, some))
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if err != nil || seconds < least || exponent < leastExponent {
			return false, nil // an input that the tool refuses is none
		}
		gone = slices.Concat(gone, some)
		best.Seconds, best.Exponent = seconds, exponent
		note(fmt.Sprintf("%d kinds of lines left: %.3g s, exponent %.2f", len(items()), seconds, exponent))
		return true, nil
	})
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, err
	}
	best.Stopped = err != nil
	text := first(lines, best.Services, gone)
	for _, b := range text {
		if b == '\n' {
			best.Lines++
		}
	}
	return &best, outfile.Write(filepath.Join(dir, SmallFile), text, 0o644)
}

// shrinking measures parts of an input.
type shrinking struct {
	ctx   context.Context
	dir   string
	lines []line
}

// try measures the first Services without some kinds of lines, and the exponent from half of them on.
func (s *shrinking) try(services int, without []string) (seconds, exponent float64, err error) {
	all, err := s.measure(services, without)
	if err != nil {
		return 0, 0, err
	}
	half, err := s.measure(services/2, without)
	return all, math.Log2(all / half), err
}

func (s *shrinking) measure(services int, without []string) (float64, error) {
	if err := outfile.Write(filepath.Join(s.dir, SmallFile), first(s.lines, services, without), 0o644); err != nil {
		return 0, err
	}
	return Measure(s.ctx, s.dir, SmallFile)
}
