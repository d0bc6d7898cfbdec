package reproduce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"synclab/bench/outfile"
	"synclab/bench/verify/shrink"
)

const (
	// A call is superlinear if twice the Services take more than 2^leastExponent times as long.
	leastExponent = 1.4
	// enough is how many seconds a shrunk call should take: then the start of the tool hardly matters.
	enough = 1.0
	// fewest is the number of Services to begin with.
	fewest = 64
)

// Small is a shrunk input.
type Small struct {
	Services, Lines int     // that are left
	Of              int     // Services before
	Seconds         float64 // of CPU, without calls before
	Exponent        float64 // between half of its Services and all
	Stopped         bool    // by the budget
}

// Shrink makes the input of the reproducer in dir smaller, for as long as ctx lasts. nil: the call is not superlinear.
func (c *Case) Shrink(ctx context.Context, dir string, note func(string)) (*Small, error) {
	path := filepath.Join(dir, SmallFile)
	small, text, err := smaller(ctx, c.Input, note, func(input []byte) (float64, error) {
		if err := outfile.Write(path, input, 0o644); err != nil {
			return 0, err
		}
		took, err := Measure(ctx, dir, SmallFile)
		if len(c.Before) > 0 {
			return took.Seconds, err
		}
		return took.CPU, err // other work of the machine does not change it
	})
	if err != nil || small == nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return small, outfile.Write(path, text, 0o644)
}

// smaller makes an input smaller. measure returns how many seconds the tool takes for one: of CPU, if that is known.
func smaller(ctx context.Context, input []byte, note func(string), measure func([]byte) (float64, error)) (*Small, []byte, error) {
	lines, owners := readLines(input)
	if owners < 2 {
		return nil, nil, errors.New("its lines do not show to which Services they belong")
	}
	try := func(services int, without []string) (seconds, exponent float64, err error) {
		all, err := measure(first(lines, services, without))
		if err != nil {
			return 0, 0, err
		}
		half, err := measure(first(lines, services/2, without))
		return all, math.Log2(all / half), err
	}
	small := &Small{Of: owners}
	for n := min(fewest, owners); ; n = min(2*n, owners) {
		seconds, exponent, err := try(n, nil)
		if err != nil {
			return nil, nil, err
		}
		note(fmt.Sprintf("%d of %d Services take %.3g s, exponent %.2f", n, owners, seconds, exponent))
		small.Services, small.Seconds, small.Exponent = n, seconds, exponent
		if exponent >= leastExponent && seconds >= enough || n == owners {
			break
		}
	}
	if small.Exponent < leastExponent {
		return nil, nil, nil
	}
	least := small.Seconds / 2
	kinds := func(gone []string) (left []string) {
		for _, l := range lines {
			if !slices.Contains(left, l.kind) && !slices.Contains(gone, l.kind) {
				left = append(left, l.kind)
			}
		}
		return left
	}
	search := shrink.Search[[]string]{ // kinds of lines that are left out
		Passes: []shrink.Pass[[]string]{shrink.Parts(kinds, func(gone, some []string) []string { return slices.Concat(gone, some) })},
		Fails: func(ctx context.Context, gone []string) (bool, error) {
			seconds, exponent, err := try(small.Services, gone)
			if err != nil || ctx.Err() != nil || seconds < least || exponent < leastExponent {
				return false, nil // an input that the tool refuses is none; one that is out of time is not taken
			}
			small.Seconds, small.Exponent = seconds, exponent
			note(fmt.Sprintf("%d kinds of lines left: %.3g s, exponent %.2f", len(kinds(gone)), seconds, exponent))
			return true, nil
		},
	}
	gone, err := search.Minimize(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	small.Stopped = ctx.Err() != nil
	text := first(lines, small.Services, gone)
	small.Lines = bytes.Count(text, []byte("\n"))
	return small, text, nil
}
